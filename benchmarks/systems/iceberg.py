"""Apache Iceberg's MERGE on Spark 3.5, copy-on-write or merge-on-read.

Settings, and why an Iceberg engineer should agree with each:

- Format version 2, partitioned by region, and the merge condition names the partition column too,
  so that only touched partitions are read.
- The update is conditional on the ordering column, which is what Hudi and bucketlake do.
- zstd of the level that all contenders have.
- A catalog in a folder, since no service is measured: a table is where its name says.
- Shuffle partitions as for Delta; adaptive execution joins small ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.common.rows import KEY, ORDERING, PARTITION, DataSet
from benchmarks.systems.spark import SparkSystem

COORDINATES = "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0"
CATALOG = "spark.sql.catalog.lake"
MODES = ("delete", "update", "merge")


class Iceberg(SparkSystem):
    """Load by an append, upsert by MERGE."""

    def __init__(self, settings: Mapping[str, Any], mode: str) -> None:
        session = {
            "spark.jars.packages": COORDINATES,
            "spark.sql.extensions": (
                "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
            ),
            CATALOG: "org.apache.iceberg.spark.SparkCatalog",
            f"{CATALOG}.type": "hadoop",
            f"{CATALOG}.warehouse": f"{settings['work']}/tables",
            "spark.sql.shuffle.partitions": "8",
        }
        super().__init__(settings, session)
        self.versions = {"iceberg": COORDINATES}
        self._properties = {
            "format-version": "2",
            "write.parquet.compression-codec": "zstd",
            "write.parquet.compression-level": str(settings["zstd_level"]),
            **{f"write.{name}.mode": mode for name in MODES},
        }
        del self.settings[f"{CATALOG}.warehouse"]  # A path of this machine.
        self.settings |= self._properties

    def load(self, data: DataSet, table: Path) -> None:
        """Append the first rows."""
        rows = self.spark.read.parquet(str(data.load))
        self.spark.sql(f"DROP TABLE IF EXISTS {_name(table)} PURGE")
        writer = rows.writeTo(_name(table))
        for key, value in self._properties.items():
            writer = writer.tableProperty(key, value)
        writer.partitionedBy(rows[PARTITION]).create()

    def upsert(self, data: DataSet, table: Path) -> None:
        """Merge the changes."""
        self.spark.read.parquet(str(data.changes)).createOrReplaceTempView("changes")
        self.spark.sql(f"""
            MERGE INTO {_name(table)} AS stored USING changes
            ON stored.{PARTITION} = changes.{PARTITION} AND stored.{KEY} = changes.{KEY}
            WHEN MATCHED AND changes.{ORDERING} >= stored.{ORDERING} THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *""")

    def frame(self, table: Path, _columns: Sequence[str] | None = None) -> DataFrame:
        """Read the table."""
        return self.spark.table(_name(table))


def _name(table: Path) -> str:
    return f"lake.`{table.parent.name}`.`{table.name}`"
