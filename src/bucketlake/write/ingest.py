"""The steps of a write on the driver, for every operation and every engine.

Open the table, count the records, plan, let tasks write the file groups, commit; or roll back.
Pending writes of dead writers are settled first. Bad input raises an error before anything is
written, because the count reads all keys.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import pyarrow as pa

from bucketlake.actions.commit import CommitPlan, CommitStep, CommitView, PendingWrite
from bucketlake.actions.early_conflict import wait_for_writers
from bucketlake.actions.progress import LOGGER, telling_progress
from bucketlake.actions.stream_batches import Batch, is_committed
from bucketlake.errors import IndexStateError, InputError
from bucketlake.flow.work import doing
from bucketlake.index.conflict_keys import ConflictKey
from bucketlake.index.layout import Layout, Slot
from bucketlake.index.record_layout import IndexSource, RecordLayout
from bucketlake.index.setting import TableIndex
from bucketlake.index.shared_groups import note_shared_groups
from bucketlake.index.state import record_written
from bucketlake.metadata.statistics.measured_columns import indexed_columns
from bucketlake.model.file_name import FileId
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.result import WriteResult
from bucketlake.model.row_merge import WHOLE_ROWS, RowMerge
from bucketlake.model.schema import with_meta
from bucketlake.model.schema_merge import NO_CHANGE, SchemaMerge
from bucketlake.model.table_type import Operation
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import ListedSlices
from bucketlake.read.stored_keys import StoredKeyReader
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import Instant, State
from bucketlake.timeline.transitions import instant_path
from bucketlake.write.arrow_source import ArrowSource
from bucketlake.write.batch_schema import schema_after, schema_text
from bucketlake.write.commit_checks import require_same_index, require_same_settings
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.new_keys import NewKeys
from bucketlake.write.pack import Packed, PackedRecords, RecordSource
from bucketlake.write.record_index.index_upkeep import IndexUpkeep
from bucketlake.write.record_index.indexed_result import SharedGroupsError
from bucketlake.write.record_index.indexed_write import IndexedWrite
from bucketlake.write.record_index.new_partitions import with_new_shards
from bucketlake.write.row_merging import ONE_ROW, RowWriting, row_writing
from bucketlake.write.slice_instants import require_newest_slices, with_compactions
from bucketlake.write.slot_stage import TaskResult, WriteTask, require_counted
from bucketlake.write.tag import SlotCounts, Tagger
from bucketlake.write.target import Target, adopt_index
from bucketlake.write.transaction import begun_write, commit_planned
from bucketlake.write.write_plan import SlotResult, WritePlan, plan_write


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many rows of a table a write changes.

    Attributes
    ----------
    inserted, updated, deleted, ignored : int
        As in :class:`WriteResult`.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0


@dataclass(frozen=True, slots=True)
class CountedRecords:
    """The records of a first write, checked and counted before their table exists.

    Attributes
    ----------
    index : TableIndex
        The index of the table.
    schema : pa.Schema
        The table's schema after the write.
    packed : PackedRecords
        The records.
    """

    index: TableIndex
    schema: pa.Schema
    packed: PackedRecords

    def hold_for(self, target: Target, schema: pa.Schema) -> bool:
        """Return whether the counts are those of a write to a table."""
        is_first = not target.snapshot.timeline.completed_commits()
        return is_first and target.index == self.index and schema == self.schema


def count_records(
    target: Target, operation: Operation, source: RecordSource, merge: SchemaMerge = NO_CHANGE
) -> CountedRecords:
    """Check and count the records of a first write; nothing is written.

    Raises
    ------
    InputError
        As :func:`write_records`.
    """
    schema = schema_after(target, operation, source, merge)
    packed = source.pack(target.tagger(schema))
    _ = packed.counts  # Raises InputError.
    return CountedRecords(target.index, schema, packed)


def write_records(
    target: Target,
    operation: Operation,
    source: RecordSource,
    *,
    batch: Batch | None = None,
    merge: SchemaMerge = NO_CHANGE,
    counted: CountedRecords | None = None,
    still_match: CommitStep | None = None,
    rows: RowMerge = WHOLE_ROWS,
    changes: ChangeCounts | None = None,
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
    counted : CountedRecords, optional
        The counts, if the caller has counted the records for a table without commits.
    still_match : CommitStep, optional
        For records that are rows of the table: the check right before the commit that they still
        are. So the result counts exactly, even if no stored row was looked at.
    rows : RowMerge
        How the columns of a record and of the stored row are combined.
    changes : ChangeCounts, optional
        With ``still_match``: what the records change. By default each updates or deletes a row.

    Returns
    -------
    WriteResult
        Without an instant if nothing changed, or the batch was written before.
    """
    timeline = target.snapshot.timeline
    if batch is not None and is_committed(target.table, timeline, batch):
        return WriteResult(None, skipped=True)
    source, schema = _fitting(target, operation, source, merge, rows)
    how = row_writing(target, operation, schema, source.names, rows)
    tagger = target.tagger(schema)
    if counted is not None and counted.hold_for(target, schema):
        packed = counted.packed
    else:
        with doing("reading the records"):
            packed = source.pack(tagger)
            LOGGER.info("%s records are read", f"{sum(packed.counts.values()):,}")
    counts = packed.counts
    listed = _touched(target, operation, counts)
    if target.adopts:  # Checking the setting needs all files.
        listed.require_whole(load_timeline(target.table))
    adopt_index(target, listed.slices)
    if not counts and operation is not Operation.INSERT_OVERWRITE_TABLE:
        return WriteResult(None)
    checks = () if still_match is None else (still_match,)
    if target.layout.locates:  # The groups of the records are not known yet.
        result = _written_by_index(target, operation, packed, tagger, listed, batch, checks, how)
    else:
        keys = _keys_of(target.layout, counts)
        wait_for_writers(target.storage, timeline, target.table.clock, keys)
        with begun_write(target, operation) as write:
            listed.require_whole(write.begun)
            result = write_into_slots(
                write, target, packed, tagger, listed.slices, batch=batch, checks=checks, how=how
            )
    if still_match is None:
        return result
    if changes is None:
        count = sum(counts.values())
        deleted = count if operation is Operation.DELETE else 0
        changes = ChangeCounts(updated=count - deleted, deleted=deleted)
    return replace(result, **asdict(changes))


def _written_by_index(
    target: Target,
    operation: Operation,
    packed: PackedRecords,
    tagger: Tagger,
    listed: ListedSlices,
    batch: Batch | None,
    checks: Sequence[CommitStep],
    how: RowWriting,
) -> WriteResult:
    """Write under a record-level index; again in two stages if buckets are found to be shared."""
    try:
        with begun_write(target, operation) as write:
            listed.require_whole(write.begun)
            return write_located(write, target, packed, tagger, listed.slices, batch, checks, how)
    except SharedGroupsError as found:
        note_shared_groups(target.storage, found.partitions)
    with begun_write(target, operation) as write:
        listed.require_whole(write.begun)
        return write_located(write, target, packed, tagger, listed.slices, batch, checks, how)


def _fitting(
    target: Target,
    operation: Operation,
    source: RecordSource,
    merge: SchemaMerge,
    rows: RowMerge,
) -> tuple[RecordSource, pa.Schema]:
    """Return the records, and the schema of the table after the write.

    No rows fit every table: an empty data frame often has no types, or no columns.
    """
    try:
        missing = rows.keeps_missing
        return source, schema_after(target, operation, source, merge, may_lack=missing)
    except InputError:
        schema = target.snapshot.schema_or_none
        if schema is None or not source.is_empty():
            raise
        return ArrowSource(schema.empty_table()), schema


def write_into_slots(
    write: PendingWrite,
    target: Target,
    packed: Packed,
    tagger: Tagger,
    slices: Sequence[FileSlice],
    check: CommitStep | None = None,
    batch: Batch | None = None,
    checks: Sequence[CommitStep] = (),
    how: RowWriting = ONE_ROW,
) -> WriteResult:
    """Plan, let tasks write the file groups, and commit."""
    operation, counts = write.operation, packed.counts
    slices = with_compactions(target.storage, write.pinned, slices)
    slots = _slots_by_partition(counts)
    layout = layout_of_write(target, write, {*slots, *(held.partition_path for held in slices)})
    tagger = replace(tagger, layout=layout)
    plan = plan_write(operation, counts, slices, layout, tasks_wanted=packed.tasks_wanted)
    touched = {slot.partition_path for slot in plan.slots} | {*plan.replaced}
    upkeep = upkeep_of(write, target, layout, touched, slices)
    if upkeep is not None:
        shards = upkeep.plan(
            plan, operation, looks_up=target.appends, tasks_wanted=packed.tasks_wanted
        )
        plan = replace(plan, shards=shards)
    writer = _group_writer(write, target, layout, tagger.schema, how, len(plan.slots))
    index = None if upkeep is None else upkeep.task(plan.shards)
    deletes_by_key = operation is Operation.DELETE
    task = WriteTask(tagger, writer, deletes_by_key, target.marker, index, target.refuses_repeats)
    words = operation.value.lower().replace("_", " ")
    with telling_progress(target.storage, write.instant, words, len(plan.slots)):
        results = _written(packed, plan, task)
    slot_results = [result for result in results if isinstance(result, SlotResult)]
    _require_complete(plan, slot_results)

    stats = [stat for result in slot_results for stat in result.stats]
    written = {stat.partition_path for stat in stats}
    # A delete that found no key has still looked in the slots of its partitions.
    own = CommitPlan(
        stats,
        looked_at=_keys_of(layout, counts),
        served=layout.served_resizes(slots) if target.appends else {},
        checks=(
            check or partial(require_same_settings, target, layout, slots),
            partial(require_newest_slices, stats),
            *checks,
        ),
        saves=(partial(save_written, target.index, layout, written),),
        batch=batch,
        group_key=layout.conflict_key_of_group,
    )
    if upkeep is not None:
        shard_results = [result for result in results if not isinstance(result, SlotResult)]
        own = replace(
            own,
            checks=(*own.checks, partial(require_same_index, upkeep)),
            index_files=upkeep.files(plan, shard_results, stats, target.snapshot),
        )
    ignored = sum(result.ignored for result in slot_results)
    reads_stored = how.reads_stored
    return commit_planned(
        write, target, plan, tagger.schema, own, ignored, reads_stored=reads_stored
    )


def _written(packed: Packed, plan: WritePlan, task: WriteTask) -> Sequence[TaskResult]:
    """Let tasks write the slots and shards of a plan; without slots, the plan is enough."""
    if plan.slots:
        return packed.write(plan, task)
    return [] if task.index is None else task.index.write_shards_here(plan.shards)


def write_located(
    write: PendingWrite,
    target: Target,
    packed: PackedRecords,
    tagger: Tagger,
    slices: Sequence[FileSlice],
    batch: Batch | None = None,
    checks: Sequence[CommitStep] = (),
    how: RowWriting = ONE_ROW,
) -> WriteResult:
    """Locate the records, let tasks write file groups and the index, and commit."""
    slices = with_compactions(target.storage, write.pinned, slices)
    slots = _slots_by_partition(packed.counts)
    layout = layout_of_write(target, write, {*slots, *(held.partition_path for held in slices)})
    assert isinstance(layout, RecordLayout), layout
    records = Counter[str]()
    for (path, _), count in packed.counts.items():
        records[path] += count
    layout = with_new_shards(layout, records, target.storage, target.snapshot.timeline)
    upkeep = upkeep_of(write, target, layout, slots, slices)
    assert upkeep is not None, "the layout is that of an index"
    located = replace(tagger, layout=layout.unpinned)
    indexed = _indexed(write, target, layout, located, upkeep, how)
    done = indexed.run(packed, slices, batch)
    _require_complete(done.plan, done.slots)
    stats = [stat for result in done.slots for stat in result.stats]
    own = CommitPlan(
        stats,
        looked_at=done.looked_at,
        checks=(
            partial(require_same_settings, target, layout, slots),
            partial(require_same_index, upkeep),
            partial(require_newest_slices, stats),
            partial(done.require_alone, frozenset(slots) if layout.partitioned else None),
            *checks,
        ),
        batch=batch,
        extra=done.changed.to_metadata(),
        group_key=layout.conflict_key_of_group,
        index_files=done.index_files,
    )
    ignored = done.ignored + sum(result.ignored for result in done.slots)
    result = commit_planned(write, target, done.plan, tagger.schema, own, ignored)
    if target.appends:  # A merge counts by itself; of log files, the lookups know more.
        updated = result.written - done.inserted
        deleted = sum(stat.delete_count for stat in own.stats)
        compares = target.merge_rule(write.operation).compares
        may_lose = (deleted or (updated and not how.reads_stored)) and compares
        result = replace(
            result,
            inserted=done.inserted,
            updated=updated,
            deleted=deleted,
            ignored=None if may_lose else ignored,
        )
    return replace(
        result,
        looked_up=done.looked_up,
        from_cache=done.from_cache,
        from_table=done.looked_up - done.from_cache,
    )


def upkeep_of(
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
    return IndexUpkeep(write.table, pending, index)


def _indexed(
    write: PendingWrite,
    target: Target,
    layout: RecordLayout,
    tagger: Tagger,
    upkeep: IndexUpkeep,
    how: RowWriting,
) -> IndexedWrite:
    writer = _group_writer(write, target, layout.unpinned, tagger.schema, how)
    deletes_by_key = write.operation is Operation.DELETE
    refuses = target.refuses_repeats
    task = WriteTask(tagger, writer, deletes_by_key, target.marker, refuses_repeats=refuses)
    return IndexedWrite(write, target.snapshot, layout, tagger, task.reader, writer, upkeep)


def _group_writer(
    write: PendingWrite,
    target: Target,
    layout: Layout,
    schema: pa.Schema,
    how: RowWriting,
    slot_count: int = 0,
) -> GroupWriter:
    slices = None
    if how.reads_stored:
        slices = replace(SliceReader.of_snapshot(target.snapshot), schema=with_meta(schema))
    return GroupWriter(
        target.storage,
        write.instant,
        schema,
        target.merge_rule(write.operation),
        layout,
        StoredKeyReader(target.storage, write.pinned if layout.looks_up else None),
        schema_text(target, schema),
        instant_path(write.table.config, Instant(write.instant, write.action, State.INFLIGHT)),
        slot_count=slot_count,
        appends=target.appends,
        log_format=target.log_format,
        indexed=indexed_columns(target.table, schema),
        combining=how.combining,
        slices=slices,
        change_log=target.table.config.change_log,
        new_keys=NewKeys.of_write(target, write.operation),
        timeline_layout=target.config.layout,
    )


def _keys_of(layout: Layout, slots: Iterable[Slot]) -> set[ConflictKey]:
    return {layout.conflict_key(*slot) for slot in slots}


def _slots_by_partition(slots: Iterable[Slot]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for path, slot in slots:
        found[path].add(slot)
    return found


def save_written(
    index: TableIndex, layout: Layout, partitions: Collection[str], view: CommitView
) -> None:
    """Save the index state that the commit of a write brings; a step of its commit."""
    write = view.write
    record_written(index, layout, write.table.storage, view.timeline, write.instant, partitions)


def _touched(target: Target, operation: Operation, counts: SlotCounts) -> ListedSlices:
    """List the partitions of a write; the caller checks for cleans after the write has begun."""
    is_whole_table = operation is Operation.INSERT_OVERWRITE_TABLE
    partitions = None if is_whole_table else sorted({path for path, _ in counts})
    listed = target.snapshot.listed(partitions)
    return listed.with_lost_files() if operation.replaces else listed


def layout_of_write(target: Target, write: PendingWrite, partitions: Collection[str]) -> Layout:
    """Return the layout with the state of the partitions that a write touches."""
    creates = write.operation is not Operation.DELETE
    layout = target.layout.pinned(partitions, creates=creates)
    if write.operation.replaces:
        return layout.renewed(partitions, write.instant)
    if creates:
        _require_living_groups(target, layout.fixed_groups(partitions))
    return layout


def _require_living_groups(target: Target, fixed: Collection[tuple[str, FileId]]) -> None:
    """Raise IndexStateError for groups that a replace commit removed: no reader shows their rows.

    bucketlake gives a partition that it empties new groups, but Hudi keeps those of its hash ring.
    """
    if not fixed:
        return
    replaced = target.snapshot.timeline.replaced_file_groups(target.storage)
    dead = min((group for group in fixed if group in replaced), default=None)
    if dead is not None:
        path, file_id = dead
        raise IndexStateError(
            f"the buckets of partition {path!r} can take records",
            f"its file group {file_id} was removed by {replaced[dead]}, a commit of a program that "
            "gave the partition no new buckets",
            "write the records with table.insert_overwrite(rows), which makes new buckets; upserts "
            "can follow",
        )


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
