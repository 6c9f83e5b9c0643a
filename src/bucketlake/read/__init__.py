"""Reads of a table: file-system view, pruning, snapshots, time travel."""
