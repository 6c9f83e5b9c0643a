"""Arrow tables as the source of a write: no engine, threads of this process are the tasks."""

from __future__ import annotations

import os
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from bucketlake.model.write_stat import WriteStat
from bucketlake.write.plan import GroupPlan, WritePlan
from bucketlake.write.source import GroupCounts, WriteTask
from bucketlake.write.tag import Tagger


class ArrowSource:
    """Records of an Arrow table; its row order decides between equal ordering values."""

    def __init__(self, rows: pa.Table, threads: int | None = None) -> None:
        self._rows = rows
        self._threads = threads or _cpu_count()

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self._rows.column_names
        return names

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table."""
        return self._rows.schema

    def keep(self, columns: list[str]) -> None:
        """Leave all columns out but these."""
        self._rows = self._rows.select(columns)

    @property
    def tasks_wanted(self) -> int:
        """As many as can run at once, a few times over."""
        return 4 * self._threads

    def count_groups(self, tagger: Tagger) -> GroupCounts:
        """Count the records of each file group."""
        counts = tagger.count(self._rows)
        names, buckets, records = (column.to_pylist() for column in counts.columns)
        return dict(zip(zip(names, buckets, strict=True), records, strict=True))

    def write_groups(self, plan: WritePlan, task: WriteTask) -> list[WriteStat]:
        """Write the groups of the plan, some at once."""
        rows_of_task = _split(self._rows, plan, task.tagger)
        groups_of_task: dict[int, list[GroupPlan]] = defaultdict(list)
        for group in plan.groups:
            groups_of_task[group.task].append(group)

        def run(number: int) -> list[WriteStat]:
            chosen = rows_of_task[number]
            return task.write(groups_of_task[number], self._rows.take(pa.array(chosen)), chosen)

        with ThreadPoolExecutor(self._threads) as pool:
            return [stat for stats in pool.map(run, sorted(groups_of_task)) for stat in stats]

    def close(self) -> None:
        """Nothing is kept."""


def _split(rows: pa.Table, plan: WritePlan, tagger: Tagger) -> dict[int, np.ndarray]:
    tagged = tagger.tag(rows.select(tagger.columns))
    numbers = plan.placement().place(tagged)
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(plan.task_count + 1))
    return {i: order[bounds[i] : bounds[i + 1]] for i in range(plan.task_count)}


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
