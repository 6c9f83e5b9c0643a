"""Apache Hudi's own Spark writer on Spark 3.5, copy-on-write.

Settings, and why a Hudi engineer should agree with each, are with the option maps below. All
variants of a benchmark share one session, so one heap, warmed by all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.common.rows import KEY, ORDERING, PARTITION
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


class HudiContender(SparkContender):
    """Write under the given options, and read; the steps are a benchmark's own."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        super().__init__(spark)
        self.options = options
        self.settings = {**SESSION, **options}

    def write(self, rows: DataFrame, table: Path, operation: str, mode: str) -> None:
        options = {**self.options, "hoodie.datasource.write.operation": operation}
        rows.write.format("hudi").options(**options).mode(mode).save(str(table))

    def read(self, table: Path) -> dict[str, int]:
        reader = self.spark.read.format("hudi").option(
            METADATA_ENABLE, self.options[METADATA_ENABLE]
        )
        return checksum(reader.load(str(table)))

    def facts(self) -> dict[str, Any]:
        facts = super().facts()
        return {**facts, "versions": {**facts["versions"], "hudi": COORDINATES}}
