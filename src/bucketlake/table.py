"""The table handle: a path and options; each method calls one part of the library.

``create_table`` and ``open_table`` (``opening.py``) return a :class:`Table`. It can be pickled and
holds no session, held lock or cache: every call reads storage again. ``engine.py`` chooses the
engine: Spark, or Arrow in this process.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, wraps
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from bucketlake.actions.conflict import retried
from bucketlake.actions.stream_batches import Batch
from bucketlake.config.merge_entries import Marker
from bucketlake.config.support import check_readable
from bucketlake.config.table_config import OFF, TableConfig
from bucketlake.config.table_version import NEWEST_VERSION, check_version
from bucketlake.engine import (
    active_session,
    are_files,
    change_frame,
    engine_of,
    matching_rows,
    merge_source,
    mergeable_records,
    read_frame,
    require_package,
    require_session,
    session_of,
    source_of,
    stored_rows,
)
from bucketlake.errors import ConfigError, InputError, UnsupportedFeatureError, naming_table
from bucketlake.flow.work import doing
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.hashing_config import HashingConfig, committed_configs
from bucketlake.index.partition_rules import RuleCompiler
from bucketlake.index.recorded_counts import RecordedCount, recorded_counts
from bucketlake.index.rescaled import Rules, rescaled_index
from bucketlake.index.setting import (
    INDEX_KINDS,
    TableIndex,
    require_index,
    resolve_index,
    without_state,
)
from bucketlake.metadata.overview import MetadataTableFacts, metadata_table_facts
from bucketlake.model.arguments import (
    check_flags,
    check_integers,
    check_kinds,
    check_methods,
    check_optional_texts,
    check_session,
    check_texts,
    check_words,
    names_of,
    options_of,
    path_of,
)
from bucketlake.model.field_path import roots_of
from bucketlake.model.file_name import InstantTime
from bucketlake.model.names import Names
from bucketlake.model.result import WriteResult
from bucketlake.model.retention import Retention
from bucketlake.model.row_merge import WHOLE_ROWS, Keep, MergeRules, RowMerge
from bucketlake.model.schema_merge import MergeSchema, SchemaMerge
from bucketlake.model.table_type import LogFormat, Operation
from bucketlake.model.text_table import render_table
from bucketlake.read.arrow_reader import count_rows, first_rows, read_arrow
from bucketlake.read.buckets import (
    Buckets,
    RecordLocation,
    list_buckets,
    locate_key,
    record_locations,
)
from bucketlake.read.change_plan import pin_changes
from bucketlake.read.change_reader import plan_changes, read_changes
from bucketlake.read.history import TimelineEntry, list_history
from bucketlake.read.overview import TableOverview, table_overview, within_seconds
from bucketlake.read.pruning.prune import PruningReport
from bucketlake.read.read_plan import plan_read, plan_slices
from bucketlake.read.request import PinnedRead, ReadRequest, pin_read
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.report.charts import require_matplotlib
from bucketlake.report.facts import TableReport
from bucketlake.report.page import render_page
from bucketlake.services.advice.advice import AdviceList
from bucketlake.services.advice.advise import advise_table
from bucketlake.services.advice.workload import TARGET_FILE_SIZE_DEFAULT
from bucketlake.services.archival import ArchivalLimits, ArchiveReport, archive
from bucketlake.services.check.doctor import diagnose
from bucketlake.services.check.findings import MIN_AGE_SECONDS, Findings
from bucketlake.services.check.repair import RepairReport, repair
from bucketlake.services.cleaning import CleanReport, clean
from bucketlake.services.compaction import (
    CompactionLimits,
    CompactionReport,
    compact,
)
from bucketlake.services.metadata.needed_index import require_own_kind, with_needed_index
from bucketlake.services.metadata.rebuild import build_metadata_table, drop_metadata_table
from bucketlake.services.rebucket.file_size_conversion import (
    ConversionReport,
    plan_conversion,
    run_conversion,
)
from bucketlake.services.rebucket.kind_conversion import plan_kind_conversion, run_kind_conversion
from bucketlake.services.rebucket.rescale import (
    RescaleReport,
    plan_rescale,
    run_rescale,
    warn_of_surprises,
)
from bucketlake.services.resize.limits import (
    MAX_BYTES_DEFAULT,
    MAX_FILE_SIZE_DEFAULT,
    MAX_GROUPS_DEFAULT,
    ResizeLimits,
)
from bucketlake.services.resize.report import ResizeReport
from bucketlake.services.resize.resize import resize
from bucketlake.services.undo.restore_savepoint import RestoreReport, restore
from bucketlake.services.undo.rollback_commits import RollbackReport, roll_back
from bucketlake.services.undo.savepoints import delete_savepoint, make_savepoint
from bucketlake.services.upkeep import kept_up, set_upkeep
from bucketlake.services.version_change import (
    VersionReport,
    change_version,
    plan_version_change,
)
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage, shown_address
from bucketlake.storage.store_options import GivenOptions
from bucketlake.storage.user_file import put_user_file
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.read_time import ReadTime
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.write.arrow_rows import require_same_names
from bucketlake.write.ingest import write_records
from bucketlake.write.merge_statement import Merge, MergeStatement
from bucketlake.write.pack import RecordSource
from bucketlake.write.partition_writes import delete_partitions
from bucketlake.write.target import Target, open_target

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

    from bucketlake.engine import Records
    from bucketlake.write.input_files.files import InputFiles


Handle = TypeVar("Handle")


def _naming_itself(kind: type[Handle]) -> type[Handle]:
    """Let the errors of all public methods and properties of a handle name its table."""
    for name, held in [*vars(kind).items()]:
        if inspect.isfunction(held) and not name.startswith("_"):
            setattr(kind, name, _named(held))
        elif isinstance(held, property) and held.fget is not None:
            setattr(kind, name, property(_named(held.fget)))
    return kind


def _named(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def run(table: Table, *args: Any, **options: Any) -> Any:
        with _named_work(table, method.__name__):
            return method(table, *args, **options)

    return run


@contextmanager
def _named_work(table: Table, method: str) -> Iterator[None]:
    """Let errors name the table, and Spark's jobs say what they are for."""
    address = shown_address(table.path)
    words = f"bucketlake {method.replace('_', ' ')}: {address.rstrip('/').rpartition('/')[2]}"
    with naming_table(address), doing(words):
        yield


@_naming_itself
@dataclass(frozen=True, slots=True, init=False)
class Table:
    """A handle of a Hudi table: its path, and how to access it.

    Use ``create_table`` or ``open_table`` to get one.

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
    _job_marker: Marker | None = field(repr=False)

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
        found = self._overview()
        return self._address() if found is None else f"{self._address()}: {found.line}"

    def _repr_html_(self) -> str:
        """Return the facts of the table as a table of HTML, for notebooks."""
        found = self._overview()
        return escape(self._address()) if found is None else found._repr_html_()

    @property
    def index(self) -> TableIndex | None:
        """The table's index now, read from the table; None if it is not known: then writes fail.

        After a rescale, a conversion or a restore, by any handle, it is the new index.
        """
        table = self._open()
        found = self._index_at(table.storage, load_timeline(table))
        return None if found is None else without_state(found)

    # Writes.

    def upsert(
        self,
        data: Records,
        *,
        merge_schema: MergeSchema = False,
        missing: Keep = None,
        nulls: Keep = None,
        merge: MergeRules = None,
    ) -> WriteResult:
        """Insert new records and update existing records.

        Parameters
        ----------
        data : DataFrame, pa.Table, ArrowData or InputFiles
            A DataFrame of Spark, pandas or polars (also lazy); a Table, RecordBatch,
            RecordBatchReader, Dataset or Scanner of pyarrow; a list of RecordBatches or of dicts;
            other rows with the Arrow PyCapsule interface; or files, which the tasks of the write
            read themselves (:func:`files`). They need the columns of the table; a
            column without values may have the null type. Hudi's meta columns and a pandas index of
            which the table has no column are dropped. If several records have the same key, the
            record with the greatest ordering value is written. If ordering values are equal, the
            later row of an Arrow table or of files is written; a DataFrame has no order, so the
            contents of the rows decide. An incoming record replaces a stored record unless its
            ordering value is less. A record whose ``_hoodie_is_deleted`` is true deletes its key;
            if its ordering value is null, it always deletes the key. That column is optional and
            adds no column.
        merge_schema : bool, str or sequence of str
            Changes that the batch may make to the table's schema. False: none. True: all, or one or
            several of the words ``"add_columns"`` (new columns and fields of the batch are added),
            ``"widen_types"`` (``int`` to ``bigint`` or ``double``, ``float`` to ``double``, a
            decimal to a decimal with more digits) and ``"fill_missing"`` (nullable columns that
            the batch lacks become null, also in stored records that it updates). No change loses a
            digit. Narrower types and values that fit need no change.
        missing : {"keep"}, optional
            What happens to columns that the batch lacks. ``"keep"``: a stored record keeps its
            values there, and a new one has nulls. None: an error, or what ``merge_schema`` says.
        nulls : {"keep"}, optional
            What a null of the batch means. ``"keep"``: no value is given, so that a stored record
            keeps its value. None: the value becomes null.
        merge : dict of str to str, or callable, optional
            How a column gets its value from the stored and the new one, for columns that are not
            replaced: ``"sum"``, ``"min"``, ``"max"``, ``"union"`` (of arrays: each element once),
            ``"keep"`` (the stored value, unless it is null) or ``"replace"``. A null never
            replaces a value in a column with a rule. Or a function of two Arrow tables, the stored
            rows and the new rows of the same keys in the same order, that returns the rows to
            store. It is called for the rows of a file group, perhaps in several parts and again,
            so each row that it returns must depend on the two rows alone. New keys are inserted as
            they are.

        Returns
        -------
        WriteResult
            Without an instant if nothing changed: ``data`` has no rows, or all of them lost by
            their ordering value.

        Raises
        ------
        InputError
            If ``data`` is a stream or has no Arrow form, a key is missing, a type or a value does
            not fit, or the batch needs a change of the schema that ``merge_schema`` does not allow;
            if a new key gets no value in a column that requires one, a column cannot have its rule,
            or the function of ``merge`` fails or returns other rows, columns or keys.
        ConfigError
            If the table stores no bucket setting and was opened without ``index``, or
            ``merge_schema`` or another argument is none of its values.
        UnsupportedFeatureError
            If the table has a feature that bucketlake cannot write.
        IndexStateError
            If the files of the table contradict the index.
        CommitConflictError
            If another writer changed the same buckets meanwhile; retry.
        CommitOutcomeUnknownError
            If storage failed during the commit; look at the timeline before a retry.

        Notes
        -----
        With ``missing``, ``nulls`` or ``merge``, several records of one key in a batch are combined
        in the same way first, in the order of their ordering values, then of the batch; a record
        after a delete begins a new row. The result has the greatest ordering value, and changes
        nothing if that is less than the stored one. Whole rows are stored, so every reader sees
        them. Examples: ``docs/how-to/partial-rows.md``.

        Examples
        --------
        >>> import bucketlake as bl
        >>> orders = bl.create_table(
        ...     "memory://docs/orders", schema=pa.schema({"id": pa.string(), "at": pa.int64()}),
        ...     record_key=["id"], ordering="at", index=bl.SimpleBucket(2))
        >>> orders.upsert(pa.table({"id": ["a", "b"], "at": [5, 5]})).inserted
        2
        >>> orders.upsert(pa.table({"id": ["a", "b"], "at": [7, 3]})).updated
        1
        """
        rows = RowMerge.of(missing, nulls, merge)
        return self._write(Operation.UPSERT, data, merge_schema, rows=rows)

    def upsert_batch(
        self,
        query_name: str,
        *,
        merge_schema: MergeSchema = False,
        missing: Keep = None,
        nulls: Keep = None,
        merge: MergeRules = None,
    ) -> BatchUpsert:
        """Return a function for ``foreachBatch`` that upserts each batch of a stream once.

        Parameters
        ----------
        query_name : str
            Name of the stream. Keep it when the stream restarts from its checkpoint.
        merge_schema : bool, str or sequence of str
            Changes that the batches may make to the table's schema, as for :meth:`upsert`.
        missing : {"keep"}, optional
            What happens to columns that a batch lacks, as for :meth:`upsert`.
        nulls : {"keep"}, optional
            What a null of a batch means, as for :meth:`upsert`.
        merge : dict of str to str, or callable, optional
            How columns get their values, as for :meth:`upsert`.

        Returns
        -------
        callable
            Takes a batch and its id, and returns a :class:`WriteResult`. If the stream's last
            committed batch has this id, the batch is skipped, also after other commits. An earlier
            id raises InputError, because the checkpoint was reset or belongs to another query.

        Notes
        -----
        Examples: ``docs/how-to/recover.md``.
        """
        check_texts(query_name=query_name)
        SchemaMerge.of(merge_schema)  # Raises ConfigError before the stream starts.
        rows = RowMerge.of(missing, nulls, merge)
        return BatchUpsert(self, query_name, merge_schema, rows)

    def insert(self, data: Records, *, merge_schema: MergeSchema = False) -> WriteResult:
        """Write records like :meth:`upsert`, because a bucket index keeps keys unique (RFC-29).

        Only the operation in the commit's metadata is different.

        Parameters
        ----------
        data : DataFrame, pa.Table or ArrowData
            Records as for :meth:`upsert`; the errors are the same, too.
        merge_schema : bool, str or sequence of str
            Changes that the batch may make to the table's schema, as for :meth:`upsert`.

        Returns
        -------
        WriteResult
        """
        return self._write(Operation.INSERT, data, merge_schema)

    def bulk_insert(self, data: Records, *, merge_schema: MergeSchema = False) -> WriteResult:
        """Write records to partitions without records.

        Parameters
        ----------
        data : DataFrame, pa.Table or ArrowData
            Records as for :meth:`upsert`. If several records have the same key, one is written.
        merge_schema : bool, str or sequence of str
            Changes that the batch may make to the table's schema, as for :meth:`upsert`.

        Returns
        -------
        WriteResult

        Raises
        ------
        InputError
            If one of the partitions has records. The other errors are those of :meth:`upsert`.
        """
        return self._write(Operation.BULK_INSERT, data, merge_schema)

    def insert_overwrite(
        self, data: Records, *, whole_table: bool = False, merge_schema: MergeSchema = False
    ) -> WriteResult:
        """Replace the partitions of the records, or the whole table.

        Parameters
        ----------
        data : DataFrame, pa.Table or ArrowData
            Records as for :meth:`upsert`; the errors are the same, too.
        whole_table : bool
            Whether to empty partitions without a record in ``data``, too; all if it has no rows.
        merge_schema : bool, str or sequence of str
            Changes that the batch may make to the table's schema, as for :meth:`upsert`.

        Returns
        -------
        WriteResult
            ``file_groups`` counts the file groups that were written or replaced.
        """
        check_flags(whole_table=whole_table)
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

        Parameters
        ----------
        set : dict of str to str
            For each column, its new value: an SQL expression of the columns of the row, such as
            ``"n + 1"``; a text needs quotes, ``"'gone'"``. All expressions see the old values.
            Columns of the record key, partition and ordering cannot be updated.
        where : str, optional
            SQL condition, as in :meth:`read`; None for all rows. Files without a matching row are
            not written.
        spark : SparkSession, optional
            The session that reads and writes; by default the active session, or this process
            without one. Without Spark, literals, columns, ``+``, ``-``, ``*``, ``||``, ``concat``,
            ``coalesce``, ``upper`` and ``lower`` can be evaluated.

        Returns
        -------
        WriteResult
            Without an instant if no row matched.

        Raises
        ------
        InputError
            If a column does not exist or cannot be updated, or the condition or an expression is
            wrong, or a value does not fit its column.
        UnsupportedFeatureError
            If only Spark can evaluate the condition or an expression.
        CommitConflictError
            If in each attempt another writer changed a partition in which rows can match. The
            other errors are those of :meth:`upsert`.

        Examples
        --------
        >>> import bucketlake as bl
        >>> stock = bl.create_table(
        ...     "memory://docs/stock", schema=pa.schema({"id": pa.string(), "n": pa.int64()}),
        ...     record_key=["id"], index=bl.SimpleBucket(2))
        >>> stock.upsert(pa.table({"id": ["a", "b"], "n": [1, 5]})).inserted
        2
        >>> stock.update({"n": "n + 1"}, where="n < 3").updated
        1
        >>> stock.to_arrow(where="id = 'a'").to_pylist()
        [{'id': 'a', 'n': 2}]
        """
        check_optional_texts(where=where)
        check_session(spark)
        return self._write_matching(Operation.UPSERT, where, spark, set)

    def delete(
        self,
        keys: Records | None = None,
        *,
        where: str | None = None,
        spark: SparkSession | None = None,
    ) -> WriteResult:
        """Delete records by key, or those that match a condition.

        Parameters
        ----------
        keys : DataFrame, pa.Table or ArrowData, optional
            Record key and partition columns; other columns are ignored. Keys that are not in the
            table are ignored. Ordering values are not compared: a key is always deleted. A later
            write of the key makes a new row; but until the next compaction of a merge-on-read
            table, a write with a lesser ordering value than the deleted row's may bring that row
            back (``docs/how-to/merge-on-read.md``, "Late records and deletes").
        where : str, optional
            SQL condition, as in :meth:`read`, in place of keys. Files without a matching row are
            not written.
        spark : SparkSession, optional
            The session that looks for matching rows; by default the active session, or this process
            without one.

        Returns
        -------
        WriteResult
            Without an instant if no key was found. A log file of a bucket index is written without
            a look at stored keys.

        Raises
        ------
        InputError
            If a key or partition column is missing, or the condition is wrong.
        ConfigError
            If neither keys nor a condition is given, or both are.
        UnsupportedFeatureError
            If only Spark can evaluate the condition.
        CommitConflictError
            If in each attempt another writer changed a partition in which rows can match. The
            other errors are those of :meth:`upsert`.

        Examples
        --------
        >>> import bucketlake as bl
        >>> names = bl.create_table(
        ...     "memory://docs/names", schema=pa.schema({"id": pa.string()}),
        ...     record_key=["id"], index=bl.SimpleBucket(2))
        >>> names.upsert(pa.table({"id": ["a", "b"]})).inserted
        2
        >>> names.delete(pa.table({"id": ["b", "c"]})).deleted
        1
        >>> names.delete(where="id = 'a'").deleted
        1
        """
        check_optional_texts(where=where)
        check_session(spark)
        if (keys is None) == (where is None):
            found = "neither" if keys is None else "both"
            raise ConfigError("keys and where", found, "give keys, or a condition")
        if keys is not None:
            return self._write(Operation.DELETE, keys)
        return self._write_matching(Operation.DELETE, where, spark)

    def merge(
        self,
        source: Records,
        on: str,
        *,
        alias: str = "t",
        source_alias: str = "s",
        spark: SparkSession | None = None,
    ) -> Merge:
        """Begin a merge: update, insert and delete rows by a comparison with a source.

        Parameters
        ----------
        source : DataFrame, pa.Table, ArrowData or InputFiles
            What :meth:`upsert` takes. It is evaluated once.
        on : str
            SQL condition under which a row of the table and a row of the source match, such as
            ``"t.id = s.id"``. If it equates all columns of the record key and the partition, only
            the partitions and buckets of these keys are read.
        alias : str
            The name of the table in all conditions and expressions. A column that only one of the
            two sides has needs no alias.
        source_alias : str
            The name of the source.
        spark : SparkSession, optional
            The session that joins and writes; by default that of the source, the active session,
            or this process without one. Without Spark, conditions are as in :meth:`read`, or
            compare columns, and expressions are those of :meth:`update`.

        Returns
        -------
        Merge
            Add clauses to it, and call its ``execute``. With ``when_matched_update_all()`` and
            ``when_not_matched_insert_all()`` alone, and an ``on`` that equates the key, the merge
            is an upsert: the table is not read, and the counts are those of an upsert.

        Notes
        -----
        Updated rows obey the ordering of the table: a source row with a lower ordering value does
        not replace a stored row. Deletes do not compare it. ``docs/how-to/merge.md`` has the rules.

        Examples
        --------
        >>> import bucketlake as bl
        >>> stock = bl.create_table(
        ...     "memory://docs/merged", schema=pa.schema({"id": pa.string(), "n": pa.int64()}),
        ...     record_key=["id"], index=bl.SimpleBucket(2))
        >>> stock.upsert(pa.table({"id": ["a", "b"], "n": [1, 5]})).inserted
        2
        >>> sold = pa.table({"id": ["a", "b", "c"], "n": [1, 2, 7]})
        >>> merge = stock.merge(sold, on="t.id = s.id").when_matched_delete("t.n = s.n")
        >>> merge = merge.when_matched_update({"n": "t.n - s.n"})
        >>> result = merge.when_not_matched_insert_all("s.n > 9").execute()
        >>> result.updated, result.deleted, result.inserted
        (1, 1, 0)
        """
        check_texts(on=on)
        check_words(alias=alias, source_alias=source_alias)
        check_session(spark)
        if alias.lower() == source_alias.lower():
            raise ConfigError("source_alias", source_alias, "give it another name than alias")
        statement = MergeStatement(on, alias, source_alias)
        records = mergeable_records(source, self.path)
        return Merge(statement, partial(self._merge, records, spark))

    def delete_partitions(self, partitions: Names) -> WriteResult:
        """Delete whole partitions.

        Parameters
        ----------
        partitions : str or sequence of str
            Partition paths, as in :meth:`buckets`.

        Returns
        -------
        WriteResult
            ``file_groups`` counts the removed file groups; rows are not counted. Without an
            instant if ``partitions`` is empty.

        Raises
        ------
        InputError
            If one of the partitions has no records.
        """
        paths = names_of(partitions, "partitions", in_order=False)
        return self._commit(
            lambda table: delete_partitions(self._target(table), paths), active_session()
        )

    # Reads.

    def read(
        self,
        spark: SparkSession | None = None,
        *,
        where: str | None = None,
        columns: Names | None = None,
        as_of: ReadTime | None = None,
        since: ReadTime | None = None,
        until: ReadTime | None = None,
        read_optimized: bool = False,
    ) -> DataFrame:
        """Return the table as a DataFrame.

        Parameters
        ----------
        spark : SparkSession, optional
            The session; by default the active session.
        where : str, optional
            SQL condition. Partitions and buckets that cannot match are not read. A ``.filter()``
            on the result returns the same rows, but does not prune buckets.
        columns : str or sequence of str, optional
            Columns to return, or paths of fields inside structs, such as ``header.eid``, which
            become columns of that name; meta columns are returned only if they are named.
        as_of : str, datetime, date or WriteResult, optional
            Time travel: ``yyyyMMddHHmmss[SSS]``, ``yyyy-MM-dd``, or ``yyyy-MM-dd HH:mm:ss[.SSS]``,
            also with ``T`` and a zone; or a ``datetime`` or ``date``. A time without a zone is on
            the clock of the table's timeline; a date means its begin. The result of a write means
            its commit. Times whose files a clean has deleted cannot be read.
        since : str, datetime, date or WriteResult, optional
            Incremental read: records that were changed by commits completed after this time, in
            the forms of ``as_of``; after the result of a write, the read continues after its
            commit. Deleted records are not returned.
        until : str, datetime, date or WriteResult, optional
            Incremental read: commits completed up to this time, and records as they were then.
        read_optimized : bool
            Ignore the log files of a merge-on-read table: faster, but each file group is as old as
            its last compaction.

        Returns
        -------
        DataFrame

        Raises
        ------
        InputError
            If the table has no such column, ``columns`` is empty or names a column twice, or
            ``where`` is no condition.
        ConfigError
            If a time has none of the forms, ``as_of`` comes with ``since`` or ``until``, or
            ``since`` is later than ``until`` or than now.
        TimelineError
            If a clean deleted files that the table of that time needs.
        CommitConflictError
            If a clean or a rollback deleted files while they were read; read again. If Spark itself
            reads the files, it raises its own error for a missing file.
        UnsupportedFeatureError
            If the read is incremental, and the table has no meta columns.
        """
        check_session(spark)
        request = _request(where, columns, as_of, since, until, read_optimized)
        pinned = self._pin(request)
        session = require_session(spark)
        return read_frame(session, self.path, pinned, self._index_of(pinned.snapshot))

    def to_arrow(
        self,
        *,
        where: str | None = None,
        columns: Names | None = None,
        as_of: ReadTime | None = None,
        since: ReadTime | None = None,
        until: ReadTime | None = None,
        read_optimized: bool = False,
    ) -> pa.Table:
        """Return the table as an Arrow table, without Spark.

        Parameters
        ----------
        where : str, optional
            SQL condition of comparisons of a column with literals (also ``IN``, ``BETWEEN``,
            ``LIKE`` and ``IS NULL``), ``AND``, ``OR`` and ``NOT``. Other conditions raise
            UnsupportedFeatureError, because only Spark can evaluate them.
        columns : str or sequence of str, optional
            Columns to return, or paths of fields inside structs, such as ``header.eid``, which
            become columns of that name; meta columns are returned only if they are named.
        as_of : str, datetime, date or WriteResult, optional
            Time travel, as in :meth:`read`.
        since : str, datetime, date or WriteResult, optional
            Incremental read, as in :meth:`read`.
        until : str, datetime, date or WriteResult, optional
            Incremental read, as in :meth:`read`.
        read_optimized : bool
            Ignore log files, as in :meth:`read`.

        Returns
        -------
        pa.Table

        Raises
        ------
        InputError
            If the table has no such column, ``columns`` is empty or names a column twice, or
            ``where`` is no condition.
        ConfigError
            If a time has none of the forms, ``as_of`` comes with ``since`` or ``until``, or
            ``since`` is later than ``until`` or than now.
        TimelineError
            If a clean deleted files that the table of that time needs.
        CommitConflictError
            If a clean or a rollback deleted files while they were read; read again.
        UnsupportedFeatureError
            If ``where`` needs Spark, or the read is incremental and the table has no meta columns.

        Examples
        --------
        >>> import bucketlake as bl
        >>> fares = bl.create_table(
        ...     "memory://docs/fares", schema=pa.schema({"id": pa.string(), "fare": pa.int64()}),
        ...     record_key=["id"], index=bl.SimpleBucket(4))
        >>> fares.upsert(pa.table({"id": ["a", "b"], "fare": [3, 9]})).inserted
        2
        >>> fares.to_arrow(where="id = 'b'", columns=["fare"]).to_pylist()
        [{'fare': 9}]
        >>> seen = fares.upsert(pa.table({"id": ["a"], "fare": [4]}))
        >>> fares.upsert(pa.table({"id": ["c"], "fare": [5]})).inserted
        1
        >>> fares.to_arrow(since=seen).to_pylist()
        [{'id': 'c', 'fare': 5}]
        """
        pinned = self._pin(_request(where, columns, as_of, since, until, read_optimized))
        plan = plan_read(pinned, self._index_of(pinned.snapshot))
        return read_arrow(pinned.snapshot.storage, plan)

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

        Stored versions of files are compared, so the table needs no setting. A row that a commit
        wrote again with equal values is no change, nor is a row that a compaction, a resize or a
        rescale moved. A row that moved to another partition is a delete there and an insert here.

        Parameters
        ----------
        spark : SparkSession, optional
            The session; by default the active session.
        since : str, datetime, date or WriteResult, optional
            Changes of commits completed after this time, in the forms of :meth:`read`; by default
            since the first commit. To go on later, give the greatest ``completed_at`` seen.
        until : str, datetime, date or WriteResult, optional
            Changes of commits completed up to this time; by default all.
        where : str, optional
            SQL condition; a change is returned if the row before it or after it matches.
        columns : str or sequence of str, optional
            Columns of the images, as in :meth:`read`; an update of other columns is no change then.

        Returns
        -------
        DataFrame
            ``op`` (``i`` for an insert, ``u`` for an update, ``d`` for a delete), ``instant`` and
            ``completed_at`` (requested and completion time of the commit), ``before`` and
            ``after`` (structs of the table's columns; null if there was no such row). A row that
            several commits changed has a change for each.

        Raises
        ------
        InputError
            If the table has no such column, ``columns`` is empty or names a column twice, or
            ``where`` is no condition.
        ConfigError
            If a time has none of the forms, or ``since`` is later than ``until`` or than now.
        TimelineError
            If a clean deleted a version that is needed; the error says since when changes can be
            read.
        CommitConflictError
            If a clean or a rollback deleted files while they were read; read again.

        Notes
        -----
        Examples: ``docs/how-to/change-data.md``.
        """
        check_session(spark)
        request = _request(where, columns, None, since, until, read_optimized=False)
        found = pin_changes(self._open(), request)
        return change_frame(require_session(spark), found, request.where, request.columns)

    def changes_to_arrow(
        self,
        *,
        since: ReadTime | None = None,
        until: ReadTime | None = None,
        where: str | None = None,
        columns: Names | None = None,
    ) -> pa.Table:
        """Return what changed as an Arrow table, without Spark.

        Parameters
        ----------
        since : str, datetime, date or WriteResult, optional
            Changes of commits completed after this time, as in :meth:`changes`.
        until : str, datetime, date or WriteResult, optional
            Changes of commits completed up to this time, as in :meth:`changes`.
        where : str, optional
            SQL condition, as in :meth:`to_arrow`, of the row before or after a change.
        columns : str or sequence of str, optional
            Columns of the images, as in :meth:`changes`.

        Returns
        -------
        pa.Table
            The columns of :meth:`changes`, in the order of the commits.

        Raises
        ------
        UnsupportedFeatureError
            If ``where`` needs Spark. The other errors are those of :meth:`changes`.

        Examples
        --------
        >>> import bucketlake as bl
        >>> seats = bl.create_table(
        ...     "memory://docs/seats", schema=pa.schema({"id": pa.string(), "n": pa.int64()}),
        ...     record_key=["id"], index=bl.SimpleBucket(2))
        >>> first = seats.upsert(pa.table({"id": ["a", "b"], "n": [1, 5]}))
        >>> seats.upsert(pa.table({"id": ["a", "b"], "n": [2, 5]})).inserted
        0
        >>> seats.delete(pa.table({"id": ["b"]})).deleted
        1
        >>> for change in seats.changes_to_arrow(since=first).to_pylist():
        ...     print(change["op"], change["before"], change["after"])
        u {'id': 'a', 'n': 1} {'id': 'a', 'n': 2}
        d {'id': 'b', 'n': 5} None
        """
        request = _request(where, columns, None, since, until, read_optimized=False)
        found = pin_changes(self._open(), request)
        return read_changes(plan_changes(found, request.where, request.columns))

    def to_pandas(
        self,
        *,
        where: str | None = None,
        columns: Names | None = None,
        as_of: ReadTime | None = None,
    ) -> pandas.DataFrame:
        """Return the table as a data frame of pandas.

        Parameters
        ----------
        where : str, optional
            SQL condition, as in :meth:`to_arrow`.
        columns : str or sequence of str, optional
            Columns to return, as in :meth:`to_arrow`.
        as_of : str, datetime, date or WriteResult, optional
            Time travel, as in :meth:`read`.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        UnsupportedFeatureError
            If pandas is not installed. The other errors are those of :meth:`to_arrow`.
        """
        require_package("pandas", self.path)
        return self.to_arrow(where=where, columns=columns, as_of=as_of).to_pandas()

    def to_polars(
        self,
        *,
        where: str | None = None,
        columns: Names | None = None,
        as_of: ReadTime | None = None,
    ) -> polars.DataFrame:
        """Return the table as a data frame of polars.

        Parameters
        ----------
        where : str, optional
            SQL condition, as in :meth:`to_arrow`.
        columns : str or sequence of str, optional
            Columns to return, as in :meth:`to_arrow`.
        as_of : str, datetime, date or WriteResult, optional
            Time travel, as in :meth:`read`.

        Returns
        -------
        polars.DataFrame

        Raises
        ------
        UnsupportedFeatureError
            If polars is not installed. The other errors are those of :meth:`to_arrow`.
        """
        frames = require_package("polars", self.path)
        found: polars.DataFrame = frames.from_arrow(
            self.to_arrow(where=where, columns=columns, as_of=as_of)
        )
        return found

    def count(self, *, where: str | None = None, as_of: ReadTime | None = None) -> int:
        """Return the number of rows, without Spark.

        Rows of base files are counted by their footers; only slices with log files, and files that
        may have matching rows, are read.

        Parameters
        ----------
        where : str, optional
            SQL condition, as in :meth:`to_arrow`.
        as_of : str, datetime, date or WriteResult, optional
            Time travel, as in :meth:`read`.

        Returns
        -------
        int

        Raises
        ------
        InputError, UnsupportedFeatureError
            As :meth:`to_arrow`.

        Examples
        --------
        >>> import bucketlake as bl
        >>> lines = bl.create_table(
        ...     "memory://docs/lines", schema=pa.schema({"id": pa.string(), "n": pa.int64()}),
        ...     record_key=["id"], index=bl.SimpleBucket(2))
        >>> lines.upsert(pa.table({"id": ["a", "b"], "n": [1, 5]})).inserted
        2
        >>> lines.count(), lines.count(where="n > 3")
        (2, 1)
        """
        pinned = self._pin(_request(where, None, as_of, None, None, False))
        columns = roots_of(
            pinned.snapshot.config.key_spec.record_key_fields, pinned.snapshot.schema.names
        )
        pinned = replace(pinned, request=replace(pinned.request, columns=tuple(columns)))
        plan = plan_read(pinned, self._index_of(pinned.snapshot))
        return count_rows(pinned.snapshot.storage, plan)

    def show(
        self,
        n: int = 20,
        *,
        where: str | None = None,
        columns: Names | None = None,
        as_of: ReadTime | None = None,
    ) -> None:
        """Print some rows, without Spark; only the files that have them are read.

        Parameters
        ----------
        n : int
            Number of rows.
        where : str, optional
            SQL condition, as in :meth:`to_arrow`.
        columns : str or sequence of str, optional
            Columns to show, as in :meth:`to_arrow`.
        as_of : str, datetime, date or WriteResult, optional
            Time travel, as in :meth:`read`.

        Raises
        ------
        InputError, UnsupportedFeatureError
            As :meth:`to_arrow`.

        Examples
        --------
        >>> import bucketlake as bl
        >>> towns = bl.create_table(
        ...     "memory://docs/towns", schema=pa.schema({"id": pa.string(), "n": pa.int64()}),
        ...     record_key=["id"], index=bl.SimpleBucket(1))
        >>> towns.upsert(pa.table({"id": ["Bonn", "Kyiv"], "n": [1, 25]})).inserted
        2
        >>> towns.show()
        id     n
        ----  --
        Bonn   1
        Kyiv  25
        """
        check_integers(1, n=n)
        pinned = self._pin(_request(where, columns, as_of, None, None, False))
        plan = plan_read(pinned, self._index_of(pinned.snapshot))
        rows = first_rows(pinned.snapshot.storage, plan, n)
        print("\n".join(render_table(rows.to_pylist(), rows.column_names)[0]))

    def explain(self, where: str | None = None) -> PruningReport:
        """Return which partitions and buckets a read with this condition would use, and why.

        Parameters
        ----------
        where : str, optional
            SQL condition, as in :meth:`read`.

        Returns
        -------
        PruningReport
        """
        check_optional_texts(where=where)
        pinned = self._pin(ReadRequest(where))
        return plan_read(pinned, self._index_of(pinned.snapshot), counts_all=True).report

    def locate(
        self, key: str | Mapping[str, Any], partition: str | None = None
    ) -> list[RecordLocation]:
        """Find the file group and file of a record.

        If the table has a record-level index, the index tells the file group. Else it is found by
        the key's bucket, or in all file groups if the bucket is not known.

        Parameters
        ----------
        key : str or mapping
            The record key as stored, or the values of its fields, such as ``{"id": 1}`` or
            ``{"header.eid": 1}``.
        partition : str, optional
            Partition path to search; by default all partitions.

        Returns
        -------
        list of RecordLocation
            One entry for each partition with the key; empty if no partition has the key.
        """
        if not isinstance(key, Mapping):
            check_texts(key=key)
        check_optional_texts(partition=partition)
        snapshot = self._snapshot()
        return locate_key(snapshot, self._index_of(snapshot), key, partition)

    def record_locations(self, partition: str) -> pa.Table:
        """Return the entries of the record-level index for one partition.

        Parameters
        ----------
        partition : str
            Partition path; empty in a table without partitions.

        Returns
        -------
        pa.Table
            ``record_key``, ``partition_path``, ``file_id``, and ``inserted_at``: when the key was
            inserted into the file group. Paths and file ids are dictionaries. Rows have no order.

        Raises
        ------
        UnsupportedFeatureError
            If the table has no record-level index.
        MetadataTableError
            If the metadata table is damaged, or lacks a commit.
        """
        check_texts(partition=partition)
        return record_locations(self._snapshot(), partition)

    def buckets(self) -> Buckets:
        """Return the live file groups by partition and bucket: their sizes, rows and growth.

        Buckets of a hash ring have their hash range, too, and those of a directory the last bits of
        their hashes; a bucket without records has no file group. Reads no data file, but the
        metadata of the commits of the active timeline.

        Returns
        -------
        Buckets
            A list of Bucket. ``partitions`` says how large each partition is, and how evenly its
            buckets are filled; ``growth`` has the size of the table after each commit.

        Notes
        -----
        Examples: ``docs/how-to/see-your-table.md``.
        """
        snapshot = self._snapshot()
        return list_buckets(snapshot, self._index_of(snapshot))

    def timeline(self) -> list[TimelineEntry]:
        """Return the instants of the active timeline, oldest first, and what each commit wrote.

        Returns
        -------
        list of TimelineEntry
            Including pending instants, without archived instants. It prints as a table.
        """
        table = self._open()
        return list_history(table.storage, load_timeline(table))

    def report(self, path: str | os.PathLike[str]) -> str:
        """Write a page about the table, for people: one HTML file without scripts.

        It shows how the table grew, the sizes of files, partitions and buckets, hash rings and
        directories, log files that wait for a compaction, the timeline, what the doctor finds, and
        the advice. Reads no data file.

        Parameters
        ----------
        path : str or PathLike
            File to write, such as ``report.html``, or an address in an object store, which is
            accessed with the storage options of the table. An existing file is replaced.

        Returns
        -------
        str
            The path.

        Raises
        ------
        ConfigError
            If the path names no file.
        UnsupportedFeatureError
            If Matplotlib is not installed: ``pip install 'bucketlake[report]'``.
        StorageError
            If the file cannot be written.

        Notes
        -----
        Examples: ``docs/how-to/see-your-table.md``.
        """
        target = path_of(path)
        require_matplotlib(shown_address(target))
        put_user_file(target, render_page(self._report()).encode(), self.storage_options)
        return target

    def advise(self, *, target_file_size: int = TARGET_FILE_SIZE_DEFAULT) -> AdviceList:
        """Advise which index, table type, partitions and services the table should have, and why.

        Nothing is changed, and no data file is read: the advice follows from the list of files and
        from the last commits. It never asks for what the table, or Hudi's writers of it, cannot do.

        Parameters
        ----------
        target_file_size : int
            Bytes that a file should have.

        Returns
        -------
        AdviceList
            One advice for each subject, also where all is well; each with its reason and the call
            that does it. It prints as text.

        Raises
        ------
        TableNotFoundError
            If there is no table.
        UnsupportedFeatureError
            If the table cannot be read.

        Notes
        -----
        :func:`advise` advises before there is a table. Examples: ``docs/how-to/advise.md``.
        """
        check_integers(1, target_file_size=target_file_size)
        snapshot = self._snapshot()
        return self._advice(snapshot, self._index_of(snapshot), target_file_size)

    def rule_versions(self) -> list[HashingConfig]:
        """Return the valid versions of a partition-level table's rules (RFC-89).

        Returns
        -------
        list of HashingConfig
            Oldest first, including archived versions; empty if the table has no partition rules.
        """
        table = self._open()
        return committed_configs(table.storage, load_timeline(table))

    def recorded_counts(self) -> dict[str, RecordedCount]:
        """Return the recorded bucket counts of a partition-level table's partitions (RFC-89).

        Returns
        -------
        dict
            Count and the commit that set it, by partition path. A recorded count stays valid if the
            rules change without a rescale; a later rescale, also by Hudi, replaces it.
        """
        table = self._open()
        return recorded_counts(table.storage, load_timeline(table))

    def schema(self) -> pa.Schema:
        """Return the table's columns, without meta columns."""
        return self._snapshot().schema

    def config(self) -> TableConfig:
        """Return the table's properties."""
        return self._open().config

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
        the rules, writes the rows and removes the old file groups.

        Parameters
        ----------
        rules : mapping of str to int, or pairs, optional
            All new rules, as in :class:`PartitionBucket`.
        add : mapping of str to int, or pairs, optional
            Rules to put before the table's rules.
        default : int, optional
            Count of partitions that match no rule; by default the table's default. Another default
            may change many partitions.
        rule : str or callable, optional
            Kind of the rules; by default the table's kind of rules.
        spark : SparkSession, optional
            Session that rewrites the rows; by default the active session, or this process without
            one.
        dry_run : bool
            Only return what would be done.

        Returns
        -------
        RescaleReport
            The partitions that change, with their files and bytes; rules that match no partition,
            and partitions that shrink without a rule. The logger ``bucketlake`` warns of both
            before anything runs.

        Raises
        ------
        ConfigError
            If not exactly one of ``rules`` and ``add`` is given, or the rules are invalid.
        CommitConflictError
            If one of the partitions, or the rules, changed meanwhile.

        Notes
        -----
        Examples: ``docs/how-to/choose-a-bucket-count.md``.
        """
        check_session(spark)
        check_flags(dry_run=dry_run)
        if dry_run:
            snapshot = self._snapshot()
            held = require_index(snapshot.storage, snapshot.timeline, self._given_index)
            index = rescaled_index(held, rules, add, default, rule)
            return plan_rescale(snapshot, held, index)
        target = self._target(self._open())
        index = rescaled_index(target.index, rules, add, default, rule)
        plan = plan_rescale(target.snapshot, target.index, index)
        warn_of_surprises(plan)
        session = spark or active_session()
        rows_of = partial(self._rows_of, target.snapshot, session)
        return run_rescale(target, plan, rows_of, engine_of(session))

    def convert(
        self,
        index: TableIndex,
        *,
        spark: SparkSession | None = None,
        dry_run: bool = False,
    ) -> ConversionReport:
        """Put a table of any index under dynamic buckets, or change its file groups per bucket.

        With a :class:`DynamicBucket`, no data file is rewritten: a record-level index of the keys
        is built, and stored keys stay in their file groups. Writers may write meanwhile; from the
        conversion on they use the new index. If the call dies, the next one goes on.

        Parameters
        ----------
        index : DynamicBucket, SimpleBucket or PartitionBucket
            A ``DynamicBucket``; or the table's own index with another ``max_file_size``: then a
            bucket may have several file groups, or one again (RFC-29, patterns 1 and 2). With a
            size, no data is rewritten; with None, partitions with several file groups in a bucket
            are rewritten.
        spark : SparkSession, optional
            Session that reads the keys or rewrites the rows; by default the active session, or this
            process without one.
        dry_run : bool
            Only return what would be done.

        Returns
        -------
        ConversionReport
            The partitions that are rewritten, with their file groups and bytes; and whether a
            record-level index is built, of how many keys.

        Raises
        ------
        ConfigError
            If the index is of another kind than the table's, and no ``DynamicBucket``; or differs
            from the table's in more than its ``max_file_size``.
        IndexStateError
            If a resize is pending, or a key is stored twice in a partition.
        CommitConflictError
            If another writer committed to one of the partitions meanwhile, or took the record-level
            index off.

        Notes
        -----
        Examples: ``docs/how-to/choose-a-bucket-count.md``. :meth:`rescale` changes bucket counts.
        """
        check_kinds(INDEX_KINDS, index=index)
        check_session(spark)
        check_flags(dry_run=dry_run)
        if isinstance(index, DynamicBucket):
            if dry_run:
                return plan_kind_conversion(self._snapshot(), index)
            engine = engine_of(spark or active_session())
            return run_kind_conversion(self._open().storage, index, engine=engine, lock=self.lock)
        if dry_run:
            snapshot = self._snapshot()
            held = require_index(snapshot.storage, snapshot.timeline, self._given_index)
            return plan_conversion(snapshot, held, index)
        table = self._open()
        session = spark or active_session()

        def convert_once() -> ConversionReport:
            target = self._target(table)
            rows_of = partial(self._rows_of, target.snapshot, session)
            return run_conversion(target, index, rows_of, engine_of(session))

        return retried(convert_once)

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
        """Split large buckets and merge small ones of a hash ring or a directory.

        Only these buckets are rewritten. Readers and writers continue meanwhile; no row changes.
        Pending plans are executed first. Hudi can execute a plan of bucketlake for a hash ring of a
        merge-on-read table, and bucketlake a plan of Hudi. One call does as much as the limits
        allow; the report says how much is left.

        Parameters
        ----------
        max_file_size : int
            Bytes that a bucket should have.
        split_threshold : float
            A bucket of more than ``max_file_size`` times this is split.
        merge_threshold : float
            Neighbours on the hash ring of at most ``max_file_size`` times this are merged; buddies
            of a directory if they have at most so many bytes together.
        split_into : int
            Largest number of parts of a split of a hash ring; a split makes as many as the size
            asks for. Buckets of a directory split in halves, and the halves again.
        split_at : {"middle", "balanced"}
            Split a range of a hash ring into equal parts, or into parts with equal numbers of keys.
        max_bytes : int, optional
            Largest number of bytes to read in total; the largest buckets are split first.
        max_partitions : int, optional
            Largest number of partitions.
        max_groups : int, optional
            Largest number of splits and merges.
        partitions : sequence of str, optional
            Paths of the partitions to look at; None for all.
        after_commits : int
            Smallest number of commits since the last resize; before that nothing is planned.
        schedule_only : bool
            Only put a plan on the timeline; another process executes it.
        spark : SparkSession, optional
            Session that rewrites; by default the active session, or this process without one.
        dry_run : bool
            Only return what would be planned.

        Returns
        -------
        ResizeReport

        Raises
        ------
        ConfigError
            If the table has another index, or a limit is out of range.
        IndexStateError
            If a hash ring or a directory is broken, or a file group is not in it.
        CommitConflictError
            If another process executes the same plan, or programs that know no resize kept writing
            to the same buckets.

        Notes
        -----
        RFC-42 and RFC-29. Examples: ``docs/how-to/resize-buckets.md``.
        """
        check_session(spark)
        check_flags(schedule_only=schedule_only, dry_run=dry_run)
        limits = ResizeLimits(
            max_file_size,
            split_threshold,
            merge_threshold,
            split_into,
            split_at,
            max_bytes,
            max_partitions,
            max_groups,
            partitions,
            after_commits,
        )
        return resize(
            self._open(),
            self._given_index,
            limits,
            engine_of(spark or active_session()),
            schedule_only=schedule_only,
            dry_run=dry_run,
        )

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

        Writers can continue meanwhile, and no row changes. Hudi can execute a plan of bucketlake,
        and bucketlake a plan of Hudi.

        Parameters
        ----------
        min_log_files : int
            Smallest number of log files of a slice to compact.
        min_log_bytes : int
            Smallest size of the log files of a slice to compact, in bytes.
        max_bytes : int, optional
            Largest number of bytes to read in total; slices with most log bytes come first.
        after_delta_commits : int
            Smallest number of delta commits between two plans.
        after_seconds : int
            Shortest time between two plans, in seconds.
        schedule_only : bool
            Only put a plan on the timeline; another process executes it.
        spark : SparkSession, optional
            Session that compacts; by default the active session, or this process without one.
        dry_run : bool
            Only return what would be planned.

        Returns
        -------
        CompactionReport

        Raises
        ------
        ConfigError
            If the table is not merge-on-read.
        CommitConflictError
            If another process executes the same plan.

        Notes
        -----
        Examples: ``docs/how-to/merge-on-read.md``.
        """
        check_session(spark)
        check_flags(schedule_only=schedule_only, dry_run=dry_run)
        limits = CompactionLimits(
            min_log_files, min_log_bytes, max_bytes, after_delta_commits, after_seconds
        )
        return compact(
            self._open(),
            limits,
            engine_of(spark or active_session()),
            schedule_only=schedule_only,
            dry_run=dry_run,
        )

    def archive(
        self, *, keep_min: int = 20, keep_max: int = 30, dry_run: bool = False
    ) -> ArchiveReport:
        """Move old instants from the active timeline to the archive, in Hudi's format.

        Every open of a table lists the active timeline, so a short timeline is fast to load. No row
        changes. Incremental reads find archived commits; a rollback cannot undo them. Several
        processes may archive at once, and writers and readers may continue. But to archive while
        Hudi archives, open the table with the lock that Hudi uses.

        Parameters
        ----------
        keep_min : int
            Number of commits that stay in the active timeline: more than a clean retains, and more
            than the delta commits between two compactions.
        keep_max : int
            Number of commits up to which nothing is archived.
        dry_run : bool
            Only return what would be moved.

        Returns
        -------
        ArchiveReport
            The instants that leave the active timeline, and why others stay: a pending instant, a
            savepoint, or files of replaced file groups that are not cleaned yet.

        Raises
        ------
        ConfigError
            If ``keep_max`` is not greater than ``keep_min``, or a number is invalid.

        Notes
        -----
        Examples: ``docs/how-to/archive.md``.
        """
        check_flags(dry_run=dry_run)
        limits = ArchivalLimits(keep_min, keep_max)
        return archive(self._open(), limits, dry_run=dry_run)

    def clean(
        self,
        *,
        retain_commits: int | None = None,
        retain_hours: int | None = None,
        retain_versions: int | None = None,
        dry_run: bool = False,
    ) -> CleanReport:
        """Delete old versions of files; a pending clean is executed first.

        Time travel can read retained times and savepoints. Writers may continue meanwhile; a reader
        or writer that still needs a deleted version gets an error, and a writer retries. Hudi can
        execute a plan of bucketlake, and bucketlake a plan of Hudi.

        Parameters
        ----------
        retain_commits : int, optional
            Number of newest commits that time travel can still read; 10 if no limit is given.
        retain_hours : int, optional
            Alternatively, number of hours that time travel can still read.
        retain_versions : int, optional
            Alternatively, number of versions of each file group to keep, of any age. Overwritten
            file groups are deleted at once.
        dry_run : bool
            Only return what would be deleted.

        Returns
        -------
        CleanReport

        Raises
        ------
        ConfigError
            If more than one of the three is given, or less than 1.
        CommitOutcomeUnknownError
            If storage failed while files were deleted; the next clean continues.

        Notes
        -----
        Examples: ``docs/how-to/clean-and-restore.md``.
        """
        check_flags(dry_run=dry_run)
        retention = Retention.of(
            commits=retain_commits, hours=retain_hours, versions=retain_versions
        )
        return retried(lambda: clean(self._open(), retention, dry_run=dry_run))

    def rollback(
        self, instant: str, *, cascade: bool = False, dry_run: bool = False
    ) -> RollbackReport:
        """Roll back a commit: remove its files, its rules and its instant.

        Parameters
        ----------
        instant : str
            Requested time of the commit, as in :meth:`timeline`.
        cascade : bool
            Also roll back the later commits that depend on it; their changes are lost. A commit
            depends on an earlier commit if it touched the same file groups, or, after a rescale,
            if it changed the rules or used their bucket counts (RFC-89).
        dry_run : bool
            Only return what would be done.

        Returns
        -------
        RollbackReport
            The commits that are rolled back, newest first.

        Raises
        ------
        TimelineError
            If there is no such commit, a savepoint keeps it, or later commits depend on it.
        IndexStateError
            If earlier file versions that are needed were cleaned.
        CommitOutcomeUnknownError
            If storage failed after the rollback may have begun; the next write then continues it.

        Notes
        -----
        Examples: ``docs/how-to/recover.md``.
        """
        check_texts(instant=instant)
        check_flags(cascade=cascade, dry_run=dry_run)
        undone = InstantTime(instant)
        return roll_back(
            self._open(),
            self._given_index,
            undone,
            cascade=cascade,
            dry_run=dry_run,
            engine=engine_of(active_session()),
        )

    def savepoint(self, instant: str | None = None, *, comment: str = "") -> InstantTime:
        """Make a savepoint: no clean deletes the files of its commit, and it can be restored.

        Parameters
        ----------
        instant : str, optional
            Requested time of the commit, as in :meth:`timeline`; by default the newest commit.
        comment : str
            Purpose of the savepoint; Hudi shows it.

        Returns
        -------
        InstantTime
            Requested time of the commit.

        Raises
        ------
        TimelineError
            If there is no such commit, or a clean deleted files of it.

        Notes
        -----
        Examples: ``docs/how-to/clean-and-restore.md``.
        """
        check_optional_texts(instant=instant)
        check_texts(comment=comment)
        chosen = None if instant is None else InstantTime(instant)
        return retried(lambda: make_savepoint(self._open(), chosen, comment=comment))

    def delete_savepoint(self, instant: str) -> None:
        """Delete a savepoint, so that the next clean may delete its files.

        Parameters
        ----------
        instant : str
            Requested time of the savepoint's commit.

        Raises
        ------
        TimelineError
            If there is no such savepoint.
        """
        check_texts(instant=instant)
        delete_savepoint(self._open(), InstantTime(instant))

    def restore(self, instant: str, *, dry_run: bool = False) -> RestoreReport:
        """Restore the table to a savepoint: undo all later commits.

        This also restores rules and recorded bucket counts, and undoes compactions (also planned
        ones) and rescales. A write that is in progress starts again on the restored table.

        Parameters
        ----------
        instant : str
            Requested time of the savepoint's commit.
        dry_run : bool
            Only return what would be undone.

        Returns
        -------
        RestoreReport
            The commits that are undone, newest first.

        Raises
        ------
        TimelineError
            If there is no such savepoint, or a later savepoint exists.
        CommitConflictError
            If another writer committed meanwhile; restore again.
        CommitOutcomeUnknownError
            If storage failed after the restore may have begun; the next write then continues it.
        """
        check_texts(instant=instant)
        check_flags(dry_run=dry_run)
        return restore(
            self._open(),
            InstantTime(instant),
            dry_run=dry_run,
            engine=engine_of(active_session()),
        )

    def metadata_table(self) -> MetadataTableFacts:
        """Return what Hudi's metadata table of this table consists of.

        Returns
        -------
        MetadataTableFacts
            Without partitions if the table has no metadata table.

        Raises
        ------
        MetadataTableError
            If the metadata table is missing, or lacks file groups.
        """
        return metadata_table_facts(self._open())

    def rebuild_metadata_table(
        self,
        partitions: Sequence[str] = (),
        *,
        partitioned: bool | None = None,
        spark: SparkSession | None = None,
    ) -> tuple[str, ...]:
        """Build the metadata table, or build partitions of it again.

        Writers may write meanwhile. If the call dies, the next one goes on.

        Parameters
        ----------
        partitions : sequence of str
            ``files``, ``column_stats``, ``partition_stats``, ``record_index``; by default those
            that the table has, or all but the last if it has none.
        partitioned : bool, optional
            For ``record_index``: whether a key is unique within its partition (True) or in the
            whole table. By default as the table's kind needs it, or its index is or was, else True.
        spark : SparkSession, optional
            Session that builds the record index; by default the active session, or this process
            without one.

        Returns
        -------
        tuple of str
            All partitions that are valid afterwards.

        Raises
        ------
        UnsupportedFeatureError
            If the table cannot be written.
        ConfigError
            If bucketlake does not maintain such a partition, or ``partitioned`` is not what the
            kind of the table needs.
        KeyTwiceError
            If a key is stored twice, so that the record index has no place for it.
        """
        names = names_of(partitions, "partitions", in_order=False)
        if partitioned is not None:
            check_flags(partitioned=partitioned)
        check_session(spark)
        table = self._open()
        require_own_kind(table, partitioned)
        return build_metadata_table(
            table.storage,
            names,
            is_partitioned=partitioned,
            engine=engine_of(spark or active_session()),
            lock=self.lock,
        )

    def set_upkeep(self, mode: str) -> None:
        """Store whether writes keep the table up: compact, resize, clean and archive it.

        With ``"auto"`` each write of bucketlake looks after its commit whether a service is due,
        and runs it: a compaction after 5 delta commits, a resize of a hash ring or directory after
        10 commits, a clean after 10, an archival from 31 active commits on. The result of the write
        tells what was done, in ``upkeep``. A service that fails never fails the write.

        Parameters
        ----------
        mode : {"auto", "off"}
            ``"off"``: services run only when they are called.

        Raises
        ------
        ConfigError
            If there is no such mode.

        Examples
        --------
        >>> import bucketlake as bl
        >>> trips = bl.create_table(
        ...     "memory://docs/upkeep", schema=pa.schema({"id": pa.string()}), record_key=["id"])
        >>> trips.set_upkeep("auto")
        >>> trips.config().upkeep
        'auto'
        """
        set_upkeep(self._open(), mode)

    def drop_metadata_table(self) -> None:
        """Turn the metadata table off, and delete its files.

        Readers then list the storage. The next write of Hudi builds the metadata table again,
        unless its options turn it off; and so does the next write to a table under a
        :class:`RecordIndex` or :class:`DynamicBucket`, whose index is a part of it.
        """
        drop_metadata_table(self._open().storage, lock=self.lock)

    def upgrade(
        self, to: int = NEWEST_VERSION, *, spark: SparkSession | None = None, dry_run: bool = False
    ) -> VersionReport:
        """Put the table into a newer table version, in place.

        No data file is written. The metadata table is built anew, in the form of the version;
        meanwhile readers list the storage. From version 6 on to a newer one, the timeline and the
        archive are written in the newer layout. If the call dies, the table is in one of the two
        versions, and the next call goes on.

        Parameters
        ----------
        to : int
            The table version.
        spark : SparkSession, optional
            Session that builds a record index; by default the active session, or this process
            without one.
        dry_run : bool
            Only return what would be done.

        Returns
        -------
        VersionReport
            Versions before and afterwards, and the partitions of the metadata table that are built.

        Raises
        ------
        ConfigError
            If bucketlake does not write this version, or it is older than the table's.
        UnsupportedFeatureError
            If the table cannot be written, or has two timelines, because an upgrade of Hudi died.
        TimelineError
            If an action is pending that the change cannot end, for example a clustering; or if the
            table has log files of version 6 and a savepoint.
        CommitConflictError
            If another process builds or removes the metadata table meanwhile, or writes to a table
            whose timeline changes its layout.

        Examples
        --------
        >>> import bucketlake as bl
        >>> orders = bl.create_table(
        ...     "memory://docs/upgraded", schema=pa.schema({"id": pa.string()}), record_key=["id"],
        ...     index=bl.SimpleBucket(4), version=8)
        >>> orders.upgrade().version
        9
        """
        return self._change_version(to, spark, dry_run=dry_run, is_upgrade=True)

    def downgrade(
        self,
        to: int,
        *,
        drop: Names = (),
        spark: SparkSession | None = None,
        dry_run: bool = False,
    ) -> VersionReport:
        """Put the table into an older table version, in place, so that older releases read it.

        As :meth:`upgrade`. Log files of a merge-on-read table are compacted before a downgrade to
        version 6; otherwise no data file is written.

        Parameters
        ----------
        to : int
            The table version.
        drop : str or sequence of str
            What may be lost: ``"completion_times"``, which version 6 does not have. They are needed
            only if commits completed in another order than they began.
        spark : SparkSession, optional
            Session that builds a record index, and compacts; by default the active session, or this
            process without one.
        dry_run : bool
            Only return what would be done.

        Returns
        -------
        VersionReport
            As :meth:`upgrade`; also the partitions of the metadata table that the version lacks,
            and how many file slices are compacted.

        Raises
        ------
        ConfigError
            If bucketlake does not write this version, it is newer than the table's, it lacks what
            the table uses, for example dynamic buckets, or ``drop`` must name what is lost.
        UnsupportedFeatureError, TimelineError, CommitConflictError
            As :meth:`upgrade`.

        Examples
        --------
        >>> import bucketlake as bl
        >>> orders = bl.create_table(
        ...     "memory://docs/downgraded", schema=pa.schema({"id": pa.string()}),
        ...     record_key=["id"], index=bl.SimpleBucket(4), metadata_table=False)
        >>> orders.downgrade(to=6).readers
        'Hudi 0.14 and 0.15'
        """
        names = names_of(drop, "drop", in_order=False)
        return self._change_version(to, spark, names, dry_run=dry_run, is_upgrade=False)

    def _change_version(
        self,
        to: int,
        spark: SparkSession | None,
        drop: Sequence[str] = (),
        *,
        dry_run: bool,
        is_upgrade: bool,
    ) -> VersionReport:
        check_version(to, "to")
        check_session(spark)
        check_flags(dry_run=dry_run)
        table = self._open()
        held = table.config.version
        if is_upgrade and to < held:
            step = f"use table.downgrade(to={to}) (bucketlake downgrade --to {to} --run)"
            raise ConfigError("to", to, f"the table has version {held}; {step}")
        if not is_upgrade and to > held:
            step = f"use table.upgrade(to={to}) (bucketlake upgrade --to {to} --run)"
            raise ConfigError("to", to, f"the table has version {held}; {step}")
        if dry_run:
            return plan_version_change(table, to, drop)
        engine = engine_of(spark or active_session())
        return change_version(table.storage, to, drop=drop, engine=engine, lock=self.lock)

    def doctor(
        self,
        *,
        check_keys: bool = False,
        check_files: bool = False,
        min_age_seconds: int = MIN_AGE_SECONDS,
    ) -> Findings:
        """Check the table for errors, leftovers, and states that may lead to errors.

        This changes nothing. It lists the table once, and reads the metadata of its commits.

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

        Returns
        -------
        list of Finding
            The worst finding first; empty if there are none. It prints as a table, with what was
            checked (``checked``) and what was not (``not_checked``).

        Raises
        ------
        TableNotFoundError
            If there is no table.
        UnsupportedFeatureError
            If the table cannot be read.

        Notes
        -----
        Examples: ``docs/how-to/doctor.md``.
        """
        check_flags(check_keys=check_keys, check_files=check_files)
        check_integers(0, min_age_seconds=min_age_seconds)
        return diagnose(
            open_storage(self.path, self.storage_options),
            self._given_index,
            keys=check_keys,
            files=check_files,
            min_age_seconds=min_age_seconds,
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
        process, with one row per key by the table's merge rule.

        Parameters
        ----------
        dry_run : bool
            Only return what would be done.
        check_keys : bool
            As for :meth:`doctor`. Only what is checked is repaired.
        check_files : bool
            As for :meth:`doctor`.
        min_age_seconds : int
            Smallest age of a leftover. Younger files are not touched.

        Returns
        -------
        RepairReport
            What is repaired, and what needs a decision by a person.

        Raises
        ------
        UnsupportedFeatureError
            If the table cannot be read, or if a repair needs a write that is not supported.
        CommitConflictError
            If other writers caused a conflict in every attempt.

        Notes
        -----
        Examples: ``docs/how-to/doctor.md``.
        """
        check_flags(dry_run=dry_run, check_keys=check_keys, check_files=check_files)
        check_integers(0, min_age_seconds=min_age_seconds)
        return repair(
            open_storage(self.path, self.storage_options),
            self._given_index,
            keys=check_keys,
            files=check_files,
            min_age_seconds=min_age_seconds,
            dry_run=dry_run,
            engine=engine_of(active_session()),
            lock=self.lock,
        )

    def _open(self) -> OpenTable:
        storage = open_storage(self.path, self.storage_options)
        config = read_table_config(storage)
        check_readable(config, self.path)
        return opened_table(storage, config, self.lock)

    def _rows_of(
        self, snapshot: Snapshot, session: SparkSession | None, partitions: Sequence[str]
    ) -> RecordSource:
        """Return all rows of some partitions as the records of a write."""
        plan = plan_slices(snapshot, snapshot.partition_slices(partitions))
        return stored_rows(plan, snapshot.storage, self.path, session)

    def _target(self, table: OpenTable, data: object = None) -> Target:
        return self._target_of(table, session_of(data))

    def _target_of(self, table: OpenTable, session: SparkSession | None) -> Target:
        return open_target(
            table,
            self._given_index,
            log_format=self.log_format,
            engine=engine_of(session),
            job_marker=self._job_marker,
        )

    def _address(self) -> str:
        return f"Table(path={shown_address(self.path)!r})"

    def _overview(self) -> TableOverview | None:
        def look() -> TableOverview:
            snapshot = self._snapshot()
            return self._overview_of(snapshot, self._index_of(snapshot))

        return within_seconds(look)

    def _overview_of(self, snapshot: Snapshot, index: TableIndex | None) -> TableOverview:
        known = None if index is None else without_state(index)
        return table_overview(shown_address(self.path), snapshot, known)

    def _advice(self, snapshot: Snapshot, index: TableIndex | None, target: int) -> AdviceList:
        known = None if index is None else without_state(index)
        address = shown_address(self.path)
        return advise_table(snapshot, address, known, self._given_index, target)

    def _report(self) -> TableReport:
        snapshot = self._snapshot()
        index = self._index_of(snapshot)
        return TableReport(
            overview=self._overview_of(snapshot, index),
            buckets=list_buckets(snapshot, index),
            timeline=list_history(snapshot.storage, snapshot.timeline),
            findings=self.doctor(),
            advice=self._advice(snapshot, index, TARGET_FILE_SIZE_DEFAULT),
            zone="UTC" if snapshot.config.timeline_timezone == "UTC" else "local time",
            made_at=datetime.now(UTC),
        )

    def _snapshot(self) -> Snapshot:
        return load_snapshot(self._open())

    def _pin(self, request: ReadRequest) -> PinnedRead:
        return pin_read(self._open(), request)

    def _index_of(self, snapshot: Snapshot) -> TableIndex | None:
        return self._index_at(snapshot.storage, snapshot.timeline)

    def _index_at(self, storage: Storage, timeline: Timeline) -> TableIndex | None:
        try:
            return resolve_index(storage, timeline, self._given_index)
        except UnsupportedFeatureError:  # Without the rules, no bucket can be pruned.
            return None

    def _write_matching(
        self,
        operation: Operation,
        where: str | None,
        spark: SparkSession | None,
        changes: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Read the rows that match a condition, and write them with changes, or their deletes."""
        # Here, because the SQL parser is slow to import.
        from bucketlake.write.by_condition import Assignments, require_same_matches

        session = spark or active_session()

        def write_once(table: OpenTable) -> WriteResult:
            snapshot = load_snapshot(table)
            assignments, columns = None, None
            if changes is not None:
                assignments = Assignments.of(changes, snapshot.schema, table.config)
            else:
                spec = table.config.key_spec
                fields = (*spec.record_key_fields, *spec.partition_fields)
                columns = tuple(roots_of(fields, snapshot.schema.names))
            pinned = PinnedRead(snapshot, ReadRequest(where, columns))
            index = self._index_of(snapshot)
            source, predicate = matching_rows(session, self.path, pinned, index, assignments)
            try:
                target = self._target_of(table, session)
                check = partial(require_same_matches, snapshot, predicate)
                return write_records(target, operation, source, still_match=check)
            finally:
                source.close()

        return self._commit(write_once, session)

    def _merge(
        self,
        records: DataFrame | pa.Table | InputFiles,
        spark: SparkSession | None,
        statement: MergeStatement,
    ) -> WriteResult:
        """Find the rows that a merge changes, and write them."""
        # Here, because the SQL parser is slow to import.
        from bucketlake.write.merge_write import write_merge

        with _named_work(self, "merge"):
            storage = open_storage(self.path, self.storage_options)
            session = spark or session_of(records)
            source = merge_source(
                records, storage, self.path, session, lambda: self._snapshot().schema_or_none
            )
            try:
                return self._commit(
                    lambda table: write_merge(self._target_of(table, session), source, statement),
                    session,
                )
            finally:
                source.close()

    def _write(
        self,
        operation: Operation,
        data: Records,
        merge_schema: MergeSchema = False,
        batch: Batch | None = None,
        rows: RowMerge = WHOLE_ROWS,
    ) -> WriteResult:
        merge = SchemaMerge.of(merge_schema)
        if rows.keeps_missing and not rows.keeps_nulls:
            if are_files(data):
                data = data.with_names_alike()
            else:
                require_same_names(data, f"write to {self.path}")
        storage = open_storage(self.path, self.storage_options)
        source = source_of(data, storage, self.path, lambda: self._snapshot().schema_or_none)
        try:
            return self._commit(
                lambda table: write_records(
                    self._target(table, data),
                    operation,
                    source,
                    batch=batch,
                    merge=merge,
                    rows=rows,
                ),
                session_of(data),
            )
        finally:
            source.close()

    def _commit(
        self, write: Callable[[OpenTable], WriteResult], session: SparkSession | None
    ) -> WriteResult:
        """Run a write with the index that it needs, and then the upkeep that is due."""
        engine = engine_of(session)
        seen: list[OpenTable] = []

        def write_once() -> WriteResult:
            seen[:] = [self._open()]
            return write(seen[0])

        storage = open_storage(self.path, self.storage_options)
        result = with_needed_index(storage, write_once, engine=engine, lock=self.lock)
        if seen[0].config.upkeep == OFF:
            return result
        return kept_up(result, self._open, self._given_index, engine)


@dataclass(frozen=True, slots=True)
class BatchUpsert:
    """Upserts the batches of one stream into a table; see :meth:`Table.upsert_batch`."""

    table: Table
    query_name: str
    merge_schema: MergeSchema = False
    rows: RowMerge = WHOLE_ROWS

    def __call__(self, data: Records, batch_id: int) -> WriteResult:
        """Upsert a batch, unless it was committed before.

        Spark quotes the traceback in the error of the stream. The error of a batch that its author
        can correct has no traceback of bucketlake, so that its sentence comes at once.
        """
        try:
            with _named_work(self.table, f"upsert batch {batch_id}"):
                check_integers(0, batch_id=batch_id)
                batch = Batch(self.query_name, batch_id)
                merge = self.merge_schema
                return self.table._write(Operation.UPSERT, data, merge, batch, self.rows)
        except (ConfigError, InputError, UnsupportedFeatureError) as error:
            raise error.with_traceback(None) from None


def _request(
    where: str | None,
    columns: Names | None,
    as_of: ReadTime | None,
    since: ReadTime | None,
    until: ReadTime | None,
    read_optimized: bool,
) -> ReadRequest:
    """Return the request of a read, with checked arguments; ``pin_read`` reads the times."""
    check_optional_texts(where=where)
    check_flags(read_optimized=read_optimized)
    names = None if columns is None else names_of(columns, "columns")
    return ReadRequest(where, names, as_of, since, until, read_optimized)


def with_settings(
    table: Table, log_format: LogFormat, lock: TableLock, marker: Marker | None = None
) -> Table:
    """Return a handle of the same table with other settings of writes.

    Parameters
    ----------
    table : Table
        The handle.
    log_format, lock
        As in ``Table``.
    marker : (field, text) or None
        The delete marker of a job, for a table that stores none.
    """
    handle = Table(table.path, table._given_index, table.storage_options, log_format, lock)
    object.__setattr__(handle, "_job_marker", marker)
    return handle


def open_for_read(table: Table) -> OpenTable:
    """Open a table for a read that is planned elsewhere."""
    return table._open()


def index_of(table: Table, snapshot: Snapshot) -> TableIndex | None:
    """Return the index of a pinned table; None if it is not known: then no bucket is pruned."""
    return table._index_of(snapshot)


def index_when_opened(table: Table) -> TableIndex | None:
    """Return the index that a new handle from ``open_table`` has found; nothing is read."""
    return table._given_index
