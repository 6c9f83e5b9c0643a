"""The engine of a call: Spark for DataFrames and if there is a session, else this process.

Each function imports ``spark/`` only when it needs it, so that bucketlake works without Spark and
is fast to import.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

import pyarrow as pa

from bucketlake.errors import ConfigError, InputError, UnsupportedFeatureError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.index.setting import TableIndex
from bucketlake.model.arguments import check_session
from bucketlake.read.arrow_reader import read_arrow
from bucketlake.read.change_plan import ChangeRange
from bucketlake.read.change_reader import plan_changes
from bucketlake.read.read_plan import ReadPlan, plan_read
from bucketlake.read.request import PinnedRead
from bucketlake.storage.base import Storage
from bucketlake.write.arrow_rows import arrow_rows
from bucketlake.write.arrow_source import ArrowSource
from bucketlake.write.pack import RecordSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from polars import LazyFrame
    from pyarrow.dataset import Dataset, Scanner
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from bucketlake.where.predicate import Predicate
    from bucketlake.write.by_condition import Assignments
    from bucketlake.write.input_files.files import InputFiles
    from bucketlake.write.merge_write import MergeSource

    Records: TypeAlias = (
        "DataFrame | pa.Table | ArrowData | InputFiles | Dataset | Scanner | LazyFrame | "
        "Sequence[pa.RecordBatch] | Sequence[Mapping[str, object]]"
    )
    """Records that a write takes."""


class ArrowData(Protocol):
    """Rows that offer themselves through the Arrow PyCapsule interface.

    For example a ``pyarrow.RecordBatch``, a ``pyarrow.RecordBatchReader``, and the data frames of
    polars and pandas.
    """

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows as a PyCapsule."""
        ...


def active_session() -> SparkSession | None:
    """Return the active Spark session; None if there is none."""
    if "pyspark" not in sys.modules:  # Without the import there can be no session.
        return None
    from bucketlake.spark.read import running_session

    return running_session()


def session_of(data: object) -> SparkSession | None:
    """Return the session of a DataFrame; of other data, the active session."""
    return getattr(data, "sparkSession", None) or active_session()


def require_session(spark: SparkSession | None) -> SparkSession:
    """Return the given session, or the active session; raise ConfigError if there is none."""
    from bucketlake.spark.read import active_session

    return active_session(spark)


def register(spark: SparkSession | None = None) -> None:
    """Let a session read tables by ``spark.read.format("bucketlake")`` and in SQL.

    Parameters
    ----------
    spark : SparkSession, optional
        The session, classic or of Spark Connect; by default the active session.

    Raises
    ------
    ConfigError
        If no session is given or active.
    UnsupportedFeatureError
        If PySpark is older than 4; ``Table.read`` works with any version.

    Notes
    -----
    Examples: ``docs/how-to/read-with-spark-format.md``.
    """
    check_session(spark)
    session = require_session(spark)
    from bucketlake.spark.registration import register_source

    register_source(session)


def arrow_schema(schema: StructType | pa.Schema) -> pa.Schema:
    """Return the schema of a new table as an Arrow schema; warn about limits that are lost."""
    if isinstance(schema, pa.Schema):
        return schema
    if not hasattr(type(schema), "fieldNames"):  # Without importing Spark.
        raise ConfigError("schema", schema, "give the schema of a DataFrame or a pyarrow.Schema")
    from bucketlake.spark.spark_schema import arrow_from_spark, limited_texts

    for column, limit in limited_texts(schema):
        warnings.warn(
            f"column {column} is stored as string: no write checks the length of {limit}",
            stacklevel=3,
        )
    return arrow_from_spark(schema)


def readable_records(data: Records, root: str) -> DataFrame | pa.Table:
    """Return the records of a write as a DataFrame of Spark or an Arrow table.

    Parameters
    ----------
    data : DataFrame, pa.Table, ArrowData or another kind of data
        The records, see :data:`~bucketlake.write.arrow_rows.TAKEN`. All but a DataFrame of Spark
        are read into memory.
    root : str
        The table's path, as the user passed it.

    Raises
    ------
    InputError
        If the data is of another type, a stream, or has a column without an Arrow type.
    """
    where = f"write to {root}"
    frame: Any = data
    # Not of the data: a class has the methods of its objects, a Column has any.
    if not hasattr(type(data), "mapInArrow"):
        return arrow_rows(data, where)
    if frame.isStreaming:
        raise InputError(
            where,
            "the DataFrame is a stream, which has no end",
            "write its batches: df.writeStream.foreachBatch(table.upsert_batch('name')).start()",
        )
    return frame


def are_files(data: object) -> TypeGuard[InputFiles]:
    """Return whether records are files; readers of text are imported only for these."""
    module = sys.modules.get("bucketlake.write.input_files.files")
    return module is not None and isinstance(data, module.InputFiles)


def source_of(
    data: Records | InputFiles,
    storage: Storage,
    root: str,
    known: Callable[[], pa.Schema | None] = lambda: None,
) -> RecordSource:
    """Return the records of a write, as a source for their engine.

    Parameters
    ----------
    data : DataFrame, pa.Table, ArrowData or InputFiles
        The records.
    storage : Storage
        The table's storage.
    root : str
        The table's path, as the user passed it.
    known : callable
        Returns the table's schema; None if it has none yet. Columns of text files have its types.

    Raises
    ------
    InputError
        If the data is of another type.
    """
    if are_files(data):
        from bucketlake.write.input_files.file_source import FileSource

        return FileSource(data, engine_of(active_session()), known)
    records = readable_records(data, root)
    if isinstance(records, pa.Table):
        return ArrowSource(records)
    from bucketlake.spark.frame_source import SparkSource
    from bucketlake.spark.spool import Spool

    return SparkSource(records, Spool(storage, root))


def sample_rows(data: Records, rows_max: int) -> pa.Table:
    """Return rows of a sample as an Arrow table.

    Parameters
    ----------
    data : DataFrame, pa.Table, ArrowData or InputFiles
        The sample.
    rows_max : int
        Most rows of a DataFrame of Spark and of files; of other data all rows are returned.

    Raises
    ------
    InputError
        If the data is of another type, a stream, or cannot be read.
    """
    if are_files(data):
        from bucketlake.write.input_files.file_source import FileSource

        return FileSource(data, HERE, lambda: None).some_rows(rows_max)
    records = readable_records(data, "sample")
    if isinstance(records, pa.Table):
        return records
    from bucketlake.spark.first_rows import first_rows

    return first_rows(records, rows_max)


def stored_rows(
    plan: ReadPlan, storage: Storage, root: str, session: SparkSession | None
) -> RecordSource:
    """Return the rows of a plan as the records of a write; this process reads without a session."""
    if session is None:
        return ArrowSource(read_arrow(storage, plan))
    from bucketlake.spark.read import read_files

    return source_of(read_files(session, root, plan), storage, root)


def read_frame(
    session: SparkSession, root: str, pinned: PinnedRead, index: TableIndex | None
) -> DataFrame:
    """Plan a read for a session, and return its rows."""
    from bucketlake.spark.read import read_files

    return read_files(session, root, _plan_for(session, pinned, index))


def change_frame(
    session: SparkSession,
    found: ChangeRange,
    where: str | None,
    columns: tuple[str, ...] | None,
) -> DataFrame:
    """Plan a read of changes for a session, and return them."""
    from bucketlake.spark.changes import change_frame
    from bucketlake.spark.read import has_usual_settings

    planned = plan_changes(
        found,
        where,
        columns,
        time_zone=session.conf.get("spark.sql.session.timeZone"),
        usual_settings=where is None or has_usual_settings(session),
        engine_filters=where is not None,
    )
    return change_frame(session, planned, where)


def matching_rows(
    session: SparkSession | None,
    root: str,
    pinned: PinnedRead,
    index: TableIndex | None,
    assignments: Assignments | None = None,
) -> tuple[RecordSource, Predicate | None]:
    """Return the rows of a read as the records of a write, with new values, and the condition.

    Parameters
    ----------
    session : SparkSession or None
        Reads the rows; this process without one.
    root : str
        The table's path, as the user passed it.
    pinned : PinnedRead
        The read.
    index : TableIndex or None
        The table's index, to prune buckets.
    assignments : Assignments, optional
        New values of columns.

    Raises
    ------
    InputError
        If the condition or an expression is wrong.
    UnsupportedFeatureError
        If only Spark can evaluate them.
    """
    storage = pinned.snapshot.storage
    if session is None:
        plan = plan_read(pinned, index)
        rows = read_arrow(storage, plan)
        rows = rows if assignments is None else assignments.to_rows(rows)
        return ArrowSource(rows), plan.predicate
    from bucketlake.spark.read import read_files, with_values

    plan = _plan_for(session, pinned, index)
    frame = read_files(session, root, plan)
    if assignments is not None:
        frame = with_values(frame, assignments.texts)
    return source_of(frame, storage, root), plan.predicate


def mergeable_records(data: Records, root: str) -> DataFrame | pa.Table | InputFiles:
    """Return the source of a merge as a DataFrame of Spark, an Arrow table, or files.

    Raises
    ------
    InputError
        If the data is of another type.
    """
    return data if are_files(data) else readable_records(data, root)


def merge_source(
    records: DataFrame | pa.Table | InputFiles,
    storage: Storage,
    root: str,
    session: SparkSession | None,
    known: Callable[[], pa.Schema | None],
) -> MergeSource:
    """Return the source of a merge, for the engine that joins it with the table.

    Parameters
    ----------
    records : DataFrame, pa.Table or InputFiles
        The source, of :func:`mergeable_records`.
    storage : Storage
        The table's storage.
    root : str
        The table's path, as the user passed it.
    session : SparkSession or None
        Joins; without one, this process does.
    known : callable
        Returns the table's schema; columns of text files have its types.
    """
    if are_files(records):
        from bucketlake.write.input_files.file_merge import FileMerge, rows_in_files
        from bucketlake.write.input_files.file_source import FileSource

        files = FileSource(records, engine_of(session), known)

        def read() -> MergeSource:
            if session is None:
                return merge_source(rows_in_files(files), storage, root, None, known)
            from bucketlake.spark.files import frame_of_files

            return merge_source(frame_of_files(session, files), storage, root, session, known)

        return FileMerge(files, read)
    if session is None:
        assert isinstance(records, pa.Table), "a DataFrame has a session"
        from bucketlake.write.arrow_merge import ArrowMerge  # The SQL parser is slow to import.

        return ArrowMerge(records)
    from bucketlake.spark.merge import SparkMerge

    return SparkMerge(session, records, storage, root)


def _plan_for(session: SparkSession, pinned: PinnedRead, index: TableIndex | None) -> ReadPlan:
    from bucketlake.spark.read import has_usual_settings

    return plan_read(
        pinned,
        index,
        time_zone=session.conf.get("spark.sql.session.timeZone"),
        usual_settings=pinned.condition is None or has_usual_settings(session),
    )


def require_package(name: str, root: str) -> Any:
    """Import a package that a call of the user needs.

    Raises
    ------
    UnsupportedFeatureError
        If it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"a data frame of {name}, which is not installed,", root, f"pip install {name}"
        ) from error


def engine_of(session: SparkSession | None) -> Engine:
    """Return what runs the tasks of a call: Spark, or threads of this process."""
    if session is None:
        return HERE
    from bucketlake.spark.flow import SparkEngine

    return SparkEngine(session)
