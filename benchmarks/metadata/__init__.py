"""What the metadata table costs: the same writes of bucketlake with and without it."""
