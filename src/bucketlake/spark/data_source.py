"""The data source ``bucketlake``: ``spark.read.format("bucketlake")`` and its SQL, from PySpark 4.

Spark runs these classes in Python processes beside the driver. It pickles the data source, so it
holds no session. Spark asks for the schema when a table is loaded; the table is pinned then, as
``Table.read`` pins it, and each query of the DataFrame reads that snapshot.

Spark before :data:`KEEPS_SCANS_APART` gives all queries of a DataFrame the splits of the latest
one, so filters must not change the splits there: ``where`` prunes, ``filter`` does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.index.setting import TableIndex
from bucketlake.read.change_plan import ChangeRange, pin_changes
from bucketlake.read.change_reader import plan_changes
from bucketlake.read.read_plan import plan_read, returned_schema
from bucketlake.read.request import PinnedRead, ReadRequest
from bucketlake.read.snapshot import load_snapshot
from bucketlake.spark.pushed_filters import pushed_predicate
from bucketlake.spark.spark_schema import arrow_from_spark, spark_from_arrow
from bucketlake.spark.splits import NamedSource, SplitReader, splits_of, splits_of_changes
from bucketlake.spark.stream_source import (
    STORED,
    SourceOptions,
    all_options,
    in_catalog,
    schema_of_changes,
    with_columns,
)
from bucketlake.spark.workers import postpone_pandas
from bucketlake.storage.location import shown_address
from bucketlake.where.predicate import And, Predicate

KEEPS_SCANS_APART = hasattr(DataSourceReader, "pushLimit")
"""Whether Spark keeps the splits of each query.

Up to 4.3 it stores them in the relation: after ``df.where("id = 'a'")``, ``df`` itself was read
with the splits for ``id = 'a'``. Spark changed that when it began to push limits (SPARK-58551).
"""

_UPSERTS = "a writer of Spark's Python data sources cannot bring rows to their buckets"


class BucketLakeSource(NamedSource):
    """A table as a data source of Spark."""

    _pinned: tuple[PinnedRead, TableIndex | None] | None = None
    _range: ChangeRange | None = None
    _has_reader = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the source for planning, with the pinned table, or its name for tasks."""
        if self._has_reader:
            return NamedSource, (CaseInsensitiveDict(),)
        return super().__reduce_ex__(protocol)

    def schema(self) -> StructType:
        """Pin the table, and return the columns that a read returns."""
        postpone_pandas()
        created = in_catalog(self.options)
        options = SourceOptions.of(dict(self.options) if created is None else created)
        with options.naming():
            found = spark_from_arrow(self._columns(options))
        return found if created is None else _with_options(found, created)

    def _columns(self, options: SourceOptions) -> pa.Schema:
        if options.of_changes:
            return self._columns_of_changes(options)
        if options.is_of_stream:
            read, _ = _pin(options, options.stream_request())
        else:
            read, _ = self._pinned = _pin(options, options.request())
        return returned_schema(read)

    def _columns_of_changes(self, options: SourceOptions) -> pa.Schema:
        opened = options.table.open()
        if options.is_of_stream:
            request, snapshot = options.stream_request(), load_snapshot(opened)
        else:
            request = options.request()
            self._range = pin_changes(opened, request)
            snapshot = self._range.snapshot
        return plan_changes(ChangeRange(snapshot, ()), request).reader.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of some columns of the table, as it was pinned."""
        options = self._options_of(schema)
        with options.naming():
            request = options.request()  # Options of streams are refused here, too.
            if options.of_changes:
                found = self._range or pin_changes(options.table.open(), request)
                return ChangeTableReader(options, found, schema)
            pinned, index = self._pinned or _pin(options, request)
            kind = PushingReader if KEEPS_SCANS_APART else TableReader
            return kind(options, with_columns(pinned, schema), index, arrow_from_spark(schema))

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 -- the name is Spark's.
        """Return a reader of the changes of the table."""
        options = self._options_of(schema)
        with options.naming():
            return _stream_reader(options, schema)

    def _options_of(self, schema: StructType) -> SourceOptions:
        postpone_pandas()
        self._has_reader = True
        return SourceOptions.of(all_options(self.options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002
        """Raise the error that says how to write."""
        table = f"bl.open_table({self.options.get('path', 'path')!r})"
        _refuse_write(
            self.options,
            'df.write.format("bucketlake")',
            f"{table}.upsert(df), .insert(df) or .insert_overwrite(df); for a job of Hudi "
            "bl.save(df, path, options)",
        )

    def streamWriter(  # noqa: N802 -- the name is Spark's.
        self,
        schema: StructType,  # noqa: ARG002
        overwrite: bool,  # noqa: ARG002
    ) -> NoReturn:
        """Raise the error that says how to write a stream."""
        table = f"bl.open_table({self.options.get('path', 'path')!r})"
        _refuse_write(
            self.options,
            'df.writeStream.format("bucketlake")',
            f"df.writeStream.foreachBatch({table}.upsert_batch('name')).start(); for a job of Hudi "
            "foreachBatch with bl.save(batch, path, options)",
        )


class TableReader(SplitReader):
    """Reads a pinned table.

    Parameters
    ----------
    options : SourceOptions
        The options of the load.
    pinned : PinnedRead
        The table, and the columns to return.
    index : TableIndex or None
        The table's index, to prune buckets.
    target : pa.Schema
        Names and types of the rows.
    """

    def __init__(
        self,
        options: SourceOptions,
        pinned: PinnedRead,
        index: TableIndex | None,
        target: pa.Schema,
    ) -> None:
        self._options, self._pinned, self._index = options, pinned, index
        self._target = target
        self._pushed: Predicate | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read."""
        with self._options.naming():
            plan = plan_read(self._pinned, self._index, besides=self._pushed)
            return splits_of(plan, self._pinned.snapshot.storage, self._target)


class ChangeTableReader(SplitReader):
    """Reads the changes of a range of commits.

    Parameters
    ----------
    options : SourceOptions
        The options of the load.
    found : ChangeRange
        The range.
    schema : StructType
        The columns of changes.
    """

    def __init__(self, options: SourceOptions, found: ChangeRange, schema: StructType) -> None:
        self._options, self._found, self._schema = options, found, schema

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read."""
        with self._options.naming():
            planned = plan_changes(self._found, self._options.request())
            return splits_of_changes(planned, schema_of_changes(planned, self._schema))


class PushingReader(TableReader):
    """Reads only the files that can hold rows that match the filters of a query."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:  # noqa: N802 -- the name is Spark's.
        """Prune with filters; all of them are left to Spark, too."""
        schema = self._pinned.snapshot.readable_schema
        found = [pushed_predicate(pushed, schema) for pushed in filters]
        understood = tuple(predicate for predicate in found if predicate is not None)
        if understood:
            self._pushed = And(understood)
        return filters


def _pin(options: SourceOptions, request: ReadRequest) -> tuple[PinnedRead, TableIndex | None]:
    pinned = options.table.pin(request)
    return pinned, options.table.index_of(pinned.snapshot)


def _with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return a schema that stores the options of a table of Spark's catalog."""
    first, *others = schema.fields
    kept = StructField(first.name, first.dataType, first.nullable, {STORED: json.dumps(options)})
    return StructType([kept, *others])


def _stream_reader(options: SourceOptions, schema: StructType) -> Any:
    try:
        from bucketlake.spark.stream_source import StreamReader
    except ImportError as error:
        raise UnsupportedFeatureError(
            "spark.readStream.format('bucketlake') before PySpark 4.2",
            shown_address(options.path),
            "install PySpark 4.2 or newer, or read the changes with table.read(since=…) "
            "(bucketlake read)",
        ) from error
    return StreamReader(options, schema)


def _refuse_write(options: Mapping[str, str], feature: str, way: str) -> NoReturn:
    where = shown_address(options["path"]) if options.get("path") else "format('bucketlake')"
    raise UnsupportedFeatureError(feature, where, f"{_UPSERTS}; use {way}; nothing was written")
