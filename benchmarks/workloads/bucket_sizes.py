"""How large buckets become while a partition grows, without Spark.

Two questions: are dynamic buckets as large as their limit says, by rows and by bytes; and what
becomes of a partition that gets eight times the rows that its first buckets were made for, under
each kind of index. All rows are inserts with random keys. A merge-on-read table is compacted after
each batch, and then its base files are measured.

The limits of the other kinds are made good by what their users have: a rescale of simple and
partition-level buckets at the end, a resize of a hash ring after each batch.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bucketlake as bl
from benchmarks.common.data import SEED
from benchmarks.common.rows import REGIONS, DataSet
from benchmarks.systems.engine_free import EngineFree, cpu_seconds
from benchmarks.systems.order_tables import bytes_of_files, create, rows_of_files
from benchmarks.workloads.keys import HEX, key_rows

FIRST_BUCKETS = 4
"""Buckets that a partition begins with."""

GROWTH_FACTOR = 8
"""How many times the rows that its first buckets were made for a partition gets."""

SPLIT_THRESHOLD = 1.5
REGION = REGIONS[0]


class BucketSizes(EngineFree):
    """Grow a new table in each step."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._capacity = settings["bucket_rows"]
        self._row_bytes = 0.0
        told = {"rows of a bucket": self._capacity, "buckets at first": FIRST_BUCKETS}
        resize = f"after each batch, split_threshold={SPLIT_THRESHOLD:g}"
        super().__init__(**told, resize=resize)

    def make(self, _data: DataSet, table: Path) -> None:
        """Measure the bytes of a stored row."""
        made = _create(table / "sample", bl.SimpleBucket(FIRST_BUCKETS))
        made.upsert(next(self._batches()))
        sizes, rows = bytes_of_files(table / "sample"), rows_of_files(table / "sample")
        self._row_bytes = sum(sizes) / sum(rows)

    @property
    def _capacity_bytes(self) -> int:
        return int(self._capacity * self._row_bytes)

    def fill(self, _data: DataSet, table: Path, kind: str) -> None:
        """Fill dynamic buckets by rows or bytes; ``compacted`` is by bytes, merge-on-read."""
        by_rows = kind == "rows"
        limit = self._capacity if by_rows else self._capacity_bytes
        index = bl.DynamicBucket(
            max_records=limit if by_rows else None,
            max_file_size=None if by_rows else limit,
            assigners=FIRST_BUCKETS,
        )
        merge_on_read = kind == "compacted"
        made = _create(table / kind, index, merge_on_read=merge_on_read)
        fullest = 0.0
        for rows in self._batches():
            made.upsert(rows)
            if merge_on_read:
                made.compact()
            sizes = (rows_of_files if by_rows else bytes_of_files)(table / kind)
            fullest = max(fullest, max(sizes) / limit)
        self.seen = {
            "limit": limit,
            "buckets": len(sizes),
            "fullest": fullest,
            "median": statistics.median(sizes) / limit,
        }
        shutil.rmtree(table / kind)

    def grow(self, _data: DataSet, table: Path, kind: str) -> None:
        """Grow a partition under a kind of index."""
        made = _create(table / kind, self._index(kind))
        upserts: list[float] = []
        repair = 0.0
        fullest = 0.0
        for rows in self._batches():
            upserts.append(cpu_seconds(partial(made.upsert, rows)))
            if kind == "consistent":
                repair += cpu_seconds(partial(self._resize, made))
            fullest = max(rows_of_files(table / kind)) / self._capacity
        if kind in ("simple", "partition"):
            again = bl.open_table(str(table / kind)).rescale
            count = FIRST_BUCKETS * GROWTH_FACTOR
            repair = cpu_seconds(partial(again, add={REGION: count}, dry_run=False))
        sizes = rows_of_files(table / kind)
        self.seen = {
            "before_repair": fullest,
            "fullest": max(sizes) / self._capacity,
            "files": len(sizes),
            "first_upsert_cpu_seconds": upserts[0],
            "last_upsert_cpu_seconds": upserts[-1],
            "repair_cpu_seconds": repair,
        }
        shutil.rmtree(table / kind)

    def _index(self, kind: str) -> Any:
        return {
            "simple": bl.SimpleBucket(FIRST_BUCKETS),
            "partition": bl.PartitionBucket({"nowhere": 1}, default=FIRST_BUCKETS),
            "consistent": bl.ConsistentBucket(FIRST_BUCKETS, max=8 * FIRST_BUCKETS * GROWTH_FACTOR),
            "dynamic": bl.DynamicBucket(max_records=self._capacity, assigners=FIRST_BUCKETS),
            "record": bl.RecordIndex(
                max_file_size=self._capacity_bytes, small_file_limit=self._capacity_bytes
            ),
        }[kind]

    def _resize(self, table: bl.Table) -> None:
        while table.resize(
            max_file_size=self._capacity_bytes, split_threshold=SPLIT_THRESHOLD
        ).buckets:
            pass

    def _batches(self) -> Iterator[pa.Table]:
        rng = np.random.default_rng([SEED, self._capacity])
        for _ in range(GROWTH_FACTOR):
            yield key_rows(HEX, self._capacity * FIRST_BUCKETS, REGION, rng)


def _create(path: Path, index: Any, *, merge_on_read: bool = False) -> bl.Table:
    schema = key_rows(HEX, 1, REGION, np.random.default_rng(0)).schema
    return create(path, schema, index, "merge_on_read" if merge_on_read else "copy_on_write")
