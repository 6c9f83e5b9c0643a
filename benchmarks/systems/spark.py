"""What the systems on Spark share: one session, the checksum query, rows counted by task.

All of them get two local cores, the same heap, the same Parquet codec and level, adaptive
execution as Spark ships it, and UTC. What differs is in each system's file, with its reason.
"""

from __future__ import annotations

import gc
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.common.rows import CHECKSUM_SQL, DataSet
from bucketlake.model.file_name import LogFileName

MERGE_ON_READ = "merge_on_read"
FEW_SUMS = ("rows", "quantity")
"""What a read of a few columns tells: a part of `rows.CHECKSUM_SQL`."""


def start_session(settings: Mapping[str, Any], own: Mapping[str, str]) -> SparkSession:
    """Start the session of this process, or return it: the shared settings, then its own."""
    shared = {
        "spark.master": f"local[{settings['cores']}]",
        "spark.driver.memory": settings["driver_memory"],
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.hadoop.parquet.compression.codec.zstd.level": str(settings["zstd_level"]),
        "spark.local.dir": f"{settings['work']}/spark-local",
        "spark.sql.warehouse.dir": f"{settings['work']}/warehouse",
    }
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    builder = SparkSession.builder.appName("benchmark")
    for key, value in {**shared, **own}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class SparkSystem(ABC):
    """The steps that are the same for every system on Spark."""

    def __init__(self, settings: Mapping[str, Any], session: Mapping[str, str]) -> None:
        self.spark = start_session(settings, session)
        self.settings: dict[str, Any] = {**session}  # What it sets, for the result file.
        self.versions: dict[str, str] = {}  # Besides those of Python and Spark.
        self._stages_seen = 0

    @abstractmethod
    def frame(self, table: Path, columns: Sequence[str] | None = None) -> DataFrame:
        """Read all columns of the table, or those that are named."""

    def read(self, _data: DataSet, table: Path) -> dict[str, int]:
        """Read everything."""
        return checksum(self.frame(table))

    def read_few(self, _data: DataSet, table: Path) -> dict[str, int]:
        """Read a few columns."""
        return checksum(self.frame(table, FEW_SUMS[1:]), FEW_SUMS)

    read_all = read_after = read

    @property
    def _jvm(self) -> Any:
        return self.spark.sparkContext._jvm

    def settle(self) -> None:
        """Collect garbage of the last step, and remember which stages are history."""
        gc.collect()
        self._jvm.System.gc()
        self._stages_seen = max((stage["id"] for stage in _stages(self.spark)), default=-1) + 1

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        """Return rows by task of every stage that read a shuffle, and the table's files."""
        stages = [s for s in _stages(self.spark) if s["id"] >= self._stages_seen]
        placed = [_rows_by_task(self.spark, stage) for stage in stages if stage["shuffle_rows"]]
        return {"stages": placed, **({} if step.startswith("read") else files_of(table))}

    def facts(self) -> dict[str, Any]:
        """Return versions and settings."""
        java = self._jvm.System.getProperty("java.version")
        versions = {"python": platform.python_version(), "spark": self.spark.version, "java": java}
        return {"versions": {**versions, **self.versions}, "settings": self.settings}


def checksum(frame: DataFrame, sums: Collection[str] = tuple(CHECKSUM_SQL)) -> dict[str, int]:
    """Count and sums over every column, or those that are named, in one query."""
    row = frame.selectExpr(*(f"{CHECKSUM_SQL[name]} AS {name}" for name in sums)).first()
    assert row is not None
    return {name: int(value) for name, value in row.asDict().items()}


def one_row(spark: SparkSession, data: DataSet) -> DataFrame:
    """Return the first row of the changes, which the table has already."""
    return spark.read.parquet(str(min(data.changes.glob("*.parquet")))).limit(1)


def files_of(table: Path) -> dict[str, int]:
    """Count files and bytes below a table's folder, its own bookkeeping apart."""
    found = dict.fromkeys(("data_bytes", "data_files", "log_bytes", "log_files"), 0)
    for folder, _, names in os.walk(table):
        if "/.hoodie" in folder or "/_delta" in folder:
            continue
        for name in names:
            is_log = LogFileName.from_file_name(name) is not None
            if is_log or name.endswith(".parquet"):
                kind = "log" if is_log else "data"
                found[f"{kind}_bytes"] += (Path(folder) / name).stat().st_size
                found[f"{kind}_files"] += 1
    return found


def _stages(spark: SparkSession) -> list[dict[str, int]]:
    """Completed stages of this session, from the store behind Spark's web pages."""
    context: Any = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    jvm, gateway = context._jvm, context._gateway
    nothing = jvm.java.util.ArrayList()
    no_quantiles = gateway.new_array(jvm.double, 0)
    found = context._jsc.sc().statusStore().stageList(nothing, False, False, no_quantiles, nothing)
    stages = (found.apply(position) for position in range(found.size()))
    return [
        {
            "id": stage.stageId(),
            "attempt": stage.attemptId(),
            "tasks": stage.numTasks(),
            "shuffle_rows": stage.shuffleReadRecords(),
        }
        for stage in stages
        if stage.status().toString() == "COMPLETE"
    ]


def _rows_by_task(spark: SparkSession, stage: Mapping[str, int]) -> dict[str, Any]:
    store = spark.sparkContext._jsc.sc().statusStore()
    tasks = store.taskList(stage["id"], stage["attempt"], stage["tasks"])
    found = (tasks.apply(position).taskMetrics() for position in range(tasks.size()))
    rows = [each.get().shuffleReadMetrics().recordsRead() for each in found if each.isDefined()]
    return placement_of(stage["id"], rows)


def placement_of(stage: int, rows: Sequence[int]) -> dict[str, Any]:
    """Say how evenly rows were placed, of their number in each task."""
    return {
        "stage": stage,
        "tasks": len(rows),
        "tasks_without_rows": rows.count(0),
        "rows": sum(rows),
        "rows_max_over_mean": round(max(rows) * len(rows) / sum(rows), 3),
    }
