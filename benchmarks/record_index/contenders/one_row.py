"""The batch of one row, the same for every system on Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from benchmarks.common.rows import DataSet


def one_row(spark: SparkSession, data: DataSet) -> DataFrame:
    """Return the first row of the changes, which the table has already."""
    file = min(data.changes.glob("*.parquet"))
    return spark.read.parquet(str(file)).limit(1)
