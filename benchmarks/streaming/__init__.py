"""A long stream into dynamic buckets, and small batches into a small and into a large table."""
