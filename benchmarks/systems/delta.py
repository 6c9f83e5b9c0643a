"""Delta Lake's MERGE with deletion vectors, on Spark 3.5.

Settings, and why a Delta engineer should agree with each:

- Deletion vectors on: an update writes the new rows and a bitmap instead of whole files.
- Partitioned by region, and the merge condition names the partition column too, so that only
  touched partitions are read and rows meet within their partition.
- The update is conditional on the ordering column, which is what Hudi and bucketlake do.
- `merge.materializeSource=none`: the source is plain Parquet files, read the same way each time,
  so the copy that guards against a changing source is not needed.
- `snapshotPartitions=2`: the log's state is rebuilt in 50 tasks by default, meant for clusters.
- Auto compaction and optimised writes off: their cost would not show in what is measured.
- Shuffle partitions as given under SHUFFLE_PARTITIONS; adaptive execution joins small ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.common.rows import KEY, ORDERING, PARTITION, DataSet
from benchmarks.systems.spark import SparkSystem

COORDINATES = "io.delta:delta-spark_2.12:3.3.2"
SHUFFLE_PARTITIONS = "8"
SESSION = {
    "spark.jars.packages": COORDINATES,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.autoCompact.enabled": "false",
    "spark.databricks.delta.optimizeWrite.enabled": "false",
}


class DeltaMerge(SparkSystem):
    """Load by append, upsert by MERGE."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings, SESSION)
        self.versions = {"delta": COORDINATES}

    def load(self, data: DataSet, table: Path) -> None:
        """Append the first rows."""
        rows = self.spark.read.parquet(str(data.load))
        rows.write.format("delta").partitionBy(PARTITION).save(str(table))

    def upsert(self, data: DataSet, table: Path) -> None:
        """Merge the changes."""
        self.spark.read.parquet(str(data.changes)).createOrReplaceTempView("changes")
        self.spark.sql(f"""
            MERGE INTO delta.`{table}` AS stored USING changes
            ON stored.{PARTITION} = changes.{PARTITION} AND stored.{KEY} = changes.{KEY}
            WHEN MATCHED AND changes.{ORDERING} >= stored.{ORDERING} THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *""")

    def append(self, data: DataSet, table: Path) -> None:
        """Append the changes."""
        rows = self.spark.read.parquet(str(data.changes))
        rows.write.format("delta").mode("append").save(str(table))

    def frame(self, table: Path, _columns: Sequence[str] | None = None) -> DataFrame:
        """Read the table."""
        return self.spark.read.format("delta").load(str(table))
