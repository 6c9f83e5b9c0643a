"""bucketlake itself, on whichever PySpark this interpreter has: 4 or 3.5.

The first load is by `upsert` too (so it checks and deduplicates what it loads, as Hudi's upsert
does). Python workers are started before the clock, as the peers' JVM is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import bucketlake as bl
from benchmarks.common.rows import KEY, ORDERING, PARTITION, DataSet
from benchmarks.common.spark import SparkContender, checksum, start_session

SESSION = {"spark.sql.shuffle.partitions": "4"}


class BucketLakeContender(SparkContender):
    """Load and change by upsert, read through Spark; further steps are a benchmark's own."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Mapping[str, Any],
        index: bl.SimpleBucket
        | bl.PartitionBucket
        | bl.ConsistentBucket
        | bl.DynamicBucket
        | bl.RecordIndex,
        table_type: str = "copy_on_write",
        *,
        metadata_table: bool = False,
    ) -> None:
        super().__init__(spark)
        self._cores, self._index, self._table_type = settings["cores"], index, table_type
        # A record-level index is a part of the metadata table.
        self._metadata_table = metadata_table or isinstance(
            index, bl.DynamicBucket | bl.RecordIndex
        )
        self._worker_idle_bytes = 0
        self.settings = {
            **SESSION,
            "table_type": table_type,
            "load": "upsert",
            "metadata_table": str(self._metadata_table),
        }

    def load(self, data: DataSet, table: Path) -> None:
        rows = self.spark.read.parquet(str(data.load))
        self.create(rows.schema, table).upsert(rows)

    def create(self, schema: StructType, table: Path) -> bl.Table:
        """Create the table of the orders."""
        return bl.create_table(
            str(table),
            schema=schema,
            record_key=[KEY],
            partition_by=[PARTITION],
            ordering=ORDERING,
            index=self._index,
            table_type=self._table_type,
            metadata_table=self._metadata_table,
            name="orders",
        )

    def upsert(self, data: DataSet, table: Path) -> None:
        bl.open_table(str(table)).upsert(self.spark.read.parquet(str(data.changes)))

    def read(self, table: Path) -> dict[str, int]:
        return checksum(self.frame(table))

    def frame(self, table: Path, columns: Sequence[str] | None = None) -> DataFrame:
        """Read all columns of the table, or those that are named."""
        return bl.open_table(str(table)).read(self.spark, columns=columns)

    def settle(self) -> None:
        # Spark ends Python workers that were idle for a minute, while other contenders ran.
        ids = self.spark.range(0, self._cores, 1, self._cores)
        held = [row.held for row in ids.mapInArrow(_warm_worker, "held long").collect()]
        # The first call sees workers that have not worked yet: an interpreter and its imports,
        # which do not grow with the data.
        self._worker_idle_bytes = self._worker_idle_bytes or min(held)
        super().settle()

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        seen = super().observe(step, table)
        if step != "read":
            seen["worker_idle_bytes"] = self._worker_idle_bytes
            if (largest := largest_group_arrow_bytes(table)) is not None:
                seen["largest_group_arrow_bytes"] = largest
        return seen

    def facts(self) -> dict[str, Any]:
        facts = super().facts()
        versions = {**facts["versions"], "pyarrow": pa.__version__}
        return {**facts, "versions": versions}


def start_bucketlake(
    settings: Mapping[str, Any], name: str = "bucketlake"
) -> tuple[str, SparkSession]:
    """Start the session, and return the contender's name for it, which ends with its Spark."""
    spark = start_session(name, settings, SESSION)
    return f"{name}-spark35" if spark.version.startswith("3.5") else f"{name}-spark4", spark


def largest_group_arrow_bytes(table: Path) -> int | None:
    """Size in Arrow of the base file with the most rows, meta columns and all; None without any."""
    files = [path for path in table.rglob("*.parquet") if ".hoodie" not in path.parts]
    if not files:
        return None
    largest = max(files, key=lambda path: pq.read_metadata(path).num_rows)
    return pq.ParquetFile(largest).read().nbytes


def _warm_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import what a write imports, and tell the memory that the worker then holds, in bytes."""
    import bucketlake.spark.frame_source
    import bucketlake.write.group_writer  # noqa: F401

    time.sleep(0.2)  # So that each core's task needs a worker of its own.
    for _ in batches:
        pass
    status = Path("/proc/self/status").read_text()
    resident = status.partition("VmRSS:")[2].split()[0]
    yield pa.RecordBatch.from_pydict({"held": [int(resident) * 1024]})
