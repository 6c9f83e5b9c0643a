"""The engine of a call: Spark for DataFrames and if there is a session, else this process.

Each function imports ``spark/`` only when it needs it, so that bucketlake works without Spark and
is fast to import.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, cast

import pyarrow as pa

from bucketlake.errors import ConfigError, InputError, UnsupportedFeatureError
from bucketlake.flow.call import note
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.model.arguments import check_session, check_texts
from bucketlake.model.arrays import one_array
from bucketlake.model.evolution import typed_schema
from bucketlake.model.row_merge import NO_CHANGE, WHOLE_ROWS, RowMerge, SchemaMerge
from bucketlake.model.schema import without_flag
from bucketlake.model.schema_text import parse_schema
from bucketlake.storage.base import Storage
from bucketlake.storage.location import shown_address
from bucketlake.write.arrow_rows import arrow_rows, require_same_names, schema_of_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from polars import LazyFrame
    from pyarrow.dataset import Dataset, Scanner
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from bucketlake.catalogs.catalog import Catalog
    from bucketlake.where.predicate import Predicate
    from bucketlake.write.by_condition import Assignments
    from bucketlake.write.input_files.files import InputFiles
    from bucketlake.write.merge_write import MergeSource

    Records: TypeAlias = (
        "DataFrame | pa.Table | ArrowData | InputFiles | Dataset | Scanner | LazyFrame | "
        "Sequence[pa.RecordBatch] | Sequence[Mapping[str, object]]"
    )
    """Records that a write takes."""

    SchemaLike: TypeAlias = StructType | pa.Schema | str | Records
    """What gives the columns of a new table."""
    from bucketlake.index.setting import TableIndex
    from bucketlake.model.position import Position
    from bucketlake.read.change_plan import ChangeRange
    from bucketlake.read.read_plan import ReadPlan
    from bucketlake.read.request import PinnedRead, ReadRequest
    from bucketlake.read.snapshot import Snapshot
    from bucketlake.spark.frame_source import SparkTurning
    from bucketlake.write.pack import RecordSource

_SCHEMAS = (
    "give the schema of a DataFrame, a pyarrow.Schema, a text such as 'id string, n int', or rows: "
    "a DataFrame of Spark, pandas or polars, or an Arrow table"
)


class ArrowData(Protocol):
    """Rows that offer themselves through the Arrow PyCapsule interface.

    For example a ``pyarrow.RecordBatch``, a ``pyarrow.RecordBatchReader``, and the data frames of
    polars and pandas.
    """

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows as a PyCapsule."""


def active_session() -> SparkSession | None:
    """Return the active Spark session; None if there is none."""
    if "pyspark" not in sys.modules:  # Without the import there can be no session.
        return None
    from bucketlake.spark.read import running_session

    return running_session()


def session_of(data: object) -> SparkSession | None:
    """Return the session of a DataFrame; of other data, the active session."""
    return getattr(data, "sparkSession", None) or active_session()


def variant_class() -> Any:
    """Return PySpark's class of variants; raise UnsupportedFeatureError if there is none."""
    try:
        from bucketlake.spark.spark_schema import VARIANT_VALUE

        found = VARIANT_VALUE
    except ImportError:
        found = None
    if found is None:
        raise UnsupportedFeatureError(
            "a variant from JSON or to it", "this PySpark", "install pyspark 4.0 or newer"
        )
    return found


def require_session(spark: SparkSession | None) -> SparkSession:
    """Return the given session, or the active session; raise ConfigError if there is none."""
    from bucketlake.spark.read import given_or_active_session

    return given_or_active_session(spark)


def register(
    spark: SparkSession | None = None,
    *,
    catalog: str | Catalog | None = None,
    database: str | None = None,
) -> None:
    """Let a session read tables by ``spark.read.format("bucketlake")`` and in SQL.

    With ``catalog`` and ``database`` it also makes a table of Spark's own catalog for each table of
    Hudi in the database, with its name: ``SELECT … FROM database.table`` reads the newest commit.
    Columns are those of this call: call it again after a change of the schema.

    Parameters
    ----------
    spark : SparkSession, optional
        The session, classic or of Spark Connect; by default the active session.
    catalog : str or Catalog, optional
        ``thrift://host:9083``, ``glue``, see :func:`sync`.
    database : str, optional
        The database of the catalog.

    Raises
    ------
    CatalogError
        If the catalog cannot be reached, or has no such database.
    ConfigError
        If no session is given or active, or one of ``catalog`` and ``database`` is missing.
    InputError
        If Spark's catalog has another table of such a name: none is made then.
    UnsupportedFeatureError
        If PySpark is older than 4; ``Table.read`` works with any version.

    Warns
    -----
    UserWarning
        Names each table that cannot be read, and why; the others are made.

    Notes
    -----
    Examples: ``docs/how-to/read-with-spark-format.md``, ``docs/how-to/catalogs.md``.
    """
    check_session(spark)
    if catalog is not None:
        from bucketlake.catalogs.table_sync import entries_in_database, open_catalog

        catalog = open_catalog(catalog)
    if database is not None:
        check_texts(database=database)
    if (catalog is None) != (database is None):
        raise ConfigError("database", database, "give catalog and database, or none of both")
    session = require_session(spark)
    from bucketlake.spark.registration import register_source, register_tables

    register_source(session)
    if catalog is not None and database is not None:
        register_tables(session, entries_in_database(catalog, database))


def arrow_schema(schema: SchemaLike, where: str = "schema") -> pa.Schema:
    """Return the schema of a new table as an Arrow schema; warn about limits that are lost."""
    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        return parse_schema(schema)
    if hasattr(type(schema), "fieldNames"):  # Without importing Spark.
        return _of_spark(cast("StructType", schema))
    return row_columns(given_columns(schema, where), where)


def _of_spark(schema: StructType) -> pa.Schema:
    from bucketlake.spark.spark_schema import limited_texts, with_declared_types

    for column, limit in limited_texts(schema):
        warnings.warn(
            f"column {column} is stored as string: no write checks the length of {limit}",
            stacklevel=6,  # The caller of create_table.
        )
    return with_declared_types(schema)


def row_columns(schema: StructType | pa.Schema, where: str) -> pa.Schema:
    """Return the columns of a table that is made from rows: those without the flag of deletes."""
    return typed_schema(without_flag(arrow_schema(schema)), where)


def given_columns(data: Any, where: str) -> StructType | pa.Schema:
    """Return the schema of a DataFrame, also of a stream, of files, or of other rows."""
    if hasattr(type(data), "mapInArrow"):
        return data.schema
    if are_files(data):
        from bucketlake.write.input_files.file_source import FileSource

        return FileSource(data, HERE, lambda: None).schema
    found = schema_of_rows(data, where)
    if found is None:
        raise ConfigError("schema", type(data), _SCHEMAS)
    return found


def input_of(data: Records, where: str) -> DataFrame | pa.Table | InputFiles:
    """Return the records of a write as a DataFrame of Spark, an Arrow table, or files.

    Parameters
    ----------
    data : DataFrame, pa.Table, ArrowData, InputFiles or another kind of data
        The records, see :data:`~bucketlake.write.arrow_rows.TAKEN`. All but a DataFrame of Spark
        and files are read into memory.
    where : str
        What the records are for, for errors.

    Raises
    ------
    InputError
        If the data is of another type, a stream, or has a column without an Arrow type.
    UnsupportedFeatureError
        If the data is a DataFrame of a PySpark before 3.5.
    """
    if are_files(data):
        return data
    frame: Any = data
    # Not of the data: a class has the methods of its objects, a Column has any.
    if type(data).__module__.startswith("pyspark.sql"):
        from bucketlake.spark.worker_python import require_pyspark

        require_pyspark()
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
    data: Records,
    storage: Storage,
    root: str,
    known: Callable[[], pa.Schema | None] = lambda: None,
    *,
    merge: SchemaMerge = NO_CHANGE,
    rows: RowMerge = WHOLE_ROWS,
    keys_only: bool = False,
) -> RecordSource:
    """Return the records of a write, as a source for their engine: the only way in.

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
    merge, rows
        How the write changes the schema, and combines rows: whether some records may lack columns.
    keys_only : bool
        Whether the write deletes the records of keys.

    Raises
    ------
    InputError
        If the data is of another type, or some rows lack a name that others have.
    """
    from bucketlake.write.pack import ArrowSource

    where = f"write to {root}"
    if rows.keeps_missing and not rows.keeps_nulls:
        require_same_names(data, where)
    records = input_of(data, where)
    if are_files(records):
        from bucketlake.write.input_files.file_source import FileSource

        records = records.to_write(merge, rows, keys_only=keys_only)
        source = FileSource(records, engine_of(active_session()), known)
        read = [(shown_address(path), lambda: source.names) for path in records.paths]
        note(lambda call: call.inputs.extend(read))
        return source
    if isinstance(records, pa.Table):
        return ArrowSource(records)
    from bucketlake.spark.frame_source import SparkSource, Spool

    return SparkSource(cast("DataFrame", records), Spool(storage, root))


def turning(df: DataFrame, storage: Storage, root: str) -> SparkTurning:
    """Return the changes of a DataFrame, to be turned together with stored rows."""
    from bucketlake.spark.frame_source import SparkTurning

    return SparkTurning(df, storage, root)


def sample_rows(data: Records, rows_max: int | None, role: str = "sample") -> pa.Table:
    """Return rows of a sample as an Arrow table.

    Parameters
    ----------
    data : DataFrame, pa.Table, ArrowData or InputFiles
        The sample.
    rows_max : int or None
        Most rows of a DataFrame of Spark and of files, None for all; of other data all rows are
        returned.
    role : str
        What the rows are for, for errors.

    Raises
    ------
    InputError
        If the data is of another type, a stream, or cannot be read.
    """
    records = input_of(data, role)
    if are_files(records):
        from bucketlake.write.input_files.file_source import FileSource

        return FileSource(records, HERE, lambda: None).some_rows(rows_max)
    if isinstance(records, pa.Table):
        from bucketlake.model.cast import selectable

        return selectable(records)
    from bucketlake.spark.read import first_rows

    return first_rows(cast("DataFrame", records), rows_max)


def unseen_rows(
    data: Records, position: Position | None, columns: tuple[str, str]
) -> DataFrame | pa.Table:
    """Return the rows after a position, by the columns of the partition and the number in it.

    Raises
    ------
    InputError
        If the rows are of a type that no write takes, have no such column, or no numbers in it.
    """
    where, step = "rows of a source", "give partition= and offset= the names of two columns"
    rows: Any = input_of(data, where)
    names = rows.column_names if isinstance(rows, pa.Table) else getattr(rows, "columns", ())
    for name in columns:
        if name not in names:
            problem = f"there is no column {name!r}, but {', '.join(names) or 'a list of files'}"
            raise InputError(where, problem, step)
    if position is None:
        return rows
    if isinstance(rows, pa.Table):
        partitions, numbers = (one_array(rows[name]) for name in columns)
        try:
            return rows.filter(position.unseen(partitions, numbers))
        except pa.ArrowException as error:
            raise InputError(where, f"{columns} are no texts and numbers: {error}", step) from error
    from bucketlake.spark.read import rows_after

    return rows_after(rows, position.last, columns)


def stored_rows(
    session: SparkSession | None, root: str, snapshot: Snapshot, partitions: Sequence[str]
) -> RecordSource:
    """Return all rows of some partitions as the records of a write.

    The session reads them; this process without one.
    """
    from bucketlake.read.arrow_reader import read_arrow
    from bucketlake.read.read_plan import plan_slices
    from bucketlake.write.pack import ArrowSource

    storage = snapshot.storage
    plan = plan_slices(snapshot, snapshot.partition_slices(partitions))
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


def change_frame(session: SparkSession, found: ChangeRange, request: ReadRequest) -> DataFrame:
    """Plan a read of changes for a session, and return them."""
    from bucketlake.read.change_reader import plan_changes
    from bucketlake.spark.read import frame_of_changes, has_usual_settings

    where = request.where
    planned = plan_changes(
        found,
        request,
        time_zone=session.conf.get("spark.sql.session.timeZone"),
        usual_settings=where is None or has_usual_settings(session),
        engine_filters=where is not None,
    )
    return frame_of_changes(session, planned, where)


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
    from bucketlake.read.arrow_reader import read_arrow
    from bucketlake.read.read_plan import plan_read
    from bucketlake.write.by_condition import with_assigned
    from bucketlake.write.pack import ArrowSource

    storage = pinned.snapshot.storage
    if session is None:
        plan = plan_read(pinned, index)
        rows = read_arrow(storage, plan)
        rows = rows if assignments is None else with_assigned(rows, assignments)
        return ArrowSource(rows), plan.predicate
    from bucketlake.spark.read import read_files, with_values

    plan = _plan_for(session, pinned, index)
    frame = read_files(session, root, plan)
    if assignments is not None:
        frame = with_values(frame, assignments)
    return source_of(frame, storage, root), plan.predicate


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
        The source, of :func:`input_of`.
    storage : Storage
        The table's storage.
    root : str
        The table's path, as the user passed it.
    session : SparkSession or None
        Joins; without one, this process does.
    known : callable
        Returns the table's schema; columns of text files have its types.
    """
    given: Any = records
    if are_files(records):
        from bucketlake.write.input_files.file_source import FileSource

        given = FileSource(records, engine_of(session), known)
    if session is None:  # Then there is no DataFrame.
        from bucketlake.write.arrow_merge import ArrowMerge  # The SQL parser is slow to import.

        return ArrowMerge(given)
    from bucketlake.spark.merge import SparkMerge

    return SparkMerge(session, given, storage, root)


def _plan_for(session: SparkSession, pinned: PinnedRead, index: TableIndex | None) -> ReadPlan:
    from bucketlake.read.read_plan import plan_read
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
