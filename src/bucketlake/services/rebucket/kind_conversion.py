"""Converting a table to another index: to dynamic buckets, without rewriting a data file.

The second half changes the size of files alone. The steps to dynamic buckets:

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

from dataclasses import dataclass, replace
from functools import partial

from bucketlake.actions.commit import CommitView
from bucketlake.actions.conflict import retried
from bucketlake.actions.recovery import writable_timeline
from bucketlake.config.support import check_writable
from bucketlake.errors import CommitConflictError, ConfigError, IndexStateError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.setting import TableIndex, require_index, require_known_index, setting_at
from bucketlake.index.stored_setting import (
    allow_versions,
    conversion_metadata,
    read_stored,
    save_version,
)
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.metadata.record_index.pinned_index import pinned_index
from bucketlake.model.file_name import InstantTime
from bucketlake.model.result import Shown
from bucketlake.model.table_type import Operation
from bucketlake.read.handle import Handle
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.metadata.index_builder import estimated_keys
from bucketlake.services.metadata.rebuild import build_metadata_table
from bucketlake.services.rebucket.rescale import RowsOf, move_partitions
from bucketlake.timeline.instant import Action
from bucketlake.timeline.markers import mark_instant
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import read_table_config, reopened
from bucketlake.write.target import Target, target_of
from bucketlake.write.transaction import BegunWrite, Written, begun_write, commit_written
from bucketlake.write.write_plan import plan_write

_RECORD_INDEX = MetadataPartition.RECORD_INDEX


def convert_index(
    handle: Handle, index: TableIndex, rows_of: RowsOf, engine: Engine, *, dry_run: bool
) -> ConversionReport:
    """Convert a table to dynamic buckets or other sizes, or return what that would do.

    See ``rescale`` for the parameters.

    Raises
    ------
    ConfigError
        If a conversion does not lead to the index, or the version of the table has none such.
    IndexStateError
        If a resize is pending, or a key is stored twice in a partition.
    CommitConflictError
        If other writers changed the table in every attempt.
    """
    growing = index.growing
    if dry_run:
        snapshot = handle.snapshot()
        if growing is not None:
            return _plan(snapshot, _completed(snapshot, growing), any_shards=False)
        known = require_index(snapshot.table, snapshot.timeline, handle.index)
        return plan_conversion(snapshot, known, index)
    table = handle.open()
    if growing is not None:
        return run_kind_conversion(table, growing, engine)

    def convert_once() -> ConversionReport:
        target = target_of(handle, table, engine)
        plan = plan_conversion(target.snapshot, target.index, index)
        if target.index == index:
            return plan
        renewed = target.index.with_max_file_size(index.max_file_size)
        rows = partial(rows_of, target.snapshot)
        result = move_partitions(target, renewed, plan.partitions, rows, engine)
        return replace(plan, instant=result.instant)

    return retried(convert_once)


def run_kind_conversion(
    table: OpenTable, index: DynamicBucket, engine: Engine = HERE
) -> ConversionReport:
    """Convert a table to dynamic buckets.

    Parameters
    ----------
    table : OpenTable
        The table.
    index : DynamicBucket
        The new index.
    engine : Engine
        Builds shards of the record-level index on an engine.

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
        now = reopened(table)
        check_writable(now.config, now.storage.root)
        snapshot = load_snapshot(now)
        _ = snapshot.schema  # Raises InputError before anything is built.
        wanted = _completed(snapshot, index)
        plan = _plan(snapshot, wanted, any_shards=bool(built))
        if plan.builds_index:
            build_metadata_table(
                now,
                [_RECORD_INDEX],
                is_partitioned=True,
                limits=wanted.shard_limits,
                engine=engine,
            )
            built.append(plan)
        opened = reopened(table)  # Whatever index it has.
        pinned = load_snapshot(opened, writable_timeline(opened))
        target = Target(pinned, wanted, read_stored(opened.storage))
        if _held(target.snapshot) is None:
            converted.append(convert_kind(target, wanted))
        if _RECORD_INDEX not in read_table_config(table.storage).metadata_partitions:
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
    held = _held(snapshot)
    if held is not None:
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
    held = _held(snapshot)
    return index if held is None else index.with_assigners_of(held)


def _held(snapshot: Snapshot) -> DynamicBucket | None:
    """Return the dynamic buckets that the table stores; None if it stores none or another kind."""
    stored = setting_at(snapshot.storage, snapshot.timeline)
    return None if stored is None or stored.index is None else stored.index.growing


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


# ---- Converting a table from one file group per bucket to several, or back (RFC-29) --------------
#
# A conversion from one file group (pattern 1) to several (pattern 2) writes no file: a bucket with
# several groups may also have a single group. A conversion back rewrites the partitions that have a
# bucket with several groups. In both cases one commit has the new setting and the rows; an upsert
# that used the old setting conflicts with it.


@dataclass(frozen=True, slots=True)
class ConversionReport(Shown):
    """What a conversion rewrites or has rewritten.

    Attributes
    ----------
    index : TableIndex
        The new index of the table.
    partitions : tuple of str
        Partitions that are rewritten; all others keep their files.
    file_groups, size_bytes : int
        Number and size of the file groups of these partitions.
    instant : InstantTime or None
        The commit; None for a plan, or if the table already has this index.
    builds_index : bool
        Whether a record-level index is built.
    indexed_groups, indexed_keys : int
        Number of file groups whose keys are read for it, and estimated number of these keys.
    """

    index: TableIndex
    partitions: tuple[str, ...]
    file_groups: int
    size_bytes: int
    instant: InstantTime | None = None
    builds_index: bool = False
    indexed_groups: int = 0
    indexed_keys: int = 0


def plan_conversion(snapshot: Snapshot, held: TableIndex, index: TableIndex) -> ConversionReport:
    """Return what a conversion would rewrite; the cost is that of listing the table.

    Raises
    ------
    ConfigError
        If the index differs from the table's in more than its ``max_file_size``.
    """
    if held.finds_keys:
        raise ConfigError("index", index, _why_not(held, index))
    if held.with_max_file_size(index.max_file_size) != index:
        raise ConfigError(
            "index",
            index,
            f"the table has {held!r}, and a conversion changes only max_file_size; to change "
            "bucket counts use table.rescale(...) (bucketlake rescale --run)",
        )
    slices = snapshot.all_slices()
    partitions: set[str] = set()
    if index.max_file_size is None:
        live = held.layout().live_slots(slices)
        partitions = {partition for (partition, _), groups in live.items() if len(groups) > 1}
    rewritten = [file_slice for file_slice in slices if file_slice.partition_path in partitions]
    size_bytes = sum(file_slice.size_bytes for file_slice in rewritten)
    return ConversionReport(index, tuple(sorted(partitions)), len(rewritten), size_bytes)


def _why_not(held: TableIndex, index: TableIndex) -> str:
    """Return why a table whose keys are in the record-level index is not converted."""
    name = type(held).__name__
    if type(index) is type(held):
        return (
            f"a {name} is not converted: open the table with other sizes, "
            f"open_table(path, index={name}(...))"
        )
    return (
        f"the table has {held!r}, and its keys may be in any file group, so all of its rows would "
        "have to move: make a new table with create_table(...) (bucketlake create), and write them "
        "to it with table.bulk_insert(...); a conversion leads from any kind to a DynamicBucket"
    )


# ---- The commit that puts the table under its new kind, and changes no file ----------------------


def convert_kind(target: Target, index: DynamicBucket) -> InstantTime:
    """Put a table under another kind of index, in a commit that changes no file.

    Parameters
    ----------
    target : Target
        The table, pinned after the record-level index was built; its index is the new one.
    index : DynamicBucket
        The new index.

    Raises
    ------
    CommitConflictError
        If another writer took the record-level index off, converted the table, or is replacing file
        groups.
    """
    allow_versions(target.storage)
    layout = index.layout()
    with begun_write(target, Operation.INSERT_OVERWRITE) as write:
        mark_instant(target.storage, write.instant)
        save_version(target.storage, write.instant, index)
        begun = BegunWrite(write, target, {}, (), layout, target.snapshot.schema)
        plan = plan_write(write.operation, {}, (), layout, tasks_wanted=1)
        commit_written(
            begun,
            Written(plan, index_files=()),
            settings=_require_convertible,
            extra=conversion_metadata(index),
        )
        return write.instant


def _require_convertible(view: CommitView) -> None:
    """Raise CommitConflictError if the table cannot be put under dynamic buckets now."""
    storage, instant = view.write.table.storage, view.write.instant
    for pending in view.timeline.pending():
        # A resize, or a conversion that rewrites partitions, would go on under the earlier kind.
        replaces = pending.action in (Action.REPLACE_COMMIT, Action.CLUSTERING)
        if replaces and pending.requested_at != instant:
            raise CommitConflictError(
                instant,
                f"{pending.action.value} {pending.requested_at} is under way; convert again",
            )
    try:
        pinned_index(storage, view.timeline, (), partitioned=True, shard_count=1)
    except IndexStateError as error:
        raise CommitConflictError(
            instant, f"the record-level index is not valid any more ({error}); convert again"
        ) from error
