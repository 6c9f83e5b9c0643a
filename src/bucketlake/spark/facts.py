"""Facts that the driver sends to tasks, as rows of a DataFrame.

The rows come from a ``VALUES`` list in SQL. ``createDataFrame`` would import pandas in the driver,
and PySpark 3.5 copies its rows in additional Python workers. All facts of a task are one row, so
that the SQL text has few tokens. The facts are encoded, so that session settings and special
characters cannot change their meaning.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bucketlake.spark.placement import values_for_tasks


def facts_in_tasks(
    spark: SparkSession, facts: Sequence[str], tasks: Iterable[int], task_count: int
) -> DataFrame:
    """Return facts as rows that ``repartition(task_count, "task")`` sends to their tasks.

    Parameters
    ----------
    spark : SparkSession
        The session.
    facts : sequence of str
        The facts, as text.
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
    by_value: dict[int, list[str]] = {}
    for fact, task in zip(facts, tasks, strict=True):
        by_value.setdefault(int(values[task]), []).append(fact)
    by_value = by_value or {0: []}  # SQL has no empty list of VALUES.
    rows = ", ".join(f"({value}, '{encode_facts(texts)}')" for value, texts in by_value.items())
    return spark.sql(f"VALUES {rows}").toDF("task", "facts")


def facts_of(column: pa.StringArray) -> list[str]:
    """Return the facts in a column ``facts``, which is null in other rows."""
    return [fact for text in column.drop_null().to_pylist() for fact in _decode(text)]


def encode_facts(texts: list[str]) -> str:
    """Encode facts as one text without quotes; :func:`facts_of` decodes it."""
    return base64.b64encode(json.dumps(texts).encode()).decode()


def _decode(text: str) -> list[str]:
    facts: list[str] = json.loads(base64.b64decode(text))
    return facts
