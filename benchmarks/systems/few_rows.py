"""Small batches and point reads of each system, as calls that open the table anew.

A batch is a file of Parquet, so that each system reads it as its users do; its reading is a part of
the call. A point read names the key alone and has to return the row that was written last.
"""

from __future__ import annotations

import os
import statistics
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.common.rows import KEY, DataSet
from benchmarks.common.usage import cpu_seconds
from benchmarks.systems.bucketlake import BucketLake
from benchmarks.systems.bucketlake_arrow import BucketLakeArrow
from benchmarks.systems.delta import DeltaMerge
from benchmarks.systems.native import DeltaLake, Lance

REPEATS, WARM_UP = 15, 3
THOUSAND = 1_000


class FewRows:
    """The steps; beside a class that can load and upsert a data set."""

    seen: dict[str, Any] = {}  # noqa: RUF012 -- replaced, never changed.
    upsert: Any  # Of the class beside it.

    @abstractmethod
    def find(self, table: Path, where: str) -> list[dict[str, Any]]:
        """Return the rows of a condition."""

    def one(self, data: DataSet, table: Path) -> None:
        """Write single rows."""
        self._upserts(data, table, 1)

    def thousand(self, data: DataSet, table: Path) -> None:
        """Write batches of a thousand rows."""
        self._upserts(data, table, THOUSAND)

    def point(self, data: DataSet, table: Path) -> None:
        """Look single rows up."""
        self._lookups(data, table, self.find)

    def observe(self, _step: str, _table: Path) -> dict[str, Any]:
        """Return what a call of the last step took."""
        seen, self.seen = self.seen, {}
        return seen

    def _upserts(self, data: DataSet, table: Path, count: int) -> None:
        parts = [_part(data, table, number, count) for number in range(REPEATS)]
        self.seen = measured([partial(self.upsert, part, table) for part in parts])

    def _lookups(
        self, data: DataSet, table: Path, find: Callable[[Path, str], list[dict[str, Any]]]
    ) -> None:
        rows = [_rows(data, number, 1).to_pylist()[0] for number in range(REPEATS)]
        found: list[list[dict[str, Any]]] = []

        def look(row: dict[str, Any]) -> None:
            found.append(find(table, f"{KEY} = '{row[KEY]}'"))

        self.seen = measured([partial(look, row) for row in rows])
        for row, [got] in zip(rows, found, strict=True):
            held = {name: got[name] for name in row}
            assert held == row, f"found {held}, expected {row}"


def measured(calls: list[Callable[[], object]]) -> dict[str, Any]:
    """Return the medians of the calls after the first ones."""
    seconds, cpu = [], []
    for call in calls:
        begun, used = time.perf_counter(), cpu_seconds(os.getpid())
        call()
        seconds.append(time.perf_counter() - begun)
        cpu.append(cpu_seconds(os.getpid()) - used)
    kept = slice(WARM_UP, None)
    return {
        "each_seconds": statistics.median(seconds[kept]),
        "each_cpu_seconds": statistics.median(cpu[kept]),
        "worst_seconds": max(seconds[kept]),
    }


def _rows(data: DataSet, number: int, count: int) -> pa.Table:
    """Return changes, others for each call; single rows are not among the thousands."""
    first = number if count == 1 else REPEATS + number * count
    return pq.read_table(data.changes).slice(first, count)


def _part(data: DataSet, table: Path, number: int, count: int) -> DataSet:
    part = DataSet(table.parent / f"part-{count}-{number}")
    part.changes.mkdir(parents=True, exist_ok=True)
    pq.write_table(_rows(data, number, count), part.changes / "rows.parquet")
    return part


class BucketLakeFew(FewRows, BucketLakeArrow):
    """bucketlake without Spark."""

    def find(self, table: Path, where: str) -> list[dict[str, Any]]:
        """Return the rows of a condition."""
        return list(bl.open_table(str(table)).to_arrow(where=where).to_pylist())


class BucketLakeSparkFew(FewRows, BucketLake):
    """bucketlake with DataFrames."""

    def find(self, table: Path, where: str) -> list[dict[str, Any]]:
        """Return the rows of a condition."""
        return _collected(bl.open_table(str(table)).read(self.spark, where=where))

    def point_format(self, data: DataSet, table: Path) -> None:
        """Look single rows up by the format's name and its option ``where``."""

        def find(table: Path, where: str) -> list[dict[str, Any]]:
            reader = self.spark.read.format("bucketlake").option("where", where)
            return _collected(reader.load(str(table)))

        bl.register(self.spark)
        self._lookups(data, table, find)

    def point_filter(self, data: DataSet, table: Path) -> None:
        """Look single rows up by the format's name and a filter, which reads the whole table."""

        def find(table: Path, where: str) -> list[dict[str, Any]]:
            return _collected(self.spark.read.format("bucketlake").load(str(table)).where(where))

        bl.register(self.spark)
        self._lookups(data, table, find)

    def hand(self, data: DataSet, table: Path) -> None:
        """Hand a thousand rows to the driver, without a table."""
        parts = [_part(data, table, number, THOUSAND) for number in range(REPEATS)]

        def hand(part: DataSet) -> None:
            self.spark.read.parquet(str(part.changes)).toArrow()

        self.seen = measured([partial(hand, part) for part in parts])


class DeltaLakeFew(FewRows, DeltaLake):
    """The deltalake library."""

    def find(self, table: Path, where: str) -> list[dict[str, Any]]:
        """Return the rows of a condition."""
        from deltalake import DeltaTable, QueryBuilder

        query = QueryBuilder().register("orders", DeltaTable(table))
        found = query.execute(f"SELECT * FROM orders WHERE {where}").read_all()
        return list(pa.table(found).to_pylist())


class LanceFew(FewRows, Lance):
    """The lance library."""

    def __init__(self, _settings: Mapping[str, Any]) -> None:
        super().__init__()

    def find(self, table: Path, where: str) -> list[dict[str, Any]]:
        """Return the rows of a condition."""
        import lance

        return list(lance.dataset(str(table)).to_table(filter=where).to_pylist())


class DeltaSparkFew(FewRows, DeltaMerge):
    """Delta's MERGE on Spark."""

    def find(self, table: Path, where: str) -> list[dict[str, Any]]:
        """Return the rows of a condition."""
        return _collected(self.frame(table).where(where))


def _collected(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]
