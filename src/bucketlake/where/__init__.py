"""The condition of a read: SQL text in Spark's dialect, its tree, and a filter of Arrow data."""
