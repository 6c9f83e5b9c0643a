"""Pruning: the partitions and file groups that a read with a condition can skip."""
