"""DataFrame pipelines: wiring of the engine-free rooms to Spark, the only place of pyspark."""
