"""Registering the data source in a session; PySpark 3.5 has no data sources in Python."""

from __future__ import annotations

import pyspark
from pyspark.sql import SparkSession

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.spark.worker_python import explained, own_python

_NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
_PUSHES = "spark.sql.python.filterPushdown.enabled"


def register_source(spark: SparkSession) -> None:
    """Register the data source.

    Raises
    ------
    UnsupportedFeatureError
        If PySpark is older than 4.
    ConfigError
        If the Python of Spark's workers cannot import bucketlake.
    """
    if pyspark.__version__.startswith("3."):
        raise UnsupportedFeatureError(
            "a data source in Python",
            f"PySpark {pyspark.__version__}",
            "read tables with bl.open_table(path).read(spark), or install PySpark 4",
        )
    from bucketlake.spark.data_source import KEEPS_SCANS_APART, BucketLakeSource

    if not _is_found(spark):  # Spark warns of a second registration.
        with own_python(spark):
            spark.dataSource.register(BucketLakeSource)
        _is_found(spark)
    if KEEPS_SCANS_APART:
        spark.conf.set(_PUSHES, "true")


def _is_found(spark: SparkSession) -> bool:
    """Return whether Spark finds the format; raise ConfigError if its Python cannot import it.

    Spark looks for it when a table is loaded, and then the source misses the path of the table.
    """
    try:
        spark.read.format("bucketlake").load()
    except Exception as error:  # Of Spark, or of the JVM.
        problem = explained(error, spark)
        if problem is not None:
            raise problem from error
        return _NOT_FOUND not in str(error)
    return True
