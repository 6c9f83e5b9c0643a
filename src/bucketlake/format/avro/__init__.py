"""Avro: schemas, records and their bytes."""
