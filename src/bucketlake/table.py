"""The public table: each method checks its arguments, and calls one part of the library.

``create_table`` (``creating.py``) and ``open_table`` (``opening.py``) return a :class:`Table`,
which holds a handle (``read/handle.py``): every call reads storage again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from bucketlake.config.merge_entries import DeleteMarker
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.engine import active_session, change_frame, engine_of, require_session, stored_rows
from bucketlake.errors import ConfigError, InputError, UnsupportedFeatureError
from bucketlake.flow.stage import Engine
from bucketlake.index.dynamic import MAX_FILE_SIZE_DEFAULT
from bucketlake.index.hashing_config import HashingConfig, committed_configs
from bucketlake.index.partition_rules import RuleCompiler
from bucketlake.index.recorded_counts import RecordedCount, recorded_counts
from bucketlake.index.setting import INDEX_KINDS, TableIndex, without_state
from bucketlake.model.arguments import (
    check_integers,
    check_kinds,
    check_methods,
    check_texts,
    check_words,
    names_of,
    options_of,
    path_of,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.model.names import Names
from bucketlake.model.position import Batch, Origin, Position
from bucketlake.model.result import WriteResult
from bucketlake.model.retention import ArchivalLimits, Retention
from bucketlake.model.row_merge import (
    WHOLE_ROWS,
    Keep,
    MergeRules,
    MergeSchema,
    OnTie,
    RowMerge,
    SchemaMerge,
)
from bucketlake.model.schema import without_meta
from bucketlake.model.table_type import LogFormat, Operation
from bucketlake.model.words_of_others import attribute_error
from bucketlake.read.handle import Handle, naming_its_table
from bucketlake.services.advice.workload import TARGET_FILE_SIZE_DEFAULT
from bucketlake.services.check.findings import MIN_AGE_SECONDS, Findings
from bucketlake.services.resize.service import MAX_BYTES_DEFAULT, MAX_GROUPS_DEFAULT, ResizeLimits
from bucketlake.storage.location import shown_address
from bucketlake.storage.store_options import GivenOptions
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.read_time import ReadTime

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

    from bucketlake.engine import Records
    from bucketlake.index.rescaled import Rules
    from bucketlake.metadata.contents import MetadataTableFacts
    from bucketlake.read.buckets import Buckets, RecordLocation
    from bucketlake.read.history import TimelineEntry
    from bucketlake.read.pruning.prune import PruningReport
    from bucketlake.scan import Condition, Scan, ScanOptions
    from bucketlake.services.advice.advice import AdviceList
    from bucketlake.services.archival import ArchiveReport
    from bucketlake.services.check.repair import RepairReport
    from bucketlake.services.cleaning import CleanReport
    from bucketlake.services.compaction import CompactionReport
    from bucketlake.services.rebucket.kind_conversion import ConversionReport
    from bucketlake.services.rebucket.rescale import RescaleReport
    from bucketlake.services.resize.service import ResizeReport
    from bucketlake.services.undo.rollback_commits import RollbackReport
    from bucketlake.services.undo.savepoints import RestoreReport
    from bucketlake.services.version_change import VersionReport
    from bucketlake.write.merge_statement import Merge


@naming_its_table("_handle")
@dataclass(frozen=True, slots=True, init=False)
class Table:
    """A handle of a Hudi table: its path, and how to access it.

    Use ``create_table`` or ``open_table`` to get one. It is small, and can be pickled. Writes and
    services run on Spark if data or a session of Spark is at hand, else in this process. A table is
    also an Arrow stream of its rows (PyCapsule interface): ``polars.DataFrame(table)``,
    ``pyarrow.table(table)`` and DuckDB take it as it is.

    All methods raise :class:`TableNotFoundError` if there is no table,
    :class:`UnsupportedFeatureError` if it has a feature that the call does not support, and
    :class:`ConfigError` for an argument that cannot be used. Those that change the table raise
    :class:`CommitConflictError` if another writer changed the same meanwhile, and
    :class:`CommitOutcomeUnknownError` if storage failed when the commit may have begun: look at the
    timeline before a retry; a clean, a rollback and a restore are continued by the next one.

    Options that several methods have: ``spark`` is the session that works, by default the active
    session, or this process without one. ``dry_run=True`` only returns what would be done.

    Parameters
    ----------
    path : str
        Folder of the table, as the user passed it.
    index : SimpleBucket, DynamicBucket, or another index kind, or None
        The index that a table of Hudi has, which stores none; as for :func:`open_table`.
    storage_options : mapping of str to str
        The options of the caller. ``repr`` does not show their values, and a pickle holds them in
        unreadable form.
    log_format : LogFormat
        Format of the records in log files that this handle writes.
    lock : TableLock
        The lock that this handle shares with Hudi's writers.
    """

    path: str
    _given_index: TableIndex | None = field(repr=False)
    storage_options: Mapping[str, str] = field(repr=False)
    log_format: LogFormat = field(repr=False)
    lock: TableLock = field(repr=False)
    _job_marker: DeleteMarker | None = field(repr=False)

    def __init__(
        self,
        path: str,
        index: TableIndex | None = None,
        storage_options: Mapping[str, str] | None = None,
        log_format: LogFormat = LogFormat.PARQUET,
        lock: TableLock = NO_LOCK,
    ) -> None:
        if index is not None:
            check_kinds(INDEX_KINDS, index=index)
        check_kinds((LogFormat,), log_format=log_format)
        check_methods("held", "a lock", lock=lock)
        options = GivenOptions(options_of(storage_options, "storage_options"))
        object.__setattr__(self, "path", path_of(path))
        object.__setattr__(self, "_given_index", index)
        object.__setattr__(self, "storage_options", options)
        object.__setattr__(self, "log_format", log_format)
        object.__setattr__(self, "lock", lock)
        object.__setattr__(self, "_job_marker", None)

    def __repr__(self) -> str:
        """Return address, kind, rows, size and last commit; only the address if it is not read."""
        from bucketlake.read.overview import quick_overview

        overview, address = quick_overview(self._handle), f"Table(path={self._handle.address!r})"
        return address if overview is None else f"{address}: {overview.line}"

    def _repr_html_(self) -> str:
        """Return the facts of the table as a table of HTML, for notebooks."""
        from bucketlake.read.overview import quick_overview

        overview, address = quick_overview(self._handle), f"Table(path={self._handle.address!r})"
        return escape(address) if overview is None else overview._repr_html_()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows of the newest commit as an Arrow stream in a PyCapsule."""
        return self.scan().__arrow_c_stream__(requested_schema)

    if not TYPE_CHECKING:  # A checker of types shall not take any name for an attribute.

        def __getattr__(self, name):
            """Raise AttributeError; for a word of another library with the call that is meant."""
            raise attribute_error(name, self, "table", Table)

    @property
    def _handle(self) -> Handle:
        return Handle(
            self.path,
            self._given_index,
            self.storage_options,
            self.log_format,
            self.lock,
            self._job_marker,
        )

    def _engine(self, spark: SparkSession | None = None) -> Engine:
        return engine_of(spark or active_session())

    @property
    def index(self) -> TableIndex | None:
        """The table's index now, read from the table; None if it is not known: then writes fail.

        After a rescale, a conversion or a restore, by any handle, it is the new index.
        """
        table = self._handle.open()
        index = self._handle.index_at(table, load_timeline(table))
        return None if index is None else without_state(index)

    # Writes.

    def _write(
        self,
        operation: Operation,
        data: Records,
        merge: MergeSchema = False,
        rows: RowMerge = WHOLE_ROWS,
        *,
        position: Position | None = None,
        batch: Batch | None = None,
    ) -> WriteResult:
        from bucketlake.writing import write_data

        origin = _origin(position, batch)
        return write_data(self._handle, operation, data, merge, origin, rows)

    def upsert(
        self,
        data: Records,
        *,
        merge_schema: MergeSchema = False,
        missing: Keep = None,
        nulls: Keep = None,
        merge: MergeRules = None,
        position: Position | None = None,
        on_tie: OnTie = None,
    ) -> WriteResult:
        """Insert new records and update existing records.

        The result has no instant if nothing changed: there are no rows, or all lost by ordering.

        Parameters
        ----------
        data : DataFrame, pa.Table, ArrowData or InputFiles
            A DataFrame of Spark, pandas or polars (also lazy); a Table, RecordBatch,
            RecordBatchReader, Dataset or Scanner of pyarrow; a list of RecordBatches or of dicts;
            other rows with the Arrow PyCapsule interface; or files, which the tasks of the write
            read themselves (:func:`files`). They need the columns of the table; a column without
            values may have the null type. Hudi's meta columns and a pandas index of which the table
            has no column are dropped. If several records have the same key, the one with the
            greatest ordering value is written; of equal ones the later row of an Arrow table or of
            files, while of a DataFrame, which has no order, the contents of the rows decide. A
            record replaces a stored record unless its ordering value is less. A record whose
            ``_hoodie_is_deleted`` is true deletes its key, always if its ordering value is null.
            That column is optional and adds no column.
        merge_schema : bool, str or sequence of str
            Changes that the batch may make to the table's schema. False: none. True: all, or one or
            several of the words ``"add_columns"`` (new columns and fields), ``"widen_types"``
            (``int`` to ``bigint`` or ``double``, ``float`` to ``double``, a decimal to more digits)
            and ``"fill_missing"`` (nullable columns that the batch lacks become null, also in
            stored records). No change loses a digit. Narrower types and values that fit need no
            change.
        missing, nulls : {"keep"}, optional
            ``"keep"``: a stored record keeps its values in columns that the batch lacks, or where
            the batch has a null. None: an error, or what ``merge_schema`` says; and a null is
            written. If columns have orderings of their own (``ordering`` of :func:`create_table`),
            a batch may lack whole groups of them, and ``nulls`` and ``merge`` are refused.
        merge : dict of str to str, or callable, optional
            Rules of columns that are not replaced: ``"sum"``, ``"min"``, ``"max"``, ``"union"`` (of
            arrays), ``"keep"`` (the stored value, unless it is null) or ``"replace"``. Or a
            function of the stored and the new rows of the same keys, as two Arrow tables, that
            returns the rows to store; it may be called for parts, and again.
            ``docs/how-to/partial-rows.md`` has the rules.
        position : Position, optional
            How far the records reach in their source. It is stored in the commit, also if nothing
            else changes, and :meth:`position` returns it. Records up to a position that is stored
            already are skipped, and a source that goes back or has a gap is an error
            (:class:`Position`). Examples: ``docs/how-to/stream-to-table.md``.
        on_tie : {"fail"}, optional
            ``"fail"``: it is an error if two rows of a key have equal ordering values and differ,
            in the batch or with the stored row; then nothing is written. Of columns with orderings
            of their own, those of equal orderings count. A delete is no such row: it wins. None:
            the later row wins, as in Hudi.

        Raises
        ------
        InputError
            If ``data`` is a stream or has no Arrow form, a key is missing, a type or a value does
            not fit, the schema would change in a way that is not allowed, a required column gets no
            value, a column cannot have its rule, or the function of ``merge`` fails or returns
            other rows.
        ConfigError, IndexStateError
            If the table stores no bucket setting and was opened without ``index``, or its files
            contradict the index.
        """
        rows = RowMerge.of(missing, nulls, merge, on_tie)
        return self._write(Operation.UPSERT, data, merge_schema, rows, position=position)

    def upsert_batch(
        self,
        query_name: str,
        *,
        merge_schema: MergeSchema = False,
        missing: Keep = None,
        nulls: Keep = None,
        merge: MergeRules = None,
        on_tie: OnTie = None,
    ) -> BatchUpsert:
        """Return a function for ``foreachBatch`` that upserts each batch of a stream once.

        If the stream's last committed batch has the id of a batch, the batch is skipped, also after
        other commits. An earlier id raises InputError: the checkpoint was reset or belongs to
        another query. The function takes a ``position`` of the batch, too, as :meth:`upsert` does.
        Examples: ``docs/how-to/recover.md``.

        Parameters
        ----------
        query_name : str
            Name of the stream. Keep it when the stream restarts from its checkpoint. The other
            options are those of :meth:`upsert`.
        """
        SchemaMerge.of(merge_schema)  # Raises ConfigError before the stream starts.
        rows = RowMerge.of(missing, nulls, merge, on_tie)
        return BatchUpsert(self, query_name, merge_schema, rows)

    def insert(self, data: Records, *, merge_schema: MergeSchema = False) -> WriteResult:
        """Write records like :meth:`upsert`, because a bucket index keeps keys unique (RFC-29).

        Only the operation in the commit's metadata is different. Options and errors are the same.
        """
        return self._write(Operation.INSERT, data, merge_schema)

    def bulk_insert(self, data: Records, *, merge_schema: MergeSchema = False) -> WriteResult:
        """Write records to partitions that are new, or whose records are all deleted.

        Options and errors are those of :meth:`upsert`, and InputError is raised if one of the
        partitions has records. If several records have the same key, one is written.
        """
        return self._write(Operation.BULK_INSERT, data, merge_schema)

    def insert_overwrite(
        self, data: Records, *, whole_table: bool = False, merge_schema: MergeSchema = False
    ) -> WriteResult:
        """Replace the partitions of the records, or the whole table.

        ``file_groups`` of the result counts the file groups that were written or replaced. Other
        options, and the errors, are those of :meth:`upsert`.

        Parameters
        ----------
        whole_table : bool
            Whether to empty partitions without a record in ``data``, too; all if it has no rows.
        """
        operation = Operation.INSERT_OVERWRITE_TABLE if whole_table else Operation.INSERT_OVERWRITE
        return self._write(operation, data, merge_schema)

    def update(
        self,
        set: Mapping[str, str],  # noqa: A002 -- the word of SQL, and of other table formats.
        *,
        where: str | None = None,
        spark: SparkSession | None = None,
    ) -> WriteResult:
        """Change columns of the rows that match a condition.

        The result has no instant if no row matched. Examples: ``docs/how-to/update-and-delete.md``.

        Parameters
        ----------
        set : dict of str to str
            For each column, its new value: an SQL expression of the columns of the row, such as
            ``"n + 1"``; a text needs quotes, ``"'gone'"``. All expressions see the old values.
            Columns of the record key, partition and ordering cannot be updated.
        where : str, optional
            As for :meth:`scan`; None for all rows. Files without a matching row are not written.
        spark : SparkSession, optional
            Without Spark, literals, columns, ``+``, ``-``, ``*``, ``||``, ``concat``, ``coalesce``,
            ``upper`` and ``lower`` can be evaluated, with the values of Spark 4.

        Raises
        ------
        InputError
            If a column does not exist or cannot be updated, the condition or an expression is
            wrong, or a value does not fit its column. The other errors are those of :meth:`upsert`.
        UnsupportedFeatureError
            If only Spark can evaluate the condition or an expression.
        """
        from bucketlake.writing import write_matching

        return write_matching(self._handle, Operation.UPSERT, where, spark, set)

    def delete(
        self,
        keys: Records | None = None,
        *,
        where: str | None = None,
        spark: SparkSession | None = None,
    ) -> WriteResult:
        """Delete records by key, or those that match a condition.

        The result has no instant if no key was found; but log files of a bucket index are written
        without a look at stored keys.

        Parameters
        ----------
        keys : DataFrame, pa.Table or ArrowData, optional
            Record key and partition columns; other columns, and keys that are not in the table, are
            ignored. Ordering values are not compared: a key is always deleted. A later write of the
            key makes a new row; but until the next compaction of a merge-on-read table, a write
            with a lesser ordering value than the deleted row's may bring that row back
            (``docs/how-to/merge-on-read.md``, "Late records and deletes").
        where, spark
            In place of keys, a condition, and who looks for its rows; as for :meth:`update`.

        Raises
        ------
        InputError
            If a key or partition column is missing. The other errors are those of :meth:`update`.
        """
        from bucketlake.writing import write_matching

        if (keys is None) == (where is None):
            given = "neither" if keys is None else "both"
            raise ConfigError("keys and where", given, "give keys, or a condition")
        if keys is not None:
            return self._write(Operation.DELETE, keys)
        return write_matching(self._handle, Operation.DELETE, where, spark)

    def merge(
        self,
        source: Records,
        on: str,
        *,
        alias: str = "t",
        source_alias: str = "s",
        spark: SparkSession | None = None,
        position: Position | None = None,
    ) -> Merge:
        """Begin a merge: update, insert and delete rows by a comparison with a source.

        Add clauses to the result, and call its ``execute``. With ``when_matched_update_all()`` and
        ``when_not_matched_insert_all()`` alone, and an ``on`` that equates the key, the merge is an
        upsert: the table is not read, and the counts are those of an upsert.

        Updated rows obey the ordering of the table: a source row with a lower ordering value does
        not replace a stored row. Deletes do not compare it. Rules and examples:
        ``docs/how-to/merge.md``.

        Parameters
        ----------
        source : DataFrame, pa.Table, ArrowData or InputFiles
            What :meth:`upsert` takes. It is evaluated once.
        on : str
            SQL condition under which a row of the table and a row of the source match, such as
            ``"t.id = s.id"``. If it equates all columns of the record key and the partition, only
            the partitions and buckets of these keys are read.
        alias, source_alias : str
            The names of table and source in all conditions and expressions. A column that only one
            of the two sides has needs none.
        spark : SparkSession, optional
            By default also that of the source. Without Spark, conditions are as for :meth:`scan`,
            or compare columns, and expressions are those of :meth:`update`.
        position : Position, optional
            As for :meth:`upsert`.
        """
        from bucketlake.write.merge_statement import MergeStatement
        from bucketlake.writing import begin_merge

        check_words(alias=alias, source_alias=source_alias)
        statement = MergeStatement(on, alias, source_alias, origin=_origin(position))
        return begin_merge(self._handle, source, statement, spark)

    def delete_partitions(self, partitions: Names) -> WriteResult:
        """Delete whole partitions.

        ``partitions`` are paths, as in :meth:`buckets`; InputError is raised if one has no records.
        ``file_groups`` of the result counts the removed file groups; rows are not counted.
        """
        from bucketlake.writing import remove_partitions

        return remove_partitions(self._handle, names_of(partitions, "partitions", in_order=False))

    # Reads.

    def scan(
        self,
        where: Condition | None = None,
        *,
        keys: Records | None = None,
        columns: Names | None = None,
        as_of: ReadTime | None = None,
        since: ReadTime | None = None,
        until: ReadTime | None = None,
        read_optimized: bool = False,
    ) -> Scan:
        """State a read; the terminals of the scan run it, with or without Spark.

        They are ``to_spark``, ``to_arrow``, ``to_batches``, ``to_polars``, ``to_pandas``,
        ``count``, ``show`` and ``explain``; or pass it to a library that takes Arrow streams.

        Parameters
        ----------
        where : str or tuple, optional
            SQL condition. Partitions, buckets and files that cannot match are not read. Without
            Spark: comparisons of a column with literals (also ``IN``, ``BETWEEN``, ``LIKE`` and
            ``IS NULL``), ``AND``, ``OR`` and ``NOT``. Or ``(column, values)``: rows whose value is
            in a list or an array; ``(columns, rows)`` takes several columns, and rows as ``keys``.
        keys : DataFrame, pa.Table or ArrowData, optional
            Rows with the columns of the record key: only rows of the table with one of these keys
            are returned. Columns of the partition count if they are there, other columns do not.
            A null equals a null. A DataFrame of Spark is collected by this call.
        columns : str or sequence of str, optional
            Columns to return, or paths of fields inside structs, such as ``header.eid``, which
            become columns of that name; meta columns are returned only if they are named.
        as_of : str, datetime, date or WriteResult, optional
            Time travel: ``yyyyMMddHHmmss[SSS]``, ``yyyy-MM-dd``, or ``yyyy-MM-dd HH:mm:ss[.SSS]``,
            also with ``T`` and a zone; or a ``datetime`` or ``date``. A time without a zone is on
            the clock of the table's timeline; a date means its begin. The result of a write means
            its commit. Times whose files a clean has deleted cannot be read.
        since : str, datetime, date or WriteResult, optional
            Incremental read: records that were changed by commits completed after this time, in the
            forms of ``as_of``; after the result of a write, the read continues after its commit.
            Deleted records are not returned.
        until : str, datetime, date or WriteResult, optional
            Incremental read: commits completed up to this time, and records as they were then.
        read_optimized : bool
            Ignore the log files of a merge-on-read table: faster, but each file group is as old as
            its last compaction.

        Raises
        ------
        InputError
            By the terminals, as most errors below: if the table has no such column, ``columns`` is
            empty or names a column twice, or ``where`` is no condition.
        ConfigError
            If a time has none of the forms, ``as_of`` comes with ``since`` or ``until``, or
            ``since`` is later than ``until`` or than now.
        TimelineError
            If a clean deleted files that the table of that time needs.
        CommitConflictError
            If a clean or a rollback deleted files while they were read; read again. If Spark itself
            reads the files, it raises its own error for a missing file.
        UnsupportedFeatureError
            If only Spark can evaluate ``where``, the package of a data frame is not installed, or
            the read is incremental and the table has no meta columns.

        Examples
        --------
        >>> import bucketlake as bl
        >>> fares = bl.create_table(
        ...     "memory://docs/fares", schema=pa.schema({"id": pa.string(), "fare": pa.int64()}),
        ...     record_key=["id"], index=bl.SimpleBucket(4))
        >>> seen = fares.upsert(pa.table({"id": ["a", "b"], "fare": [3, 9]}))
        >>> cheap = fares.scan("fare < 5", columns=["fare"])
        >>> cheap.to_arrow().to_pylist(), cheap.count()
        ([{'fare': 3}], 1)
        >>> fares.upsert(pa.table({"id": ["c"], "fare": [5]})).inserted
        1
        >>> fares.scan(since=seen).show()
        id  fare
        --  ----
        c      5
        """
        from bucketlake.scan import Scan, request_of

        request = request_of(where, columns, as_of, since, until, read_optimized, keys)
        return Scan(self._handle, request)

    def read(self, spark: SparkSession | None = None, **options: Unpack[ScanOptions]) -> DataFrame:
        """Return the rows of :meth:`scan`, whose other options it takes, as a frame of Spark."""
        return self.scan(**options).to_spark(spark)

    def to_arrow(self, **options: Unpack[ScanOptions]) -> pa.Table:
        """Return the rows of :meth:`scan`, whose options it takes, as an Arrow table."""
        return self.scan(**options).to_arrow()

    def to_pandas(self, **options: Unpack[ScanOptions]) -> pandas.DataFrame:
        """Return the rows of :meth:`scan`, whose options it takes, as a data frame of pandas."""
        return self.scan(**options).to_pandas()

    def to_polars(self, **options: Unpack[ScanOptions]) -> polars.DataFrame:
        """Return the rows of :meth:`scan`, whose options it takes, as a data frame of polars."""
        return self.scan(**options).to_polars()

    def count(self, **options: Unpack[ScanOptions]) -> int:
        """Return the number of rows of :meth:`scan`, whose options it takes."""
        return self.scan(**options).count()

    def show(self, n: int = 20, **options: Unpack[ScanOptions]) -> None:
        """Print ``n`` rows of :meth:`scan`, whose other options it takes."""
        self.scan(**options).show(n)

    def explain(self, where: Condition | None = None) -> PruningReport:
        """Return which partitions and buckets a :meth:`scan` would read, and why."""
        return self.scan(where).explain()

    def changes(
        self,
        spark: SparkSession | None = None,
        *,
        since: ReadTime | None = None,
        until: ReadTime | None = None,
        where: str | None = None,
        columns: Names | None = None,
    ) -> DataFrame:
        """Return what changed: the inserted, updated and deleted rows of each commit.

        Its columns are ``op`` (``i`` for an insert, ``u`` for an update, ``d`` for a delete),
        ``instant`` and ``completed_at`` (requested and completion time of the commit), ``before``
        and ``after`` (structs of the table's columns; null if there was no such row). Errors are
        those of :meth:`scan`; if a clean deleted a version that is needed, the error says since
        when changes can be read.

        Stored versions of files are compared, so the table needs no setting. A row that several
        commits changed has a change for each. A row that a commit wrote again with equal values is
        no change, nor is a row that a compaction, a resize or a rescale moved. A row that moved to
        another partition is a delete there and an insert here.
        Examples: ``docs/how-to/change-data.md``.

        Parameters
        ----------
        since, until
            As for :meth:`scan`; by default all changes. To go on later, give the greatest
            ``completed_at`` seen.
        where, columns
            As for :meth:`scan`: a change is returned if the row before it or after it matches, and
            an update of other columns is no change.
        """
        from bucketlake.read.change_plan import pin_changes
        from bucketlake.scan import request_of

        request = request_of(where, columns, since=since, until=until)
        pinned = pin_changes(self._handle.open(), request)
        return change_frame(require_session(spark), pinned, request)

    def changes_to_arrow(
        self,
        *,
        since: ReadTime | None = None,
        until: ReadTime | None = None,
        where: str | None = None,
        columns: Names | None = None,
    ) -> pa.Table:
        """Return what changed as an Arrow table, without Spark, in the order of the commits.

        Options, columns and errors are those of :meth:`changes`.
        """
        from bucketlake.read.change_plan import pin_changes
        from bucketlake.read.change_reader import plan_changes, read_changes
        from bucketlake.scan import request_of

        request = request_of(where, columns, since=since, until=until)
        pinned = pin_changes(self._handle.open(), request)
        return read_changes(plan_changes(pinned, request))

    def position(self, source: str, as_of: ReadTime | None = None) -> Position | None:
        """Return how far a source is written into the table; None if no write has said it.

        It is the position of the newest commit: an older one after a rollback or a restore. Commits
        of Hudi have none, so the metadata of those since the last commit of bucketlake are read,
        and the archive if there is no other.
        Examples: ``docs/how-to/stream-to-table.md``.

        ``source`` is the name in the :class:`Position` of the writes, and ``as_of`` a time as for
        :meth:`scan`, to get the position of that time.
        """
        from bucketlake.actions.stream_batches import position_at
        from bucketlake.read.request import timeline_as_of

        table = self._handle.open()
        timeline = load_timeline(table)
        if as_of is not None:
            timeline = timeline_as_of(table, timeline, as_of)
        return position_at(table, timeline, source)

    def unseen(
        self, rows: Records, source: str, *, partition: str = "partition", offset: str = "offset"
    ) -> DataFrame | pa.Table:
        """Return the rows that are after the stored position of a source.

        A frame of Spark stays one; other rows become an Arrow table. All rows are returned if no
        position is stored, and so are rows of partitions that it does not name.

        Parameters
        ----------
        rows : DataFrame, pa.Table or ArrowData
            Rows with a column for the partition of the source, and one for the number in it.
        source : str
            As for :meth:`position`.
        partition, offset : str
            The names of these columns; by default those of Spark's Kafka source. A partition counts
            as the text of its value.
        """
        from bucketlake.engine import unseen_rows

        return unseen_rows(rows, self.position(source), (partition, offset))

    def locate(
        self, key: str | Mapping[str, Any], partition: str | None = None
    ) -> list[RecordLocation]:
        """Return the file group and file of a record, for each partition that has the key.

        A record-level index tells the file group. Without one it is found by the key's bucket, or
        in all file groups if the bucket is not known.
        ``key`` is the record key as stored, or the values of its fields, such as ``{"id": 1}`` or
        ``{"header.eid": 1}``. By default all partitions are searched, or the one of the path
        ``partition``.
        """
        from bucketlake.read.buckets import locate_key

        if not isinstance(key, Mapping):
            check_texts(key=key)
        snapshot = self._handle.snapshot()
        return locate_key(snapshot, self._handle.index_of(snapshot), key, partition)

    def record_locations(self, partition: str) -> pa.Table:
        """Return the entries of the record-level index for one partition, in no order.

        ``partition`` is empty in a table without partitions. The columns are ``record_key``,
        ``partition_path``, ``file_id``, and ``inserted_at``: when the key was inserted into the
        file group. UnsupportedFeatureError is raised if the table has no such index,
        MetadataTableError if the metadata table is damaged, or lacks a commit.
        """
        from bucketlake.read.buckets import record_locations

        return record_locations(self._handle.snapshot(), partition)

    def buckets(self) -> Buckets:
        """Return the live file groups by partition and bucket: their sizes, rows and growth.

        Buckets of a hash ring have their hash range, too, and those of a directory the last bits of
        their hashes; a bucket without records has no file group. ``partitions`` of the result says
        how large each partition is, and how evenly its buckets are filled; ``growth`` has the size
        of the table after each commit. Reads no data file, but the metadata of the commits of the
        active timeline. Examples: ``docs/how-to/see-your-table.md``.
        """
        from bucketlake.read.buckets import list_buckets

        snapshot = self._handle.snapshot()
        return list_buckets(snapshot, self._handle.index_of(snapshot))

    def timeline(self) -> list[TimelineEntry]:
        """Return the instants of the active timeline, oldest first, and what each commit wrote.

        Pending instants are included, archived instants are not. It prints as a table.
        """
        from bucketlake.read.history import list_history

        table = self._handle.open()
        return list_history(table.storage, load_timeline(table))

    def report(self, path: str | os.PathLike[str]) -> str:
        """Write a page about the table, for people: one HTML file without scripts. Return its path.

        It shows how the table grew, the sizes of files, partitions and buckets, hash rings and
        directories, log files that wait for a compaction, the timeline, what the doctor finds, and
        the advice. Reads no data file. Examples: ``docs/how-to/see-your-table.md``.
        ``path`` is a file to write, or an address in an object store, which is accessed with the
        storage options of the table. An existing file is replaced. UnsupportedFeatureError is
        raised if Matplotlib is not installed (``pip install 'bucketlake[report]'``), StorageError
        if the file cannot be written.
        """
        from bucketlake.report.charts import require_matplotlib
        from bucketlake.report.page import render_page, table_report
        from bucketlake.storage.user_file import put_user_file

        target = path_of(path)
        require_matplotlib(shown_address(target))
        page = render_page(table_report(self._handle))
        put_user_file(target, page.encode(), self._handle.storage_options)
        return target

    def advise(self, *, target_file_size: int = TARGET_FILE_SIZE_DEFAULT) -> AdviceList:
        """Advise which index, table type, partitions and services the table should have, and why.

        One advice for each subject, also where all is well; each with its reason and the call that
        does it. Nothing is changed, and no data file is read. It never asks for what the table, or
        Hudi's writers of it, cannot do. :func:`advise` advises before there is a table. Examples:
        ``docs/how-to/advise.md``.
        ``target_file_size`` is how many bytes a file should have.
        """
        from bucketlake.services.advice.rules import advise_table

        check_integers(1, target_file_size=target_file_size)
        snapshot = self._handle.snapshot()
        index = self._handle.index_of(snapshot)
        return advise_table(self._handle, snapshot, index, target_file_size)

    def rule_versions(self) -> list[HashingConfig]:
        """Return the valid versions of a partition-level table's rules (RFC-89), oldest first.

        Archived versions are included. Empty if the table has no partition rules.
        """
        table = self._handle.open()
        return committed_configs(table.storage, load_timeline(table))

    def recorded_counts(self) -> dict[str, RecordedCount]:
        """Return the recorded bucket counts of a partition-level table (RFC-89), by partition path.

        Each is the count and the commit that set it. It stays valid if the rules change without a
        rescale; a later rescale, also by Hudi, replaces it.
        """
        table = self._handle.open()
        return recorded_counts(table.storage, load_timeline(table))

    def schema(self) -> pa.Schema:
        """Return the table's columns, without meta columns.

        Columns of types that are not supported are left out: :meth:`doctor` names them, and reads
        of the others work (``columns=``).
        """
        return without_meta(self._handle.snapshot().readable_schema)

    def config(self) -> TableConfig:
        """Return the table's properties."""
        return self._handle.open().config

    def metadata_table(self) -> MetadataTableFacts:
        """Return what Hudi's metadata table of this table consists of; if any, its partitions.

        MetadataTableError is raised if it is missing, or lacks file groups.
        """
        from bucketlake.metadata.contents import metadata_table_facts

        return metadata_table_facts(self._handle.open())

    # Upkeep.

    def rescale(
        self,
        rules: Rules | None = None,
        *,
        add: Rules | None = None,
        default: int | None = None,
        rule: str | RuleCompiler | None = None,
        spark: SparkSession | None = None,
        dry_run: bool = False,
    ) -> RescaleReport:
        """Change the bucket counts of partitions, and rewrite the changed partitions (RFC-89).

        A table with a simple bucket index gets a partition-level bucket index. One commit changes
        the rules, writes the rows and removes the old file groups. The logger ``bucketlake`` warns
        first of rules that match no partition, and of partitions that shrink without a rule.
        Examples: ``docs/how-to/choose-a-bucket-count.md``.

        Parameters
        ----------
        rules, add : mapping of str to int, or pairs, optional
            One of them: all new rules, as in :class:`PartitionBucket`; or rules to put before the
            table's rules.
        default : int, optional
            Count of partitions that match no rule; by default the table's default. Another default
            may change many partitions.
        rule : str or callable, optional
            Kind of the rules; by default the table's kind of rules.
        """
        from bucketlake.index.rescaled import rescaled_index
        from bucketlake.services.rebucket.rescale import rescale

        session = spark or active_session()
        return rescale(
            self._handle,
            lambda index: rescaled_index(index, rules, add, default, rule),
            partial(stored_rows, session, self._handle.path),
            engine_of(session),
            dry_run=dry_run,
        )

    def convert(
        self, index: TableIndex, *, spark: SparkSession | None = None, dry_run: bool = False
    ) -> ConversionReport:
        """Put a table of any index under dynamic buckets, or change its file groups per bucket.

        With a :class:`DynamicBucket`, no data file is rewritten: a record-level index of the keys
        is built, and stored keys stay in their file groups. Writers may write meanwhile; from the
        conversion on they use the new index. If the call dies, the next one goes on.
        IndexStateError is raised if a resize is pending, or a key is stored twice in a partition.
        Examples: ``docs/how-to/choose-a-bucket-count.md``. :meth:`rescale` changes bucket counts.

        Parameters
        ----------
        index : DynamicBucket, SimpleBucket or PartitionBucket
            A ``DynamicBucket``; or the table's own index with another ``max_file_size``: then a
            bucket may have several file groups, or one again (RFC-29, patterns 1 and 2). With a
            size, no data is rewritten; with None, partitions with several file groups in a bucket
            are rewritten.
        """
        from bucketlake.services.rebucket.kind_conversion import convert_index

        check_kinds(INDEX_KINDS, index=index)
        session = spark or active_session()
        rows_of = partial(stored_rows, session, self._handle.path)
        return convert_index(self._handle, index, rows_of, engine_of(session), dry_run=dry_run)

    def resize(
        self,
        *,
        max_file_size: int = MAX_FILE_SIZE_DEFAULT,
        split_threshold: float = 2.0,
        merge_threshold: float = 0.2,
        split_into: int = 2,
        split_at: str = "middle",
        max_bytes: int | None = MAX_BYTES_DEFAULT,
        max_partitions: int | None = None,
        max_groups: int | None = MAX_GROUPS_DEFAULT,
        partitions: Sequence[str] | None = None,
        after_commits: int = 0,
        schedule_only: bool = False,
        spark: SparkSession | None = None,
        dry_run: bool = False,
    ) -> ResizeReport:
        """Split large buckets and merge small ones of a hash ring or a directory (RFC-42, RFC-29).

        Only these buckets are rewritten. Readers and writers continue meanwhile; no row changes.
        Pending plans are executed first. Hudi can execute a plan of bucketlake for a hash ring of a
        merge-on-read table, and bucketlake a plan of Hudi. One call does as much as the limits
        allow; the report says how much is left. Examples: ``docs/how-to/resize-buckets.md``.

        Parameters
        ----------
        max_file_size : int
            Bytes that a bucket should have.
        split_threshold, merge_threshold : float
            A bucket of more than ``max_file_size`` times the first is split. Neighbours on the hash
            ring of at most ``max_file_size`` times the second are merged; buddies of a directory if
            they have at most so many bytes together.
        split_into : int
            Largest number of parts of a split of a hash ring; a split makes as many as the size
            asks for. Buckets of a directory split in halves, and the halves again.
        split_at : {"middle", "balanced"}
            Split a range of a hash ring into equal parts, or into parts with equal numbers of keys.
        max_bytes, max_partitions, max_groups : int, optional
            Largest number of bytes to read in total, the largest buckets first; of partitions; and
            of splits and merges.
        partitions : sequence of str, optional
            Paths of the partitions to look at; None for all.
        after_commits : int
            Smallest number of commits since the last resize; before that nothing is planned.
        schedule_only : bool
            Only put a plan on the timeline; another process executes it.
        """
        from bucketlake.services.resize.execution import resize

        engine = self._engine(spark)
        sizes = max_file_size, split_threshold, merge_threshold
        counts = max_bytes, max_partitions, max_groups
        limits = ResizeLimits(*sizes, split_into, split_at, *counts, partitions, after_commits)
        table, index = self._handle.open(), self._handle.index
        return resize(table, index, limits, engine, schedule_only=schedule_only, dry_run=dry_run)

    def compact(
        self,
        *,
        min_log_files: int = 1,
        min_log_bytes: int = 0,
        max_bytes: int | None = None,
        after_delta_commits: int = 0,
        after_seconds: int = 0,
        schedule_only: bool = False,
        spark: SparkSession | None = None,
        dry_run: bool = False,
    ) -> CompactionReport:
        """Merge log files into base files; pending plans are executed first.

        ``schedule_only`` only puts a plan on the timeline. Writers can continue; no row changes.
        Hudi can execute a plan of bucketlake, and bucketlake a plan of Hudi. A table that is not
        merge-on-read raises ConfigError. Examples: ``docs/how-to/merge-on-read.md``.

        Parameters
        ----------
        min_log_files, min_log_bytes : int
            Smallest number and size in bytes of the log files of a slice to compact.
        max_bytes : int, optional
            Largest number of bytes to read in total; slices with most log bytes come first.
        after_delta_commits, after_seconds : int
            Smallest number of delta commits, and shortest time, between two plans.
        """
        from bucketlake.services.compaction import CompactionLimits, compact

        engine = self._engine(spark)
        limits = CompactionLimits(
            min_log_files, min_log_bytes, max_bytes, after_delta_commits, after_seconds
        )
        return compact(
            self._handle.open(), limits, engine, schedule_only=schedule_only, dry_run=dry_run
        )

    def archive(
        self, *, keep_min: int = 20, keep_max: int = 30, dry_run: bool = False
    ) -> ArchiveReport:
        """Move old instants from the active timeline to the archive, in Hudi's format.

        Every open of a table lists the active timeline, so a short timeline is fast to load. No row
        changes. Incremental reads find archived commits; a rollback cannot undo them. The report
        says why others stay. Several processes may archive at once, and writers and readers may
        continue. But to archive while Hudi archives, open the table with the lock that Hudi uses.
        Examples: ``docs/how-to/archive.md``.
        ``keep_min`` commits stay: more than a clean retains, and than the delta commits between two
        compactions. Up to ``keep_max`` commits nothing is archived.
        """
        from bucketlake.services.archival import archive

        limits = ArchivalLimits(keep_min, keep_max)
        return archive(self._handle.open(), limits, dry_run=dry_run)

    def clean(
        self,
        *,
        retain_commits: int | None = None,
        retain_hours: int | None = None,
        retain_versions: int | None = None,
        dry_run: bool = False,
    ) -> CleanReport:
        """Delete old versions of files; a pending clean is executed first.

        Unlike the command, which only shows what would go unless it has ``--run``, this deletes:
        ``dry_run=True`` shows. Time travel can read retained times and savepoints. Writers may
        continue meanwhile; a reader or writer that still needs a deleted version gets an error, and
        a writer retries. Hudi can execute a plan of bucketlake, and bucketlake a plan of Hudi.
        Examples: ``docs/how-to/clean-and-restore.md``.
        One option says what stays: ``retain_commits`` or ``retain_hours``, the newest commits or
        the hours that time travel can still read; or ``retain_versions``, the versions of each file
        group, of any age, where overwritten file groups are deleted at once. By default 10 commits.
        """
        from bucketlake.actions.conflict import retried
        from bucketlake.services.cleaning import clean

        retention = Retention.of(
            commits=retain_commits, hours=retain_hours, versions=retain_versions
        )
        return retried(lambda: clean(self._handle.open(), retention, dry_run=dry_run))

    def rollback(
        self, instant: str, *, cascade: bool = False, dry_run: bool = False
    ) -> RollbackReport:
        """Roll back a commit: remove its files, its rules and its instant.

        The report names the commits, newest first. Examples: ``docs/how-to/recover.md``.

        ``instant`` is the requested time of the commit, as in :meth:`timeline`. ``cascade`` also
        rolls back the later commits that depend on it; their changes are lost. A commit depends on
        an earlier commit if it touched the same file groups, or, after a rescale, if it changed the
        rules or used their bucket counts (RFC-89). TimelineError is raised if there is no such
        commit, a savepoint keeps it, or later commits depend on it; IndexStateError if earlier file
        versions that are needed were cleaned.
        """
        from bucketlake.services.undo.rollback_commits import roll_back

        handle, undone, engine = self._handle, InstantTime(instant), self._engine()
        return roll_back(
            handle.open(), handle.index, undone, cascade=cascade, dry_run=dry_run, engine=engine
        )

    def savepoint(self, instant: str | None = None, *, comment: str = "") -> InstantTime:
        """Make a savepoint: no clean deletes the files of its commit, and it can be restored.

        Examples: ``docs/how-to/clean-and-restore.md``.
        ``instant`` is the requested time of the commit, as in :meth:`timeline`, which is returned;
        by default the newest commit. ``comment`` is the purpose; Hudi shows it. TimelineError is
        raised if there is no such commit, or a clean deleted files of it.
        """
        from bucketlake.actions.conflict import retried
        from bucketlake.services.undo.savepoints import make_savepoint

        chosen = None if instant is None else InstantTime(instant)
        return retried(lambda: make_savepoint(self._handle.open(), chosen, comment=comment))

    def delete_savepoint(self, instant: str) -> None:
        """Delete a savepoint, so that the next clean may delete its files.

        ``instant`` is the requested time of its commit; TimelineError is raised if there is none.
        """
        from bucketlake.services.undo.savepoints import delete_savepoint

        delete_savepoint(self._handle.open(), InstantTime(instant))

    def restore(self, instant: str, *, dry_run: bool = False) -> RestoreReport:
        """Restore the table to a savepoint: undo all later commits.

        This also restores rules and recorded bucket counts, and undoes compactions (also planned
        ones) and rescales. A write that is in progress starts again on the restored table. The
        report names the commits that are undone, newest first.

        ``instant`` is the requested time of its commit; TimelineError is raised if there is no such
        savepoint, or a later one exists.
        """
        from bucketlake.services.undo.savepoints import restore

        engine, undone = self._engine(), InstantTime(instant)
        return restore(self._handle.open(), undone, dry_run=dry_run, engine=engine)

    def rebuild_metadata_table(
        self,
        partitions: Sequence[str] = (),
        *,
        partitioned: bool | None = None,
        spark: SparkSession | None = None,
    ) -> tuple[str, ...]:
        """Build the metadata table, or partitions of it again; return those that are valid then.

        Writers may write meanwhile. If the call dies, the next one goes on.

        ``partitions`` are ``files``, ``column_stats``, ``partition_stats``, ``record_index``; by
        default those that the table has, or all but the last if it has none. ``partitioned`` is for
        ``record_index``: whether a key is unique within its partition (True) or in the whole table;
        by default as the table's kind needs it, or its index is or was, else True. KeyTwiceError is
        raised if a key is stored twice, so that the record index has no place for it.
        """
        from bucketlake.services.metadata.needed_index import require_own_kind
        from bucketlake.services.metadata.rebuild import build_metadata_table

        names = names_of(partitions, "partitions", in_order=False)
        table, engine = self._handle.open(), self._engine(spark)
        require_own_kind(table, partitioned)
        return build_metadata_table(table, names, is_partitioned=partitioned, engine=engine)

    def drop_metadata_table(self) -> None:
        """Turn the metadata table off, and delete its files.

        Readers then list the storage. The next write of Hudi builds the metadata table again,
        unless its options turn it off; and so does the next write to a table under a
        :class:`RecordIndex` or :class:`DynamicBucket`, whose index is a part of it.
        """
        from bucketlake.services.metadata.rebuild import drop_metadata_table

        drop_metadata_table(self._handle.open())

    def set_upkeep(self, mode: str) -> None:
        """Store whether writes keep the table up: compact, resize, clean and archive it.

        With ``"auto"`` each write of bucketlake looks after its commit whether a service is due,
        and runs it: a compaction after 5 delta commits, a resize of a hash ring or directory after
        10 commits, a clean after 10, an archival from 31 active commits on. ``upkeep`` of the
        result of the write tells what was done. A service that fails never fails the write.
        With ``"off"`` as ``mode`` services run only when they are called.
        """
        from bucketlake.services.upkeep import set_upkeep

        set_upkeep(self._handle.open(), mode)

    def set_keep_deletes(self, span: str) -> None:
        """Store how long deletes with an ordering value are remembered.

        ``span`` is a time such as ``"7 days"``. It holds from the next write on. A longer time does
        not bring back deletes that are forgotten, and after ``"0"`` the next write forgets all of
        them. ConfigError is raised if the table has no ordering. See ``keep_deletes`` of
        :func:`create_table`.
        """
        from bucketlake.services.upkeep import set_keep_deletes

        set_keep_deletes(self._handle.open(), span)

    def upgrade(
        self, to: int = NEWEST_VERSION, *, spark: SparkSession | None = None, dry_run: bool = False
    ) -> VersionReport:
        """Put the table into a newer table version, in place.

        No data file is written. The metadata table is built anew, in the form of the version;
        meanwhile readers list the storage. From version 6 on to a newer one, the timeline and the
        archive are written in the newer layout. If the call dies, the table is in one of the two
        versions, and the next call goes on. Examples: ``docs/how-to/table-versions.md``.

        ``to`` is the table version; ConfigError is raised if bucketlake does not write it, or it is
        older than the table's, TimelineError if an action is pending that the change cannot end,
        for example a clustering, or if the table has log files of version 6 and a savepoint.
        """
        from bucketlake.services.version_change import put_in_version

        engine = self._engine(spark)
        return put_in_version(self._handle, to, (), engine, is_upgrade=True, dry_run=dry_run)

    def downgrade(
        self, to: int, *, drop: Names = (), spark: SparkSession | None = None, dry_run: bool = False
    ) -> VersionReport:
        """Put the table into an older table version, in place, so that older releases read it.

        As :meth:`upgrade`. Log files of a merge-on-read table are compacted before a downgrade to
        version 6; otherwise no data file is written.

        ``drop`` says what may be lost: ``"completion_times"``, which version 6 does not have. They
        are needed only if commits completed in another order than they began: by readers that go on
        from a completion time, and by time travel to a compaction that a write overtook.

        ConfigError is raised if the version lacks what the table uses, for example dynamic buckets,
        or ``drop`` must name what is lost. The other errors are those of :meth:`upgrade`.
        """
        from bucketlake.services.version_change import put_in_version

        engine = self._engine(spark)
        names = names_of(drop, "drop", in_order=False)
        return put_in_version(self._handle, to, names, engine, is_upgrade=False, dry_run=dry_run)

    def doctor(
        self,
        *,
        check_keys: bool = False,
        check_files: bool = False,
        min_age_seconds: int = MIN_AGE_SECONDS,
    ) -> Findings:
        """Check the table for errors, leftovers, and states that may lead to errors.

        This changes nothing. It lists the table once, and reads the metadata of its commits. It
        compares a table that registers itself (``sync=``) with its catalog, all partitions. The
        findings are a list, the worst first, that prints as a table; ``checked`` and
        ``not_checked`` say what was looked at. Examples: ``docs/how-to/doctor.md``.

        Parameters
        ----------
        check_keys : bool
            Also read all keys, and check that each is stored once and in its bucket, and that the
            record-level index has it there.
        check_files : bool
            Also read all live files, and those of the metadata table, and check that they decode
            and match the schema.
        min_age_seconds : int
            Smallest age of a leftover. Younger files may belong to an active writer.
        """
        from bucketlake.catalogs.table_sync import EntryCheck
        from bucketlake.services.check.doctor import diagnose

        check_integers(0, min_age_seconds=min_age_seconds)
        return diagnose(
            self._handle.storage,
            self._handle.index,
            keys=check_keys,
            files=check_files,
            min_age_seconds=min_age_seconds,
            catalog=EntryCheck(),
        )

    def repair(
        self,
        *,
        dry_run: bool = False,
        check_keys: bool = False,
        check_files: bool = False,
        min_age_seconds: int = MIN_AGE_SECONDS,
    ) -> RepairReport:
        """Repair the findings of :meth:`doctor`, if no committed row is lost.

        No data file is deleted: files of no commit are moved to quarantine, below ``.hoodie``. If
        keys of a partition are in wrong buckets or stored twice, the partition is rewritten in this
        process, with one row per key by the table's merge rule. The report says what needs a
        decision by a person.
        Options are those of :meth:`doctor`; only what is checked is repaired.
        """
        from bucketlake.catalogs.table_sync import EntryCheck
        from bucketlake.services.check.repair import repair

        check_integers(0, min_age_seconds=min_age_seconds)
        return repair(
            self._handle.storage,
            self._handle.index,
            keys=check_keys,
            files=check_files,
            min_age_seconds=min_age_seconds,
            catalog=EntryCheck(),
            dry_run=dry_run,
            engine=self._engine(),
            lock=self._handle.lock,
        )


@dataclass(frozen=True, slots=True)
class BatchUpsert:
    """Upserts the batches of one stream into a table; see :meth:`Table.upsert_batch`."""

    table: Table
    query_name: str
    merge_schema: MergeSchema = False
    rows: RowMerge = WHOLE_ROWS

    def __call__(
        self, data: Records, batch_id: int, *, position: Position | None = None
    ) -> WriteResult:
        """Upsert a batch, unless it was committed before.

        Spark quotes the traceback in the error of the stream. The error of a batch that its author
        can correct has no traceback of bucketlake, so that its sentence comes at once.
        """
        try:
            handle = self.table._handle
            with handle.at_work(f"upsert batch {batch_id}"):
                check_integers(0, batch_id=batch_id)
                batch, merge = Batch(self.query_name, batch_id), self.merge_schema
                return self.table._write(
                    Operation.UPSERT, data, merge, self.rows, position=position, batch=batch
                )
        except (ConfigError, InputError, UnsupportedFeatureError) as error:
            raise error.with_traceback(None) from None


def _origin(position: Position | None, batch: Batch | None = None) -> Origin:
    """Return the origin of records; raise ConfigError for a position that is none."""
    if position is not None:
        check_kinds((Position,), position=position)
    return Origin(batch, position)


def handle_of(table: Table) -> Handle:
    """Return how a table is opened."""
    return table._handle


def table_of(handle: Handle) -> Table:
    """Return the table of a handle, with its settings of writes."""
    table = Table(handle.path, handle.index, handle.storage_options, handle.log_format, handle.lock)
    object.__setattr__(table, "_job_marker", handle.job_marker)
    return table
