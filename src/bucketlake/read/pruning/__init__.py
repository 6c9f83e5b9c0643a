"""What a condition lets a read pass over: partitions, file groups."""
