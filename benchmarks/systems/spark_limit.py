"""The limit on Spark: the bare merge of `polars_limit.py`, by tasks that get their rows from Spark.

Spark reads the input, shuffles the rows by partition and bucket, and hands them to Python in Arrow;
a task merges its files as the bare merge does. No table format, index, commit, statistics or
retries: what is left is what any Python writer on Spark with this layout must do. With ``logs``
the tasks write the rows of an upsert beside the files of the load, as merge-on-read does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, functions

from benchmarks.common.rows import KEY, ORDERING, PARTITION, DataSet
from benchmarks.systems.bucketlake import SESSION
from benchmarks.systems.polars_limit import merge_group
from benchmarks.systems.spark import SparkSystem

BUCKET = "bucket"
BASE, LOG = ".parquet", ".log.parquet"
"""How the names of files end."""


class SparkLimit(SparkSystem):
    """Merge file by file in tasks of Spark; perhaps with Hudi's five meta columns."""

    def __init__(
        self, settings: Mapping[str, Any], *, of_hudi: bool = False, logs: bool = False
    ) -> None:
        super().__init__(settings, SESSION)
        self._of_hudi, self._changes_end = of_hudi, LOG if logs else BASE
        self._cores, self._buckets = settings["cores"], settings["buckets"]
        self._level = settings["zstd_level"]
        self.settings |= {"layout": f"one file for each partition and bucket, {self._buckets}"}

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows."""
        self._write(data.load, table, BASE)

    def upsert(self, data: DataSet, table: Path) -> None:
        """Merge the changes with the stored rows, or write them beside these."""
        self._write(data.changes, table, self._changes_end)

    def frame(self, table: Path, _columns: Sequence[str] | None = None) -> DataFrame:
        """Read the files; of rows with one key the newest, a change on a tie."""
        rows = self.spark.read.parquet(f"{table}/*/*{BASE}")
        if self._changes_end == BASE:
            return rows
        rows = rows.select("*", functions.col("_metadata.file_name").endswith(LOG).alias("late"))
        newest = functions.max_by(functions.struct("*"), functions.struct(ORDERING, "late"))
        return rows.groupBy(KEY).agg(newest.alias("row")).select("row.*")

    def _write(self, rows: Path, table: Path, names_end: str) -> None:
        bucket = functions.pmod(functions.hash(KEY), functions.lit(self._buckets)).alias(BUCKET)
        frame = self.spark.read.parquet(str(rows)).select("*", bucket)
        shuffled = frame.repartition(2 * self._cores, PARTITION, BUCKET)
        write = partial(_write_groups, table, names_end, self._level, self._of_hudi)
        shuffled.mapInArrow(write, "groups long").collect()


def _write_groups(
    table: Path, names_end: str, level: int, of_hudi: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import polars as pl

    held = [*batches]
    if not held:
        return
    rows = pl.from_arrow(pa.Table.from_batches(held))
    assert isinstance(rows, pl.DataFrame)
    groups = rows.partition_by(PARTITION, BUCKET, as_dict=True, maintain_order=False)
    for (partition, bucket), fresh in groups.items():
        path = table / str(partition) / f"{bucket:08d}{names_end}"
        merge_group(path, fresh.drop(BUCKET), level, of_hudi=of_hudi)
    yield pa.RecordBatch.from_pydict({"groups": [len(groups)]})
