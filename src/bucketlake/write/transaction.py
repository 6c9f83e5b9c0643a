"""The two ends of a write: its begin, with a rollback if it fails, and its commit.

Between them lie the stages of the write (``write/stages.py``), which take a :class:`BegunWrite` and
give :class:`Written`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from bucketlake.actions.commit import (
    CommitPlan,
    CommitStep,
    CommitView,
    PendingWrite,
    begin_write,
    commit_write,
)
from bucketlake.actions.progress import telling_progress
from bucketlake.actions.recovery import settle
from bucketlake.actions.tombstone_list import NO_TOMBSTONES
from bucketlake.config.hudi_options import SAFE_SQL
from bucketlake.config.recorded_entries import RECORDED, recorded_entries
from bucketlake.errors import BucketLakeError, IndexStateError
from bucketlake.index.conflict_keys import ChangedShards, ConflictKeys
from bucketlake.index.layout import Layout
from bucketlake.index.ring_engine import extension_entries
from bucketlake.index.state import record_written
from bucketlake.merge.combining import Combining
from bucketlake.metadata.record_index.pinned_index import PinnedIndex, maintained_index
from bucketlake.metadata.statistics.of_file import indexed_columns
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.position import UNKNOWN_ORIGIN, Origin
from bucketlake.model.result import WriteResult
from bucketlake.model.schema import with_meta
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.slice_reader import SliceReader
from bucketlake.slices.stored_keys import StoredKeyReader
from bucketlake.timeline.instant import Instant, State
from bucketlake.timeline.transitions import instant_path
from bucketlake.write.batch_reader import BatchReader
from bucketlake.write.batch_schema import schema_text
from bucketlake.write.commit_checks import (
    require_alone,
    require_newest_slices,
    require_overwritten_alone,
    require_same_index,
    require_same_settings,
    require_schema_kept,
    with_compactions,
)
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.new_keys import unstored_for
from bucketlake.write.record_index.index_upkeep import IndexUpkeep
from bucketlake.write.record_index.locate import LookupResult
from bucketlake.write.slot_stage import WriteTask
from bucketlake.write.tag import Tagger
from bucketlake.write.target import Target
from bucketlake.write.tombstones import Tombstones
from bucketlake.write.unwritten import require_not_made_anew
from bucketlake.write.write_plan import SlotResult, WritePlan


@dataclass(frozen=True, slots=True)
class BegunWrite:
    """A write between its begin and its commit, with the state that its stages are planned on.

    Attributes
    ----------
    pending : PendingWrite
        The write on the timeline.
    target : Target
        The table.
    slots : mapping of partition path to slots
        What the write may touch.
    slices : sequence of FileSlice
        Live slices of the partitions of the batch; for a table overwrite, of all partitions.
    layout : Layout
        The layout with the state of these partitions.
    schema : pa.Schema
        The table's schema after the write.
    combining : Combining or None
        How the columns of a record and of the stored row are combined; None: a record replaces it.
    """

    pending: PendingWrite
    target: Target
    slots: Mapping[str, Collection[int]]
    slices: Sequence[FileSlice]
    layout: Layout
    schema: pa.Schema
    combining: Combining | None = None

    @classmethod
    def on(
        cls,
        pending: PendingWrite,
        target: Target,
        slots: Mapping[str, Collection[int]],
        slices: Sequence[FileSlice],
        schema: pa.Schema,
        combining: Combining | None = None,
    ) -> BegunWrite:
        """Pin the state of the partitions that a write touches."""
        slices = with_compactions(target.storage, pending.pinned, slices)
        paths = {*slots, *(held.partition_path for held in slices)}
        layout = _layout_of_write(target, pending, paths)
        return cls(pending, target, slots, slices, layout, schema, combining)

    @property
    def operation(self) -> Operation:
        """Operation of the write."""
        return self.pending.operation

    @property
    def instant(self) -> Instant:
        """The instant of the write."""
        return Instant(self.pending.instant, self.pending.action, State.INFLIGHT)

    @property
    def reads_stored(self) -> bool:
        """Whether records in log files are whole rows, so that stored rows are read for them."""
        return self.combining is not None and self.combining.reads_stored

    def upkeep(self, partitions: Collection[str]) -> IndexUpkeep | None:
        """Return the upkeep of the record-level index; None if there is none to maintain."""
        target = self.target
        if self.layout.locates:
            index: PinnedIndex | None = target.pinned_index(partitions)
        else:
            index = maintained_index(
                target.storage,
                target.snapshot.timeline,
                target.config,
                partitions,
                live={file_slice.partition_path for file_slice in self.slices} & {*partitions},
                replaces=self.operation.replaces,
            )
        return None if index is None else IndexUpkeep(self.pending.table, self.instant, index)

    def task(self, slot_count: int = 0) -> WriteTask:
        """Return what writes the slots of the write."""
        pending, target = self.pending, self.target
        layout, schema = self.layout.unpinned, self.schema
        slices = None
        if self.reads_stored:
            slices = replace(SliceReader.of_snapshot(target.snapshot), schema=with_meta(schema))
        rule = target.merge_rule(self.operation)
        writer = GroupWriter(
            target.storage,
            pending.instant,
            schema,
            rule,
            layout,
            StoredKeyReader(target.storage, pending.pinned if layout.looks_up else None),
            schema_text(target, schema),
            instant_path(pending.table.config, self.instant),
            slot_count=slot_count,
            appends=target.appends,
            log_format=target.log_format,
            indexed=indexed_columns(target.table, schema),
            combining=self.combining,
            slices=slices,
            change_log=target.config.change_log,
            unstored=unstored_for(target, self.operation),
            timeline_layout=target.config.layout,
        )
        reader = BatchReader(
            target.storage.root,
            schema,
            rule,
            self.operation is Operation.DELETE,
            target.marker,
            target.config.key_spec.record_key_fields,
            self.combining,
            target.refuses_repeats,
        )
        return WriteTask(Tagger(target.config.key_spec, layout, schema), writer, reader)

    def telling_progress(self, plan: WritePlan) -> contextlib.AbstractContextManager[None]:
        """Tell how many slots of a plan are written while the body runs."""
        words = self.operation.value.lower().replace("_", " ")
        return telling_progress(self.target.storage, self.pending.instant, words, len(plan.slots))


@dataclass(frozen=True, slots=True)
class Written:
    """What the stages of a write did, for its commit.

    Attributes
    ----------
    plan : WritePlan
        The slots, and the replaced groups.
    slots : sequence of SlotResult
        A result for each slot.
    upkeep : IndexUpkeep or None
        The record-level index that the write maintains.
    index_files : sequence of WriteStat or None
        Log files of the index; None if there are none that are complete.
    changed : ChangedShards
        Shards whose entries it changed, if readers and writers depend on them.
    looked_at : set of ConflictKey
        Slots, or shards in which it found no entry of a key to delete.
    kept : set of ConflictKey
        File groups of stored rows in other partitions, which won over its records.
    served : mapping of InstantTime to set of ConflictKey
        Resizes that the write serves.
    ignored : int
        Records that lost to a stored row of another partition, or to a remembered delete, by their
        ordering value.
    lookups : sequence of LookupResult, or None
        What the lookups in the index found; None if there were none.
    tombstones : Tombstones or None
        The deletes that the records met; None if the write remembers none.
    deletes : sequence of pa.Table
        Deletes to remember.
    """

    plan: WritePlan
    slots: Sequence[SlotResult] = ()
    upkeep: IndexUpkeep | None = None
    index_files: Sequence[WriteStat] | None = None
    changed: ChangedShards | None = None
    looked_at: ConflictKeys = frozenset()
    kept: ConflictKeys = frozenset()
    served: Mapping[InstantTime, ConflictKeys] = field(default_factory=dict)
    ignored: int = 0
    lookups: Sequence[LookupResult] | None = None
    tombstones: Tombstones | None = None
    deletes: Sequence[pa.Table] = ()


@contextlib.contextmanager
def begun_write(
    target: Target, operation: Operation, appended: ConflictKeys = frozenset()
) -> Iterator[PendingWrite]:
    """Begin a write, and roll it back if the body fails."""
    snapshot = target.snapshot
    with begin_write(snapshot.table, snapshot.timeline, operation, appended) as write:
        try:
            require_not_made_anew(target, write.instant)
            yield write
        except BaseException:
            # If storage fails here too, the next write rolls it back.
            with contextlib.suppress(BucketLakeError, OSError):
                settle(write.table, write.instant, write.action)
            raise


def commit_written(
    begun: BegunWrite,
    done: Written,
    *,
    origin: Origin = UNKNOWN_ORIGIN,
    settings: CommitStep | None = None,
    checks: Sequence[CommitStep] = (),
    extra: Mapping[str, str] | None = None,
) -> WriteResult:
    """Commit what the stages of a write did.

    A write of records that changes no file makes no commit, unless it moves a position.

    Parameters
    ----------
    begun : BegunWrite
    done : Written
    origin : Origin
        The batch of a stream that the records are, and the position in a source.
    settings : CommitStep, optional
        The check that the setting of the index is still valid, if it is not
        :func:`~bucketlake.write.commit_checks.require_same_settings`.
    checks : sequence of CommitStep
        Further checks.
    extra : mapping of str to str, optional
        Extra metadata.
    """
    write, target, layout, plan = begun.pending, begun.target, begun.layout, done.plan
    stats = [stat for result in done.slots for stat in result.stats]
    ignored = done.ignored + sum(result.ignored for result in done.slots)
    has_position = origin.position is not None
    if stats or done.index_files or write.operation.replaces or done.deletes or has_position:
        index, changed, tombstones = target.index, done.changed, done.tombstones
        commit = CommitPlan(
            stats,
            replaced=plan.replaced,
            looked_at=done.looked_at | done.kept | _kept(done, layout),
            served=done.served,
            checks=(
                settings or partial(require_same_settings, target, layout, begun.slots),
                *_checks(begun, done, stats),
                *checks,
                partial(require_schema_kept, target, begun.schema),
            ),
            saves=(partial(_save_written, begun, {stat.partition_path for stat in stats}),),
            origin=origin,
            extra={
                **(extra or {}),
                **({} if changed is None else changed.to_metadata()),
                **{k: v for k, v in index.to_options().items() if k not in SAFE_SQL},
                **({} if index.resized is None else extension_entries(index.resized.engine)),
                RECORDED: recorded_entries(target.config),
                "schema": schema_text(target, begun.schema),
            },
            index_files=done.index_files,
            group_key=layout.conflict_key_of_group,
            appends=_only_appended(begun, done, stats),
            tombstones=NO_TOMBSTONES
            if tombstones is None
            else tombstones.written(
                done.deletes,
                write.instant,
                write.table.clock.now_ms(),
                target.config.keep_deletes_ms,
            ),
        )
        completed_at = commit_write(write, commit, target.engine)
        result = _result(begun, plan, stats, completed_at, ignored)
    else:
        settle(write.table, write.instant, write.action)
        result = WriteResult(None, ignored=ignored)
    return result if done.lookups is None else _counted(result, begun, stats, done.lookups, ignored)


def _kept(done: Written, layout: Layout) -> ConflictKeys:
    """Return the file groups in which the records of a slot changed nothing."""
    paths = {slot.number: slot.partition_path for slot in done.plan.slots}
    held = ((paths[result.number], name) for result in done.slots for name in result.kept)
    return {layout.conflict_key_of_group(*group) for group in held}


def _only_appended(begun: BegunWrite, done: Written, stats: Sequence[WriteStat]) -> bool:
    """Return whether a write that said that it appends blindly did no more than that."""
    is_more = done.served or done.upkeep or any(s.opens_group or not s.is_log for s in stats)
    return bool(begun.pending.appended) and not is_more


def _checks(begun: BegunWrite, done: Written, stats: Sequence[WriteStat]) -> Iterator[CommitStep]:
    """Yield what must still hold of what the stages looked at."""
    yield partial(require_overwritten_alone, done.plan)
    if done.upkeep is not None:
        yield partial(require_same_index, done.upkeep)
    yield partial(require_newest_slices, stats)
    if done.tombstones is not None:
        yield partial(done.tombstones.require_unseen, begun.layout, begun.slots)
    if done.changed is not None:
        is_global = begun.target.index.has_global_keys
        partitions = None if is_global else frozenset(begun.slots)
        yield partial(require_alone, done.changed.added | done.looked_at, partitions)


def _result(
    begun: BegunWrite,
    plan: WritePlan,
    stats: Sequence[WriteStat],
    completed_at: InstantTime,
    ignored: int,
) -> WriteResult:
    """Return what a commit did, as far as the statistics of its files tell."""
    target, reads_stored = begun.target, begun.reads_stored
    inserted = sum(s.insert_count for s in stats)
    updated = sum(s.update_count for s in stats)
    deleted = sum(s.delete_count for s in stats)
    # The log file of a group was written without its stored keys.
    logs = [s for s in stats if target.appends and not s.opens_group]
    knows_records = reads_stored or not any(s.update_count for s in logs)
    knows_deletes = not any(s.delete_count for s in logs)
    compares = target.merge_rule(begun.operation).compares
    knows_ignored = not logs or not compares or (reads_stored and knows_deletes)
    replaced_count = sum(len(ids) for ids in plan.replaced.values())
    return WriteResult(
        begun.pending.instant,
        inserted=inserted if knows_records else None,
        updated=updated if knows_records else None,
        deleted=deleted if knows_deletes else None,
        file_groups=len({(s.partition_path, s.file_id) for s in stats}) + replaced_count,
        written=inserted + updated,
        completed_at=completed_at,
        ignored=ignored if knows_ignored else None,
    )


def _counted(
    result: WriteResult,
    begun: BegunWrite,
    stats: Sequence[WriteStat],
    lookups: Sequence[LookupResult],
    ignored: int,
) -> WriteResult:
    """Return the result of a write with what the lookups know about its rows.

    A record whose key leaves another partition is a delete there, and an insert here.
    """
    target, inserted = begun.target, sum(each.inserted for each in lookups)
    moved, looked_up = sum(each.moved for each in lookups), sum(each.looked_up for each in lookups)
    from_cache = sum(each.from_cache for each in lookups)
    deleted = sum(stat.delete_count for stat in stats) - moved
    if target.appends:  # Of log files, the lookups know more.
        compares = target.merge_rule(begun.operation).compares
        is_unread = result.written > inserted and not begun.reads_stored
        may_lose = (deleted or is_unread) and compares
        result = replace(result, ignored=None if may_lose else ignored)
    else:  # A merge counts by itself.
        inserted = sum(stat.insert_count for stat in stats)
    return replace(
        result,
        inserted=inserted - moved,
        updated=result.written - inserted + moved,
        deleted=deleted,
        looked_up=looked_up,
        from_cache=from_cache,
        from_table=looked_up - from_cache,
    )


def _save_written(begun: BegunWrite, partitions: Collection[str], view: CommitView) -> None:
    """Save the index state that the commit of a write brings; a step of its commit."""
    storage, instant = begun.target.storage, begun.pending.instant
    record_written(begun.target.index, begun.layout, storage, view.timeline, instant, partitions)


def _layout_of_write(target: Target, write: PendingWrite, partitions: Collection[str]) -> Layout:
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
