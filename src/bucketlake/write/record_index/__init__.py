"""Writes under a record-level index: look keys up, place new keys, write index entries."""
