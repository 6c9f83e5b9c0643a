"""The condition of a read: SQL text in Spark's dialect, its syntax tree, a filter for Arrow."""
