"""The metadata table: reading and maintaining the indexes that Hudi keeps beside the data."""
