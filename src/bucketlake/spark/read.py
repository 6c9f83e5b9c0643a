"""Reading a table as a DataFrame.

Spark's own Parquet reader reads slices without log files. Python tasks merge slices with log files,
several slices per task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.

from bucketlake.errors import ConfigError, InputError
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import roots_of
from bucketlake.read.read_plan import ReadPlan
from bucketlake.read.slice_reader import SliceReader
from bucketlake.spark.address import spark_address
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.facts import facts_of, in_tasks
from bucketlake.spark.parquet_files import read_parquet
from bucketlake.spark.reports import Batches, BatchFunction, noting
from bucketlake.spark.spark_schema import spark_columns, spark_from_arrow
from bucketlake.where.spark_settings import SPARK_SETTINGS


def active_session(spark: SparkSession | None) -> SparkSession:
    """Return the session to use; raise ConfigError if no session is active."""
    session = spark or running_session()
    if session is None:
        raise ConfigError("spark", None, "start a SparkSession first, or pass a SparkSession")
    return session


def running_session() -> SparkSession | None:
    """Return the active session, or None."""
    return SparkSession.getActiveSession()


def has_usual_settings(spark: SparkSession) -> bool:
    """Return whether the session reads SQL text in the way that bucketlake's pruning assumes."""
    found = {key: spark.conf.get(key, usual) for key, usual in SPARK_SETTINGS.items()}
    return all(str(found[key]).lower() == SPARK_SETTINGS[key].lower() for key in found)


def read_files(spark: SparkSession, root: str, plan: ReadPlan) -> DataFrame:
    """Read the files of a plan; return its rows and columns.

    Parameters
    ----------
    spark : SparkSession
        The session.
    root : str
        The table's path.
    plan : ReadPlan
        The files to read, and the condition with which Spark filters the rows.
    """
    frame: DataFrame | None = None
    address = spark_address(root)
    for schema, files in plan.files:
        paths = [f"{address.rstrip('/')}/{file.path}" for file in files]
        part = read_parquet(spark, spark_from_arrow(schema), paths)
        if schema != plan.schema:
            part = _widened(part, schema, plan.schema).to(spark_from_arrow(plan.schema))
        frame = part if frame is None else frame.unionByName(part)
    if plan.merged:
        part = _merged(spark, plan)
        frame = part if frame is None else frame.unionByName(part, allowMissingColumns=True)
    if frame is None:
        frame = spark.createDataFrame([], spark_from_arrow(plan.schema))
    if plan.where is not None:
        frame = _filtered(frame, plan.where)
    if plan.columns is None:
        return frame
    return frame.select(spark_columns(plan.columns, plan.schema.names))


def _filtered(frame: DataFrame, where: str) -> DataFrame:
    """Return the rows that match a condition; a Spark Connect server may check it later."""
    with refusing(f"where {where!r}", "correct the condition"):
        return frame.where(where)


@contextmanager
def refusing(where: str, next_step: str) -> Iterator[None]:
    """Turn Spark's refusal of an expression into an InputError."""
    try:
        yield
    except AnalysisException as error:
        problem = str(error).partition("\n")[0].rstrip(";")  # The plan follows.
        raise InputError(where, problem, next_step) from error


def with_values(frame: DataFrame, expressions: Mapping[str, str]) -> DataFrame:
    """Return rows with new values of columns: SQL expressions of the old values.

    Raises
    ------
    InputError
        If Spark cannot evaluate an expression.
    """
    where = f"update {', '.join(f'{name} = {text!r}' for name, text in expressions.items())}"
    with refusing(where, "correct the expression"):
        changed = frame.withColumns({name: F.expr(text) for name, text in expressions.items()})
        _ = changed.schema  # Spark Connect checks expressions only when it is asked.
    return changed


def _merged(spark: SparkSession, plan: ReadPlan) -> DataFrame:
    """Return the rows of slices with log files, with only the needed columns."""
    schema = plan.schema
    if plan.columns is not None:
        asked = {name.lower() for name in roots_of(plan.columns, schema.names)}
        text = (plan.where or "").lower()
        needed = [f for f in schema if f.name.lower() in asked or f.name.lower() in text]
        schema = pa.schema(needed)
    slices = in_tasks(spark, plan.merged, [held.size_bytes for held in plan.merged])
    return map_in_arrow(slices, _reading(plan.reader, schema), schema)


def _reading(reader: SliceReader, schema: pa.Schema) -> BatchFunction:
    def read(batches: Batches) -> Batches:
        slices = [held for batch in batches for held in facts_of(batch.column("facts"))]
        for held in slices:
            for chunk in reader.read(held, schema.names):
                yield from cast_table(chunk, schema).to_batches()

    return noting(read)


def _widened(part: DataFrame, stored: pa.Schema, wanted: pa.Schema) -> DataFrame:
    """Cast floats to doubles with the same digits (0.1 stays 0.1), as Hudi reads older files."""
    changed = {
        field.name: F.col(field.name).cast("string").cast("double")
        for field in stored
        if field.type == pa.float32() and wanted.field(field.name).type == pa.float64()
    }
    return part.withColumns(changed) if changed else part
