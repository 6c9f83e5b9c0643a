"""Nouns of a Hudi table without I/O: names of files, slices, statistics, keys, schemas."""
