"""Builds the metadata table and its record-level index, or turns them off."""
