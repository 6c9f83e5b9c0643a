"""What the Spark contenders share: one session, the checksum query, rows counted by task.

All of them get two local cores, the same heap, the same Parquet codec and level, adaptive
execution as Spark ships it, and UTC. What differs is in each contender's file, with its reason.
"""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.common.rows import CHECKSUM_SQL
from bucketlake.model.file_name import LogFileName


def start_session(name: str, settings: Mapping[str, Any], own: Mapping[str, str]) -> SparkSession:
    """Start a contender's session: the shared settings, then its own."""
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
    builder = SparkSession.builder.appName(f"benchmark-{name}")
    for key, value in {**shared, **own}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class SparkContender:
    """The steps that are the same for every system on Spark."""

    settings: dict[str, str]  # What this contender sets, for the result file.

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._stages_seen = 0

    def settle(self) -> None:
        """Collect garbage of the last step, and remember which stages are history."""
        gc.collect()
        self.spark.sparkContext._jvm.System.gc()
        self._stages_seen = max((stage["id"] for stage in _stages(self.spark)), default=-1) + 1

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        """Rows by task of every stage that read a shuffle, and the table's files."""
        stages = [s for s in _stages(self.spark) if s["id"] >= self._stages_seen]
        placed = [_rows_by_task(self.spark, stage) for stage in stages if stage["shuffle_rows"]]
        return {"stages": placed, **({} if step == "read" else files_of(table))}

    def facts(self) -> dict[str, Any]:
        java = self.spark.sparkContext._jvm.System.getProperty("java.version")
        return {
            "versions": {
                "python": platform.python_version(),
                "spark": self.spark.version,
                "java": java,
            },
            "settings": self.settings,
        }


def checksum(frame: DataFrame, sums: Collection[str] = tuple(CHECKSUM_SQL)) -> dict[str, int]:
    """Count and sums over every column, or those that are named, in one query."""
    row = frame.selectExpr(*(f"{CHECKSUM_SQL[name]} AS {name}" for name in sums)).first()
    assert row is not None
    return {name: int(value) for name, value in row.asDict().items()}


def files_of(table: Path) -> dict[str, int]:
    """Files and bytes below a table's folder, its own bookkeeping apart."""
    data = total = count = log_data = log_count = 0
    for folder, _, names in os.walk(table):
        for name in names:
            size = (Path(folder) / name).stat().st_size
            total += size
            if "/.hoodie" in folder or "/_delta" in folder:
                continue
            if name.endswith(".parquet"):
                data, count = data + size, count + 1
            elif LogFileName.from_file_name(name):
                log_data, log_count = log_data + size, log_count + 1
    return {
        "table_bytes": total,
        "data_bytes": data,
        "data_files": count,
        "log_bytes": log_data,
        "log_files": log_count,
    }


def _stages(spark: SparkSession) -> list[dict[str, int]]:
    """Completed stages of this session, from the store behind Spark's web pages."""
    context = spark.sparkContext
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
    """How evenly a stage's rows were placed: tasks, empty ones, and the largest over the mean."""
    store = spark.sparkContext._jsc.sc().statusStore()
    tasks = store.taskList(stage["id"], stage["attempt"], stage["tasks"])
    rows = []
    for position in range(tasks.size()):
        metrics = tasks.apply(position).taskMetrics()
        if metrics.isDefined():
            rows.append(metrics.get().shuffleReadMetrics().recordsRead())
    return placement_of(stage["id"], rows)


def placement_of(stage: int, rows: Sequence[int]) -> dict[str, Any]:
    """Say how evenly rows were placed, of their number in each task."""
    mean = sum(rows) / len(rows)
    return {
        "stage": stage,
        "tasks": len(rows),
        "tasks_without_rows": rows.count(0),
        "rows": sum(rows),
        "rows_max": max(rows),
        "rows_max_over_mean": round(max(rows) / mean, 3),
    }
