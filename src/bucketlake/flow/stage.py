"""Stages and flows: what tasks do, and how rows get from one task to the next.

Every write and every service that needs an engine is a *flow*. An engine starts it, and each
*stage* adds a step with tasks of its own: rows that a task hands on are sent to the task of the
next stage that owns them, and everything else that it yields is a result for the driver. There are
two engines: threads of this process (``flow/threads.py``) and Spark (``spark/flow.py``). A task may
run twice; its rows and results must not depend on that.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Item = TypeVar("_Item")

Int32Array: TypeAlias = "npt.NDArray[np.int32]"

GroupName: TypeAlias = "tuple[str, int]"

NO_TASK = -1
"""In place of a task: the row is dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The group of each row.

    Attributes
    ----------
    names : list of (str, int)
        The groups, the same in all tasks.
    numbers : ndarray of int32, shape (n_rows,)
        Positions in ``names``.
    """

    names: list[GroupName]
    numbers: Int32Array

    def counts(self) -> dict[GroupName, int]:
        """Return the number of rows of each group."""
        counts = np.bincount(self.numbers, minlength=len(self.names))
        return dict(zip(self.names, counts.tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows that a task hands on to the next stage.

    Attributes
    ----------
    channel : str
        What the rows are; a task gets the rows of each channel as one table.
    table : pa.Table
        The rows.
    groups : Groups or None
        Their groups, if they are known before the tasks of the next stage are.
    """

    channel: str
    table: pa.Table
    groups: Groups | None = None


class TaskPlan(Protocol):
    """What a task does: a picklable value that is sent to the task."""

    @property
    def task(self) -> int:
        """The task, from 0."""


class Stage(Protocol):
    """The work of the tasks of a step; a picklable value that they share."""

    def route(self, rows: Rows) -> tuple[Int32Array, pa.Table]:
        """Return the task of each row, ascending, and the rows as the task gets them.

        It runs where the rows are sent from, and orders them with
        :func:`~bucketlake.flow.numbered_rows.in_task_order`.
        """

    def run(self, plans: Sequence[Any], received: dict[str, pa.Table], /) -> Iterator[Any]:
        """Do the work of a task; yield :class:`Rows` for the next stage, and results.

        Parameters
        ----------
        plans : sequence
            The plans of the task.
        received : dict of str to pa.Table
            The rows of the task by channel, in any order; no entry for a channel without rows. A
            stage may take tables out, so that their memory is free when they are divided.
        """


class Flow(Protocol):
    """The rows and results after a stage."""

    def then(
        self,
        stage: Stage,
        plans: Sequence[TaskPlan],
        task_count: int,
        tasks: Mapping[GroupName, int] | None = None,
    ) -> Flow:
        """Add a stage: its tasks get the rows of this flow.

        Parameters
        ----------
        stage : Stage
            What the tasks do.
        plans : sequence
            Their plans. Every task with rows has one.
        task_count : int
            Number of tasks.
        tasks : mapping of group to int, optional
            The task of each group, or ``NO_TASK``, if each group is of one task. Then the engine
            may send whole groups without ``stage.route``; rows of other groups go to any task.
        """

    def kept(self) -> Flow:
        """Run the flow, and keep its rows, so that several flows can go on from them."""

    def results(self) -> list[Any]:
        """Run the flow; return the results of all its stages, or of a kept flow its own."""

    def close(self) -> None:
        """Drop what was kept."""


class Engine(Protocol):
    """Runs flows."""

    @property
    def in_memory(self) -> bool:
        """Whether the memory of this process holds all rows between two stages."""

    @property
    def tasks_wanted(self) -> int:
        """Number of tasks that a write should have."""

    def start(self, stage: Stage, plans: Sequence[Any], sizes: Sequence[int]) -> Flow:
        """Begin a flow without rows.

        Parameters
        ----------
        stage : Stage
            Its tasks get one plan after the other.
        plans : sequence
            The plans.
        sizes : sequence of int
            Estimated bytes that each plan reads.
        """


class JobStage:
    """A stage that gets no rows."""

    __slots__ = ()

    def route(self, rows: Rows) -> tuple[Int32Array, pa.Table]:
        """Fail: nobody sends rows to jobs."""
        raise AssertionError(rows.channel)


# ---- Spreads work over tasks ---------------------------------------------------------------------


def spread(weights: Sequence[int], task_count: int) -> list[int]:
    """Return a task for each weight: in descending order, each to the task with the least load."""
    loads = [(0, task) for task in range(task_count)]
    tasks = [0] * len(weights)
    for place in sorted(range(len(weights)), key=lambda i: -weights[i]):
        load, task = heapq.heappop(loads)
        tasks[place] = task
        heapq.heappush(loads, (load + weights[place], task))
    return tasks


def in_runs(items: Sequence[_Item], weights: Sequence[int], weight: float) -> list[list[_Item]]:
    """Divide items into runs of at least a weight, so that small ones are worked on together."""
    runs: list[list[_Item]] = []
    left = 0.0
    for item, own in zip(items, weights, strict=True):
        if left <= 0:
            runs.append([])
            left = weight
        runs[-1].append(item)
        left -= own
    return runs
