"""The contenders of the benchmark of file groups."""
