"""A table of so many buckets gets smaller ones, without Spark, whose jobs would hide the cost.

Tables have as many rows in each bucket. One has the consistent hashing index, and two buckets are
split by `Table.resize`; the other has the simple bucket index, and gets twice the buckets by
`Table.rescale`, which is the only way for it to have smaller ones. Both are copy-on-write, so that
both have plain base files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.common.rows import KEY, KEY_PREFIX, ORDERING, PARTITION, DataSet
from benchmarks.common.turn import Measured, Turn
from benchmarks.systems.engine_free import EngineFree
from benchmarks.systems.order_tables import disk_usage, growth

BUCKET_COUNTS = (4, 16, 64)
SPLIT_COUNT = 2
"""Buckets that a resize splits, whatever the size of the table."""


class GrowingTable(EngineFree, ABC):
    """A table without partitions; each step is told the number of its buckets."""

    @abstractmethod
    def index(self, bucket_count: int) -> bl.SimpleBucket | bl.ConsistentBucket:
        """Return the index of a new table."""

    @abstractmethod
    def change(self, data: DataSet, table: Path, bucket_count: str) -> None:
        """Make some buckets smaller, by one commit."""

    def load(self, data: DataSet, table: Path, bucket_count: str) -> None:
        """Write as many rows as the buckets get."""
        count = int(bucket_count)
        share = data.facts["rows"] * count // max(BUCKET_COUNTS)
        rows = pq.read_table(data.load).slice(0, share)
        bl.create_table(
            str(table),
            schema=rows.schema,
            record_key=[KEY],
            ordering=ORDERING,
            index=self.index(count),
            name="orders",
            metadata_table=False,  # As Hudi's tables of this benchmark.
        ).upsert(rows)

    def read(self, _data: DataSet, table: Path) -> dict[str, int]:
        """Return the number of rows, and the sums of the numbers in the keys and of a column."""
        return sums_of(bl.open_table(str(table)).to_arrow(columns=[KEY, PARTITION, "quantity"]))

    def observe(self, step: str, table: Path) -> dict[str, object]:
        """Return what the table takes on disk, and the bytes that a change moved."""
        return super().observe(step, table) | {"usage": disk_usage(table)}


class ResizedTable(GrowingTable):
    """Two buckets of a hash ring are split."""

    def __init__(self, _settings: Mapping[str, Any]) -> None:
        self._limits: dict[str, Any] = {
            "max_file_size": 1,
            "max_groups": SPLIT_COUNT,
            "max_bytes": None,
        }
        super().__init__(
            index="ConsistentBucket(buckets)",
            table_type="copy_on_write",
            change=f"resize(**{self._limits})",
        )

    def index(self, bucket_count: int) -> bl.ConsistentBucket:
        """Return a ring of so many nodes."""
        return bl.ConsistentBucket(bucket_count)

    def change(self, _data: DataSet, table: Path, _bucket_count: str) -> None:
        """Split the largest buckets."""
        report = bl.open_table(str(table)).resize(**self._limits)
        assert len(report.buckets) == SPLIT_COUNT, report
        self.seen = {"moved_bytes": sum(changed.size_bytes for changed in report.buckets)}


class RescaledTable(GrowingTable):
    """A simple bucket index gets twice the buckets."""

    def __init__(self, _settings: Mapping[str, Any]) -> None:
        super().__init__(
            index="SimpleBucket(buckets)",
            table_type="copy_on_write",
            change="rescale({'.*': 2 * buckets}, default=2 * buckets, dry_run=False)",
        )

    def index(self, bucket_count: int) -> bl.SimpleBucket:
        """Return an index of so many buckets."""
        return bl.SimpleBucket(bucket_count)

    def change(self, _data: DataSet, table: Path, bucket_count: str) -> None:
        """Double the number of buckets."""
        twice = 2 * int(bucket_count)
        report = bl.open_table(str(table)).rescale({".*": twice}, default=twice, dry_run=False)
        self.seen = {"moved_bytes": sum(changed.size_bytes for changed in report.partitions)}


SIDES = {"resize": ResizedTable, "rescale": RescaledTable}


def grow(turn: Turn) -> dict[str, Measured]:
    """Change tables of several sizes; their rows stay the same."""
    measured = {}
    for count in BUCKET_COUNTS:
        table = turn.fresh("orders")
        turn.step(f"load-{count}", table)
        before = turn.step("read", table)
        changed = turn.step(f"change-{count}", table)
        measured[f"change-{count}"] = changed | growth(before["usage"], changed.pop("usage"))
        if turn.step("read", table)["checksum"] != before["checksum"]:
            turn.refuse(f"has other rows after the change of {count} buckets")
    return measured


def sums_of(rows: pa.Table) -> dict[str, int]:
    """Return what a table's rows add up to."""
    digits = pc.utf8_slice_codeunits(rows[KEY], len(KEY_PREFIX))
    return {
        "rows": rows.num_rows,
        KEY: pc.sum(digits.cast(pa.int64())).as_py(),
        "quantity": pc.sum(rows["quantity"]).as_py(),
    }
