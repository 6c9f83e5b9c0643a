"""bucketlake with the partitioned record-level index, copy-on-write and merge-on-read.

The load by `bulk_insert` makes the index along with the files. The build then makes it again from
the keys of the whole table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import bucketlake as bl
from benchmarks.common.bucketlake import BucketLakeContender, start_bucketlake
from benchmarks.common.process import serve
from benchmarks.common.rows import DataSet
from benchmarks.record_index.contenders.index_files import index_facts
from benchmarks.record_index.contenders.one_row import one_row
from benchmarks.record_index.steps import BUILD


class BucketLakeRecordIndex(BucketLakeContender):
    """Build the index, and upsert through it."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, Any], table_type: str) -> None:
        super().__init__(spark, settings, bl.RecordIndex(), table_type)
        self.settings |= {"index": "RecordIndex(partitioned=True)", "load": "bulk_insert"}

    def load(self, data: DataSet, table: Path) -> None:
        rows = self.spark.read.parquet(str(data.load))
        self.create(rows.schema, table).bulk_insert(rows)

    def build(self, _data: DataSet, table: Path) -> None:
        bl.open_table(str(table)).rebuild_metadata_table(["record_index"], spark=self.spark)

    def upsert_row(self, data: DataSet, table: Path) -> None:
        bl.open_table(str(table)).upsert(one_row(self.spark, data))

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        seen = super().observe(step, table)
        return seen | index_facts(table) if step == BUILD else seen


def contenders(settings: Mapping[str, Any]) -> dict[str, BucketLakeRecordIndex]:
    """Build what this process offers."""
    name, spark = start_bucketlake(settings)
    _, _, version = name.partition("-")
    return {
        name: BucketLakeRecordIndex(spark, settings, "copy_on_write"),
        f"bucketlake-mor-{version}": BucketLakeRecordIndex(spark, settings, "merge_on_read"),
    }


if __name__ == "__main__":
    serve(contenders)
