"""File slices of the metadata table: reading, log files, compaction and cleaning."""
