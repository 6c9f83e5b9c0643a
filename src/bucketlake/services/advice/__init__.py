"""Advice about a table, or about data before there is a table: facts, rules, calls."""
