"""Change streams: messages of Kafka become rows of a table, their deletes and their positions."""
