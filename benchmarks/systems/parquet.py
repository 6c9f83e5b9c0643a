"""Plain Parquet on Spark 3.5, with no table format: what a job costs that only moves the rows.

Its upsert is what one writes by hand: it rewrites the whole table into a new folder, without rows
that have a successor among the changes. It takes every change as newer than what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.common.rows import KEY, PARTITION, DataSet
from benchmarks.systems.spark import SparkSystem

SESSION = {"spark.sql.shuffle.partitions": "4"}
LOADED, CHANGED = "loaded", "changed"


class PlainParquet(SparkSystem):
    """Load by append, upsert by rewriting everything."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings, SESSION)

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows."""
        _write(self.spark.read.parquet(str(data.load)), table / LOADED)

    def upsert(self, data: DataSet, table: Path) -> None:
        """Write all rows into a new folder: the changes, and what they leave."""
        changes = self.spark.read.parquet(str(data.changes))
        stored = self.spark.read.parquet(str(table / LOADED))
        kept = stored.join(changes, [PARTITION, KEY], "left_anti")
        _write(kept.unionByName(changes), table / CHANGED)

    def frame(self, table: Path, _columns: Sequence[str] | None = None) -> DataFrame:
        """Read the newest folder."""
        changed = table / CHANGED
        return self.spark.read.parquet(str(changed if changed.exists() else table / LOADED))


def _write(rows: DataFrame, folder: Path) -> None:
    rows.write.partitionBy(PARTITION).parquet(str(folder))
