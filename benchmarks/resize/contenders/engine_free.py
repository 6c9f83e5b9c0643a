"""Tables that grow, and lookups on a ring: both without Spark, whose jobs would hide the cost.

Tables of 4, 16 and 64 buckets with as many rows in each bucket. One has the consistent hashing
index, and two buckets are split by `Table.resize`; the other has the simple bucket index, and gets
twice the buckets by `Table.rescale`, which is the only way for it to have smaller ones. Both are
copy-on-write, so that both have plain base files.
"""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.common.engine_free import EngineFree
from benchmarks.common.process import serve
from benchmarks.common.rows import KEY, KEY_PREFIX, ORDERING, PARTITION, DataSet
from benchmarks.resize.disk import disk_usage
from benchmarks.resize.steps import (
    HASH,
    LOOKUP,
    MODULO,
    NODE_COUNT,
    RESCALE,
    RESIZE,
    RING_EVEN,
    RING_RANDOM,
    SEARCH,
    SIZES,
    SPLIT_COUNT,
)
from bucketlake.hashing.ring import Ring, initial_ring
from bucketlake.hashing.xx_hash import RING_HASH_MAX, hash_ring_keys

LOOKUP_KEYS, LOOKUP_ROUNDS = 1_000_000, 7
Hashes = npt.NDArray[np.int32]


class GrowingTable(EngineFree, ABC):
    """A table without partitions; the name of its folder begins with the number of its buckets."""

    def __init__(self) -> None:
        self._moved: dict[str, int] = {}

    @abstractmethod
    def index(self, bucket_count: int) -> bl.SimpleBucket | bl.ConsistentBucket: ...

    @abstractmethod
    def change(self, data: DataSet, table: Path) -> None:
        """Make some buckets smaller, by one commit."""

    def load(self, data: DataSet, table: Path) -> None:
        count = bucket_count_of(table)
        rows = pq.read_table(data.load).slice(0, data.facts["rows"] * count // max(SIZES))
        bl.create_table(
            str(table),
            schema=rows.schema,
            record_key=[KEY],
            ordering=ORDERING,
            index=self.index(count),
            name="orders",
            metadata_table=False,  # As Hudi's tables of this benchmark.
        ).upsert(rows)

    def read(self, table: Path) -> dict[str, int]:
        """Return the number of rows, and the sums of the numbers in the keys and of a column."""
        rows = bl.open_table(str(table)).to_arrow(columns=[KEY, PARTITION, "quantity"])
        return sums_of(rows)

    def observe(self, _step: str, table: Path) -> dict[str, Any]:
        return {**self._moved, "usage": disk_usage(table)}


class ResizedTable(GrowingTable):
    """Two buckets of a hash ring are split."""

    def __init__(self) -> None:
        super().__init__()
        self._limits = {"max_file_size": 1, "max_groups": SPLIT_COUNT, "max_bytes": None}
        self.settings = {
            "index": "ConsistentBucket(buckets)",
            "table_type": "copy_on_write",
            "change": f"resize(**{self._limits})",
        }

    def index(self, bucket_count: int) -> bl.ConsistentBucket:
        return bl.ConsistentBucket(bucket_count)

    def change(self, _data: DataSet, table: Path) -> None:
        report = bl.open_table(str(table)).resize(**self._limits)
        assert len(report.buckets) == SPLIT_COUNT, report
        self._moved = {"moved_bytes": sum(changed.size_bytes for changed in report.buckets)}


class RescaledTable(GrowingTable):
    """A simple bucket index gets twice the buckets."""

    settings: dict[str, str] = {  # noqa: RUF012 -- as the other contenders have it.
        "index": "SimpleBucket(buckets)",
        "table_type": "copy_on_write",
        "change": "rescale({'.*': 2 * buckets}, default=2 * buckets, dry_run=False)",
    }

    def index(self, bucket_count: int) -> bl.SimpleBucket:
        return bl.SimpleBucket(bucket_count)

    def change(self, _data: DataSet, table: Path) -> None:
        opened = bl.open_table(str(table))
        twice = 2 * bucket_count_of(table)
        report = opened.rescale({".*": twice}, default=twice, dry_run=False)
        self._moved = {"moved_bytes": sum(changed.size_bytes for changed in report.partitions)}


def bucket_count_of(table: Path) -> int:
    """Return the number of buckets that the folder of a table begins with.

    Examples
    --------
    >>> bucket_count_of(Path("tables/16-buckets-changed"))
    16
    """
    return int(table.name.partition("-")[0])


def sums_of(rows: pa.Table) -> dict[str, int]:
    """Return what a table's rows add up to."""
    digits = pc.utf8_slice_codeunits(rows[KEY], len(KEY_PREFIX))
    return {
        "rows": rows.num_rows,
        KEY: pc.sum(digits.cast(pa.int64())).as_py(),
        "quantity": pc.sum(rows["quantity"]).as_py(),
    }


class Lookups(EngineFree):
    """How many keys or hashes a second find their bucket, on one core."""

    def __init__(self) -> None:
        self.settings = {
            "nodes": str(NODE_COUNT),
            "keys": f"{LOOKUP_KEYS}, of 20 characters",
            "rate": f"median of {LOOKUP_ROUNDS} runs, by the processor time of the thread",
        }
        random = np.random.default_rng(1)
        self._hashes = random.integers(0, RING_HASH_MAX, LOOKUP_KEYS, np.int32, endpoint=True)
        values = np.unique(random.integers(0, RING_HASH_MAX, 2 * NODE_COUNT, np.int32))
        values = np.sort(random.permutation(values)[:NODE_COUNT])
        self._even = initial_ring("", NODE_COUNT)
        self._random = Ring(values, tuple(map(str, range(NODE_COUNT))))
        numbers = pa.array(random.integers(0, 10**16, LOOKUP_KEYS)).cast(pa.string())
        self._keys = pc.binary_join_element_wise(KEY_PREFIX, pc.utf8_lpad(numbers, 16, "0"), "")
        self._rates: list[float] = []

    def hash_keys(self, _data: DataSet, _table: Path) -> None:
        self._measure(lambda: hash_ring_keys(self._keys))

    def ring_even(self, _data: DataSet, _table: Path) -> None:
        self._measure(lambda: self._even.locate(self._hashes))

    def ring_random(self, _data: DataSet, _table: Path) -> None:
        self._measure(lambda: self._random.locate(self._hashes))

    def binary_search(self, _data: DataSet, _table: Path) -> None:
        self._measure(lambda: np.searchsorted(self._random.values, self._hashes))

    def modulo(self, _data: DataSet, _table: Path) -> None:
        self._measure(lambda: self._hashes % np.int32(NODE_COUNT))

    def observe(self, step: str, _table: Path) -> dict[str, Any]:
        assert step in (HASH, RING_EVEN, RING_RANDOM, SEARCH, MODULO)
        return {"keys_per_second": round(statistics.median(self._rates))}

    def load(self, data: DataSet, table: Path) -> None:
        raise NotImplementedError("lookups have no table")

    def read(self, table: Path) -> dict[str, int]:
        raise NotImplementedError("lookups have no table")

    def _measure(self, work: Callable[[], object]) -> None:
        work()
        self._rates = []
        for _ in range(LOOKUP_ROUNDS):
            started = time.thread_time()
            work()
            self._rates.append(LOOKUP_KEYS / (time.thread_time() - started))


def contenders(_settings: Mapping[str, Any]) -> dict[str, GrowingTable | Lookups]:
    """Build what this process offers."""
    return {RESIZE: ResizedTable(), RESCALE: RescaledTable(), LOOKUP: Lookups()}


if __name__ == "__main__":
    serve(contenders)
