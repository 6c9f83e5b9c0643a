"""Another bucket count for one partition of many, or for all: bucketlake beside Hudi."""
