"""Bytes to values and back: properties, Avro records, Parquet base files."""
