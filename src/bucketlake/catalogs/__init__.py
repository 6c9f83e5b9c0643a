"""Catalogs: what a table's entry is, how it is compared with the one that is there, and kept."""
