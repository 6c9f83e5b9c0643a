"""What Spark 4 finds by itself: it looks for ``DefaultSource`` in modules named ``pyspark_*``."""

from bucketlake.spark.data_source import BucketLakeSource as DefaultSource

__all__ = ["DefaultSource"]
