"""Rows on their way to tasks, and divided among the plans of a task by a column of numbers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.flow.stage import NO_TASK, Int32Array
from bucketlake.model.arrays import is_everything, number_order

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
