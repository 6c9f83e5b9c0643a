"""The systems that the contenders are: bucketlake, Hudi, Delta, plain Parquet, a bare merge."""
