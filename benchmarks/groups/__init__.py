"""Upserts into buckets of several file groups, beside as many buckets of one file group each."""
