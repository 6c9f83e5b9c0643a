"""The engine of this process: the tasks of a flow are threads."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from bucketlake.flow.stage import NO_TASK, GroupName, Rows, Stage, TaskPlan
from bucketlake.model.grouping import grouped


def cpu_count() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Threads:
    """Runs flows in threads of this process.

    Attributes
    ----------
    count : int or None
        Number of threads; None for one a processor.
    """

    count: int | None = None

    in_memory = True  # Rows stay in the memory of this process.

    @property
    def tasks_wanted(self) -> int:
        """Several for each thread, since tasks differ."""
        return 4 * (self.count or cpu_count())

    def start(
        self,
        work: Callable[[Any], Iterable[Any]],
        plans: Sequence[Any],
        sizes: Sequence[int],  # noqa: ARG002 -- a plan is a task.
    ) -> ThreadFlow:
        """Begin a flow without rows; see :class:`bucketlake.flow.stage.Engine`."""
        return ThreadFlow(self, self.each(work, plans))

    def each(self, work: Callable[[Any], Iterable[Any]], tasks: Sequence[Any]) -> list[Any]:
        """Do the work of each task in threads; return everything that they yield, in order."""
        count = self.count or cpu_count()
        if count == 1 or len(tasks) < 2:
            return [item for task in tasks for item in work(task)]
        with ThreadPoolExecutor(count) as pool:
            return [item for items in pool.map(lambda t: list(work(t)), tasks) for item in items]


HERE = Threads()
"""The engine of a call without Spark, and of a write that is small."""

HERE_ROWS_MAX, HERE_BYTES_MAX = 10_000, 2 << 20
"""So many rows of Spark, of so many bytes, this process writes itself: tasks would take longer."""

HERE_REWRITTEN_MAX = 256 << 20
"""So many bytes of stored files it merges for that; more is work for tasks."""


def fits_here(*, size_bytes: int = 0, rows: int = 0) -> bool:
    """Return whether records of Spark are so few that this process writes them."""
    return size_bytes <= HERE_BYTES_MAX and rows <= HERE_ROWS_MAX


class ThreadFlow:
    """Rows and results in memory; each stage runs when it is added.

    Parameters
    ----------
    engine : Threads
        Runs the tasks.
    items : list
        What the tasks of the last stage yielded.
    """

    def __init__(self, engine: Threads, items: list[Any]) -> None:
        self._engine = engine
        self._rows = [item for item in items if isinstance(item, Rows)]
        self._results = [item for item in items if not isinstance(item, Rows)]
        self._is_kept = False

    def then(
        self,
        stage: Stage,
        plans: Sequence[TaskPlan],
        task_count: int,  # noqa: ARG002 -- a task with rows has a plan.
        tasks: Mapping[GroupName, int] | None = None,  # noqa: ARG002 -- rows are sent one by one.
    ) -> ThreadFlow:
        """Add a stage; see :class:`bucketlake.flow.stage.Flow`."""
        parcels = _sent(self._engine, stage, self._rows)
        of_task = grouped((plan.task, plan) for plan in plans)
        assert parcels.keys() <= of_task.keys(), "every task with rows has a plan"
        if not self._is_kept:
            self._rows = []  # The tasks hold the rows now.

        def work(task: int) -> Iterable[Any]:
            received = {n: pa.concat_tables(own) for n, own in parcels.get(task, {}).items()}
            return stage.run(of_task[task], received)

        items = self._engine.each(work, sorted(of_task))
        return ThreadFlow(self._engine, items if self._is_kept else [*self._results, *items])

    def kept(self) -> ThreadFlow:
        """Keep the rows for several flows; the results are those of this flow alone."""
        self._is_kept = True
        return self

    def results(self) -> list[Any]:
        """Return the results."""
        return self._results

    def close(self) -> None:
        """Drop the rows."""
        self._rows.clear()


Parcels: TypeAlias = "Mapping[int, Mapping[str, Sequence[pa.Table]]]"
"""The rows of each task, by channel: pieces that nobody copied."""


def _sent(engine: Threads, stage: Stage, rows: Sequence[Rows]) -> Parcels:
    """Return the rows of each task."""
    parcels: dict[int, dict[str, list[pa.Table]]] = defaultdict(lambda: defaultdict(list))
    routed = engine.each(lambda sent: [(sent.channel, *stage.route(sent))], rows)
    for channel, tasks, table in routed:
        bounds = np.flatnonzero(np.diff(tasks, prepend=NO_TASK, append=NO_TASK))
        for start, end in pairwise(bounds.tolist()):
            parcels[int(tasks[start])][channel].append(table.slice(start, end - start))
    return parcels
