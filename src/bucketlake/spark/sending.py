"""Sending records to tasks, and with them the plans of what each task does.

Rows of :data:`SENT` are shuffled by ``task``. A row has either a piece of packed records, or plans
as text. Both arrive in the task that owns them, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.

from bucketlake.spark.facts import facts_in_tasks, facts_of
from bucketlake.spark.pieces import chunks, pack, unpack
from bucketlake.spark.reports import Batches, BatchFunction

SENT = pa.schema(
    [
        pa.field("task", pa.int32()),
        pa.field("piece", pa.binary()),  # Packed records; null in rows with plans.
        pa.field("facts", pa.string()),  # Plans as text; null in rows with records.
    ]
)

_Plan = TypeVar("_Plan")


class TaskPlan(Protocol):
    """What a task does with some of its records."""

    @property
    def task(self) -> int:
        """The task."""
        ...

    def to_text(self) -> str:
        """Print the plan, to be sent as a row."""
        ...


def packing(
    place: Callable[[pa.Table], npt.NDArray[np.int32]], values: npt.NDArray[np.int32]
) -> BatchFunction:
    """Return a function that packs records for their tasks.

    Parameters
    ----------
    place : callable
        Gives the task of each row; a row with a negative task is dropped.
    values : ndarray of int32, shape (n_tasks,)
        What sends a row to each task, see ``values_for_tasks``.
    """

    def pack_batches(batches: Batches) -> Batches:
        for rows in chunks(batches):
            tasks, pieces = pack(rows, place(rows))
            columns = [pa.array(values[tasks]), pieces, pa.nulls(len(tasks), pa.string())]
            yield pa.RecordBatch.from_arrays(columns, schema=SENT)

    return pack_batches


def sent_plans(spark: SparkSession, plans: Sequence[TaskPlan], task_count: int) -> DataFrame:
    """Return plans as rows that are sent to their tasks."""
    texts, tasks = [plan.to_text() for plan in plans], [plan.task for plan in plans]
    facts = facts_in_tasks(spark, texts, tasks, task_count)
    return facts.select("task", F.lit(None).cast("binary").alias("piece"), "facts")


def received(
    batches: Batches, parse: Callable[[str], _Plan], schema: pa.Schema
) -> tuple[list[_Plan], pa.Table]:
    """Return the plans of a task, and its records.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        Rows of ``SENT``.
    parse : callable
        Parses a plan.
    schema : pyarrow.Schema
        Columns of the records, if there are none.
    """
    records: list[pa.RecordBatch] = []
    plans: list[_Plan] = []
    for batch in batches:
        records += unpack(batch.column("piece"))
        plans += map(parse, facts_of(batch.column("facts")))
    return plans, pa.Table.from_batches(records) if records else schema.empty_table()
