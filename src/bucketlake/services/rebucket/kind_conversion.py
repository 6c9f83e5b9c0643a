"""Converting a table of any index to dynamic buckets, without rewriting a data file.

The steps:

1. The partitioned record-level index of the table is built, unless the table has one with the right
   shards (``services/metadata/rebuild.py``). From the begin of the build on, writers maintain the
   index, or take it off.
2. The stored setting says that the kind of the table may have versions (``index/setting.py``).
3. A commit without files puts the table under the new kind (``index/stored_setting.py``). Right
   before, it checks that the index is valid.
4. A writer may have taken the index off between this check and the commit. Then it is built again.

Up to step 3 the table has its earlier kind, whatever died; the next call goes on. After a death
between the steps 3 and 4 each write raises an error that says how to build the index, and so does
the next call. A write that began before the commit finds the conversion when it commits, and is
made again under the new kind. Undo, restore and time travel find the kind of their time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bucketlake.actions.conflict import retried
from bucketlake.config.support import check_writable
from bucketlake.errors import CommitConflictError, ConfigError, IndexStateError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.setting import TableIndex, require_known_index, setting_at
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.model.file_name import InstantTime
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.metadata.index_plan import estimated_keys
from bucketlake.services.metadata.rebuild import build_metadata_table
from bucketlake.services.rebucket.file_size_conversion import ConversionReport
from bucketlake.storage.base import Storage
from bucketlake.timeline.clock import system_now_ms
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.kind_change import convert_kind, open_to_convert

_RECORD_INDEX = MetadataPartition.RECORD_INDEX


def plan_kind_conversion(snapshot: Snapshot, index: DynamicBucket) -> ConversionReport:
    """Return what a conversion to dynamic buckets would do; it lists the table.

    Raises
    ------
    ConfigError
        If the table has dynamic buckets with another number of assigners, or its version has none.
    IndexStateError
        If a resize is pending.
    """
    return _plan(snapshot, _completed(snapshot, index), any_shards=False)


def run_kind_conversion(
    storage: Storage,
    index: DynamicBucket,
    *,
    engine: Engine = HERE,
    lock: TableLock = NO_LOCK,
    now_ms: Callable[[], int] = system_now_ms,
) -> ConversionReport:
    """Convert a table to dynamic buckets; see :func:`plan_kind_conversion`.

    Parameters
    ----------
    storage : Storage
        The table.
    index : DynamicBucket
        The new index.
    engine : Engine
        Builds shards of the record-level index on an engine.
    lock : TableLock
        The lock that Hudi's writers share.
    now_ms : callable
        Milliseconds since 1970 UTC.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written.
    InputError
        If the table has no schema, or its index cannot name the shards of a partition.
    IndexStateError
        If a resize is pending, or a key is stored twice in a partition.
    CommitConflictError
        If other writers took the index off in every attempt.
    """
    built: list[ConversionReport] = []
    converted: list[InstantTime] = []

    def attempt() -> ConversionReport:
        table = table_at(storage, lock, now_ms)
        check_writable(table.config, storage.root)
        snapshot = load_snapshot(table)
        _ = snapshot.schema  # Raises InputError before anything is built.
        wanted = _completed(snapshot, index)
        plan = _plan(snapshot, wanted, any_shards=bool(built))
        if plan.builds_index:
            build_metadata_table(
                storage,
                [_RECORD_INDEX],
                is_partitioned=True,
                limits=wanted.shard_limits,
                engine=engine,
                lock=lock,
                now_ms=now_ms,
            )
            built.append(plan)
        target = open_to_convert(table_at(storage, lock, now_ms), wanted)
        if not isinstance(_kind_of(target.snapshot), DynamicBucket):
            converted.append(convert_kind(target, wanted))
        if _RECORD_INDEX not in read_table_config(storage).metadata_partitions:
            raise CommitConflictError(
                converted[-1] if converted else "",
                "another writer took the record-level index off; repeat the conversion, which "
                "builds it again",
            )
        return built[0] if built else plan

    report = retried(attempt)
    return replace(report, instant=converted[-1] if converted else None)


def _plan(snapshot: Snapshot, index: DynamicBucket, *, any_shards: bool) -> ConversionReport:
    """Plan a conversion; with ``any_shards`` an index is right whatever shards it has."""
    require_known_index(index, snapshot.config.version, snapshot.storage.root)
    held = _kind_of(snapshot)
    if isinstance(held, DynamicBucket):
        if held.assigners != index.assigners:
            allowed = f"the table has {held!r}: a partition keeps its number of assigners"
            raise ConfigError("index", index, allowed)
        any_shards = True
    else:
        _require_no_resize(snapshot)
    if _has_index(snapshot, index, any_shards=any_shards):
        return ConversionReport(index, (), 0, 0)
    slices = snapshot.all_slices()
    keys = estimated_keys(snapshot.storage, slices)
    return ConversionReport(
        index, (), 0, 0, builds_index=True, indexed_groups=len(slices), indexed_keys=keys
    )


def _completed(snapshot: Snapshot, index: DynamicBucket) -> DynamicBucket:
    """Return the index with the assigners that the table has, unless it has a number of its own."""
    held = _kind_of(snapshot)
    return index.with_assigners_of(held) if isinstance(held, DynamicBucket) else index


def _kind_of(snapshot: Snapshot) -> TableIndex | None:
    """Return the kind that the table stores; None if it stores none."""
    stored = setting_at(snapshot.storage, snapshot.timeline)
    return None if stored is None else stored.index


def _has_index(snapshot: Snapshot, index: DynamicBucket, *, any_shards: bool) -> bool:
    """Return whether the table has a valid index that dynamic buckets can use."""
    if _RECORD_INDEX not in snapshot.config.metadata_partitions:
        return False
    shards = RecordIndexReader(snapshot.metadata_table).shards
    if not shards.is_partitioned:
        return False
    return any_shards or all(index.shard_limits.fits(count) for count in shards.counts.values())


def _require_no_resize(snapshot: Snapshot) -> None:
    for pending in snapshot.timeline.pending_clusterings():
        raise IndexStateError(
            "a conversion to another kind of index begins without a pending resize",
            f"instant {pending.requested_at} of {snapshot.storage.root} is one",
            "carry it out with table.resize() (bucketlake resize --run) or the Hudi job that "
            "planned it, or undo it with table.rollback(instant) (bucketlake rollback PATH INSTANT "
            "--run)",
        )
