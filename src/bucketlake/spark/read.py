"""Reading a table as a DataFrame.

Spark's own Parquet reader reads slices without log files. Python tasks merge slices with log files,
several slices per task.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import and_
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.
from pyspark.sql.types import StructType

from bucketlake.errors import ConfigError, InputError, UnsupportedFeatureError
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import roots_of, steps_of
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.names import quoted
from bucketlake.model.schema import META_NAMES
from bucketlake.model.vector import is_vector
from bucketlake.read.change_reader import AFTER, BEFORE, ChangesToRead
from bucketlake.read.read_plan import ReadPlan
from bucketlake.spark.arrow_tasks import map_in_arrow, rows_of_work
from bucketlake.spark.record_pieces import chunks, pack
from bucketlake.spark.reports import Batches, collect_noted, noting, raising_noted
from bucketlake.spark.spark_schema import (
    arrow_from_spark,
    assigned_column,
    columns_named,
    schema_of,
    single,
    spark_columns,
    spark_from_arrow,
)
from bucketlake.spark.worker_python import require_pyspark
from bucketlake.storage.location import open_storage

if TYPE_CHECKING:
    from bucketlake.where.predicate import Among
    from bucketlake.write.by_condition import Assignments


def given_or_active_session(spark: SparkSession | None) -> SparkSession:
    """Return the session to use; raise ConfigError if no session is active."""
    require_pyspark()
    session = spark or running_session()
    if session is None:
        raise ConfigError("spark", None, "start a SparkSession first, or pass a SparkSession")
    return session


def running_session() -> SparkSession | None:
    """Return the session of this thread, else the one that the process began with, or None."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


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
    plan = _of_spark_types(plan)
    for schema, files in plan.files:
        for file in files:  # The metadata table sees no links; the storage refuses what leads out.
            plan.reader.storage.local_path(file.path)
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
    if plan.keys is not None:
        frame = _with_keys(spark, frame, plan.keys)
    if plan.columns is None:
        return frame
    return frame.select(spark_columns(plan.columns, plan.schema.names))


def _of_spark_types(plan: ReadPlan) -> ReadPlan:
    """Return a plan without vectors, or one whose files Python tasks read: Spark sees bytes."""
    if not any(is_vector(field.type) for field in plan.schema):
        return plan
    needed = _needed_columns(plan)
    if not any(is_vector(field.type) for field in needed):
        names = {*needed.names}
        held = ((pa.schema([f for f in one if f.name in names]), each) for one, each in plan.files)
        return replace(plan, schema=needed, files=tuple(held))
    files = (file for _, held in plan.files for file in held)
    slices = (
        FileSlice(file.partition_path, file.name.file_id, file.name.instant, file) for file in files
    )
    return replace(plan, files=(), merged=(*plan.merged, *slices))


def _filtered(frame: DataFrame, where: str) -> DataFrame:
    """Return the rows that match a condition; a Spark Connect server may check it later."""
    with refusing(f"where {where!r}", "correct the condition"):
        return frame.where(where)


def _with_keys(spark: SparkSession, frame: DataFrame, keys: Among) -> DataFrame:
    """Return the rows that have one of some keys, by a join with the keys on each executor."""
    names = [f"#key{place}" for place in range(len(keys.columns))]
    batch = keys.keys.rename_columns(names)
    held = rows_of_work(
        spark, [batch], [batch.nbytes], lambda each: [pa.Table.from_batches([each])], batch.schema
    )
    columns = spark_columns(keys.columns, frame.columns)
    equal = [
        column.eqNullSafe(given)
        for column, given in zip(columns, columns_named(names), strict=True)
    ]
    return frame.join(F.broadcast(held), reduce(and_, equal), "left_semi")


@contextmanager
def refusing(where: str, next_step: str) -> Iterator[None]:
    """Turn Spark's refusal of an expression into an InputError."""
    try:
        yield
    except AnalysisException as error:
        problem = str(error).partition("\n")[0].rstrip(";")  # The plan follows.
        raise InputError(where, problem, next_step) from error


def with_values(frame: DataFrame, assignments: Assignments) -> DataFrame:
    """Return rows with new values of columns.

    Raises
    ------
    InputError
        If Spark cannot evaluate an expression, or the type of a value does not fit its column.
    """
    from bucketlake.write.by_condition import require_assigned_types

    where = f"update {', '.join(f'{name} = {e.text!r}' for name, e in assignments.items())}"
    with refusing(where, "correct the expression"):
        values = {name: single(expression.text) for name, expression in assignments.items()}
        # Spark Connect checks expressions only when it is asked for their types.
        given = arrow_from_spark(frame.select([v.alias(n) for n, v in values.items()]).schema)
    held = arrow_from_spark(frame.select(columns_named(values)).schema)
    require_assigned_types(assignments, held, given)
    return frame.withColumns(
        {
            name: assigned_column(value, given.field(name).type, held.field(name).type)
            for name, value in values.items()
        }
    )


def _merged(spark: SparkSession, plan: ReadPlan) -> DataFrame:
    """Return the rows of slices with log files, with only the needed columns."""
    schema, reader = _needed_columns(plan), plan.reader

    def read(held: FileSlice) -> Iterator[pa.Table]:
        return (cast_table(chunk, schema) for chunk in reader.read(held, schema.names))

    sizes = [held.size_bytes for held in plan.merged]
    return rows_of_work(spark, plan.merged, sizes, read, schema)


def _needed_columns(plan: ReadPlan) -> pa.Schema:
    """Return the columns that are asked for, and those that the condition or the keys may name."""
    schema = plan.schema
    if plan.columns is None:
        return schema
    asked = {name.lower() for name in roots_of(plan.columns, schema.names)}
    text = (plan.where or "").lower()
    if plan.keys is not None:
        asked |= {name.lower() for name in roots_of(plan.keys.columns, schema.names)}
    return pa.schema([f for f in schema if f.name.lower() in asked or f.name.lower() in text])


def _widened(part: DataFrame, stored: pa.Schema, wanted: pa.Schema) -> DataFrame:
    """Cast floats to doubles with the same digits (0.1 stays 0.1), as Hudi reads older files."""
    changed = {
        field.name: F.col(field.name).cast("string").cast("double")
        for field in stored
        if field.type == pa.float32() and wanted.field(field.name).type == pa.float64()
    }
    return part.withColumns(changed) if changed else part


# ---- The first rows of a DataFrame, in the driver: tasks send them as Arrow streams --------------

_PIECES = pa.schema([pa.field("piece", pa.binary())])


def rows_after(df: DataFrame, position: Mapping[str, int], columns: tuple[str, str]) -> DataFrame:
    """Return the rows after a position, by the columns of the partition and the number in it."""
    partition, number = columns_named(columns)
    pairs = [F.lit(value) for pair in position.items() for value in pair]
    last = F.try_element_at(F.create_map(*pairs), partition.cast("string"))
    return df.where(F.coalesce(number.cast("long") > last.cast("long"), F.lit(True)))


def first_rows(df: DataFrame, rows_max: int | None, each_max: int | None = None) -> pa.Table:
    """Return up to so many rows of a DataFrame, and of each of its tasks; None for all."""
    try:
        return _first_rows(df, rows_max, each_max)
    except Exception as error:  # Of Spark or the JVM.
        if "spark.driver.maxResultSize" not in str(error):
            raise
        problem = "they are more bytes than Spark hands over to the driver"
        step = "raise spark.driver.maxResultSize, or give fewer at once"
        refused = InputError("rows of a DataFrame", problem, step)
        refused.is_too_much = True
        raise refused from error


def _first_rows(df: DataFrame, rows_max: int | None, each_max: int | None) -> pa.Table:
    schema = arrow_from_spark(schema_of(df))
    some = df if rows_max is None else df.limit(rows_max)
    if each_max is None and hasattr(df, "toArrow") and _are_usual(schema):
        with raising_noted(df.sparkSession):
            return some.toArrow().cast(schema)  # No Python workers; PySpark 3.5 has no such way.

    def send(batches: Batches) -> Batches:
        for chunk in chunks(batches if each_max is None else _first_of(batches, each_max)):
            _, pieces = pack(chunk, np.zeros(chunk.num_rows, np.int32))
            yield pa.RecordBatch.from_arrays([pieces], schema=_PIECES)

    rows = collect_noted(map_in_arrow(some, noting(send), _PIECES))
    sent = [pa.ipc.open_stream(bytes(row.piece)).read_all() for row in rows]
    return pa.concat_tables(sent) if sent else schema.empty_table()


def _are_usual(schema: pa.Schema) -> bool:
    """Return whether columns are texts, bytes, numbers, times, or lists and structs of them."""
    kinds = [field.type for field in schema]
    while kinds:
        kind = kinds.pop()
        if pa.types.is_list(kind) or pa.types.is_struct(kind):
            kinds += [kind.field(at).type for at in range(kind.num_fields)]
        elif kind not in _USUAL:
            return False
    return True


_USUAL = {pa.string(), pa.binary(), pa.bool_(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC")}


def _first_of(batches: Batches, rows_max: int) -> Batches:
    for batch in batches:
        yield batch.slice(0, rows_max)
        rows_max -= batch.num_rows
        if rows_max <= 0:
            return


# ---- Settings of a Spark session under which bucketlake understands SQL text as Spark does -------
#
# They stand apart from the parser, whose SQL library takes long to import.

SPARK_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.parser.escapedStringLiterals": "false",
        "spark.sql.ansi.doubleQuotedIdentifiers": "false",
        "spark.sql.ansi.enforceReservedKeywords": "false",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
        "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "false",
        "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    }
)
"""Settings of a Spark session, by key, that change what SQL text means: their defaults."""


# ---- The rows of a query of the session, as rows of a table --------------------------------------


def query_rows(
    session: SparkSession, query: str, names: Sequence[str], schema: pa.Schema
) -> DataFrame:
    """Return the rows of a query, whose columns are some of a table in any order.

    Raises
    ------
    InputError
        If Spark refuses the query, or it has another number of columns.
    """
    from bucketlake.write.inserted_values import require_as_many  # With the SQL parser.

    with refusing("INSERT of the statement", "correct the query"):
        found = session.sql(query)
        require_as_many(len(found.columns), names)
    rows = found.toDF(*names)
    columns = [
        F.col(quoted([field.name]))
        if field.name in names
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in spark_from_arrow(schema)
        if field.name not in META_NAMES
    ]
    return rows.select(columns)


# ---- Parquet files of a table, whatever the settings of the session are --------------------------

_OPTIONS = {
    "recursiveFileLookup": "true",  # Folder names do not become columns.
    # Files that were deleted or damaged meanwhile raise an error instead of losing rows.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",  # Spark does not check pages by default.
    # Files that do not name their writer, such as Hudi's, have dates in the proleptic Gregorian
    # calendar.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
_NO_GLOB = str.maketrans({c: f"\\{c}" for c in "\\*?[]{}"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def spark_address(path: str) -> str:
    """Return the path with which Spark finds a table.

    A local path becomes an absolute ``file:`` path, so that it does not depend on Spark's default
    file system or on the directory in which the JVM was started. Other paths are not changed:
    ``s3a://`` is the scheme that Spark supports.

    Raises
    ------
    UnsupportedFeatureError
        If the table is in the memory of this process, which Spark's workers cannot access.
    """
    scheme = _SCHEME.match(path)
    if scheme is None or scheme[1].lower() == "file":
        return f"file:{open_storage(path).root}"
    if scheme[1].lower() == "memory":
        raise UnsupportedFeatureError(
            "a table in memory, through Spark",
            path,
            "use Arrow tables and to_arrow(), or create the table on a disk",
        )
    return path


def read_parquet(spark: SparkSession, schema: StructType, paths: Iterable[str]) -> DataFrame:
    """Return all rows of files, or of the files in folders; the job fails if a file is unreadable.

    Parameters
    ----------
    spark : SparkSession
        The session.
    schema : StructType
        Columns to read.
    paths : iterable of str
        Files and folders; special characters in them are not patterns.
    """
    reader = spark.read.schema(schema).options(**_OPTIONS)
    return reader.parquet(*(path.translate(_NO_GLOB) for path in paths))


# ---- Change data as a DataFrame: Python tasks compare the stored versions of file groups ---------

# Beside the columns of an image, so not names that one of them may have.
_CHANGE, _MATCHES, _IS_THERE = "__change", "__matches", "__is_there"


def frame_of_changes(spark: SparkSession, planned: ChangesToRead, where: str | None) -> DataFrame:
    """Return the changes of a plan.

    Parameters
    ----------
    spark : SparkSession
        The session.
    planned : ChangesToRead
        The plan; with a condition, its images have all columns of the table.
    where : str or None
        Spark keeps the changes whose row before or after matches.
    """
    reader, plans = planned.reader, planned.plans
    sizes = [plan.size_bytes for plan in plans]
    frame = rows_of_work(spark, plans, sizes, reader.read, reader.schema)
    if where is None:
        return frame
    return _with_images(_matching_changes(frame, where), planned.columns, reader.stored.names)


def _matching_changes(frame: DataFrame, where: str) -> DataFrame:
    """Return the changes whose row before or after matches; the condition names its columns."""
    frame = frame.select(F.struct("*").alias(_CHANGE), F.lit(False).alias(_MATCHES))
    for image in (BEFORE, AFTER):
        held = F.col(f"{_CHANGE}.{image}")
        with refusing(f"where {where!r}", "correct the condition"):
            found = F.coalesce(F.expr(where).cast("boolean"), F.lit(False))
            matches = F.col(_MATCHES) | (F.col(_IS_THERE) & found)
            frame = frame.select(
                _CHANGE, _MATCHES, held.isNotNull().alias(_IS_THERE), f"{_CHANGE}.{image}.*"
            ).select(_CHANGE, matches.alias(_MATCHES))
    return frame.where(_MATCHES).select(f"{_CHANGE}.*")


def _with_images(frame: DataFrame, columns: Sequence[str], names: Collection[str]) -> DataFrame:
    """Return changes with some columns of the images."""
    steps = {path: quoted(steps_of(path, names)) for path in columns}
    for image in (BEFORE, AFTER):
        fields = [F.col(f"{image}.{place}").alias(path) for path, place in steps.items()]
        held = F.when(F.col(image).isNotNull(), F.struct(*fields))
        frame = frame.withColumn(image, held)
    return frame
