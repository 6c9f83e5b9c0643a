"""Stages and flows: what tasks do, and how rows get from one task to the next.

Every write and every service that needs an engine is a *flow*. An engine starts it, and each
*stage* adds a step with tasks of its own: rows that a task hands on are sent to the task of the
next stage that owns them, and everything else that it yields is a result for the driver. There are
two engines: threads of this process (``flow/threads.py``) and Spark (``spark/flow.py``). A task may
run twice; its rows and results must not depend on that.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.model.arrays import is_everything, number_order

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
        :func:`in_task_order`.
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
        """Whether the memory of this process holds all rows between two stages.

        If not, a flow that is not kept runs again for each flow that goes on from it.
        """

    @property
    def tasks_wanted(self) -> int:
        """Number of tasks that a write should have."""

    def start(
        self, work: Callable[[Any], Iterable[Any]], plans: Sequence[Any], sizes: Sequence[int]
    ) -> Flow:
        """Begin a flow: its first tasks get plans, and no rows.

        Parameters
        ----------
        work : callable
            Does a plan, and yields :class:`Rows` for the next stage, and results; picklable.
        plans : sequence
            The plans.
        sizes : sequence of int
            Estimated bytes that each plan reads.
        """


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


# ---- Rows on their way to tasks, and divided among the plans of a task by a column of numbers ----

_RUN_ROWS = 64  # Runs that are shorter on average are sorted.


def in_task_order(
    tasks: Int32Array, numbers: npt.NDArray[np.integer[Any]], rows: pa.Table
) -> tuple[Int32Array, pa.Table]:
    """Order rows by task, and the rows of a task by number; rows of ``NO_TASK`` are dropped.

    This is the only time that the rows of a flow are sorted: later they are cut.

    Parameters
    ----------
    tasks : ndarray of int32, shape (n_rows,)
        The task of each row.
    numbers : ndarray of integers, shape (n_rows,)
        The number of the plan, not negative where there is a task.
    rows : pa.Table
        The rows.
    """
    at = np.flatnonzero(tasks != NO_TASK)
    own, inner = tasks[at].astype(np.int64), numbers[at].astype(np.int64)
    order = at[number_order(own * (int(inner.max(initial=0)) + 1) + inner)]
    is_ordered = is_everything(order, len(tasks))
    return tasks[order], rows if is_ordered else rows.take(pa.array(order))


@dataclass(frozen=True, slots=True, eq=False)
class NumberedRows:
    """Rows by number, as they arrived: in runs of one number.

    Attributes
    ----------
    schema : pa.Schema
        Columns of the rows.
    runs : dict of int to list of pa.Table
        The runs of each number, in the order in which they arrived.
    """

    schema: pa.Schema
    runs: dict[int, list[pa.Table]]

    @classmethod
    def of(cls, rows: pa.Table, column: str) -> Self:
        """Divide rows by a column; rows that do not come in runs are sorted."""
        numbers = rows[column].to_numpy()
        starts = _starts(numbers)
        if len(starts) * _RUN_ROWS > len(numbers):
            order = number_order(numbers)
            rows, numbers = rows.take(pa.array(order)), numbers[order]
            starts = _starts(numbers)
        runs: dict[int, list[pa.Table]] = defaultdict(list)
        for start, end in pairwise([*starts.tolist(), len(rows)]):
            runs[int(numbers[start])].append(rows.slice(start, end - start))
        return cls(rows.schema, dict(runs))

    def count(self, number: int) -> int:
        """Count the rows with a number."""
        return sum(run.num_rows for run in self.runs.get(number, ()))

    def take(self, *numbers: int) -> pa.Table:
        """Take the rows with some numbers out, of each as they arrived, in one chunk.

        What is taken is not kept here, so that its memory is free when the caller drops it.
        """
        runs = [run for number in numbers for run in self.runs.pop(number, ())]
        if not runs:
            return self.schema.empty_table()
        return pa.concat_tables(runs).unify_dictionaries().combine_chunks()


def _starts(numbers: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    if not len(numbers):
        return np.empty(0, np.int64)
    return np.append(0, np.flatnonzero(numbers[1:] != numbers[:-1]) + 1)
