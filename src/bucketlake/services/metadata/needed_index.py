"""Building the record-level index that the kind of a table needs and the table does not have.

Tables of the kinds ``RecordIndex`` and ``DynamicBucket`` are written with a record-level index. It
may be missing for several reasons: a rollback or restore could not take back its entries; a build
died; the metadata table was turned off; or a Hudi writer that does not enable the index deleted it.
Whatever the reason, the next write builds it. So these actions need no steps of their own, and may
die at any point.

A build of a living process is left alone: its heartbeat is that of the last turn of a build
(``services/metadata/rebuild.py``). So is a pending indexing of Hudi, which has no heartbeat.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TypeVar

from bucketlake.actions.conflict import retried
from bucketlake.errors import (
    BucketLakeError,
    CommitConflictError,
    ConfigError,
    IndexMissingError,
    IndexStateError,
    MetadataTableWarning,
)
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.setting import IndexedKind, TableIndex, needed_index
from bucketlake.metadata.metadata_table import load_metadata_table
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.storage.base import Storage
from bucketlake.storage.waiting import pause
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import reopened, table_at

IS_OF_OTHER_KIND = "its keys are unique in other parts of the table: partition or whole table"

_RECORD_INDEX = MetadataPartition.RECORD_INDEX
_BUILDS = 3  # Another writer may take the index off again between the build and the write.
_WAIT_SECONDS = 10.0  # For the build of another process.
# A conversion puts the table under its new kind a moment after it has built the index.
_CONVERSION_SECONDS = 5.0

_Result = TypeVar("_Result")


def with_needed_index(
    storage: Storage,
    write: Callable[[], _Result],
    *,
    engine: Engine = HERE,
    lock: TableLock = NO_LOCK,
) -> _Result:
    """Run a write, also again after a conflict; first build the index that it needs, if missing.

    Parameters
    ----------
    storage : Storage
        The table.
    write : callable
        The write; it opens the table itself.
    engine : Engine
        Builds shards of a record-level index on an engine.
    lock : TableLock
        The lock that Hudi's writers share.

    Raises
    ------
    IndexMissingError
        If the table has no index, and stores no kind that needs one: the caller stated the kind.
    CommitConflictError
        If another process is building the index, or the write was in conflict in every attempt.
    KeyTwiceError
        If the index cannot be built, because a key is stored twice.
    """
    for _ in range(_BUILDS):
        try:
            return retried(write)
        except IndexMissingError:
            if needed_index(storage, load_timeline(table_at(storage))) is None:
                raise
            warnings.warn(
                f"the record-level index of {storage.root} was missing; this write builds it first",
                MetadataTableWarning,
                stacklevel=2,
            )
            build_needed_index(table_at(storage, lock), engine)
    return retried(write)


def build_needed_index(table: OpenTable, engine: Engine) -> None:
    """Build the record-level index that the kind of a table needs, unless the table has it.

    See :func:`with_needed_index` for the parameters and the errors.
    """
    from bucketlake.services.metadata.rebuild import build_metadata_table, builder_at_work

    storage = table.storage
    ends_at = time.monotonic() + _WAIT_SECONDS
    converts_until = time.monotonic() + _CONVERSION_SECONDS
    while (found := _needed_index(storage)) is not None:
        kind, why = found
        builder = builder_at_work(table)
        may_convert = why == IS_OF_OTHER_KIND and time.monotonic() < converts_until
        if builder is None and not may_convert:
            build_metadata_table(
                reopened(table),
                [_RECORD_INDEX],
                is_partitioned=kind.partitioned,
                engine=engine,
            )
            return
        if builder is not None and time.monotonic() >= ends_at:
            raise CommitConflictError(
                builder,
                f"another process is building the record-level index of {storage.root}, which "
                "writes need; write again when it has ended, or if it died, build the index with "
                f"table.rebuild_metadata_table(['record_index'], partitioned={kind.partitioned})",
            )
        pause()


def keep_needed_index(table: OpenTable, engine: Engine) -> None:
    """Build the index as :func:`build_needed_index`, after commits were undone.

    They stay undone if that fails; then a warning says why, and the next write tries again.
    """
    try:
        build_needed_index(table, engine)
    except BucketLakeError as error:
        warnings.warn(
            "the commits were undone, but the record-level index of "
            f"{table.storage.root} could not be built: {error}; the next write tries again",
            MetadataTableWarning,
            stacklevel=2,
        )


def require_own_kind(table: OpenTable, is_partitioned: bool | None) -> None:
    """Raise ConfigError if the kind of a table needs the other kind of record-level index."""
    kind = needed_index(table.storage, load_timeline(table))
    if kind is not None and is_partitioned not in (None, kind.partitioned):
        raise ConfigError(
            "partitioned",
            is_partitioned,
            f"{kind.partitioned}: {table.storage.root} holds {kind!r}",
        )


def why_index_is_missing(table: OpenTable, timeline: Timeline, kind: TableIndex) -> str | None:
    """Return why a table of a kind cannot be written with its index; None if it can."""
    if _RECORD_INDEX not in table.config.metadata_partitions:
        is_built = _RECORD_INDEX in table.config.metadata_partitions_inflight
        return "its build did not end" if is_built else "the table has none"
    try:
        shards = RecordIndexReader(load_metadata_table(table, timeline)).shards
    except IndexStateError:
        return None  # It is there, and damaged.
    if shards.is_partitioned == kind.partitioned or not (shards.counts or shards.global_count):
        return None
    return IS_OF_OTHER_KIND


def _needed_index(storage: Storage) -> tuple[IndexedKind, str] | None:
    """Return the kind of a table that lacks its index, and why; None if it has what it needs."""
    table = table_at(storage)
    timeline = load_timeline(table)
    kind = needed_index(storage, timeline)
    why = None if kind is None else why_index_is_missing(table, timeline, kind)
    return None if kind is None or why is None else (kind, why)
