"""Cache of the record-level index on local disk: the file groups of the keys of index shards."""
