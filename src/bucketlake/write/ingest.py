"""The steps of a write on the driver, for every operation and every engine.

Open the table, count the records, plan, let tasks write the file groups, commit; or roll back.
Pending writes of dead writers are settled first. Bad input raises an error before anything is
written, because the count reads all keys.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from bucketlake.config.recorded_entries import RECORDED, recorded_entries
from bucketlake.config.support import check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import (
    BucketLakeError,
    CommitConflictError,
    IndexStateError,
    InputError,
)
from bucketlake.format.avro.schema import avro_from_arrow
from bucketlake.index.conflict_keys import ConflictKey
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.kind_versions import KindVersion, save_kind
from bucketlake.index.layout import Layout, Slot
from bucketlake.index.record_layout import IndexSource, RecordLayout
from bucketlake.index.settings import (
    StoredSetting,
    TableIndex,
    is_stored,
    keep_kinds,
    read_stored,
    require_index,
    resolve_index,
    setting_origin,
    store_index,
)
from bucketlake.index.state import SettingVersion, latest_setting, record_written, save_setting
from bucketlake.merge.group_merge import MergeRule
from bucketlake.metadata.statistics import indexed_columns
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.result import WriteResult
from bucketlake.model.schema import evolve, normalise_schema, with_flag_of, without_flag
from bucketlake.model.schema_merge import NO_CHANGE, SchemaMerge
from bucketlake.model.table_type import LogFormat, Operation, TableType
from bucketlake.read.snapshot import ListedSlices, Snapshot, load_snapshot
from bucketlake.read.stored_keys import StoredKeyReader
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.clock import InstantClock, system_now_ms, table_clock
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.markers import mark_instant
from bucketlake.timeline.transitions import instant_path
from bucketlake.write.adopt import require_matching_index
from bucketlake.write.batch_reader import BatchReader
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
from bucketlake.write.index_upkeep import IndexUpkeep
from bucketlake.write.indexed import IndexedWrite
from bucketlake.write.plan import SlotResult, WritePlan, plan_write
from bucketlake.write.progress import telling_progress
from bucketlake.write.recovery import roll_back_own, settle_failed_writes
from bucketlake.write.source import (
    RecordSource,
    SlotCounts,
    SlotSource,
    TaskResult,
    WriteTask,
    require_columns,
    require_counted,
)
from bucketlake.write.tag import Tagger

_LOGGED = frozenset({Operation.UPSERT, Operation.INSERT, Operation.DELETE})
"""Operations whose records go into log files where the layout opens groups with logs."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table opened for one write: checked to be writable, settled, and pinned.

    Attributes
    ----------
    snapshot : Snapshot
        The table as pinned for the write.
    clock : InstantClock
        Source of new times.
    index : TableIndex
        How records find their file group.
    stored : StoredSetting or None
        The index setting that the table stores; None before the first write of bucketlake.
    adopts : bool
        Whether the table does not say its index, so that ``index`` is what the caller states.
    log_format : LogFormat
        The block type of records in log files.
    lock : TableLock
        The lock that Hudi's writers share.
    """

    snapshot: Snapshot
    clock: InstantClock
    index: TableIndex
    stored: StoredSetting | None
    adopts: bool = False
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
        """The layout of the index at the pinned state of the table."""
        return self.index.layout()

    @property
    def appends(self) -> bool:
        """Whether existing file groups get log files instead of new base files."""
        return self.config.table_type is TableType.MERGE_ON_READ

    def tagger(self, schema: pa.Schema) -> Tagger:
        """Return the tagger for records of a schema."""
        return Tagger(self.config.key_spec, self.layout, schema)


def open_target(
    storage: Storage,
    config: TableConfig,
    index: TableIndex | None,
    now_ms: Callable[[], int] = system_now_ms,
    log_format: LogFormat = LogFormat.PARQUET,
    lock: TableLock = NO_LOCK,
) -> Target:
    """Open a table for a write: check that it can be written, settle failed writes, pin it.

    Raises
    ------
    UnsupportedFeatureError
        If the table has a feature that a writer must support and bucketlake does not.
    ConfigError, IndexStateError
        If the index is unknown, or differs from the table's index.
    """
    check_writable(config, storage.root)
    found = load_timeline(storage, config)
    stored = read_stored(storage)
    known = require_index(storage, found, index, stored)
    known.check_hash_fields(config.key_spec.record_key_fields)
    clock = table_clock(storage.root, config.timeline_timezone, now_ms)
    timeline = settle_failed_writes(storage, config, found, clock, lock)
    if timeline is not found:  # A rescale or a conversion may have been finished or undone.
        stored = read_stored(storage)
        known = require_index(storage, timeline, index, stored)
    pinned = load_snapshot(storage, config, timeline)
    adopts = not is_stored(storage, timeline, stored)
    return Target(pinned, clock, known, stored, adopts, log_format, lock)


def open_to_convert(
    storage: Storage,
    config: TableConfig,
    index: DynamicBucket,
    now_ms: Callable[[], int],
    lock: TableLock,
) -> Target:
    """Open a table for :func:`convert_kind`, whatever index it has; see :func:`open_target`."""
    check_writable(config, storage.root)
    clock = table_clock(storage.root, config.timeline_timezone, now_ms)
    timeline = settle_failed_writes(storage, config, load_timeline(storage, config), clock, lock)
    pinned = load_snapshot(storage, config, timeline)
    return Target(pinned, clock, index, read_stored(storage), lock=lock)


def write_records(
    target: Target,
    operation: Operation,
    source: RecordSource,
    *,
    batch: Batch | None = None,
    merge: SchemaMerge = NO_CHANGE,
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
        The batch of a stream that the records are; each batch is written once.
    merge : SchemaMerge
        Changes of the schema that the write may make.

    Returns
    -------
    WriteResult
        Without an instant if there was nothing to write, or the batch was written before.
    """
    timeline = target.snapshot.timeline
    if batch is not None and is_committed(target.storage, target.config, timeline, batch):
        return WriteResult(None)
    schema = _check_schema(target, operation, source, merge)
    tagger = target.tagger(schema)
    counts = source.count_slots(tagger)
    listed = _touched(target, operation, counts)
    if target.adopts:  # Checking the setting needs all files.
        listed.require_whole(load_timeline(target.storage, target.config))
    _adopt(target, listed.slices)
    if not counts and operation is not Operation.INSERT_OVERWRITE_TABLE:
        return WriteResult(None)
    if not target.layout.locates:  # Otherwise the groups of the records are not known yet.
        wait_for_writers(target.storage, timeline, target.clock, _keys_of(target.layout, counts))
    with _begun(target, operation) as write:
        listed.require_whole(write.begun)
        if target.layout.locates:
            return _write_indexed(write, target, source, tagger, counts, listed.slices, batch)
        return _write(write, target, source, tagger, counts, listed.slices, batch=batch)


def overwrite_partitions(
    target: Target,
    index: TableIndex,
    partitions: Sequence[str],
    source: SlotSource,
) -> WriteResult:
    """Rewrite partitions with another index, and save its setting, in one commit (RFC-89).

    Parameters
    ----------
    target : Target
        The table with its current index.
    index : TableIndex
        The new index.
    partitions : sequence of str
        Paths of the partitions to overwrite; if empty, only the setting is saved.
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


def convert_kind(target: Target, index: DynamicBucket) -> InstantTime:
    """Put a table under another kind of index, in a commit that changes no file.

    Parameters
    ----------
    target : Target
        From :func:`open_to_convert`, after the record-level index was built.
    index : DynamicBucket
        The new index.

    Raises
    ------
    CommitConflictError
        If another writer took the record-level index off, converted the table, or is replacing file
        groups.
    """
    keep_kinds(target.storage)
    layout = index.bound(target.storage, target.snapshot.timeline).layout()
    with _begun(target, Operation.INSERT_OVERWRITE) as write:
        kind = KindVersion(index, write.instant)
        mark_instant(target.storage, write.instant)
        save_kind(target.storage, kind)
        plan = plan_write(write.operation, {}, (), layout, tasks_wanted=1)
        own = CommitPlan(
            checks=(partial(_require_convertible, index),),
            extra=kind.to_metadata(),
            index_files=(),
        )
        _commit(write, target, plan, target.snapshot.schema, own)
        return write.instant


def _require_convertible(index: DynamicBucket, view: CommitView) -> None:
    """Raise CommitConflictError if the table cannot be put under dynamic buckets now."""
    storage, instant = view.write.storage, view.write.instant
    for pending in view.timeline.pending():
        # A resize would go on under the earlier kind. A conversion of another kind stores its
        # setting after its begin, and might overwrite that of this conversion.
        replaces = pending.action in (Action.REPLACE_COMMIT, Action.CLUSTERING)
        if replaces and pending.requested_at != instant:
            raise CommitConflictError(
                instant,
                f"{pending.action.value} {pending.requested_at} is under way; convert again",
            )
    stored = read_stored(storage)
    if stored is None or not stored.has_kinds:
        raise CommitConflictError(instant, "another conversion stored its setting; convert again")
    try:
        index.bound(storage, view.timeline).layout().pinned((), creates=False)
    except IndexStateError as error:
        raise CommitConflictError(
            instant, f"the record-level index is not valid any more ({error}); convert again"
        ) from error


def rewrite_partition(target: Target, partition: str, source: RecordSource) -> WriteResult:
    """Rewrite a partition with its own rows: each row in its bucket, one row per key.

    Parameters
    ----------
    target : Target
        The table.
    partition : str
        Path of the partition. Its files may contradict the index.
    source : RecordSource
        All rows of the partition as ``target`` pins it, older ones first.

    Raises
    ------
    IndexStateError
        If the partition columns of a row give another partition.
    CommitConflictError
        If the partition changed meanwhile.
    """
    tagger = target.tagger(target.snapshot.schema)
    slices = target.snapshot.partition_slices([partition])
    counts = source.count_slots(tagger)
    _require_own_rows(counts, [partition])
    with _begun(target, Operation.INSERT_OVERWRITE) as write:
        if target.layout.locates:
            return _write_indexed(write, target, source, tagger, counts, slices)
        return _write(write, target, source, tagger, counts, slices)


def delete_partitions(target: Target, partitions: Sequence[str]) -> WriteResult:
    """Remove whole partitions from the table: a replace commit lists their file groups."""
    if not partitions:
        return WriteResult(None)
    slices = target.snapshot.replaceable_slices(dict.fromkeys(partitions))
    held: dict[str, list[FileSlice]] = {path: [] for path in partitions}
    for file_slice in slices:
        held[file_slice.partition_path].append(file_slice)
    absent = [path for path, slices in held.items() if not slices]
    if absent:
        raise InputError(
            f"delete partition {absent[0]!r} of {target.storage.root}",
            "the table holds no records in it",
            "name partitions by their path, as table.buckets() shows it",
        )
    with _begun(target, Operation.DELETE_PARTITION) as write:
        layout = _layout_of_write(target, write, held)
        plan = plan_write(Operation.DELETE_PARTITION, {}, slices, layout, tasks_wanted=1)
        own = CommitPlan(
            checks=(partial(_require_same_settings, target, layout, dict.fromkeys(held, ())),),
            saves=(partial(_record, target.index, layout, ()),),
            group_key=layout.conflict_key_of_group,
        )
        upkeep = _index_upkeep(write, target, layout, [*held], slices)
        if upkeep is not None:
            index_files, changed = upkeep.remove([*held])
            own = replace(
                own,
                checks=(*own.checks, partial(_require_same_index, upkeep)),
                extra=changed.to_metadata() if layout.locates else {},
                index_files=index_files,
            )
        return _commit(write, target, plan, target.snapshot.schema, own)


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
    """Plan, let tasks write the file groups, and commit."""
    operation = write.operation
    slots = _slots_by_partition(counts)
    layout = _layout_of_write(target, write, {*slots, *(held.partition_path for held in slices)})
    tagger = replace(tagger, layout=layout)
    plan = plan_write(operation, counts, slices, layout, tasks_wanted=source.tasks_wanted)
    touched = {slot.partition_path for slot in plan.slots} | {*plan.replaced}
    upkeep = _index_upkeep(write, target, layout, touched, slices)
    if upkeep is not None:
        shards = upkeep.plan(
            plan, operation, looks_up=target.appends, tasks_wanted=source.tasks_wanted
        )
        plan = replace(plan, shards=shards)
    writer = _group_writer(write, target, layout, tagger.schema, len(plan.slots))
    index = None if upkeep is None else upkeep.task(plan.shards)
    deletes_by_key = operation is Operation.DELETE
    task = WriteTask(tagger, writer, deletes_by_key, _delete_marker(target.config), index)
    doing = operation.value.lower().replace("_", " ")
    with telling_progress(target.storage, write.instant, doing, len(plan.slots)):
        results = _written(source, plan, task)
    slot_results = [result for result in results if isinstance(result, SlotResult)]
    _require_complete(plan, slot_results)

    stats = [stat for result in slot_results for stat in result.stats]
    written = {stat.partition_path for stat in stats}
    # A delete that found no key has still looked in the slots of its partitions.
    own = CommitPlan(
        stats,
        looked_at=_keys_of(layout, counts),
        served=layout.served_resizes(slots) if target.appends else {},
        checks=(check or partial(_require_same_settings, target, layout, slots),),
        saves=(partial(_record, target.index, layout, written),),
        batch=batch,
        group_key=layout.conflict_key_of_group,
    )
    if upkeep is not None:
        shard_results = [result for result in results if not isinstance(result, SlotResult)]
        own = replace(
            own,
            checks=(*own.checks, partial(_require_same_index, upkeep)),
            index_files=upkeep.files(plan, shard_results, stats, target.snapshot),
        )
    return _commit(write, target, plan, tagger.schema, own)


def _written(source: SlotSource, plan: WritePlan, task: WriteTask) -> Sequence[TaskResult]:
    """Let tasks write the slots and shards of a plan; without slots, the plan is enough."""
    if plan.slots:
        return source.write_slots(plan, task)
    return [] if task.index is None else task.index.write_shards_here(plan.shards)


def _write_indexed(
    write: PendingWrite,
    target: Target,
    source: RecordSource,
    tagger: Tagger,
    counts: SlotCounts,
    slices: Sequence[FileSlice],
    batch: Batch | None = None,
) -> WriteResult:
    """Locate the records, let tasks write file groups and the index, and commit."""
    slots = _slots_by_partition(counts)
    layout = _layout_of_write(target, write, {*slots, *(held.partition_path for held in slices)})
    assert isinstance(layout, RecordLayout), layout
    upkeep = _index_upkeep(write, target, layout, slots, slices)
    assert upkeep is not None, "the layout is that of an index"
    indexed = _indexed(write, target, layout, replace(tagger, layout=layout.unpinned), upkeep)
    done = indexed.run(source, counts, slices, batch)
    _require_complete(done.plan, done.slots)
    own = CommitPlan(
        [stat for result in done.slots for stat in result.stats],
        looked_at=done.looked_at,
        checks=(
            partial(_require_same_settings, target, layout, slots),
            partial(_require_same_index, upkeep),
            partial(done.require_alone, frozenset(slots) if layout.partitioned else None),
        ),
        batch=batch,
        extra=done.changed.to_metadata(),
        group_key=layout.conflict_key_of_group,
        index_files=done.index_files,
    )
    result = _commit(write, target, done.plan, tagger.schema, own)
    if target.appends:  # A merge counts by itself; of log files, the lookups know more.
        result = replace(
            result,
            inserted=done.inserted,
            updated=result.written - done.inserted,
            deleted=sum(stat.delete_count for stat in own.stats),
        )
    return replace(
        result,
        looked_up=done.looked_up,
        from_cache=done.from_cache,
        from_table=done.looked_up - done.from_cache,
    )


def _index_upkeep(
    write: PendingWrite,
    target: Target,
    layout: Layout,
    partitions: Collection[str],
    slices: Sequence[FileSlice],
) -> IndexUpkeep | None:
    """Return the upkeep of the record-level index; None if there is none to maintain."""
    if isinstance(layout, RecordLayout):
        index = layout.index
    else:
        source = IndexSource(target.storage, target.snapshot.timeline)
        live = {held.partition_path for held in slices} & {*partitions}
        replaces = write.operation.replaces
        index = source.maintained(target.config, partitions, live=live, replaces=replaces)
    if index is None:
        return None
    pending = Instant(write.instant, write.action, State.INFLIGHT)
    return IndexUpkeep(target.storage, write.config, pending, index)


def _indexed(
    write: PendingWrite,
    target: Target,
    layout: RecordLayout,
    tagger: Tagger,
    upkeep: IndexUpkeep,
) -> IndexedWrite:
    writer = _group_writer(write, target, layout.unpinned, tagger.schema)
    deletes_by_key = write.operation is Operation.DELETE
    marker = _delete_marker(target.config)
    reader = BatchReader(
        target.storage.root,
        tagger.schema,
        writer.rule,
        deletes_by_key,
        marker,
        tagger.key_spec.record_key_fields,
    )
    return IndexedWrite(write, target.snapshot, layout, tagger, reader, writer, upkeep)


def _group_writer(
    write: PendingWrite, target: Target, layout: Layout, schema: pa.Schema, slot_count: int = 0
) -> GroupWriter:
    return GroupWriter(
        target.storage,
        write.instant,
        schema,
        _merge_rule(target.config, write.operation),
        layout,
        StoredKeyReader(target.storage, write.pinned if layout.looks_up else None),
        _schema_text(target, schema),
        instant_path(write.config, Instant(write.instant, write.action, State.INFLIGHT)),
        slot_count=slot_count,
        appends=target.appends,
        opens_with_logs=layout.opens_with_logs and write.operation in _LOGGED,
        log_format=target.log_format,
        indexed=indexed_columns(target.storage, target.config, schema),
    )


def _keys_of(layout: Layout, slots: Iterable[Slot]) -> set[ConflictKey]:
    return {layout.conflict_key(*slot) for slot in slots}


def _slots_by_partition(slots: Iterable[Slot]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for path, slot in slots:
        found[path].add(slot)
    return found


def _record(
    index: TableIndex, layout: Layout, partitions: Collection[str], view: CommitView
) -> None:
    write = view.write
    record_written(index, layout, write.storage, view.timeline, write.instant, partitions)


def _check_schema(
    target: Target, operation: Operation, source: RecordSource, merge: SchemaMerge
) -> pa.Schema:
    """Return the table's schema after the write; raise InputError if the batch does not fit."""
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
        return without_flag(incoming)
    evolved = evolve(current, with_flag_of(current, incoming), where=where, merge=merge)
    _require_same_keys(current, evolved, config, where)
    return evolved


def _require_key_types(target: Target, source: RecordSource) -> None:
    """Raise InputError for keys of another type: a cast could make them keys of other records."""
    where = f"delete from {target.storage.root}"
    held = pa.schema([target.snapshot.schema.field(name) for name in source.names])
    # A column with only nulls has no type; null keys raise their own error later.
    given = [held.field(f.name) if pa.types.is_null(f.type) else f for f in source.schema]
    # Wider integers are taken: a delete changes no type.
    evolved = evolve(held, pa.schema(given), where=where, merge=SchemaMerge.of(True))
    _require_same_keys(held, evolved, target.config, where)


def _require_same_keys(
    current: pa.Schema, evolved: pa.Schema, config: TableConfig, where: str
) -> None:
    """Raise InputError for a wider type that would change the key text of stored records."""
    for name in (*config.key_spec.record_key_fields, *config.key_spec.partition_fields):
        held, wider = current.field(name).type, evolved.field(name).type
        integers = pa.types.is_integer(held) and pa.types.is_integer(wider)
        if held != wider and not integers:
            raise InputError(
                f"{where}, column {name}",
                f"it is part of the key, has type {held} in the table, and cannot become {wider}",
                f"cast the column to {held}",
            )


def _require_own_rows(counts: SlotCounts, partitions: Sequence[str]) -> None:
    strayed = {path for path, _ in counts}.difference(partitions)
    if strayed:
        raise IndexStateError(
            f"the rows of partitions {', '.join(map(repr, partitions))} belong there",
            f"the partition columns of some rows give partition {min(strayed)!r}",
            "overwrite the partitions with their own rows first",
        )


def _touched(target: Target, operation: Operation, counts: SlotCounts) -> ListedSlices:
    """List the partitions of a write; the caller checks for cleans after the write has begun."""
    is_whole_table = operation is Operation.INSERT_OVERWRITE_TABLE
    partitions = None if is_whole_table else sorted({path for path, _ in counts})
    listed = target.snapshot.listed(partitions)
    return listed.with_lost_files() if operation.replaces else listed


def _adopt(target: Target, slices: Sequence[FileSlice]) -> None:
    """Store the index setting of a table that has none, after checking it against the files."""
    if target.adopts:
        require_matching_index(target.storage, slices, target.layout)
        store_index(target.storage, target.index)


@contextlib.contextmanager
def _begun(target: Target, operation: Operation) -> Iterator[PendingWrite]:
    """Begin a write, and roll it back if the body fails."""
    snapshot = target.snapshot
    with begin_write(
        snapshot.storage, snapshot.config, snapshot.timeline, target.clock, operation, target.lock
    ) as write:
        try:
            yield write
        except BaseException:
            # If storage fails here too, the next write rolls it back.
            with contextlib.suppress(BucketLakeError, OSError):
                roll_back_own(write)
            raise


def _layout_of_write(target: Target, write: PendingWrite, partitions: Collection[str]) -> Layout:
    """Return the layout with the state of the partitions that a write touches."""
    layout = target.layout.pinned(partitions, creates=write.operation is not Operation.DELETE)
    return layout.renewed(partitions, write.instant) if write.operation.replaces else layout


def _merge_rule(config: TableConfig, operation: Operation) -> MergeRule:
    # A delete by key has no ordering value, so it removes every older record with the key.
    return MergeRule(config.merge_mode, config.ordering_fields, operation is Operation.DELETE)


def _delete_marker(config: TableConfig) -> tuple[str, str] | None:
    if config.delete_field is None or config.delete_marker is None:
        return None
    return config.delete_field, config.delete_marker


def _require_complete(plan: WritePlan, results: Sequence[SlotResult]) -> None:
    answered = sorted(result.number for result in results)
    assert answered == [slot.number for slot in plan.slots], "each slot of the plan has one result"
    require_counted(plan, results)
    slices = [file_slice for slot in plan.slots for file_slice in slot.slices]
    known = {(file_slice.partition_path, file_slice.file_id) for file_slice in slices}
    writers: dict[tuple[str, FileId], int] = {}
    for result in results:
        for stat in result.stats:
            group = stat.partition_path, stat.file_id
            writer = writers.setdefault(group, result.number)
            assert writer == result.number, "two slots, or parts of one, wrote one file group"
            assert stat.opens_group != (group in known), "a file group is new, or in the plan"
    paths = [stat.path for result in results for stat in result.stats]
    assert len(set(paths)) == len(paths), "a slot wrote one file twice"


def _commit(
    write: PendingWrite, target: Target, plan: WritePlan, schema: pa.Schema, own: CommitPlan
) -> WriteResult:
    """Commit a write; add the checks and metadata that every write of records needs."""
    commit = replace(
        own,
        replaced=plan.replaced,
        checks=(
            partial(_require_overwritten_alone, plan),
            *own.checks,
            partial(_require_schema_kept, target, schema),
        ),
        extra={
            **own.extra,
            **target.index.to_options(),
            RECORDED: recorded_entries(target.config),
            "schema": _schema_text(target, schema),
        },
    )
    completed_at = commit_write(write, commit)
    stats = commit.stats
    inserted = sum(s.insert_count for s in stats)
    updated = sum(s.update_count for s in stats)
    deleted = sum(s.delete_count for s in stats)
    # The log file of a group was written without its stored keys.
    logs = [s for s in stats if target.appends and not s.opens_group]
    knows_records = not any(s.update_count for s in logs)
    knows_deletes = not any(s.delete_count for s in logs)
    replaced_count = sum(len(ids) for ids in plan.replaced.values())
    return WriteResult(
        write.instant,
        inserted=inserted if knows_records else None,
        updated=updated if knows_records else None,
        deleted=deleted if knows_deletes else None,
        file_groups=len({(s.partition_path, s.file_id) for s in stats}) + replaced_count,
        written=inserted + updated,
        completed_at=completed_at,
    )


def _require_overwritten_alone(plan: WritePlan, view: CommitView) -> None:
    """Raise CommitConflictError if another commit changed an overwritten partition."""
    if not view.write.operation.replaces:
        return
    overwritten = {*plan.replaced, *(slot.partition_path for slot in plan.slots)}
    if view.write.operation is Operation.INSERT_OVERWRITE_TABLE:
        overwritten.update(*(commit.partitions for _, commit in view.since))
    require_untouched_partitions(view.write.instant, overwritten, view.since)


def _require_same_setting(
    held: Layout, new: Layout, setting: SettingVersion | None, view: CommitView
) -> None:
    """Raise CommitConflictError if the index setting or a partition to rewrite changed."""
    # The overwritten partitions do not include those without records when it was planned.
    written = {path for _, commit in view.since for path in commit.partitions}
    moved = {path for path in written if held.setting_of(path) != new.setting_of(path)}
    require_untouched_partitions(view.write.instant, moved, view.since)
    if latest_setting(view.write.storage, view.timeline) != setting:
        raise CommitConflictError(
            view.write.instant,
            "the rules of the table changed meanwhile; plan the change again",
        )


def _require_same_settings(
    target: Target, used: Layout, slots: Mapping[str, Collection[int]], view: CommitView
) -> None:
    """Raise CommitConflictError if the setting that gave the slots is no longer valid (RFC-89).

    The setting must also be older than the commit by requested time, because time travel and
    restore use requested times.
    """
    timelines = [view.timeline]
    instant = view.write.instant
    if any(commit.requested_at > instant for commit in view.timeline.completed_commits()):
        timelines.append(view.timeline.as_of(instant))
    for known in timelines:
        now = resolve_index(target.storage, known, target.index, target.stored)
        assert now is not None, "the write had an index"
        layout = now.layout()
        for partition, written in sorted(slots.items()):
            if not used.is_kept_by(layout, partition, written, appends=target.appends):
                raise CommitConflictError(
                    instant,
                    f"the write used {used.setting_of(partition)} in partition {partition!r}, "
                    f"which has {layout.setting_of(partition)} from "
                    f"{setting_origin(now, target.storage, known, partition)}; retry it",
                )


def _require_same_index(upkeep: IndexUpkeep, view: CommitView) -> None:
    upkeep.require_same_index(view.turn, view.timeline if view.since else None)


def _require_schema_kept(target: Target, schema: pa.Schema, view: CommitView) -> None:
    """Raise CommitConflictError if the schema would lose a change of any commit.

    The newest commit by requested time sets the table's schema.
    """
    instant, timeline = view.write.instant, view.timeline
    pinned, newest = target.snapshot, load_snapshot(target.storage, target.config, timeline)
    is_same = newest.schema_text == pinned.schema_text  # Avoids parsing it again.
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
            f"changes the table's schema, but instant {later.requested_at} began later with the "
            "old schema and was committed before; retry it",
        )


def _schema_text(target: Target, schema: pa.Schema) -> str:
    """Return the table's own text if nothing changed: Avro has types that Arrow does not have."""
    known = target.snapshot.schema_text
    if known is not None and schema == target.snapshot.schema:
        return known
    return avro_from_arrow(schema, target.config.name)
