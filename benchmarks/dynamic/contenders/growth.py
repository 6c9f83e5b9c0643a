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
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bucketlake as bl
from benchmarks.common.engine_free import EngineFree
from benchmarks.common.rows import KEY, ORDERING, PARTITION, REGIONS, DataSet
from benchmarks.dynamic.contenders.sizes import bytes_of_files, rows_of_files
from benchmarks.dynamic.steps import (
    COMPACTED,
    FIRST_BUCKETS,
    GROWN,
    GROWTH_FACTOR,
    ROWS,
    SIZES,
    grow_step,
    size_step,
)
from benchmarks.record_index.keys import key_rows
from benchmarks.record_index.steps import HEX

SPLIT_THRESHOLD = 1.5
REGION = REGIONS[0]


class Growth(EngineFree):
    """Grow a new table in each step."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._capacity = settings["bucket_rows"]
        self._row_bytes = 0.0
        self._seen: dict[str, Any] = {}
        self.settings = {
            "rows of a bucket": str(self._capacity),
            "buckets at first": str(FIRST_BUCKETS),
            "resize": f"after each batch, split_threshold={SPLIT_THRESHOLD:g}",
        }
        for kind in SIZES:
            setattr(self, size_step(kind), partial(self._fill, kind))
        for kind in GROWN:
            setattr(self, grow_step(kind), partial(self._grow, kind))

    def make(self, data: DataSet, table: Path) -> None:
        """Measure the bytes of a stored row."""
        made = _create(table / "sample", bl.SimpleBucket(FIRST_BUCKETS))
        made.upsert(next(self._batches(data)))
        sizes, rows = bytes_of_files(table / "sample"), rows_of_files(table / "sample")
        self._row_bytes = sum(sizes) / sum(rows)

    def observe(self, _step: str, _table: Path) -> dict[str, Any]:
        return self._seen

    @property
    def _capacity_bytes(self) -> int:
        return int(self._capacity * self._row_bytes)

    def _fill(self, kind: str, data: DataSet, table: Path) -> None:
        by_rows = kind == ROWS
        limit = self._capacity if by_rows else self._capacity_bytes
        index = bl.DynamicBucket(
            max_records=limit if by_rows else None,
            max_file_size=None if by_rows else limit,
            assigners=FIRST_BUCKETS,
        )
        merge_on_read = kind == COMPACTED
        made = _create(table / kind, index, merge_on_read=merge_on_read)
        fullest = 0.0
        for rows in self._batches(data):
            made.upsert(rows)
            if merge_on_read:
                made.compact()
            sizes = (rows_of_files if by_rows else bytes_of_files)(table / kind)
            fullest = max(fullest, max(sizes) / limit)
        self._seen = {
            "limit": limit,
            "buckets": len(sizes),
            "fullest": fullest,
            "median": statistics.median(sizes) / limit,
        }
        shutil.rmtree(table / kind)

    def _grow(self, kind: str, data: DataSet, table: Path) -> None:
        made = _create(table / kind, self._index(kind))
        upserts: list[float] = []
        resizes = 0.0
        fullest = 0.0
        for rows in self._batches(data):
            upserts.append(_cpu_seconds(partial(made.upsert, rows)))
            if kind == "consistent":
                resizes += _cpu_seconds(partial(self._resize, made))
            fullest = max(rows_of_files(table / kind)) / self._capacity
        rescale = 0.0
        if kind in ("simple", "partition"):
            count = FIRST_BUCKETS * GROWTH_FACTOR
            rescale = _cpu_seconds(
                lambda: bl.open_table(str(table / kind)).rescale(add={REGION: count}, dry_run=False)
            )
        sizes = rows_of_files(table / kind)
        self._seen = {
            "before_repair": fullest,
            "fullest": max(sizes) / self._capacity,
            "files": len(sizes),
            "first_upsert_cpu_seconds": upserts[0],
            "last_upsert_cpu_seconds": upserts[-1],
            "upserts_cpu_seconds": sum(upserts),
            "repair_cpu_seconds": rescale or resizes,
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

    def _batches(self, data: DataSet) -> Iterator[pa.Table]:
        rng = np.random.default_rng([data.facts["seed"], self._capacity])
        for _ in range(GROWTH_FACTOR):
            yield key_rows(HEX, self._capacity * FIRST_BUCKETS, REGION, rng)


def _cpu_seconds(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def _create(path: Path, index: Any, *, merge_on_read: bool = False) -> bl.Table:
    return bl.create_table(
        str(path),
        schema=key_rows(HEX, 1, REGION, np.random.default_rng(0)).schema,
        record_key=[KEY],
        partition_by=[PARTITION],
        ordering=ORDERING,
        index=index,
        table_type="merge_on_read" if merge_on_read else "copy_on_write",
        metadata_table=True,
    )
