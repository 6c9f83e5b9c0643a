"""Registering the data source in a session; PySpark 3.5 has no data sources in Python."""

from __future__ import annotations

import pyspark
from pyspark.sql import SparkSession

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.spark.worker_python import own_python

_PUSHES = "spark.sql.python.filterPushdown.enabled"


def register_source(spark: SparkSession) -> None:
    """Register the data source.

    Raises
    ------
    UnsupportedFeatureError
        If PySpark is older than 4.
    """
    if pyspark.__version__.startswith("3."):
        raise UnsupportedFeatureError(
            "a data source in Python",
            f"PySpark {pyspark.__version__}",
            "read tables with bl.open_table(path).read(spark), or install PySpark 4",
        )
    from bucketlake.spark.data_source import KEEPS_SCANS_APART, BucketLakeSource

    with own_python(spark):
        spark.dataSource.register(BucketLakeSource)
    if KEEPS_SCANS_APART:
        spark.conf.set(_PUSHES, "true")
