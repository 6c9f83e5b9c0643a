"""Bytes at paths: local disk, object stores, memory; one narrow seam and its twins."""
