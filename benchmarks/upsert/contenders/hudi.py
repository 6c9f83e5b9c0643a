"""Apache Hudi's own Spark writer on Spark 3.5: bucket index and Bloom index, copy-on-write.

Settings, and why a Hudi engineer should agree with each, are with the option maps below. All
variants share one session, so one heap, warmed by all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.upsert.contenders.spark import SparkContender, checksum, start_session
from benchmarks.upsert.process import serve
from benchmarks.upsert.rows import KEY, ORDERING, PARTITION, DataSet

COORDINATES = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
SESSION = {
    "spark.jars.packages": COORDINATES,
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.shuffle.partitions": "4",
}
TABLE = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.datasource.write.partitionpath.field": PARTITION,
    "hoodie.table.ordering.fields": ORDERING,
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.parquet.compression.codec": "zstd",
}
BLOOM = {"hoodie.index.type": "BLOOM"}


def bucket_index(buckets: int) -> dict[str, str]:
    """Options of the simple bucket index."""
    return {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        "hoodie.bucket.index.num.buckets": str(buckets),
        # A bucket index looks nothing up, so the files need no Bloom filters.
        "hoodie.parquet.bloom.filter.enabled": "false",
    }


@dataclass(frozen=True)
class Variant:
    """How one of Hudi's contenders differs from the others."""

    load_operation: str
    index: Mapping[str, str]
    metadata_table: bool

    def options(self) -> dict[str, str]:
        return {
            **TABLE,
            **self.index,
            "hoodie.metadata.enable": str(self.metadata_table).lower(),
        }


class Hudi(SparkContender):
    """Load by upsert or bulk_insert, then upsert."""

    def __init__(self, spark: SparkSession, variant: Variant) -> None:
        super().__init__(spark)
        self._variant = variant
        self.settings = {**SESSION, **variant.options(), "load": variant.load_operation}

    def load(self, data: DataSet, table: Path) -> None:
        rows = self.spark.read.parquet(str(data.load))
        self._write(rows, table, self._variant.load_operation, "overwrite")

    def upsert(self, data: DataSet, table: Path) -> None:
        self._write(self.spark.read.parquet(str(data.changes)), table, "upsert", "append")

    def _write(self, rows: DataFrame, table: Path, operation: str, mode: str) -> None:
        options = {**self._variant.options(), "hoodie.datasource.write.operation": operation}
        rows.write.format("hudi").options(**options).mode(mode).save(str(table))

    def read(self, table: Path) -> dict[str, int]:
        metadata = str(self._variant.metadata_table).lower()
        reader = self.spark.read.format("hudi").option("hoodie.metadata.enable", metadata)
        return checksum(reader.load(str(table)))

    def facts(self) -> dict[str, Any]:
        facts = super().facts()
        return {**facts, "versions": {**facts["versions"], "hudi": COORDINATES}}


def contenders(settings: Mapping[str, Any]) -> dict[str, Hudi]:
    """Build what this process offers."""
    spark = start_session("hudi", settings, SESSION)
    bucket = bucket_index(settings["buckets"])
    variants = {
        "hudi-bucket-upsert": Variant("upsert", bucket, metadata_table=True),
        "hudi-bucket-upsert-nomdt": Variant("upsert", bucket, metadata_table=False),
        "hudi-bucket-bulk_insert": Variant("bulk_insert", bucket, metadata_table=True),
        "hudi-bucket-bulk_insert-nomdt": Variant("bulk_insert", bucket, metadata_table=False),
        "hudi-bloom": Variant("upsert", BLOOM, metadata_table=True),
    }
    return {name: Hudi(spark, variant) for name, variant in variants.items()}


if __name__ == "__main__":
    serve(contenders)
