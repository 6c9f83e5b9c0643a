"""Plain Parquet on Spark 3.5, with no table format: what a job costs that only moves the rows.

Its upsert is what one writes by hand: it rewrites the whole table into a new folder, without rows
that have a successor among the changes. It takes every change as newer than what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.common.rows import KEY, PARTITION, DataSet
from benchmarks.common.spark import SparkContender, checksum, start_session

SESSION = {"spark.sql.shuffle.partitions": "4"}
LOADED, CHANGED = "loaded", "changed"


class PlainParquet(SparkContender):
    """Load by append, upsert by rewriting everything."""

    settings = SESSION

    def load(self, data: DataSet, table: Path) -> None:
        _write(self.spark.read.parquet(str(data.load)), table / LOADED)

    def upsert(self, data: DataSet, table: Path) -> None:
        changes = self.spark.read.parquet(str(data.changes))
        stored = self.spark.read.parquet(str(table / LOADED))
        kept = stored.join(changes, [PARTITION, KEY], "left_anti")
        _write(kept.unionByName(changes), table / CHANGED)

    def read(self, table: Path) -> dict[str, int]:
        return checksum(self.spark.read.parquet(str(table / CHANGED)))


def _write(rows: DataFrame, folder: Path) -> None:
    rows.write.partitionBy(PARTITION).parquet(str(folder))


def contenders(settings: Mapping[str, Any]) -> dict[str, PlainParquet]:
    """Build what this process offers."""
    return {"plain-parquet": PlainParquet(start_session("parquet", settings, SESSION))}
