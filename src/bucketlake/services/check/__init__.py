"""Finds what is wrong with a table, and repairs it."""
