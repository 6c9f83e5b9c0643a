"""The engine primitive: stages of work, in threads here or in tasks of Spark (``spark/``)."""
