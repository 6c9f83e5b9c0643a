"""A write as a user calls it: a source is made of the data, and written by one commit.

``engine.py`` makes the source, ``write/`` writes it. A write is made again after a conflict, and
after a missing index was built (:func:`commit`); then the upkeep that is due runs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from bucketlake.config.merge_entries import DeleteMarker
from bucketlake.config.table_config import OFF, TableConfig
from bucketlake.engine import (
    active_session,
    engine_of,
    input_of,
    matching_rows,
    merge_source,
    session_of,
    source_of,
)
from bucketlake.errors import (
    BucketLakeError,
    CommitOutcomeUnknownError,
    ConfigError,
    ServiceWarning,
)
from bucketlake.flow.stage import Engine
from bucketlake.model.field_path import field_at, roots_of
from bucketlake.model.position import UNKNOWN_ORIGIN, Origin
from bucketlake.model.result import UpkeepStep, WriteResult
from bucketlake.model.row_merge import WHOLE_ROWS, MergeSchema, RowMerge, SchemaMerge
from bucketlake.model.table_type import Operation
from bucketlake.read.handle import Handle
from bucketlake.read.request import PinnedRead, ReadRequest
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.metadata.needed_index import with_needed_index
from bucketlake.services.upkeep import kept_up
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import DraftStorage
from bucketlake.timeline.locks import TableLock
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.write.create import NewTable, make_table, unmake_table
from bucketlake.write.ingest import CountedRecords, count_records, write_records
from bucketlake.write.pack import RecordSource
from bucketlake.write.target import open_target, target_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bucketlake.engine import Records
    from bucketlake.write.input_files.files import InputFiles
    from bucketlake.write.merge_statement import Merge, MergeStatement


def write_data(
    handle: Handle,
    operation: Operation,
    data: Records,
    merge_schema: MergeSchema = False,
    origin: Origin = UNKNOWN_ORIGIN,
    rows: RowMerge = WHOLE_ROWS,
) -> WriteResult:
    """Write records, or delete the records of some keys; the parameters are those of ``Table``."""
    merge = SchemaMerge.of(merge_schema)
    types, keys_only = partial(_types_of_files, handle, operation), operation is Operation.DELETE
    source = source_of(
        data, handle.storage, handle.path, types, merge=merge, rows=rows, keys_only=keys_only
    )
    session = session_of(data)

    def write(table: OpenTable) -> WriteResult:
        target = target_of(handle, table, engine_of(session))
        return write_records(target, operation, source, origin=origin, merge=merge, rows=rows)

    try:
        return commit(handle, write, session)
    finally:
        source.close()


def write_first(
    handle: Handle, source: RecordSource, counted: CountedRecords, session: SparkSession | None
) -> WriteResult:
    """Write the records that were counted for a table before it was made."""

    def write(table: OpenTable) -> WriteResult:
        target = target_of(handle, table, engine_of(session))
        return write_records(target, Operation.UPSERT, source, counted=counted)

    return commit(handle, write, session)


def write_matching(
    handle: Handle,
    operation: Operation,
    where: str | None,
    spark: SparkSession | None,
    changes: Mapping[str, str] | None = None,
) -> WriteResult:
    """Read the rows that match a condition, and write them with changes, or their deletes."""
    # Here, because the SQL parser is slow to import.
    from bucketlake.write.by_condition import checked_assignments, require_same_matches

    session = spark or active_session()

    def write(table: OpenTable) -> WriteResult:
        snapshot = load_snapshot(table)
        assignments, columns = None, None
        if changes is not None:
            assignments = checked_assignments(changes, snapshot.schema, table.config)
        else:
            spec = table.config.key_spec
            fields = (*spec.record_key_fields, *spec.partition_fields)
            columns = tuple(roots_of(fields, snapshot.schema.names))
        pinned = PinnedRead(snapshot, ReadRequest(where, columns))
        index = handle.index_of(snapshot)
        source, predicate = matching_rows(session, handle.path, pinned, index, assignments)
        try:
            target = replace(target_of(handle, table, engine_of(session)), refuses_repeats=True)
            check = partial(require_same_matches, snapshot, predicate)
            return write_records(target, operation, source, still_match=check)
        finally:
            source.close()

    return commit(handle, write, session)


def remove_partitions(handle: Handle, paths: Sequence[str]) -> WriteResult:
    """Delete whole partitions."""
    from bucketlake.write.ingest import delete_partitions

    session = active_session()
    engine = engine_of(session)
    return commit(
        handle, lambda table: delete_partitions(target_of(handle, table, engine), paths), session
    )


def begin_merge(
    handle: Handle, source: Records, statement: MergeStatement, spark: SparkSession | None
) -> Merge:
    """Return a merge, to which the user adds clauses before it runs."""
    from bucketlake.write.merge_statement import Merge

    if statement.alias.lower() == statement.source_alias.lower():
        name = statement.source_alias
        raise ConfigError("source_alias", name, "give it another name than alias")
    records = input_of(source, f"write to {handle.path}")
    return Merge(statement, partial(_merge, handle, records, spark))


def _merge(
    handle: Handle,
    records: DataFrame | pa.Table | InputFiles,
    spark: SparkSession | None,
    statement: MergeStatement,
) -> WriteResult:
    """Find the rows that a merge changes, and write them."""
    # Here, because the SQL parser is slow to import.
    from bucketlake.write.merge_write import write_merge

    def write(table: OpenTable) -> WriteResult:
        return write_merge(target_of(handle, table, engine_of(session)), source, statement)

    with handle.at_work("merge"):
        session = spark or session_of(records)
        source = merge_source(
            records, handle.storage, handle.path, session, lambda: handle.snapshot().schema_or_none
        )
        try:
            return commit(handle, write, session)
        finally:
            source.close()


def _types_of_files(handle: Handle, operation: Operation) -> pa.Schema | None:
    """Return the types of columns of files; files of keys may name fields inside structs."""
    snapshot = handle.snapshot()
    schema = snapshot.schema_or_none
    if schema is None or operation is not Operation.DELETE:
        return schema
    spec = snapshot.config.key_spec
    paths = {*spec.record_key_fields, *spec.partition_fields}.difference(schema.names)
    inner = (field_at(schema, path) for path in sorted(paths))
    return pa.schema([*schema, *(field for field in inner if field is not None)])


def commit(
    handle: Handle, write: Callable[[OpenTable], WriteResult], session: SparkSession | None
) -> WriteResult:
    """Run a write with the index that it needs, and then the upkeep that is due."""
    engine = engine_of(session)
    seen: list[OpenTable] = []

    def write_once() -> WriteResult:
        seen[:] = [handle.open()]
        return write(seen[0])

    result = with_needed_index(handle.storage, write_once, engine=engine, lock=handle.lock)
    return looked_after(handle, seen[0].config, result, engine)


def looked_after(
    handle: Handle, config: TableConfig, result: WriteResult, engine: Engine
) -> WriteResult:
    """Run what a table asks for after a commit: its upkeep, and its sync with a catalog."""
    if config.upkeep != OFF:
        result = kept_up(result, handle.open, handle.index, engine)
    if config.sync is None or result.instant is None:
        return result
    return registered(handle, config.sync, result)


def registered(handle: Handle, text: str, result: WriteResult) -> WriteResult:
    """Register a table where a text says, after a commit; see ``Registration``.

    An error is told in the result and by a warning.
    """
    from bucketlake.catalogs.table_sync import Registration, sync_table

    begun, done, error = time.monotonic(), "", None
    try:
        where = Registration.of_text(text)
        told = sync_table(handle.snapshot(), where.catalog, where.settings).entries
        done = ", ".join(f"{entry.name} {entry.action}" for entry in told)
    except Exception as problem:  # Also errors of a catalog's library.
        error = str(problem)
        warnings.warn(
            f"the rows are committed (instant {result.instant}), but their table could not be "
            f"registered: {error}; the next write tries again, or call bl.sync(table, …)",
            ServiceWarning,
            stacklevel=4,
        )
    step = UpkeepStep("sync", round(time.monotonic() - begun, 3), done, error)
    return replace(result, upkeep=(*result.upkeep, step))


# ---- The first write of a table that the same call makes -----------------------------------------
#
# Checked wholly before the table exists.


def count_first_records(
    root: str,
    planned: NewTable,
    source: RecordSource,
    operation: Operation,
    merge: SchemaMerge,
    job_marker: DeleteMarker | None = None,
) -> tuple[TableConfig, CountedRecords]:
    """Check and count the records for a table that is made in memory; return its properties, too.

    Parameters
    ----------
    root : str
        Folder of the table.
    planned : NewTable
        The table.
    source, operation, merge
        As for :func:`~bucketlake.write.ingest.count_records`.
    job_marker : (field, text), optional
        The delete marker of a job.
    """
    draft = DraftStorage(root)
    make_table(draft, planned)
    config = read_table_config(draft)
    target = open_target(opened_table(draft, config), planned.index, job_marker=job_marker)
    return config, count_records(target, operation, source, merge)


@contextmanager
def unmade_on_failure(storage: Storage, lock: TableLock, *, tasks_may_run: bool) -> Iterator[None]:
    """Remove the new table if its first write fails; the next one removes what is left."""
    try:
        yield
    except CommitOutcomeUnknownError:
        raise
    except Exception:  # Also errors of Spark.
        with suppress(BucketLakeError, OSError):
            unmake_table(storage, lock, tasks_may_run=tasks_may_run)
        raise
