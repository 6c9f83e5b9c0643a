"""``save``: writes as an existing Hudi job does, with the same options.

A first write is checked wholly before its table exists (``_Save``). A table without commits is like
a missing table where it contradicts the job: it is made anew.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bucketlake.config import table_keys as keys
from bucketlake.config.merge_entries import DELETE_MARKER, WRITE_MERGE_MODE, WRITE_PAYLOAD
from bucketlake.config.paths_of_table import PROPERTIES_FILE
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.config.write_options import (
    OPTION_OF_ARGUMENT,
    JobOptions,
    naming_options,
    parse_job_options,
)
from bucketlake.engine import are_files, engine_of, input_of, row_columns, session_of, source_of
from bucketlake.errors import (
    AlreadyExistsError,
    BucketLakeError,
    ConfigError,
    IndexStateError,
    InputError,
    ServiceWarning,
    TableNotFoundError,
    naming_table,
)
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.setting import TableIndex, has_rules, index_from_options, with_whole_keys
from bucketlake.model.arguments import check_texts, options_of, path_of
from bucketlake.model.names import one_of
from bucketlake.model.result import WriteResult
from bucketlake.model.row_merge import MergeSchema, SchemaMerge
from bucketlake.model.table_type import Operation, TableType
from bucketlake.opening import open_table, path_of_name
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.metadata.needed_index import with_needed_index
from bucketlake.services.resize.service import ResizeLimits
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage, shown_address
from bucketlake.table import Table, handle_of, table_of
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.locks import TableLock, lock_from_options
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.batch_schema import schema_after
from bucketlake.write.create import NewTable, make_table_anew, new_config, plan_table
from bucketlake.write.ingest import CountedRecords, write_records
from bucketlake.write.pack import RecordSource
from bucketlake.write.target import Target, target_of
from bucketlake.write.unwritten import (
    is_unwritten,
    remove_empty_folder,
    require_same_table,
    wait_for_claims,
)
from bucketlake.writing import (
    count_first_records,
    looked_after,
    registered,
    unmade_on_failure,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bucketlake.catalogs.catalog import Catalog
    from bucketlake.engine import Records
    from bucketlake.write.input_files.files import InputFiles

_DELETES = (Operation.DELETE, Operation.DELETE_PARTITION)
_MODES = ("append", "overwrite", "errorifexists", "error", "ignore")
_OPEN_KIND = (
    "the options name no index: the new table gets DynamicBucket(), whose buckets are opened as "
    "the data grows; hoodie.index.type=BUCKET with hoodie.bucket.index.num.buckets sets a count "
    "instead"
)


def save(
    df: Records,
    path: str,
    mode: str = "append",
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    merge_schema: MergeSchema = False,
    catalog: str | Catalog | None = None,
) -> WriteResult:
    """Write records with the ``hoodie.*`` options of a Hudi job.

    Parameters
    ----------
    df : DataFrame, pa.Table, ArrowData or InputFiles
        Records, or keys for operation ``delete``.
    path : str
        Folder of the table; with ``catalog`` its name, ``database.table``. ``save`` creates a
        missing table after it has checked the records. A table without commits that contradicts the
        options, or whose schema does not fit the records, is made anew as the options say.
    mode : {"append", "overwrite", "errorifexists", "error", "ignore"}
        Spark's save mode. ``overwrite`` replaces all records in one commit and keeps the table's
        history; Hudi would delete the table. ``errorifexists`` and ``ignore`` treat a table without
        commits as missing. Operations ``delete`` and ``delete_partition`` need ``append``.
    options : mapping of str to str
        Options of the job. Tuning options of Hudi's engine are ignored; a warning names unknown
        options; an option that bucketlake cannot follow raises an error.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store.
    merge_schema : bool, str or sequence of str
        Changes that the records may make to the table's schema, as for ``Table.upsert``. The
        options ``mergeSchema``, ``hoodie.datasource.write.reconcile.schema`` (both: all changes)
        and ``hoodie.write.set.null.for.missing.columns`` (``"fill_missing"``) allow them, too.
    catalog : str or Catalog, optional
        Where the name of the table is known, see :func:`sync`.

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
        The other errors of ``Table.upsert``, and CatalogError if the catalog cannot be reached, or
        does not know the name.

    Warns
    -----
    UserWarning
        Names the unknown options, and those that ask to register the table without naming a
        catalog.
    ServiceWarning
        If the rows were committed, but a compaction, resize, clean, archival or the sync with a
        catalog after it failed.

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
    path = path_of_name(path, catalog)
    with naming_table(shown_address(path_of(path))):
        return _save(df, path_of(path), mode, options, storage_options, merge_schema)


def _save(
    df: Records,
    path: str,
    mode: str,
    options: Mapping[str, str] | None,
    storage_options: Mapping[str, str] | None,
    merge_schema: MergeSchema,
) -> WriteResult:
    records = input_of(df, f"write to {path}")
    check_texts(mode=mode)
    if mode.lower() not in _MODES:
        raise ConfigError("mode", mode, one_of(mode, _MODES))
    storage_options = options_of(storage_options, "storage_options")
    asked = SchemaMerge.of(merge_schema)
    job = parse_job_options(options_of(options, "options"))
    merge = asked | job.merge
    if job.operation in _DELETES and mode.lower() != "append":
        raise ConfigError("mode", mode, f"operation {job.operation.value.lower()} needs 'append'")
    lock = lock_from_options(job.lock_options)
    if job.resize is not None:
        ResizeLimits(**job.resize.limits)  # Raises ConfigError before anything is written.
    if job.unknown:
        warnings.warn(
            f"bucketlake ignores options that it does not know: {', '.join(job.unknown)}",
            stacklevel=3,
        )
    register = _registration(options_of(options, "options")) if job.syncs else None
    if job.syncs and register is None:
        warnings.warn(
            f"{', '.join(job.syncs)} names no catalog; add hoodie.datasource.hive_sync.metastore."
            "uris=thrift://host:9083, or register the table with bl.sync(table, …)",
            stacklevel=3,
        )
    storage = open_storage(path, storage_options)
    types, only = partial(_known_schema, storage), job.operation in _DELETES
    source = source_of(records, storage, path, types, merge=merge, keys_only=only)
    try:
        with closing(source), naming_options():
            save_once = _Save(records, source, path, storage, storage_options, job, merge, lock)
            table, result = save_once.run(mode.lower())
    except BucketLakeError:
        remove_empty_folder(storage)  # In which the records were spooled.
        raise
    if table is None:
        return result
    try:
        _serve(table, job)
    except Exception as error:  # Also errors of Spark.
        # The rows are committed; an error here would suggest that they are not.
        warnings.warn(
            f"the rows are committed (instant {result.instant}), but a table service after the "
            f"write failed: {error}; the next write runs it again, or call table.compact(), "
            "resize(), clean() and archive()",
            ServiceWarning,
            stacklevel=3,
        )
    handle = handle_of(table)
    result = looked_after(handle, table.config(), result, engine_of(session_of(records)))
    if register is None or result.instant is None:
        return result
    return registered(handle, register, result)


def _registration(options: Mapping[str, str]) -> str | None:
    from bucketlake.catalogs.table_sync import registration_of_job  # Few jobs have one.

    found = registration_of_job(options)
    return None if found is None else found.text


@dataclass(frozen=True, slots=True)
class _Save:
    """One call of ``save``, with its checked arguments."""

    records: DataFrame | pa.Table | InputFiles
    source: RecordSource
    path: str
    storage: Storage
    storage_options: Mapping[str, str] | None
    job: JobOptions
    merge: SchemaMerge
    lock: TableLock

    def run(self, mode: str) -> tuple[Table | None, WriteResult]:
        """Write the records; return no table if nothing was to be done."""
        while True:
            wait_for_claims(self.storage)
            exists = self.storage.stat(PROPERTIES_FILE) is not None
            try:
                done = self._attempt(mode, exists=exists)
            except TableNotFoundError:
                if not exists or self.job.operation in _DELETES:
                    raise
                continue  # Another process makes the table anew.
            if done is not None:
                return done

    def _attempt(self, mode: str, *, exists: bool) -> tuple[Table | None, WriteResult] | None:
        """Write the records; return None if another process made a table meanwhile."""
        if exists and mode in ("errorifexists", "error", "ignore") and self._is_written():
            if mode == "ignore":
                return None, WriteResult(None)
            raise AlreadyExistsError(
                self.path,
                "save",
                f"the table exists and mode is {mode!r}; write with mode='append' or 'overwrite'",
            )
        table = self._held_table() if exists or self.job.operation in _DELETES else None
        if table is None:
            return self._first_write(read_table_config(self.storage) if exists else None)
        _turn_metadata_table(table, wanted=self.job.metadata_table)
        operation = self.job.operation
        if exists and mode == "overwrite":
            operation = Operation.INSERT_OVERWRITE_TABLE
        return table, self._write(table, table.config(), operation)

    def _is_written(self) -> bool:
        """Return whether somebody has written to the table, or writes to it."""
        table = table_at(self.storage, self.lock)
        if load_timeline(table).completed_commits():
            return True  # An archival always leaves the last commit.
        return not is_unwritten(table)

    def _held_table(self) -> Table | None:
        """Open the table; return None if it contradicts the job, and nobody has written to it."""
        try:
            table = _open(self.path, self.job, self.storage_options)
            table = self._with_settings(table)
            if self.job.operation not in _DELETES:
                self._require_fit(table)
            return table
        except (ConfigError, IndexStateError, InputError):
            if self.job.operation in _DELETES or self._is_written():
                raise
            return None

    def _with_settings(self, table: Table) -> Table:
        """Return a table with the lock of the job, and its settings of writes."""
        marked = replace(handle_of(table), job_marker=self.job.merging.marker)
        return table_of(replace(marked, log_format=self.job.log_format, lock=self.lock))

    def _require_fit(self, table: Table) -> None:
        """Raise an error if a table without commits has another schema than the records."""
        config = read_table_config(self.storage)
        if not load_timeline(opened_table(self.storage, config)).completed_commits():
            target = self._target(table, config)
            schema_after(target, self.job.operation, self.source, self.merge)

    def _first_write(self, held: TableConfig | None) -> tuple[Table | None, WriteResult] | None:
        """Make the table, in place of ``held``, and write; None if another process was faster.

        The table is made in memory first, and the records are checked and counted for it.
        """
        job, index = self.job, index_from_options(self.job.index_options)
        if index is None:
            index = DynamicBucket()
            warnings.warn(_OPEN_KIND, stacklevel=6)
        if job.version is not None:  # The option is one of Hudi 1.
            index = with_whole_keys(index)
        try:
            planned = self._planned(index)
        except InputError:
            if not self.source.is_empty():
                raise
            return None, WriteResult(None)  # Without rows there may be no types for a table.
        marker = job.merging.marker
        config, counted = count_first_records(
            self.storage.root, planned, self.source, job.operation, self.merge, marker
        )
        try:
            make_table_anew(self.storage, planned, held, self.lock)
        except AlreadyExistsError:
            return None
        table = self._with_settings(Table(self.path, index, self.storage_options))
        in_spark = not isinstance(self.records, pa.Table)
        with unmade_on_failure(self.storage, self.lock, tasks_may_run=in_spark):
            return table, self._write(table, config, job.operation, counted)

    def _planned(self, index: TableIndex) -> NewTable:
        records: Any = self.records
        given, job = self.source.schema if are_files(records) else records.schema, self.job
        config = new_config(
            job.key_spec,
            job.merging,
            table_type=(job.table_type or TableType.COPY_ON_WRITE).value,
            name=job.table_name,
            cdc=job.cdc,
            version=job.version or NEWEST_VERSION,
        )
        columns, with_metadata = row_columns(given, f"write to {self.path}"), job.metadata_table
        return plan_table(
            self.storage.root, columns, config, index, metadata_table=with_metadata is not False
        )

    def _write(
        self,
        table: Table,
        config: TableConfig,
        operation: Operation,
        counted: CountedRecords | None = None,
    ) -> WriteResult:
        """Write to a table with the properties that were compared with the options."""
        if operation is Operation.DELETE_PARTITION:
            return table.delete_partitions(self.job.partitions_to_delete)

        def write() -> WriteResult:
            require_same_table(opened_table(self.storage, config))
            target = self._target(table, config)
            return write_records(target, operation, self.source, merge=self.merge, counted=counted)

        return with_needed_index(
            self.storage, write, engine=engine_of(session_of(self.records)), lock=self.lock
        )

    def _target(self, table: Table, config: TableConfig) -> Target:
        opened = opened_table(self.storage, config, lock=table.lock)
        target = target_of(handle_of(table), opened, engine_of(session_of(self.records)))
        return replace(target, duplicates=self.job.duplicates)


def _known_schema(storage: Storage) -> pa.Schema | None:
    """Return the schema of a table; None if there is no table, or it has none yet."""
    if storage.stat(PROPERTIES_FILE) is None:
        return None
    return load_snapshot(table_at(storage)).schema_or_none


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
        kept: dict[str, Any] = {f"retain_{job.retention.policy.name.lower()}": job.retention.count}
        table.clean(**kept)
    if job.archive_limits is not None:
        keep_min, keep_max = job.archive_limits
        table.archive(keep_min=keep_min, keep_max=keep_max)


def _open(path: str, job: JobOptions, storage_options: Mapping[str, str] | None) -> Table:
    table = _under_index(path, job, storage_options)
    held = table.config()
    asked, found = job.key_spec, held.key_spec
    of = OPTION_OF_ARGUMENT
    payload = job.merging.payload_class
    mode_from = WRITE_MERGE_MODE if payload is None else f"the merge mode of {WRITE_PAYLOAD}"
    compared = {
        of["record_key"]: (asked.record_key_fields or None, found.record_key_fields),
        of["partition_by"]: (job.partition_fields, found.partition_fields),
        of["name"]: (job.table_name, held.name),
        of["ordering"]: (job.merging.ordering_fields or None, held.ordering_fields),
        mode_from: (job.merging.stated_mode, held.merge_mode),
        keys.PARTIAL_UPDATE_MODE: (
            None if payload is None else job.merging.partial_update_mode or "NONE",
            held.partial_update_mode or "NONE",
        ),
        DELETE_MARKER: (job.merging.marker, held.custom_marker or job.merging.marker),
        keys.KEY_GENERATOR_TYPE: (job.generator, found.generator),
        of["hive_style"]: (job.hive_style, found.hive_style),
        of["url_encode"]: (job.url_encode, found.url_encode),
        of["table_type"]: (job.table_type, held.table_type),
        of["version"]: (job.version, held.version),
        of["cdc"]: (job.cdc, held.change_log and held.change_log.value),
    }
    for what, (stated, known) in compared.items():
        if stated is not None and stated != known:
            step = "use this value, or omit the option"
            if what in _OF_PATHS:
                made = f"create_table with {_OF_PATHS[what]}={stated}"
                step += f"; to change it, write the rows to a new table: {made}, then bulk_insert"
            raise ConfigError(
                what, _spelled(stated), f"the table {path} has {_spelled(known)!r}; {step}"
            )
    return table


# Arguments of create_table that stored partition paths depend on, by their options.
_OF_PATHS = {OPTION_OF_ARGUMENT[name]: name for name in ("hive_style", "url_encode")}


def _spelled(value: object) -> object:
    """Return the value of an enum, as in an option; return other values unchanged."""
    return value.value if isinstance(value, Enum) else value


def _under_index(path: str, job: JobOptions, storage_options: Mapping[str, str] | None) -> Table:
    """Open a table; rules that the table stores win over those of a job (RFC-89)."""
    asked = index_from_options(job.index_options)
    held = open_table(path, storage_options=storage_options)
    index = handle_of(held).index
    if asked is not None:
        asked = asked.with_stored_limits(index, job.index_options)
    if asked is None or asked == index:
        return held
    # Hudi's jobs have no option for a maximum file size, so the table's size is used.
    one_group = None if index is None else index.with_max_file_size(None)
    if asked.max_file_size is None and asked == one_group:
        return held
    if not has_rules(index):
        try:
            return open_table(path, asked, storage_options)
        except IndexStateError as error:
            raise _other_index(path, asked, index) from error
    if not held.timeline():
        raise _other_index(path, asked, index)
    warnings.warn(
        f"the options name {asked!r}; the table stores other rules, which are used: {index!r}",
        stacklevel=8,
    )
    return held


def _other_index(path: str, asked: TableIndex, index: TableIndex | None) -> IndexStateError:
    own = {} if index is None else index.to_options()
    given = " ".join(f"{key}={value}" for key, value in own.items())
    return IndexStateError(
        f"the options name {asked!r}",
        f"{path} holds {index!r}",
        f"give the options of the table ({given}), or change its index with table.rescale(), "
        "table.resize() or bl.convert()",
    )
