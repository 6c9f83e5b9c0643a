"""Offline changes of a table's buckets: rescale, and conversion to another index."""
