"""``save``: writes as an existing Hudi job does, with the same options."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

import pyarrow as pa

from bucketlake.config.layout import PROPERTIES_FILE
from bucketlake.config.write_options import JobOptions, parse_job_options
from bucketlake.engine import arrow_schema, has_no_rows, readable_records
from bucketlake.errors import AlreadyExistsError, ConfigError, InputError, ServiceWarning
from bucketlake.index.ring_kind import RingKind
from bucketlake.index.settings import TableIndex, has_rules, index_from_options
from bucketlake.model.arguments import check_texts, options_of, path_of
from bucketlake.model.evolution import typed_schema
from bucketlake.model.result import WriteResult
from bucketlake.model.retention import CleanPolicy, Retention
from bucketlake.model.schema import without_flag
from bucketlake.model.schema_merge import MergeSchema, SchemaMerge
from bucketlake.model.table_type import Operation, TableType
from bucketlake.opening import open_table
from bucketlake.services.resize.limits import ResizeLimits
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.table import Table, index_when_opened, with_settings
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.lock_options import lock_from_options
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.write.create import make_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bucketlake.engine import Records

_DELETES = (Operation.DELETE, Operation.DELETE_PARTITION)
_MODES = ("append", "overwrite", "errorifexists", "error", "ignore")


def save(
    df: Records,
    path: str,
    mode: str = "append",
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    merge_schema: MergeSchema = False,
) -> WriteResult:
    """Write records with the ``hoodie.*`` options of a Hudi job.

    Parameters
    ----------
    df : DataFrame, pa.Table or ArrowData
        Records, or keys for operation ``delete``.
    path : str
        Folder of the table; ``save`` creates a missing table.
    mode : {"append", "overwrite", "errorifexists", "error", "ignore"}
        Spark's save mode. ``overwrite`` replaces all records in one commit and keeps the table's
        history; Hudi would delete the table. ``errorifexists`` and ``ignore`` treat a table without
        commits as missing, so that a job that failed on bad rows can run again. Operations
        ``delete`` and ``delete_partition`` need ``append``.
    options : mapping of str to str
        Options of the job. Tuning options of Hudi's engine are ignored; a warning names unknown
        options; an option that bucketlake cannot follow raises an error.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store.
    merge_schema : bool, str or sequence of str
        Changes that the records may make to the table's schema, as for ``Table.upsert``. The
        options ``mergeSchema``, ``hoodie.datasource.write.reconcile.schema`` (both: all changes)
        and ``hoodie.write.set.null.for.missing.columns`` (``"fill_missing"``) allow them, too.

    Returns
    -------
    WriteResult
        Without an instant if ``mode`` is ``ignore`` and the table exists.

    Raises
    ------
    ConfigError
        If an option cannot be followed, or contradicts the table.
    AlreadyExistsError
        If the table exists and ``mode`` is ``errorifexists``.
    TableNotFoundError
        If the table does not exist and the operation is ``delete`` or ``delete_partition``.
    BucketLakeError
        The other errors of ``Table.upsert``.

    Warns
    -----
    UserWarning
        Names the unknown options.
    ServiceWarning
        If the rows were committed, but a compaction, resize, clean or archival after it failed.

    Examples
    --------
    >>> options = {
    ...     "hoodie.table.name": "trips",
    ...     "hoodie.datasource.write.recordkey.field": "id",
    ...     "hoodie.index.type": "BUCKET",
    ...     "hoodie.bucket.index.num.buckets": "4",
    ... }
    >>> save(pa.table({"id": ["a", "b"]}), "memory://docs/saved", options=options).inserted
    2
    """
    records = readable_records(df, path)
    check_texts(mode=mode)
    if mode.lower() not in _MODES:
        raise ConfigError("mode", mode, f"one of {', '.join(_MODES)}")
    path, storage_options = path_of(path), options_of(storage_options, "storage_options")
    asked = SchemaMerge.of(merge_schema)
    job = parse_job_options(options_of(options, "options"))
    merge = (asked | job.merge).words
    if job.operation in _DELETES and mode.lower() != "append":
        raise ConfigError("mode", mode, f"operation {job.operation.value.lower()} needs 'append'")
    lock = lock_from_options(job.lock_options)
    if job.resize is not None:
        ResizeLimits(**job.resize.limits)  # Raises ConfigError before anything is written.
    if job.unknown:
        warnings.warn(
            f"bucketlake ignores options that it does not know: {', '.join(job.unknown)}",
            stacklevel=2,
        )
    storage = open_storage(path, storage_options)
    exists = storage.stat(PROPERTIES_FILE) is not None
    if exists and mode.lower() in ("errorifexists", "error", "ignore") and _has_commits(storage):
        if mode.lower() == "ignore":
            return WriteResult(None)
        raise AlreadyExistsError(
            path,
            "save",
            f"the table exists and mode is {mode!r}; write with mode='append' or 'overwrite'",
        )
    if exists or job.operation in _DELETES:
        table = _open(path, job, storage_options)
    else:
        try:
            table = _create(records, path, job, storage_options)
        except InputError:
            if not has_no_rows(records):
                raise
            return WriteResult(None)  # Without rows there may be no types for a table.
    table = with_settings(table, job.log_format, lock)
    _turn_metadata_table(table, wanted=job.metadata_table)
    result = _run(table, records, job, merge, overwrite=exists and mode.lower() == "overwrite")
    try:
        _serve(table, job)
    except Exception as error:  # Also errors of Spark.
        # The rows are committed; an error here would suggest that they are not.
        warnings.warn(
            f"the rows are committed (instant {result.instant}), but a table service after the "
            f"write failed: {error}; the next write runs it again, or call table.compact(), "
            "resize(), clean() and archive()",
            ServiceWarning,
            stacklevel=2,
        )
    return result


def _has_commits(storage: Storage) -> bool:
    """Return whether a table has commits; an archival always leaves the last commit."""
    return bool(load_timeline(storage, read_table_config(storage)).completed_commits())


def _turn_metadata_table(table: Table, *, wanted: bool | None) -> None:
    """Turn the metadata table on or off, if the options say so and the table is not so yet."""
    has_one = bool(table.config().written_metadata_partitions)
    if wanted and not has_one:
        table.rebuild_metadata_table()
    elif wanted is False and has_one:
        table.drop_metadata_table()


def _serve(table: Table, job: JobOptions) -> None:
    """Compact, resize, clean and archive, if the options say so."""
    if job.compact_after and table.config().table_type is TableType.MERGE_ON_READ:
        table.compact(after_delta_commits=job.compact_after)
    if job.resize is not None:
        table.resize(**job.resize.limits, schedule_only=job.resize.schedule_only)
    if job.retention is not None:
        _clean(table, job.retention)
    if job.archive_limits is not None:
        keep_min, keep_max = job.archive_limits
        table.archive(keep_min=keep_min, keep_max=keep_max)


def _run(
    table: Table,
    df: DataFrame | pa.Table,
    job: JobOptions,
    merge: Sequence[str],
    *,
    overwrite: bool,
) -> WriteResult:
    match Operation.INSERT_OVERWRITE_TABLE if overwrite else job.operation:
        case Operation.UPSERT:
            return table.upsert(df, merge_schema=merge)
        case Operation.INSERT:
            return table.insert(df, merge_schema=merge)
        case Operation.BULK_INSERT:
            return table.bulk_insert(df, merge_schema=merge)
        case Operation.DELETE:
            return table.delete(df)
        case Operation.INSERT_OVERWRITE:
            return table.insert_overwrite(df, merge_schema=merge)
        case Operation.INSERT_OVERWRITE_TABLE:
            return table.insert_overwrite(df, whole_table=True, merge_schema=merge)
        case Operation.DELETE_PARTITION:
            return table.delete_partitions(job.partitions_to_delete)


def _clean(table: Table, retention: Retention) -> None:
    match retention.policy:
        case CleanPolicy.COMMITS:
            table.clean(retain_commits=retention.count)
        case CleanPolicy.HOURS:
            table.clean(retain_hours=retention.count)
        case CleanPolicy.VERSIONS:
            table.clean(retain_versions=retention.count)


def _create(
    df: DataFrame | pa.Table,
    path: str,
    job: JobOptions,
    storage_options: Mapping[str, str] | None,
) -> Table:
    index = index_from_options(job.index_options)
    make_table(
        open_storage(path, storage_options),
        typed_schema(without_flag(arrow_schema(df.schema)), f"write to {path}"),
        job.key_spec,
        job.ordering_fields,
        index,
        table_type=(job.table_type or TableType.COPY_ON_WRITE).value,
        name=job.table_name,
        metadata_table=job.metadata_table is not False,
    )
    return Table(path, index, storage_options or {})


def _open(path: str, job: JobOptions, storage_options: Mapping[str, str] | None) -> Table:
    table = _under_index(path, job, storage_options)
    held = table.config()
    asked, found = job.key_spec, held.key_spec
    compared = {
        "record key": (asked.record_key_fields or None, found.record_key_fields),
        "partition fields": (asked.partition_fields or None, found.partition_fields),
        "table name": (job.table_name, held.name),
        "ordering fields": (job.ordering_fields or None, held.ordering_fields),
        "key generator": (job.generator, found.generator),
        "hive-style folders": (job.hive_style, found.hive_style),
        "url-encoded folders": (job.url_encode, found.url_encode),
        "table type": (job.table_type, held.table_type),
    }
    for what, (stated, known) in compared.items():
        if stated is not None and stated != known:
            raise ConfigError(
                what,
                _spelled(stated),
                f"the table {path} has {_spelled(known)!r}; use this value, or omit the option",
            )
    return table


def _spelled(value: object) -> object:
    """Return the value of an enum, as in an option; return other values unchanged."""
    return value.value if isinstance(value, Enum) else value


def _with_one_group(index: TableIndex | None) -> TableIndex | None:
    return None if index is None else index.with_max_file_size(None)


def _under_index(path: str, job: JobOptions, storage_options: Mapping[str, str] | None) -> Table:
    """Open a table; rules that the table stores win over those of a job (RFC-89)."""
    asked = index_from_options(job.index_options)
    held = open_table(path, storage_options=storage_options)
    index = index_when_opened(held)
    if isinstance(asked, RingKind):
        asked = asked.with_limits_of(index, job.index_options)
    if index == asked:
        return held
    # Hudi's jobs have no option for a maximum file size, so the table's size is used.
    if asked.max_file_size is None and asked == _with_one_group(index):
        return held
    if not has_rules(index):
        return open_table(path, asked, storage_options)
    warnings.warn(
        f"the options name {asked!r}; the table stores other rules, which are used: {index!r}",
        stacklevel=4,
    )
    return held
