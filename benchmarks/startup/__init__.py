"""A job in a fresh process: a first load, a first upsert; beside plain Parquet, Delta and Hudi."""
