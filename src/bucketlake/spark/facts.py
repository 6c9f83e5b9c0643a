"""Facts that the driver sends to tasks, as rows of a DataFrame.

The rows come from a ``VALUES`` list in SQL. ``createDataFrame`` would import pandas in the driver,
and PySpark 3.5 copies its rows in additional Python workers. All facts of a task are one row, so
that the SQL text has few tokens. The facts are encoded, so that session settings and special
characters cannot change their meaning.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bucketlake.flow.spread import spread
from bucketlake.spark.placement import values_for_tasks

_TASK_BYTES = 32 * 2**20  # Size of a task's files; a Python task itself costs about 40 ms.
_TASKS_LEAST = 8  # Fewer only if there are fewer pieces of work.


def facts_in_tasks(
    spark: SparkSession, facts: Sequence[Any], tasks: Iterable[int], task_count: int
) -> DataFrame:
    """Return facts as rows that ``repartition(task_count, "task")`` sends to their tasks.

    Parameters
    ----------
    spark : SparkSession
        The session.
    facts : sequence
        Picklable values.
    tasks : iterable of int
        The task of each fact, from 0.
    task_count : int
        Number of tasks of the shuffle.

    Returns
    -------
    DataFrame
        Columns ``task`` (int) and ``facts`` (string), which :func:`facts_of` reads.
    """
    values = values_for_tasks(task_count)
    by_value: dict[int, list[Any]] = {}
    for fact, task in zip(facts, tasks, strict=True):
        by_value.setdefault(int(values[task]), []).append(fact)
    by_value = by_value or {0: []}  # SQL has no empty list of VALUES.
    rows = ", ".join(f"({value}, '{encode_facts(texts)}')" for value, texts in by_value.items())
    return spark.sql(f"SELECT * FROM VALUES {rows} AS given(task, facts)")


def facts_of(column: pa.StringArray) -> list[Any]:
    """Return the facts in a column ``facts``, which is null in other rows."""
    texts = column.drop_null().to_pylist()
    return [fact for text in texts for fact in pickle.loads(base64.b64decode(text))]


def encode_facts(facts: Sequence[Any]) -> str:
    """Encode facts as one text without quotes; :func:`facts_of` decodes it."""
    return base64.b64encode(pickle.dumps(facts)).decode()


def in_tasks(spark: SparkSession, work: Sequence[Any], sizes: Sequence[int]) -> DataFrame:
    """Return pieces of work as facts for few tasks, because each task costs time.

    Parameters
    ----------
    spark : SparkSession
        The session.
    work : sequence
        Pieces of work: picklable values.
    sizes : sequence of int
        Number of bytes that each piece reads.
    """
    count = task_count(sizes)
    facts = facts_in_tasks(spark, work, spread(sizes, count), count)
    return facts.repartition(count, "task")


def task_count(sizes: Sequence[int]) -> int:
    """Return the number of tasks for pieces of work that read some numbers of bytes."""
    return max(1, min(len(sizes), max(_TASKS_LEAST, -(-sum(sizes) // _TASK_BYTES))))
