"""Dynamic buckets: writes beside the other kinds, Hudi and Delta; their cache, index and sizes."""
