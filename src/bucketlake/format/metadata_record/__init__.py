"""Records of the metadata table: values and keys of its partitions."""
