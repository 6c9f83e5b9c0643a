"""Merges records with the same key, in Arrow, column by column."""
