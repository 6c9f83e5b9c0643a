"""A Spark DataFrame as the source of a write.

The driver writes few records itself. Of other records, one job reads and
packs them (``write/pack.py``); Spark keeps them until the plan of the write is made. A second job
sends each record to the task that owns its slot, which writes it.
"""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, functions, types

from bucketlake.config.paths_of_table import SPOOL_FOLDER
from bucketlake.errors import StorageError
from bucketlake.flow import threads
from bucketlake.flow.call import doing
from bucketlake.flow.stage import Flow
from bucketlake.flow.threads import HERE, ThreadFlow, fits_here
from bucketlake.model.names import quoted
from bucketlake.read.read_plan import ReadPlan
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.flow import ADAPTIVE, SparkEngine, SparkFlow, changed_settings, row_settings
from bucketlake.spark.read import first_rows, read_files, read_parquet, spark_address
from bucketlake.spark.record_pieces import chunks
from bucketlake.spark.reports import Batches, noting, raising_noted
from bucketlake.spark.spark_schema import arrow_from_spark, columns_named, nested_columns, schema_of
from bucketlake.storage.base import Storage
from bucketlake.write.pack import PackedCounts, PackedRecords, pack_records
from bucketlake.write.tag import Tagger

Tell: TypeAlias = "Callable[[pa.Table], Any]"


class SparkSource:
    """Records of a DataFrame.

    Parameters
    ----------
    df : DataFrame
        The records.
    spool : Spool
        Stores a copy of an input that may change between two evaluations.
    stable : DataFrame, optional
        The records with more columns, the same at every evaluation.
    tell : callable, optional
        What the step that packs tells of some of these rows, too; see :meth:`told`.
    """

    def __init__(
        self,
        df: DataFrame,
        spool: Spool,
        stable: DataFrame | None = None,
        tell: Tell | None = None,
    ) -> None:
        self._given = df
        self._spool = spool
        self._stable, self._tell = stable, tell
        self._kept: Flow | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return schema_of(self._given).names

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the DataFrame; raises InputError if a column's type is not supported."""
        return arrow_from_spark(schema_of(self._given))

    gaps: frozenset[str] = frozenset()  # Each record has all columns.

    def is_empty(self) -> bool:
        """Return whether the DataFrame has no rows, by a small job."""
        return bool(self._given.isEmpty())

    def keep(self, paths: list[str]) -> None:
        """Keep only the values at these paths."""
        self._given = self._given.select(nested_columns(paths, self.names))

    def pack(self, tagger: Tagger) -> PackedRecords:
        """Tag and count the records: few in this process, others in a job, and Spark keeps them.

        A write that is tried again packs again; then the records of the first try are dropped.
        """
        self._drop()
        few = self._few_rows
        if few is None:
            return self._packed_by_tasks(tagger)
        items = _pack(tagger, self.names, self._tell, iter(few.to_batches()))
        self._kept = ThreadFlow(HERE, [*items]).kept()
        by_tasks = partial(self._packed_by_tasks, tagger)
        return PackedRecords(self._kept, self.schema, HERE, by_tasks=by_tasks)

    def _packed_by_tasks(self, tagger: Tagger) -> PackedRecords:
        self._drop()
        settings = row_settings(schema_of(self._given))
        if self._tell is not None:  # The rows may be a join, which Spark replans.
            settings = {key: settings[key] for key in settings if key != ADAPTIVE}
        work = partial(_pack, tagger, self.names, self._tell)
        self._kept = SparkFlow(self._rows(), work, settings).kept()
        engine = SparkEngine(self._given.sparkSession)
        return PackedRecords(self._kept, self.schema, engine)

    def told(self) -> list[Any]:
        """Return what was told of the packed records."""
        assert self._kept is not None, "the records are packed"
        return [told for told in self._kept.results() if not isinstance(told, PackedCounts)]

    def close(self) -> None:
        """Drop the packed records, and the spooled copy, if there is one."""
        self._drop()
        self._spool.drop()

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    @cached_property
    def _few_rows(self) -> pa.Table | None:
        """The rows if they are few; asked once, since they may change."""
        few = few_rows(self._given) if self._stable is None else None
        return self._spool.few_rows(schema_of(self._rows())) if few is None else few

    def _rows(self) -> DataFrame:
        if self._stable is None:
            self._stable = self._spool.stable(self._given)
        return self._stable


def _pack(tagger: Tagger, names: list[str], tell: Tell | None, batches: Batches) -> Iterator[Any]:
    """Pack some columns of rows, without positions: the order of Spark's rows means nothing."""
    told: list[Any] = []

    def rows() -> Iterator[pa.Table]:
        for table in chunks(batches):
            if tell is not None:
                told.append(tell(table))
            yield table.select(names)

    yield from pack_records(tagger, rows())
    yield from told


_IS_STORED = "_bucketlake_is_stored"


class SparkTurning(SparkSource):
    """Changes of a DataFrame, which tasks turn together with the stored rows of their keys.

    Parameters
    ----------
    df : DataFrame
        The changes.
    storage : Storage
        The table's storage.
    root : str
        The table's path.
    """

    def __init__(self, df: DataFrame, storage: Storage, root: str) -> None:
        super().__init__(df, Spool(storage, root))
        self.session, self._storage, self._root = df.sparkSession, storage, root

    def keys_of(self, names: Sequence[str]) -> pa.Table:
        """Return the distinct keys of the changes, which the driver collects."""
        return first_rows(self._rows().select(columns_named(names)).distinct(), None)

    def source(
        self,
        plan: ReadPlan,
        rows: Callable[[pa.Table], pa.Table],
        turned: Callable[[pa.Table, pa.Table], pa.Table],
        keys: Sequence[str],
    ) -> SparkSource:
        """Return the rows that changes and the stored rows of a plan make, key by key.

        ``rows`` makes rows of changes, ``turned`` gets these and the stored rows of some keys.
        """
        stored = read_files(self.session, self._root, plan)
        schema = pa.schema([f.with_nullable(True) for f in arrow_from_spark(stored.schema)])
        given = map_in_arrow(self._rows(), noting(partial(_whole, rows)), schema)
        given = given.withColumn(_IS_STORED, functions.lit(False))
        both = given.unionByName(stored.withColumn(_IS_STORED, functions.lit(True)))
        both = both.repartition(*columns_named(keys))
        found = map_in_arrow(both, noting(partial(_whole, partial(_split, turned))), schema)
        return SparkSource(found, Spool(self._storage, self._root))


def _whole(work: Callable[[pa.Table], pa.Table], batches: Batches) -> Batches:
    """Run a function over all rows of a task at once."""
    if held := [*batches]:
        yield from work(pa.Table.from_batches(held)).to_batches()


def _split(turned: Callable[[pa.Table, pa.Table], pa.Table], rows: pa.Table) -> pa.Table:
    is_stored, rows = rows[_IS_STORED], rows.drop_columns([_IS_STORED])
    return turned(rows.filter(pc.invert(is_stored)), rows.filter(is_stored))


# ---- Spooling: storing a copy of an input that may give other rows when it is evaluated again ----
#
# A write evaluates its input twice, and retried tasks evaluate parts of it again. Rows that differ
# between evaluations would be lost or doubled. So an input is first written to storage, unless its
# plan has only file scans, projections and filters, without functions whose value may change.

_STABLE_NODES = frozenset(
    {"Relation", "LocalRelation", "Project", "Filter", "SubqueryAlias", "Range", "Union", "View"}
)
# Only file relations are stable. A query over a live source, such as JDBC, is a relation too, and a
# table of the catalog, which has a name, may list its partitions again at each evaluation.
_FILE_RELATION = re.compile(r"\bRelation \[.*\] (?:parquet|orc|avro|csv|json|text|xml)$")
_UNSTABLE = re.compile(
    r"\b(?:rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|"
    r"spark_partition_id|input_file_name|input_file_block_start|input_file_block_length|"
    r"current_timestamp|current_date|current_time|now|localtimestamp|unix_timestamp|"
    r"reflect|try_reflect|java_method)\("
    r"|\)#\d+"  # Only functions that run in Python print their id.
    r"|\.\.\. \d+ more (?:fields|characters)",  # The omitted part may have such a function.
    re.IGNORECASE,
)
_NODE = re.compile(r"[\s:+\-|]*!?([A-Za-z]+)")

# Without these settings Spark 3 does not write dates before 1582, and does not write times before
# 1900 as INT96. Its dates are in the right calendar already.
_SPOOL_AS_IS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


class Spool:
    """The copy of a write's input, if the write needs a copy.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    root : str
        The table's path.
    """

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._root = spark_address(root).rstrip("/")
        self._folder: str | None = None

    def stable(self, df: DataFrame, *, may_join: bool = False) -> DataFrame:
        """Return a DataFrame that gives the same rows at every evaluation; see `is_repeatable`."""
        if is_repeatable(df, may_join=may_join):
            return df
        self._folder = f"{SPOOL_FOLDER}/{uuid.uuid4()}"
        path = f"{self._root}/{self._folder}"
        session = df.sparkSession
        with (
            changed_settings(session, _SPOOL_AS_IS),
            doing("keeping a copy, since they may change"),
            raising_noted(session),
        ):
            without_voids(df).write.parquet(path, compression="snappy")
        copy = read_parquet(df.sparkSession, stored_schema(df.schema), [path])
        return with_voids(copy, df.schema)

    def few_rows(self, schema: types.StructType) -> pa.Table | None:
        """Return the rows of the copy, which has a schema, read by this process.

        None without a copy, if it has many rows, or if a column is of the void type.
        """
        if self._folder is None or stored_schema(schema) != schema:
            return None
        return few_stored_rows(self._storage, self._folder)

    def drop(self) -> None:
        """Delete the copy."""
        if self._folder is not None:
            with suppress(StorageError):  # A leftover copy is not part of the table.
                self._storage.delete_folder(self._folder)
            self._folder = None


def is_repeatable(df: DataFrame, *, may_join: bool = False) -> bool:
    """Return whether a DataFrame's plan gives the same rows each time; False if this is unknown.

    Functions in Java or Scala are treated as deterministic, as Spark does. ``may_join`` takes joins
    as stable: a task that runs again gets the same rows in another order. A join of a caller is
    copied, so that it runs once.
    """
    lines = list(_plan_lines(df))
    nodes = _STABLE_NODES | {"Join"} if may_join else _STABLE_NODES
    return bool(lines) and all(_is_stable(line, nodes) for line in lines)


def _is_stable(line: str, nodes: frozenset[str] = _STABLE_NODES) -> bool:
    node = _NODE.match(line)
    return (
        node is not None
        and node[1] in nodes
        and (node[1] != "Relation" or _FILE_RELATION.search(line) is not None)
        and _UNSTABLE.search(line) is None
    )


def _plan_lines(df: DataFrame) -> Iterator[str]:
    """Yield the lines of the analyzed plan."""
    plan = plan_text(df, "EXTENDED").partition("== Analyzed Logical Plan ==\n")[2]
    plan = plan.partition("\n== Optimized Logical Plan ==")[0]
    yield from plan.splitlines()[1:]  # The first line repeats the schema.


# --------------------------------------------------------------------------------------------------
#
# Columns of the void type, ``F.lit(None)`` and what contains it, which no Parquet file can hold.
#
# A copy of such a column has texts in their place, all null; read again, they are nulls of the void
# type.


def without_voids(df: DataFrame) -> DataFrame:
    """Return a DataFrame with texts in place of voids; the same one if it has none."""
    kept = stored_schema(df.schema)
    if kept == df.schema:
        return df
    return df.select([df[quoted([f.name])].cast(f.dataType) for f in kept.fields])


def with_voids(df: DataFrame, schema: types.StructType) -> DataFrame:
    """Return a DataFrame of :func:`without_voids` in the schema that it had before."""
    if df.schema == schema:
        return df
    columns = ((f.name, _with_voids(df[quoted([f.name])], f.dataType)) for f in schema.fields)
    return df.select([column.alias(name) for name, column in columns])


def stored_schema(given: types.StructType) -> types.StructType:
    """Return a schema with texts in place of voids.

    >>> given = types.StructType().add("a", types.ArrayType(types.NullType()))
    >>> stored_schema(given).simpleString()
    'struct<a:array<string>>'
    """
    fields = [types.StructField(f.name, _stored(f.dataType), f.nullable) for f in given.fields]
    return types.StructType(fields)


def _stored(given: types.DataType) -> types.DataType:
    if isinstance(given, types.NullType):
        return types.StringType()
    if isinstance(given, types.ArrayType):
        return types.ArrayType(_stored(given.elementType), given.containsNull)
    if isinstance(given, types.MapType):
        key, value = _stored(given.keyType), _stored(given.valueType)
        return types.MapType(key, value, given.valueContainsNull)
    if isinstance(given, types.StructType):
        return stored_schema(given)
    return given


def _with_voids(stored: Column, given: types.DataType) -> Column:
    """Return a stored column in the given type, with nulls in place of the texts."""
    if _stored(given) == given:
        return stored
    if isinstance(given, types.ArrayType):
        return functions.transform(stored, lambda held: _with_voids(held, given.elementType))
    if isinstance(given, types.StructType):
        fields = [_with_voids(stored[f.name], f.dataType).alias(f.name) for f in given.fields]
        return functions.when(stored.isNotNull(), functions.struct(*fields))
    if isinstance(given, types.MapType):
        if isinstance(given.keyType, types.NullType):  # No key is null, so it has no entries.
            return functions.when(stored.isNotNull(), functions.create_map())
        return functions.transform_values(
            stored, lambda _, held: _with_voids(held, given.valueType)
        )
    return functions.lit(None)


# ---- The rows of a DataFrame in the driver, if they are few, without Python workers --------------
#
# A write of few rows needs no tasks (``flow/threads.py`` has the bounds). A DataFrame is asked for
# its rows only if Spark expects few of them: then reading them is cheap even if they turn out to be
# too many. Nothing of such a read is used, so rows that change between two reads are not mixed.
# Decision 41 tells what else was tried.

_WHOLE_PLAN = {"spark.sql.debug.maxToStringFields": "100000"}
_SIZED = types.NumericType, types.DateType, types.TimestampType, types.TimestampNTZType
# From 2 MiB on Spark counts in MiB.
_SIZE = re.compile(r"Statistics\(sizeInBytes=([0-9.]+) (Ki)?B\b[^()]*\)$")
_VALUE_BYTES_MAX = 4 << 10
_FILES_MAX = 64  # The driver reads them one after the other.


def few_rows(df: DataFrame) -> pa.Table | None:
    """Return the rows of a DataFrame; None if Spark expects many, they are many, or one is large.

    PySpark 3.5 has no public way to hand rows to the driver as Arrow.
    """
    if not hasattr(df, "toArrow") or not _are_expected_few(df):
        return None
    # A large value is not handed to the driver: its row is null.
    is_large = " OR ".join(
        f"octet_length(CAST({quoted([field.name])} AS string)) > {_VALUE_BYTES_MAX}"
        for field in schema_of(df)
        if not isinstance(field.dataType, _SIZED)
    )
    row = f"CASE WHEN {is_large or 'false'} THEN null ELSE struct(*) END AS row"
    some = df.limit(threads.HERE_ROWS_MAX + 1).selectExpr(row)
    with raising_noted(df.sparkSession):
        rows = some.toArrow().column("row")
    if rows.null_count or not fits_here(rows=len(rows)):
        return None
    return pa.table(dict(zip(df.columns, rows.flatten(), strict=True)))


def _are_expected_few(df: DataFrame) -> bool:
    """Return whether Spark's optimizer expects few bytes; a wrong guess costs a small job."""
    plan = plan_text(df, "COST").partition("== Optimized Logical Plan ==\n")[2]
    size = _SIZE.search(plan.partition("\n")[0])
    return size is not None and fits_here(size_bytes=int(float(size[1]) * (1024 if size[2] else 1)))


def plan_text(df: DataFrame, mode: str) -> str:
    """Return the plan of a DataFrame as SQL's EXPLAIN tells it.

    ``DataFrame.explain`` would print the plan to standard output, which the whole process shares.
    """
    session, view = df.sparkSession, f"bucketlake_{uuid.uuid4().hex}"
    df.createTempView(view)
    try:
        with changed_settings(session, _WHOLE_PLAN):
            return str(session.sql(f"EXPLAIN {mode} SELECT * FROM {view}").collect()[0][0])
    finally:
        session.catalog.dropTempView(view)


def few_stored_rows(storage: Storage, folder: str) -> pa.Table | None:
    """Return the rows of Parquet files that Spark has written; None if they are many."""
    found = [file for file in storage.list(folder) if file.path.endswith(".parquet")]
    if len(found) > _FILES_MAX or not fits_here(size_bytes=sum(file.size_bytes for file in found)):
        return None
    opened = [pq.ParquetFile(io.BytesIO(storage.read(file.path))) for file in found]
    heads = [file.metadata for file in opened]
    groups = [head.row_group(n) for head in heads for n in range(head.num_row_groups)]
    plain_bytes = sum(group.total_byte_size for group in groups)
    if not fits_here(size_bytes=plain_bytes, rows=sum(group.num_rows for group in groups)):
        return None
    return pa.concat_tables([file.read() for file in opened])
