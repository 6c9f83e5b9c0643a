"""Hudi's bucket index and Bloom index, loaded in both ways, with and without its metadata table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.common.hudi import SESSION, TABLE, HudiContender, bucket_index, metadata_table
from benchmarks.common.process import serve
from benchmarks.common.rows import DataSet
from benchmarks.common.spark import start_session

BLOOM = {"hoodie.index.type": "BLOOM"}


class Hudi(HudiContender):
    """Load by upsert or bulk_insert, then upsert."""

    def __init__(
        self, spark: SparkSession, load_operation: str, index: Mapping[str, str], *, metadata: bool
    ) -> None:
        super().__init__(spark, {**TABLE, **index, **metadata_table(metadata)})
        self._load_operation = load_operation
        self.settings["load"] = load_operation

    def load(self, data: DataSet, table: Path) -> None:
        rows = self.spark.read.parquet(str(data.load))
        self.write(rows, table, self._load_operation, "overwrite")

    def upsert(self, data: DataSet, table: Path) -> None:
        self.write(self.spark.read.parquet(str(data.changes)), table, "upsert", "append")


def contenders(settings: Mapping[str, Any]) -> dict[str, Hudi]:
    """Build what this process offers."""
    spark = start_session("hudi", settings, SESSION)
    bucket = bucket_index(settings["buckets"])
    return {
        "hudi-bucket-upsert": Hudi(spark, "upsert", bucket, metadata=True),
        "hudi-bucket-upsert-nomdt": Hudi(spark, "upsert", bucket, metadata=False),
        "hudi-bucket-bulk_insert": Hudi(spark, "bulk_insert", bucket, metadata=True),
        "hudi-bucket-bulk_insert-nomdt": Hudi(spark, "bulk_insert", bucket, metadata=False),
        "hudi-bloom": Hudi(spark, "upsert", BLOOM, metadata=True),
    }


if __name__ == "__main__":
    serve(contenders)
