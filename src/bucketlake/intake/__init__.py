"""From a source to tables, batch after batch: landing zones, topics of Kafka, streams of Spark."""
