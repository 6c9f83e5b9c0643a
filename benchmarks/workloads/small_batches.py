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

import bucketlake as bl
from benchmarks.common.rows import DataSet
from benchmarks.common.usage import cpu_seconds
from benchmarks.systems.bucketlake import SESSION
from benchmarks.systems.spark import SparkSystem
from benchmarks.workloads.stream import ASSIGNERS, create_streamed
from benchmarks.workloads.stream_rows import loaded_rows, mixed_rows

SMALL, LARGE = "small", "large"
STEPS = ("make-small", "make-large", "batches")
QUERY = "orders"


class SmallBatches(SparkSystem):
    """Make two tables, and write small batches to them."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings, SESSION)
        small, large = settings["micro_keys"]
        self._keys = {SMALL: small, LARGE: large}
        self._rows, self._count = settings["micro_rows"], settings["micro_batches"]
        self._cores = settings["cores"]
        self._measured: list[dict[str, Any]] = []
        self.settings |= {
            "index": repr(bl.DynamicBucket(max_records=large, assigners=ASSIGNERS)),
            "table_type": "merge_on_read",
            "stored keys": f"{small}, {large}",
            "rows of a batch": str(self._rows),
        }

    def make(self, _data: DataSet, table: Path, name: str) -> None:
        """Load a table; none of its buckets is ever full."""
        rows = loaded_rows(self._numbers(0, self._keys[name]))
        create_streamed(table / name, rows.schema, self._keys[LARGE]).bulk_insert(rows)

    def batches(self, _data: DataSet, table: Path) -> None:
        """Write to each table in turn; who begins changes."""
        self._measured = []
        for number in range(self._count):
            order = (SMALL, LARGE) if number % 2 else (LARGE, SMALL)
            self._measured += [self._write(name, number, table) for name in order]

    def observe(self, _step: str, _table: Path) -> dict[str, Any]:
        """Return what each batch took."""
        return {"batches": self._measured}

    def _write(self, name: str, number: int, table: Path) -> dict[str, Any]:
        start = number * self._rows
        rows = mixed_rows(self._numbers(start, start + self._rows), self._keys[name])
        upsert = bl.open_table(str(table / name)).upsert_batch(query_name=QUERY)
        begun, cpu = time.perf_counter(), cpu_seconds(os.getpid())
        upsert(rows, number)
        return {
            "table": name,
            "batch": number,
            "seconds": time.perf_counter() - begun,
            "cpu_seconds": cpu_seconds(os.getpid()) - cpu,
        }

    def _numbers(self, start: int, end: int) -> Any:
        return self.spark.range(start, end, 1, self._cores).withColumnRenamed("id", "value")
