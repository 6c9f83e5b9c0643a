"""bucketlake itself, on whichever PySpark this interpreter has: 4 or 3.5.

The first load is by `upsert` unless a benchmark says otherwise, so it checks and deduplicates what
it loads, as Hudi's upsert does. Python workers are started before the clock, as the peers' JVM is.

A resize splits every bucket, so that each record of an upsert meanwhile belongs to a bucket that is
being resized: the worst case. Dual write is what happens on a disk without hard links; it is forced
here by a disk that refuses them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

import bucketlake as bl
from benchmarks.common.benchmark import Contender, Settings
from benchmarks.common.group_memory import memory_of_group
from benchmarks.common.rows import CHOSEN_PATTERN, DataSet
from benchmarks.systems.order_tables import create, index_files, live_files
from benchmarks.systems.spark import SparkSystem, one_row, placement_of
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.storage import system_calls
from bucketlake.write.pack import PackedRecords
from bucketlake.write.slot_stage import TaskResult, WriteTask
from bucketlake.write.write_plan import WritePlan

SESSION = {"spark.sql.shuffle.partitions": "4"}
SPLIT_ALL: dict[str, Any] = {
    "max_file_size": 1,
    "merge_threshold": 0.0,
    "max_bytes": None,
    "max_groups": None,
}


class BucketLake(SparkSystem):
    """A table under one index. ``told`` is what the result file says of it besides."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        index: Any,
        table_type: str = "copy_on_write",
        *,
        metadata_table: bool = False,
        load: str = "upsert",
        version: int = NEWEST_VERSION,
        told: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(settings, SESSION)
        self.versions = {"pyarrow": pa.__version__}
        self.index, self._table_type, self._load = index, table_type, load
        self._version = version
        # A record-level index is a part of the metadata table.
        needs_one = isinstance(index, bl.DynamicBucket | bl.RecordIndex)
        self._metadata_table = metadata_table or needs_one
        self._cores, self._new_count = settings["cores"], settings.get("new_buckets", 0)
        self._worker_idle_bytes = 0
        self._plans = _noted_plans()
        self.settings |= {
            "table_type": table_type,
            "load": load,
            "metadata_table": str(self._metadata_table),
            "table_version": str(version),
            "index": repr(index),
            **(told or {}),
        }

    # ---- steps ----------------------------------------------------------------------------------

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows into a new table."""
        rows = self.spark.read.parquet(str(data.load))
        getattr(self.create(rows.schema, table), self._load)(rows)

    def upsert(self, data: DataSet, table: Path) -> None:
        """Write the changes."""
        bl.open_table(str(table)).upsert(self.spark.read.parquet(str(data.changes)))

    def append(self, data: DataSet, table: Path) -> None:
        """Write the changes, all of which have new keys."""
        bl.open_table(str(table)).insert(self.spark.read.parquet(str(data.changes)))

    upsert_again = upsert_linked = upsert

    def upsert_row(self, data: DataSet, table: Path) -> None:
        """Write one row, which is stored already."""
        bl.open_table(str(table)).upsert(one_row(self.spark, data))

    def upsert_twice(self, data: DataSet, table: Path) -> None:
        """Write the changes beside a pending resize, on a disk that refuses links."""
        with mock.patch.object(system_calls, "add_name", return_value=False) as refused:
            self.upsert(data, table)
        assert refused.called, "the upsert copied no log file"

    def compact(self, _data: DataSet, table: Path) -> None:
        """Merge log files into base files."""
        bl.open_table(str(table)).compact(spark=self.spark)

    def build(self, _data: DataSet, table: Path) -> None:
        """Build the record-level index again from the keys of the whole table."""
        bl.open_table(str(table)).rebuild_metadata_table(["record_index"], spark=self.spark)

    def prepare(self, data: DataSet, table: Path) -> None:
        """Do nothing: a table is its folder."""

    def rescale_partition(self, _data: DataSet, table: Path) -> None:
        """Give one partition its new number of buckets."""
        added = {CHOSEN_PATTERN: self._new_count}
        bl.open_table(str(table)).rescale(add=added, spark=self.spark, dry_run=False)

    def rescale_table(self, _data: DataSet, table: Path) -> None:
        """Give all partitions their new number of buckets."""
        count = self._new_count
        opened = bl.open_table(str(table))
        opened.rescale({".*": count}, default=count, spark=self.spark, dry_run=False)

    def schedule(self, _data: DataSet, table: Path) -> None:
        """Plan a resize that splits every bucket."""
        bl.open_table(str(table)).resize(**SPLIT_ALL, schedule_only=True, spark=self.spark)

    def complete(self, _data: DataSet, table: Path) -> None:
        """Carry the pending resize out; the limits keep this call from planning another one."""
        report = bl.open_table(str(table)).resize(
            max_file_size=1 << 40, merge_threshold=0.0, spark=self.spark
        )
        assert len(report.instants) == 1, report

    # ---- what the steps share -------------------------------------------------------------------

    def create(self, schema: StructType | pa.Schema, table: Path) -> bl.Table:
        """Create the table of the orders."""
        return create(
            table,
            schema,
            self.index,
            self._table_type,
            metadata_table=self._metadata_table,
            version=self._version,
        )

    def frame(self, table: Path, columns: Sequence[str] | None = None) -> DataFrame:
        """Read all columns of the table, or those that are named."""
        return bl.open_table(str(table)).read(self.spark, columns=columns)

    def settle(self) -> None:
        """Start workers again: Spark ends those that were idle for a minute."""
        ids = self.spark.range(0, self._cores, 1, self._cores)
        held = [row.held for row in ids.mapInArrow(_warm_worker, "held long").collect()]
        # The first call sees workers that have not worked yet: an interpreter and its imports,
        # which do not grow with the data.
        self._worker_idle_bytes = self._worker_idle_bytes or min(held)
        self._plans.clear()
        super().settle()

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        """Return also the memory of idle workers, and how evenly rows were placed."""
        seen = super().observe(step, table) | {"worker_idle_bytes": self._worker_idle_bytes}
        if step == "build":
            return seen | index_files(table)
        if step != "read":
            seen |= largest_file(table)
        if step == "upsert" and (files := live_files(table)):
            seen["rewrite_bytes"] = memory_of_group(_largest(files)[1])
        # The shuffle carries packed rows, so Spark's count of it says nothing. A task refuses other
        # rows than the plan has for it.
        rows = [_rows_by_task(plan) for plan in self._plans]
        return seen | {
            "stages": [placement_of(n, each) for n, each in enumerate(rows) if sum(each)]
        }


class BucketLakeFiles(BucketLake):
    """A table whose tasks read the files of a write themselves, with `bl.files`."""

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows into a new table."""
        schema = pq.read_schema(next(data.load.glob("*.parquet")))
        self.create(schema, table).upsert(bl.files(f"{data.load}/*.parquet"))

    def upsert(self, data: DataSet, table: Path) -> None:
        """Write the changes."""
        bl.open_table(str(table)).upsert(bl.files(f"{data.changes}/*.parquet"))


def dynamic(settings: Settings) -> bl.DynamicBucket:
    """As many buckets as simple ones in a new partition, so that as many tasks write."""
    return bl.DynamicBucket(assigners=settings["buckets"])


def simple(settings: Settings) -> bl.SimpleBucket:
    return bl.SimpleBucket(settings["buckets"])


def contender(
    name: str,
    index: Callable[[Settings], Any] = dynamic,
    table_type: str = "copy_on_write",
    *,
    system: type[BucketLake] = BucketLake,
    metadata_table: bool = True,
    version: int = NEWEST_VERSION,
) -> Contender:
    """Return a contender whose settings are the default's, but for what is told.

    Its process has PySpark 3.5 if its name ends with ``35``.
    """

    def make(settings: Settings) -> BucketLake:
        return system(
            settings,
            index(settings),
            table_type,
            metadata_table=metadata_table,
            version=version,
        )

    return Contender(name, make, "bucketlake", name.endswith("35"))


def largest_file(table: Path) -> dict[str, int]:
    """Return rows of the live base file with the most, and its size in Arrow; {} without files."""
    files = live_files(table)
    if not files:
        return {}
    rows, path = _largest(files)
    size = pq.ParquetFile(path).read().nbytes
    return {"largest_file_rows": rows, "largest_group_arrow_bytes": size}


def _largest(files: Sequence[Path]) -> tuple[int, Path]:
    return max((pq.read_metadata(path).num_rows, path) for path in files)


@cache
def _noted_plans() -> list[WritePlan]:
    """Return the list to which every later write of this process adds its plan."""
    plans: list[WritePlan] = []
    write = PackedRecords.write

    def noting(records: PackedRecords, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        plans.append(plan)
        return write(records, plan, task)

    PackedRecords.write = noting  # type: ignore[assignment]
    return plans


def _rows_by_task(plan: WritePlan) -> list[int]:
    rows = [0] * plan.task_count
    for slot in plan.slots:
        rows[slot.task] += slot.records
    return rows


def _warm_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import what a write imports, and tell the memory that the worker then holds, in bytes."""
    import bucketlake.spark.frame_source
    import bucketlake.write.group_writer
    import bucketlake.write.record_index.by_shard

    with suppress(ImportError):  # PySpark 3.5 has no data sources in Python.
        import bucketlake.spark.splits  # noqa: F401
    time.sleep(0.2)  # So that each core's task needs a worker of its own.
    for _ in batches:
        pass
    status = Path("/proc/self/status").read_text()
    resident = status.partition("VmRSS:")[2].split()[0]
    yield pa.RecordBatch.from_pydict({"held": [int(resident) * 1024]})
