"""Load, upsert and read: bucketlake beside Hudi, Delta and a bare merge."""
