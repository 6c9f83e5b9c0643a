"""Apache Hudi's own Spark writer on Spark 3.5, copy-on-write unless a benchmark says otherwise.

Settings, and why a Hudi engineer should agree with each, are with the option maps below. All
variants of a benchmark share one session, so one heap, warmed by all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from benchmarks.common.rows import KEY, ORDERING, PARTITION, DataSet
from benchmarks.common.spark import SparkContender, checksum

COORDINATES = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
SESSION = {
    "spark.jars.packages": COORDINATES,
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.shuffle.partitions": "4",
}
METADATA_ENABLE = "hoodie.metadata.enable"
CODEC = {"hoodie.parquet.compression.codec": "zstd"}
TABLE = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.datasource.write.partitionpath.field": PARTITION,
    "hoodie.table.ordering.fields": ORDERING,
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    **CODEC,
}
# A bucket index looks nothing up, so the files need no Bloom filters.
NO_BLOOM_FILTER = {"hoodie.parquet.bloom.filter.enabled": "false"}


def bucket_index(buckets: int) -> dict[str, str]:
    """Options of the simple bucket index."""
    return {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        "hoodie.bucket.index.num.buckets": str(buckets),
        **NO_BLOOM_FILTER,
    }


def metadata_table(enabled: bool) -> dict[str, str]:
    """Options that turn the metadata table on or off."""
    return {METADATA_ENABLE: str(enabled).lower()}


def procedure_options(options: Mapping[str, str]) -> str:
    """Options of a procedure that writes files, compressed as the table's are."""
    return ",".join(
        f"{key}={value}" for key, value in {**CODEC, **NO_BLOOM_FILTER, **options}.items()
    )


class HudiContender(SparkContender):
    """Load, change by upsert, and read, under the given options; more is a benchmark's own."""

    def __init__(
        self, spark: SparkSession, options: Mapping[str, str], load_operation: str = "upsert"
    ) -> None:
        super().__init__(spark)
        self.options, self._load_operation = options, load_operation
        self.settings = {**SESSION, **options, "load": load_operation}

    def load(self, data: DataSet, table: Path) -> None:
        self._write(data.load, table, self._load_operation, "overwrite")

    def upsert(self, data: DataSet, table: Path) -> None:
        self._write(data.changes, table, "upsert", "append")

    def read(self, table: Path) -> dict[str, int]:
        return checksum(self.frame(table))

    def frame(self, table: Path, columns: Sequence[str] | None = None) -> DataFrame:
        """Read all columns of the table, or those that are named."""
        reader = self.spark.read.format("hudi").option(
            METADATA_ENABLE, self.options[METADATA_ENABLE]
        )
        rows = reader.load(str(table))
        return rows if columns is None else rows.select(*columns)

    def call(self, procedure: str, arguments: str, options: str) -> Row:
        """Call a procedure under options, and return the one row that it answers."""
        # Procedures read the session's setting beside their own options.
        self.spark.conf.set(METADATA_ENABLE, self.options[METADATA_ENABLE])
        [row] = self.spark.sql(f"CALL {procedure}({arguments}, options => '{options}')").collect()
        return row

    def facts(self) -> dict[str, Any]:
        facts = super().facts()
        return {**facts, "versions": {**facts["versions"], "hudi": COORDINATES}}

    def _write(self, rows: Path, table: Path, operation: str, mode: str) -> None:
        options = {**self.options, "hoodie.datasource.write.operation": operation}
        writer = self.spark.read.parquet(str(rows)).write.format("hudi").options(**options)
        writer.mode(mode).save(str(table))
