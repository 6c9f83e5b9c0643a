"""Facts that the driver sends to tasks, as rows of a DataFrame, and rows for chosen tasks.

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

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bucketlake.flow.stage import spread

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
        Columns ``task`` (int) and ``facts`` (string), which :func:`column_facts` reads.
    """
    values = values_for_tasks(task_count)
    by_value: dict[int, list[Any]] = {}
    for fact, task in zip(facts, tasks, strict=True):
        by_value.setdefault(int(values[task]), []).append(fact)
    by_value = by_value or {0: []}  # SQL has no empty list of VALUES.
    rows = ", ".join(f"({value}, '{encode_facts(texts)}')" for value, texts in by_value.items())
    return spark.sql(f"SELECT * FROM VALUES {rows} AS given(task, facts)")


def column_facts(column: pa.StringArray) -> list[Any]:
    """Return the facts in a column ``facts``, which is null in other rows."""
    texts = column.drop_null().to_pylist()
    return [fact for text in texts for fact in pickle.loads(base64.b64decode(text))]


def encode_facts(facts: Sequence[Any]) -> str:
    """Encode facts as one text without quotes; :func:`column_facts` decodes it."""
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


# ---- Sending rows to tasks that the writer chooses, with the DataFrame API only ------------------
#
# ``repartition(n, column)`` sends a row to task ``pmod(murmur3(column), n)``. If the column had
# task numbers, their hashes would leave a third of the tasks empty and give others twice the rows.
# So each task number is replaced by an integer that Spark's hash maps to it.

_SEED = np.uint32(42)  # The seed of Spark's hash partitioning.


def values_for_tasks(task_count: int) -> npt.NDArray[np.int32]:
    """Return, for each task, a 32-bit integer that ``repartition(task_count, …)`` sends to it.

    Parameters
    ----------
    task_count : int
        Number of tasks of the shuffle.

    Returns
    -------
    ndarray of int32, shape (task_count,)
        ``spark_hash(values)[i] mod task_count == i``.
    """
    values = np.zeros(task_count, np.int32)
    missing = task_count
    found = np.zeros(task_count, np.bool_)
    start, step = 0, max(1024, 8 * task_count)
    while missing:
        candidates = np.arange(start, start + step, dtype=np.int32)
        tasks = np.mod(spark_hash(candidates), task_count)
        first_tasks, first_places = np.unique(tasks, return_index=True)
        fresh = ~found[first_tasks]
        values[first_tasks[fresh]] = candidates[first_places[fresh]]
        found[first_tasks] = True
        missing = task_count - int(found.sum())
        start += step
    return values


def spark_hash(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return Spark SQL's ``hash()`` of 32-bit integers: Murmur3 (x86, 32 bits), seed 42."""
    with np.errstate(over="ignore"):
        block = values.astype(np.uint32) * np.uint32(0xCC9E2D51)
        block = _rotate_left(block, 15) * np.uint32(0x1B873593)
        state = _rotate_left(_SEED ^ block, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        state ^= np.uint32(4)  # Length of the hashed value in bytes.
        state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        state ^= state >> np.uint32(16)
    return state.view(np.int32)


def _rotate_left(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
