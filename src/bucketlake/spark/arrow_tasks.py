"""Running functions over Arrow batches in tasks, only where this bucketlake is installed.

A task of a worker without bucketlake, or with another version of it, would fail while Spark
unpickles its function, or write in another way. So the function travels as bytes inside a second
function that needs no bucketlake. The second function compares the versions, and only then
unpickles the first function.
"""

from __future__ import annotations

import base64
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyspark
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from bucketlake import __version__
from bucketlake.errors import ConfigError, UnsupportedFeatureError
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import with_arrays
from bucketlake.spark.facts import column_facts, in_tasks
from bucketlake.spark.reports import NOTE, Batches, BatchFunction, noting
from bucketlake.spark.spark_schema import spark_from_arrow
from bucketlake.spark.worker_python import PYTHON_SETTING, SHIP_IT, own_python


def map_in_arrow(df: DataFrame, function: BatchFunction, schema: pa.Schema) -> DataFrame:
    """Run a function over the Arrow batches of a DataFrame, in tasks.

    Parameters
    ----------
    df : DataFrame
        The rows.
    function : callable
        Takes the batches of a task and yields batches.
    schema : pyarrow.Schema
        Columns of the batches that the function yields.

    Raises
    ------
    UnsupportedFeatureError
        If PySpark lacks a package; PySpark 3.5 needs pandas.
    """
    given = with_arrays(schema)
    if given != schema:
        function = partial(_with_arrays, function, given)
    try:
        with own_python(df.sparkSession):
            return df.mapInArrow(checked(function, __version__), spark_from_arrow(schema))
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"PySpark {pyspark.__version__} without a package that it needs ({error})",
            sys.executable,
            "install it for the driver and the workers: pip install 'bucketlake[spark]'",
        ) from error


def each_batch(
    df: DataFrame, function: Callable[[pa.Table], pa.Table], schema: pa.Schema
) -> DataFrame:
    """Return what a function makes of each batch of rows, in tasks that note their errors."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            yield from function(pa.Table.from_batches([batch])).to_batches()

    return map_in_arrow(df, noting(run), schema)


def rows_of_work(
    spark: SparkSession,
    work: Sequence[Any],
    sizes: Sequence[int],
    read: Callable[[Any], Iterable[pa.Table]],
    schema: pa.Schema,
) -> DataFrame:
    """Return the rows that tasks read, which note their errors.

    Parameters
    ----------
    spark : SparkSession
        The session.
    work : sequence
        What is read: picklable pieces, such as file slices.
    sizes : sequence of int
        The size of each piece in bytes.
    read : callable
        Returns the rows of a piece, with the columns of ``schema``; picklable.
    schema : pyarrow.Schema
        The columns.
    """

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for piece in column_facts(batch.column("facts")):
                for rows in read(piece):
                    yield from rows.to_batches()

    return map_in_arrow(in_tasks(spark, work, sizes), noting(run), schema)


def _with_arrays(function: BatchFunction, schema: pa.Schema, batches: Batches) -> Batches:
    for batch in function(batches):
        yield cast_table(batch, schema)


def checked(function: BatchFunction, version: str) -> BatchFunction:
    """Return a function that runs another one if the worker has this version of bucketlake.

    The returned function is pickled by value, and refers to nothing of bucketlake.
    """
    pickled: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    note, setting, ship_it = NOTE, PYTHON_SETTING, SHIP_IT
    error_class = ConfigError.__name__

    def run(batches: Batches) -> Batches:
        import platform

        problem = ""
        try:
            import bucketlake

            found = getattr(bucketlake, "__version__", "of unknown version")
            if found == version:
                work = pickle.loads(pickled)
            else:
                problem = f"has bucketlake {found}, and the driver has bucketlake {version}"
        except (ImportError, AttributeError) as error:
            problem = f"cannot import bucketlake {version} ({error})"
        if problem:
            reason = f"on the worker {platform.node()} it {problem}; {ship_it}"
            failure = ImportError(f"{setting} = {sys.executable!r} cannot be used: {reason}")
            facts = json.dumps([error_class, setting, sys.executable, reason])
            failure.add_note(note + base64.b64encode(facts.encode()).decode())
            raise failure
        yield from work(batches)

    return run
