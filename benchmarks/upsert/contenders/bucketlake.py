"""bucketlake with the simple bucket index and the peers' bucket count.

Tables of the contenders with *mdt* in their name have a metadata table, the others have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import bucketlake as bl
from benchmarks.common.bucketlake import BucketLakeContender, start_bucketlake
from benchmarks.common.process import serve
from benchmarks.common.spark import placement_of
from bucketlake.write.pack import PackedRecords
from bucketlake.write.slot_stage import TaskResult, WriteTask
from bucketlake.write.write_plan import WritePlan


class BucketLake(BucketLakeContender):
    """Tell how evenly the rows of each write were placed."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Mapping[str, Any],
        plans: list[WritePlan],
        *,
        metadata_table: bool,
    ) -> None:
        index = bl.SimpleBucket(settings["buckets"])
        super().__init__(spark, settings, index, metadata_table=metadata_table)
        self.settings["index"] = f"SimpleBucket({settings['buckets']})"
        self._plans = plans

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        seen = super().observe(step, table)
        # The shuffle carries packed rows, so Spark's count of it says nothing. A task refuses other
        # rows than the plan has for it.
        seen["stages"] = [placement_of(n, _rows_by_task(p)) for n, p in enumerate(self._plans)]
        self._plans.clear()
        return seen


def _noted_plans() -> list[WritePlan]:
    """Return a list to which every later write of this process adds its plan."""
    plans: list[WritePlan] = []
    write = PackedRecords.write

    def noting(packed: PackedRecords, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        plans.append(plan)
        return write(packed, plan, task)

    PackedRecords.write = noting  # type: ignore[method-assign]
    return plans


def _rows_by_task(plan: WritePlan) -> list[int]:
    rows = [0] * plan.task_count
    for slot in plan.slots:
        rows[slot.task] += slot.records
    return rows


def contenders(settings: Mapping[str, Any]) -> dict[str, BucketLake]:
    """Build what this process offers."""
    name, spark = start_bucketlake(settings)
    _, _, version = name.partition("-")
    plans = _noted_plans()
    return {
        name: BucketLake(spark, settings, plans, metadata_table=False),
        f"bucketlake-mdt-{version}": BucketLake(spark, settings, plans, metadata_table=True),
    }


if __name__ == "__main__":
    serve(contenders)
