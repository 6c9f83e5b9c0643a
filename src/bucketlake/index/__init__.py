"""From key to file group: the bucket indexes."""
