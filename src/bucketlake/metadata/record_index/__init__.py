"""The record-level index in the metadata table: its shards, entries and locations."""
