"""Pure array functions: hash of a key, bucket of a hash."""
