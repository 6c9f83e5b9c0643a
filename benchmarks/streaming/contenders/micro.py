"""Small batches into a small and into a large table, in turns, without compaction.

Both tables have as many buckets, so a batch writes as many log files to either. Half of the rows of
a batch have new keys; the others have any of the stored keys.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import bucketlake as bl
from benchmarks.common.rows import DataSet
from benchmarks.common.spark import SparkContender
from benchmarks.common.usage import cpu_seconds
from benchmarks.streaming.contenders.tables import create
from benchmarks.streaming.rows import loaded_rows, mixed_rows
from benchmarks.streaming.steps import BATCHES, LARGE, SMALL

QUERY = "orders"


class Micro(SparkContender):
    """Make two tables, and write small batches to them."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, Any]) -> None:
        super().__init__(spark)
        small, large = settings["micro_keys"]
        self._keys = {SMALL: small, LARGE: large}
        self._rows, self._count = settings["micro_rows"], settings["micro_batches"]
        self._given = {**settings, "bucket_rows": large}  # No bucket is ever full.
        self._measured: list[dict[str, Any]] = []
        self.settings = {
            "index": repr(bl.DynamicBucket(max_records=large)),
            "table_type": "merge_on_read",
            "stored keys": f"{small}, {large}",
            "rows of a batch": str(self._rows),
        }

    def make_small(self, _data: DataSet, table: Path) -> None:
        self._make(SMALL, table)

    def make_large(self, _data: DataSet, table: Path) -> None:
        self._make(LARGE, table)

    def batches(self, _data: DataSet, table: Path) -> None:
        """Write to each table in turn; who begins changes."""
        self._measured = []
        for number in range(self._count):
            order = (SMALL, LARGE) if number % 2 else (LARGE, SMALL)
            self._measured += [self._write(name, number, table) for name in order]

    def observe(self, step: str, _table: Path) -> dict[str, Any]:
        return {"batches": self._measured} if step == BATCHES else {}

    def _make(self, name: str, table: Path) -> None:
        rows = loaded_rows(self._numbers(0, self._keys[name]))
        create(table / name, rows.schema, self._given).bulk_insert(rows)

    def _write(self, name: str, number: int, table: Path) -> dict[str, Any]:
        start = number * self._rows
        rows = mixed_rows(self._numbers(start, start + self._rows), self._keys[name])
        upsert = bl.open_table(str(table / name)).upsert_batch(query_name=QUERY)
        begun, cpu = time.perf_counter(), cpu_seconds(os.getpid())
        result = upsert(rows, number)
        return {
            "table": name,
            "batch": number,
            "seconds": time.perf_counter() - begun,
            "cpu_seconds": cpu_seconds(os.getpid()) - cpu,
            "inserted": result.inserted,
            "updated": result.updated,
            "file_groups": result.file_groups,
        }

    def _numbers(self, start: int, end: int) -> Any:
        cores = self._given["cores"]
        return self.spark.range(start, end, 1, cores).withColumnRenamed("id", "value")
