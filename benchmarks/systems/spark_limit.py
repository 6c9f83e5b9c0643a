"""The limit on Spark: the bare merge of `polars_limit.py`, by tasks that get their rows from Spark.

Spark reads the input, shuffles the rows by partition and bucket, and hands them to Python in Arrow;
a task merges its files as the bare merge does. No table format, index, commit, statistics or
retries: what is left is what any Python writer on Spark with this layout must do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, functions

from benchmarks.common.rows import KEY, PARTITION, DataSet
from benchmarks.systems.bucketlake import SESSION
from benchmarks.systems.polars_limit import merge_group
from benchmarks.systems.spark import SparkSystem

BUCKET = "bucket"


class SparkLimit(SparkSystem):
    """Merge file by file in tasks of Spark; perhaps with Hudi's five meta columns."""

    def __init__(self, settings: Mapping[str, Any], *, of_hudi: bool = False) -> None:
        super().__init__(settings, SESSION)
        self._of_hudi = of_hudi
        self._cores, self._buckets = settings["cores"], settings["buckets"]
        self._level = settings["zstd_level"]
        self.settings |= {"layout": f"one file for each partition and bucket, {self._buckets}"}

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows."""
        self._write(data.load, table)

    def upsert(self, data: DataSet, table: Path) -> None:
        """Merge the changes with the stored rows."""
        self._write(data.changes, table)

    def frame(self, table: Path, _columns: Sequence[str] | None = None) -> DataFrame:
        """Read the files."""
        return self.spark.read.parquet(f"{table}/*/*.parquet")

    def _write(self, rows: Path, table: Path) -> None:
        bucket = functions.pmod(functions.hash(KEY), functions.lit(self._buckets)).alias(BUCKET)
        frame = self.spark.read.parquet(str(rows)).select("*", bucket)
        shuffled = frame.repartition(2 * self._cores, PARTITION, BUCKET)
        write = partial(_write_groups, table, self._level, self._of_hudi)
        shuffled.mapInArrow(write, "groups long").collect()


def _write_groups(
    table: Path, level: int, of_hudi: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import polars as pl

    held = [*batches]
    if not held:
        return
    rows = pl.from_arrow(pa.Table.from_batches(held))
    assert isinstance(rows, pl.DataFrame)
    groups = rows.partition_by(PARTITION, BUCKET, as_dict=True, maintain_order=False)
    for (partition, bucket), fresh in groups.items():
        path = table / str(partition) / f"{bucket:08d}.parquet"
        merge_group(path, fresh.drop(BUCKET), level, of_hudi=of_hudi)
    yield pa.RecordBatch.from_pydict({"groups": [len(groups)]})
