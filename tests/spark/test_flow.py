"""Rows of a flow reach the tasks of their groups: as whole groups, or one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.flow.stage import NO_TASK, GroupName, Groups, Int32Array, Rows, in_task_order
from bucketlake.spark import flow
from bucketlake.spark.flow import SparkFlow, Work
from bucketlake.spark.spark_schema import spark_from_arrow
from tests.bounds import set_bounds
from tests.spark.frames import frame_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TASKS = 3
SCHEMA = pa.schema([("path", pa.string()), ("slot", pa.int32()), ("value", pa.int64())])


@dataclass(frozen=True)
class Plan:
    task: int


@dataclass(frozen=True)
class Stage:
    """Tells for each row the task that got it, and whether it was routed one by one."""

    tasks: Mapping[GroupName, int]

    def route(self, rows: Rows) -> tuple[Int32Array, pa.Table]:
        places = zip(rows.table["path"].to_pylist(), rows.table["slot"].to_pylist(), strict=True)
        tasks = np.array([self.tasks.get(place, 0) for place in places], np.int32)
        marked = rows.table.append_column("routed", pa.array(np.ones(len(tasks), np.bool_)))
        return in_task_order(tasks, np.zeros(len(tasks), np.int64), marked)

    def run(self, plans: Sequence[Plan], received: dict[str, pa.Table]) -> Iterator[Any]:
        (plan,) = plans
        for row in received["rows"].to_pylist() if received else ():
            yield plan.task, row["path"], row["slot"], row["value"], "routed" in row


def grouping(count: int) -> Work:
    """Return a task that hands on its rows, with groups if there are any."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        table = pa.Table.from_batches([*batches])
        places = list(zip(table["path"].to_pylist(), table["slot"].to_pylist(), strict=True))
        names = list(dict.fromkeys(places))
        numbers = np.array([names.index(place) for place in places], np.int32)
        yield Rows("rows", table, Groups(names, numbers) if count else None)
        yield len(table)

    return work


@pytest.mark.parametrize(
    ("group_count", "limit", "is_whole"),
    [(9, 4096, True), (64, 4096, True), (100, 4096, False), (9, 7, False), (0, 4096, False)],
    ids=["few", "as many as are cut", "small groups", "too many to look up", "unknown"],
)
def test_rows_go_to_the_tasks_of_their_groups(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group_count: int,
    limit: int,
    *,
    is_whole: bool,
) -> None:
    set_bounds(monkeypatch, flow, _GROUPS_MAX=limit)
    count = 600
    groups = [(f"p'{number % 7}\"/é", number) for number in range(group_count or 5)]
    rows = [(*groups[number % len(groups)], number) for number in range(count)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    table = pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)
    frame = frame_of(spark, table, tmp_path / "rows").select(*spark_from_arrow(SCHEMA).names)
    tasks = {group: number % TASKS for number, group in enumerate(groups)}
    tasks[groups[0]] = NO_TASK
    unknown = groups[1]
    stage = Stage(tasks)
    kept = SparkFlow(frame, grouping(group_count)).kept()
    try:
        assert sum(kept.results()) == count
        known = {group: task for group, task in tasks.items() if group != unknown}
        for given in (known, None):
            plans = [Plan(task) for task in range(TASKS)]
            found = kept.then(stage, plans, TASKS, given).results()
            is_routed = given is None or not is_whole
            expected = [
                (tasks[row[:2]], *row, is_routed) for row in rows if tasks[row[:2]] != NO_TASK
            ]
            if not is_routed:  # A group without a task goes to any.
                expected = [(0, *row[1:]) if row[1:3] == unknown else row for row in expected]
            assert sorted(found) == sorted(expected)
    finally:
        kept.close()
