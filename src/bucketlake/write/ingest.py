"""The steps of a write on the driver, for every operation and every engine.

Open, count, plan, have the groups written, commit; or roll back. What failed writes left behind is
settled first. Bad input is refused before anything is written: the count reads all keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from bucketlake.config.support import check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import (
    BucketLakeError,
    CommitConflictError,
    IndexStateError,
    InputError,
)
from bucketlake.format.avro.schema import avro_from_arrow
from bucketlake.index.conflict_keys import ConflictKey, key_of_slot
from bucketlake.index.layout import Layout, Slot
from bucketlake.index.settings import (
    StoredSetting,
    TableIndex,
    read_stored,
    require_index,
    resolve_index,
    setting_origin,
    store_index,
)
from bucketlake.index.state import SettingVersion, latest_setting, record_written, save_setting
from bucketlake.merge.group_merge import MergeRule
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.result import WriteResult
from bucketlake.model.schema import evolve, normalise_schema
from bucketlake.model.table_type import LogFormat, Operation, TableType
from bucketlake.read.snapshot import ListedSlices, Snapshot, load_snapshot
from bucketlake.read.stored_keys import StoredKeyReader
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.clock import InstantClock, system_now_ms, table_clock
from bucketlake.timeline.instant import Instant, State
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.markers import mark_instant
from bucketlake.timeline.transitions import instant_path
from bucketlake.write.adopt import require_matching_index
from bucketlake.write.batches import Batch, is_committed
from bucketlake.write.commit import (
    CommitPlan,
    CommitStep,
    CommitView,
    PendingWrite,
    begin_write,
    commit_write,
)
from bucketlake.write.conflict import require_untouched_partitions
from bucketlake.write.early_conflict import wait_for_writers
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.plan import SlotResult, WritePlan, plan_write
from bucketlake.write.progress import telling_progress
from bucketlake.write.recovery import roll_back_own, settle_failed_writes
from bucketlake.write.source import (
    RecordSource,
    SlotCounts,
    SlotSource,
    WriteTask,
    require_columns,
)
from bucketlake.write.tag import Tagger


@dataclass(frozen=True, slots=True)
class Target:
    """A table opened for one write: pinned, settled, and checked to be writable.

    Attributes
    ----------
    snapshot : Snapshot
        The table as pinned for the write.
    clock : InstantClock
        Source of new times.
    index : TableIndex
        How records find their file group.
    stored : StoredSetting or None
        The setting that the table stores; None before the first write of bucketlake.
    log_format : LogFormat
        The kind of block that records of log files are written in.
    lock : TableLock
        What is shared with writers of Hudi's.
    """

    snapshot: Snapshot
    clock: InstantClock
    index: TableIndex
    stored: StoredSetting | None
    log_format: LogFormat = LogFormat.PARQUET
    lock: TableLock = NO_LOCK

    @property
    def storage(self) -> Storage:
        """The table's storage."""
        return self.snapshot.storage

    @property
    def config(self) -> TableConfig:
        """The table's properties."""
        return self.snapshot.config

    @property
    def layout(self) -> Layout:
        """What the index answers, as the table is pinned."""
        return self.index.layout()

    @property
    def appends(self) -> bool:
        """Whether file groups that exist get log files, and no new base file."""
        return self.config.table_type is TableType.MERGE_ON_READ

    def tagger(self, schema: pa.Schema) -> Tagger:
        """Return what gives records their slot."""
        return Tagger(self.config.key_spec, self.layout, schema)


def open_target(
    storage: Storage,
    config: TableConfig,
    index: TableIndex | None,
    now_ms: Callable[[], int] = system_now_ms,
    log_format: LogFormat = LogFormat.PARQUET,
    lock: TableLock = NO_LOCK,
) -> Target:
    """Pin a table for a write: check that it can be written, settle failed writes.

    Raises
    ------
    UnsupportedFeatureError
        If the table has a feature that a writer must know and this one does not.
    ConfigError, IndexStateError
        If the index is unknown, or not the one that the table holds.
    """
    check_writable(config, storage.root)
    found = load_timeline(storage, config)
    stored = read_stored(storage)
    known = require_index(storage, found, index, stored)
    known.check_hash_fields(config.key_spec.record_key_fields)
    clock = table_clock(storage.root, config.timeline_timezone, now_ms)
    timeline = settle_failed_writes(storage, config, found, clock, lock)
    if timeline is not found:  # A rescale, perhaps, was finished or undone.
        known = require_index(storage, timeline, index, stored)
    pinned = load_snapshot(storage, config, timeline)
    return Target(pinned, clock, known, stored, log_format, lock)


def write_records(
    target: Target,
    operation: Operation,
    source: RecordSource,
    *,
    batch: Batch | None = None,
) -> WriteResult:
    """Write the records of a source, and commit.

    Parameters
    ----------
    target : Target
        The table.
    operation : Operation
        Any but ``DELETE_PARTITION``.
    source : RecordSource
        The records, or for ``DELETE`` their keys.
    batch : Batch, optional
        Which batch of a stream it is; written once.

    Returns
    -------
    WriteResult
        Without an instant where there was nothing to write, or it was written before.
    """
    timeline = target.snapshot.timeline
    if batch is not None and is_committed(target.storage, target.config, timeline, batch):
        return WriteResult(None)
    schema = _check_schema(target, operation, source)
    tagger = target.tagger(schema)
    counts = source.count_slots(tagger)
    listed = _touched(target, operation, counts)
    if target.stored is None:  # Nothing may be missing where the setting is checked and stored.
        listed.require_uncleaned(load_timeline(target.storage, target.config))
    _adopt(target, listed.slices)
    if not counts and operation is not Operation.INSERT_OVERWRITE_TABLE:
        return WriteResult(None)
    wait_for_writers(target.storage, timeline, target.clock, _keys_of(counts))
    with _begun(target, operation) as write:
        listed.require_uncleaned(write.begun)
        return _write(write, target, source, tagger, counts, listed.slices, batch=batch)


def overwrite_partitions(
    target: Target,
    index: TableIndex,
    partitions: Sequence[str],
    source: SlotSource,
) -> WriteResult:
    """Write partitions anew under another index, and save its setting, in one commit (RFC-89).

    Parameters
    ----------
    target : Target
        The table, under the index that it has.
    index : TableIndex
        The one that it gets.
    partitions : sequence of str
        Paths of the partitions to overwrite; none saves the setting alone.
    source : SlotSource
        All rows of those partitions as ``target`` pins them.

    Raises
    ------
    CommitConflictError
        If one of the partitions, or the setting, changed meanwhile.
    """
    renewed = replace(target, index=index)
    tagger = renewed.tagger(target.snapshot.schema)
    slices = target.snapshot.partition_slices(partitions)
    counts = source.count_slots(tagger) if partitions else {}
    _require_own_rows(counts, partitions)
    _adopt(target, slices)
    held = latest_setting(target.storage, target.snapshot.timeline)
    check = partial(_require_same_setting, target.layout, renewed.layout, held)
    with _begun(target, Operation.INSERT_OVERWRITE) as write:
        mark_instant(target.storage, write.instant)
        save_setting(target.storage, target.index, index, write.instant)
        return _write(write, renewed, source, tagger, counts, slices, check)


def rewrite_partition(target: Target, partition: str, source: SlotSource) -> WriteResult:
    """Write a partition anew with its own rows: each in its bucket, one a key.

    Parameters
    ----------
    target : Target
        The table.
    partition : str
        Path of the partition. What lies in it may contradict the index.
    source : SlotSource
        All rows of the partition as ``target`` pins it, older ones first.

    Raises
    ------
    IndexStateError
        If a row belongs into another partition by its columns.
    CommitConflictError
        If the partition changed meanwhile.
    """
    tagger = target.tagger(target.snapshot.schema)
    slices = target.snapshot.partition_slices([partition])
    counts = source.count_slots(tagger)
    _require_own_rows(counts, [partition])
    with _begun(target, Operation.INSERT_OVERWRITE) as write:
        return _write(write, target, source, tagger, counts, slices)


def delete_partitions(target: Target, partitions: Sequence[str]) -> WriteResult:
    """Take whole partitions out of the table, by a replace commit that lists their file groups."""
    if not partitions:
        return WriteResult(None)
    held = {path: target.snapshot.partition_slices([path]) for path in dict.fromkeys(partitions)}
    absent = [path for path, slices in held.items() if not slices]
    if absent:
        raise InputError(
            f"delete partition {absent[0]!r} of {target.storage.root}",
            "the table holds no records in it",
            "name partitions by their path, as table.buckets() shows it",
        )
    slices = [file_slice for found in held.values() for file_slice in found]
    with _begun(target, Operation.DELETE_PARTITION) as write:
        plan = plan_write(Operation.DELETE_PARTITION, {}, slices, target.layout, tasks_wanted=1)
        return _commit(write, target, plan, target.snapshot.schema, CommitPlan())


def _write(
    write: PendingWrite,
    target: Target,
    source: SlotSource,
    tagger: Tagger,
    counts: SlotCounts,
    slices: Sequence[FileSlice],
    check: CommitStep | None = None,
    batch: Batch | None = None,
) -> WriteResult:
    """Plan, have the groups written, and commit."""
    operation = write.operation
    layout = target.layout
    plan = plan_write(operation, counts, slices, layout, tasks_wanted=source.tasks_wanted)
    writer = GroupWriter(
        target.storage,
        write.instant,
        tagger.schema,
        _merge_rule(target.config, operation),
        layout,
        StoredKeyReader(target.storage, write.pinned if layout.looks_up else None),
        _schema_text(target, tagger.schema),
        instant_path(write.config, Instant(write.instant, write.action, State.INFLIGHT)),
        slot_count=len(plan.slots),
        appends=target.appends,
        log_format=target.log_format,
    )
    task = WriteTask(tagger, writer, operation is Operation.DELETE, _delete_marker(target.config))
    doing = operation.value.lower().replace("_", " ")
    with telling_progress(target.storage, write.instant, doing, len(plan.slots)):
        results = source.write_slots(plan, task) if plan.slots else []
    _require_complete(plan, results)

    stats = [stat for result in results for stat in result.stats]
    written = {stat.partition_path for stat in stats}
    # A delete that found nothing has looked in the slots of its partition, too.
    looked = {path for path, _ in counts}
    settings = {path: layout.setting_of(path) for path in looked | written}
    own = CommitPlan(
        stats,
        looked_at=_keys_of(counts),
        checks=(check or partial(_require_same_settings, target, settings),),
        saves=(partial(_record, target.index, written),),
        batch=batch,
    )
    return _commit(write, target, plan, tagger.schema, own)


def _keys_of(slots: Iterable[Slot]) -> set[ConflictKey]:
    return {key_of_slot(*slot) for slot in slots}


def _record(index: TableIndex, partitions: Collection[str], view: CommitView) -> None:
    record_written(index, view.write.storage, view.timeline, view.write.instant, partitions)


def _check_schema(target: Target, operation: Operation, source: RecordSource) -> pa.Schema:
    """Return the table's schema after the write; refuse a batch that does not fit."""
    root, config = target.storage.root, target.config
    spec = config.key_spec
    require_columns(source, spec.record_key_fields, root, "record key")
    require_columns(source, spec.partition_fields, root, "partition")
    if operation is Operation.DELETE:
        source.keep(list(dict.fromkeys((*spec.record_key_fields, *spec.partition_fields))))
        _require_key_types(target, source)
        return target.snapshot.schema
    require_columns(source, config.ordering_fields, root, "ordering")
    where = f"write to {root}"
    incoming = normalise_schema(source.schema, where)
    current = target.snapshot.schema_or_none
    if current is None:
        return incoming
    evolved = evolve(current, incoming, where=where)
    _require_same_keys(current, evolved, config, where)
    return evolved


def _require_key_types(target: Target, source: RecordSource) -> None:
    """Refuse keys of another type: cast to the table's they might be those of other records."""
    where = f"delete from {target.storage.root}"
    held = pa.schema([target.snapshot.schema.field(name) for name in source.names])
    # A column of nulls alone has no type of its own; nulls are refused as nulls.
    given = [held.field(f.name) if pa.types.is_null(f.type) else f for f in source.schema]
    evolved = evolve(held, pa.schema(given), where=where)
    _require_same_keys(held, evolved, target.config, where)


def _require_same_keys(
    current: pa.Schema, evolved: pa.Schema, config: TableConfig, where: str
) -> None:
    """Refuse a wider type that would spell the keys of stored records anew."""
    for name in (*config.key_spec.record_key_fields, *config.key_spec.partition_fields):
        held, wider = current.field(name).type, evolved.field(name).type
        integers = pa.types.is_integer(held) and pa.types.is_integer(wider)
        if held != wider and not integers:
            raise InputError(
                f"{where}, column {name}",
                f"as a part of the key it is {held} in the table and cannot become {wider}",
                f"cast the column to {held}",
            )


def _require_own_rows(counts: SlotCounts, partitions: Sequence[str]) -> None:
    strayed = {path for path, _ in counts}.difference(partitions)
    if strayed:
        raise IndexStateError(
            f"the rows of partitions {', '.join(map(repr, partitions))} belong there",
            f"some belong into {min(strayed)!r} by their columns",
            "overwrite the partitions with their own rows first",
        )


def _touched(target: Target, operation: Operation, counts: SlotCounts) -> ListedSlices:
    """List the partitions that a write touches; the check for cleans comes once it has begun."""
    if operation is Operation.INSERT_OVERWRITE_TABLE:
        return target.snapshot.listed(None)
    return target.snapshot.listed(sorted({path for path, _ in counts}))


def _adopt(target: Target, slices: Sequence[FileSlice]) -> None:
    """Store the index setting of a table that has none, once its files agree with it."""
    if target.stored is None:
        require_matching_index(target.storage, slices, target.layout)
        store_index(target.storage, target.index)


@contextlib.contextmanager
def _begun(target: Target, operation: Operation) -> Iterator[PendingWrite]:
    """Begin a write, and roll it back where the body fails."""
    snapshot = target.snapshot
    with begin_write(
        snapshot.storage, snapshot.config, snapshot.timeline, target.clock, operation, target.lock
    ) as write:
        try:
            yield write
        except BaseException:
            # The next write does it where storage does not let this one.
            with contextlib.suppress(BucketLakeError, OSError):
                roll_back_own(write)
            raise


def _merge_rule(config: TableConfig, operation: Operation) -> MergeRule:
    # A delete by key carries no ordering value, and so removes whatever is older than itself.
    return MergeRule(config.merge_mode, config.ordering_fields, operation is Operation.DELETE)


def _delete_marker(config: TableConfig) -> tuple[str, str] | None:
    if config.delete_field is None or config.delete_marker is None:
        return None
    return config.delete_field, config.delete_marker


def _require_complete(plan: WritePlan, results: Sequence[SlotResult]) -> None:
    answered = [result.key for result in results]
    assert len(set(answered)) == len(answered), "two tasks wrote one slot"
    assert set(answered) == {slot.key for slot in plan.slots}, "each slot of the plan is answered"
    known = {(one.partition_path, one.file_id) for slot in plan.slots for one in slot.slices}
    stats = [stat for result in results for stat in result.stats]
    groups = [(stat.partition_path, stat.file_id) for stat in stats]
    assert len(set(groups)) == len(groups), "two slots wrote one file group"
    for stat, group in zip(stats, groups, strict=True):
        assert stat.opens_group != (group in known), "a file group is new, or one of the plan"


def _commit(
    write: PendingWrite, target: Target, plan: WritePlan, schema: pa.Schema, own: CommitPlan
) -> WriteResult:
    """Commit what a write brings of its own, with what every write of records checks and tells."""
    commit = replace(
        own,
        replaced=plan.replaced,
        checks=(
            partial(_require_overwritten_alone, plan),
            *own.checks,
            partial(_require_schema_kept, target, schema),
        ),
        extra={**target.index.to_options(), "schema": _schema_text(target, schema)},
    )
    commit_write(write, commit)
    stats = commit.stats
    replaced_count = sum(len(ids) for ids in plan.replaced.values())
    return WriteResult(
        write.instant,
        inserted=sum(s.insert_count for s in stats),
        updated=sum(s.update_count for s in stats),
        deleted=sum(s.delete_count for s in stats),
        file_groups=len(stats) + replaced_count,
    )


def _require_overwritten_alone(plan: WritePlan, view: CommitView) -> None:
    """Refuse to overwrite a partition that another commit changed meanwhile."""
    if not view.write.operation.replaces:
        return
    overwritten = {*plan.replaced, *(slot.partition_path for slot in plan.slots)}
    if view.write.operation is Operation.INSERT_OVERWRITE_TABLE:
        overwritten.update(*(commit.partitions for _, commit in view.since))
    require_untouched_partitions(view.write.instant, overwritten, view.since)


def _require_same_setting(
    held: Layout, new: Layout, setting: SettingVersion | None, view: CommitView
) -> None:
    """Refuse a change of the index where its setting, or a partition that moves, changed."""
    # Partitions that had no records when the change was planned are not among those it overwrites.
    written = {path for _, commit in view.since for path in commit.partitions}
    moved = {path for path in written if held.setting_of(path) != new.setting_of(path)}
    require_untouched_partitions(view.write.instant, moved, view.since)
    if latest_setting(view.write.storage, view.timeline) != setting:
        raise CommitConflictError(
            view.write.instant, "meanwhile the rules of the table were changed; plan it anew"
        )


def _require_same_settings(target: Target, settings: Mapping[str, str], view: CommitView) -> None:
    """Refuse a commit whose slots were computed by a setting that no longer holds (RFC-89).

    Nor may it need a setting that began after it: time travel and restore go by the times at which
    instants began.
    """
    timelines = [view.timeline]
    instant = view.write.instant
    if any(one.requested_at > instant for one in view.timeline.completed_commits()):
        timelines.append(view.timeline.as_of(instant))
    for known in timelines:
        now = resolve_index(target.storage, known, target.index, target.stored)
        assert now is not None, "the write had an index"
        layout = now.layout()
        for partition, used in sorted(settings.items()):
            held = layout.setting_of(partition)
            if used != held:
                raise CommitConflictError(
                    instant,
                    f"the write used {used} in partition {partition!r}, which has {held} by "
                    f"{setting_origin(target.storage, known, partition)}; retry it",
                )


def _require_schema_kept(target: Target, schema: pa.Schema, view: CommitView) -> None:
    """Refuse a commit after which the table's schema would lack what it, or another one, changed.

    The schema is told by the newest of the commits in order of their requested times.
    """
    instant, timeline = view.write.instant, view.timeline
    pinned, newest = target.snapshot, load_snapshot(target.storage, target.config, timeline)
    is_same = newest.schema_text == pinned.schema_text  # Then it is not parsed again.
    now = pinned.schema_or_none if is_same else newest.schema_or_none
    if schema == now:
        return
    if now != pinned.schema_or_none:
        raise CommitConflictError(
            instant, "another commit changed the table's schema meanwhile; retry it"
        )
    later = timeline.schema_instant(target.storage)
    if later is not None and later.requested_at > instant:
        raise CommitConflictError(
            instant,
            f"changes the table's schema, and instant {later.requested_at}, which began later and "
            "knows nothing of that, was committed before; retry it",
        )


def _schema_text(target: Target, schema: pa.Schema) -> str:
    """Repeat the table's own text where nothing changed: Avro knows types that Arrow does not."""
    known = target.snapshot.schema_text
    if known is not None and schema == target.snapshot.schema:
        return known
    return avro_from_arrow(schema, target.config.name)
