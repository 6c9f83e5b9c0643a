"""Resizing buckets of a hash ring: which split or merge, and the service that does it."""
