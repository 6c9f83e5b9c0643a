"""The steps of a write on the driver: of records, and of whole partitions, on every engine.

Open the table, count the records, plan, let tasks write the file groups, commit; or roll back.
Pending writes of dead writers are settled first. Bad input raises an error before anything is
written, because the count reads all keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from bucketlake.actions.commit import CommitStep, PendingWrite
from bucketlake.actions.conflict import wait_for_writers
from bucketlake.actions.progress import LOGGER
from bucketlake.actions.stream_batches import was_committed
from bucketlake.errors import IndexStateError, InputError
from bucketlake.flow import threads
from bucketlake.flow.call import doing
from bucketlake.index.setting import TableIndex
from bucketlake.index.state import newest_versions, save_setting
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.position import UNKNOWN_ORIGIN, Origin
from bucketlake.model.result import WriteResult
from bucketlake.model.row_merge import NO_CHANGE, WHOLE_ROWS, RowMerge, SchemaMerge
from bucketlake.model.table_type import Operation
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import ListedSlices
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.markers import mark_instant
from bucketlake.write.batch_schema import schema_after
from bucketlake.write.commit_checks import require_same_setting
from bucketlake.write.key_rule_check import as_stored, decided
from bucketlake.write.new_keys import require_empty_partitions
from bucketlake.write.pack import ArrowSource, Packed, PackedRecords, RecordSource
from bucketlake.write.rehash import RehashSource
from bucketlake.write.row_merging import row_writing
from bucketlake.write.stages import (
    appended_slots,
    conflict_keys,
    run_stages,
    slots_by_partition,
)
from bucketlake.write.tag import SlotCounts, Tagger
from bucketlake.write.target import Target, adopt_index
from bucketlake.write.transaction import BegunWrite, Written, begun_write, commit_written
from bucketlake.write.write_plan import WritePlan, plan_write


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
    packed = source.pack(target.tagger(schema, target.tombstones(schema, operation)))
    _ = packed.counts  # Raises InputError.
    return CountedRecords(target.index, schema, packed)


def write_records(
    target: Target,
    operation: Operation,
    source: RecordSource,
    *,
    origin: Origin = UNKNOWN_ORIGIN,
    merge: SchemaMerge = NO_CHANGE,
    counted: CountedRecords | None = None,
    still_match: CommitStep | None = None,
    rows: RowMerge = WHOLE_ROWS,
    count_changes: Callable[[], dict[str, int]] | None = None,
    checks: Sequence[CommitStep] = (),
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
    origin : Origin
        The batch of a stream that the records are, which is written once, and the position in a
        source, which is stored even if nothing else changes.
    merge : SchemaMerge
        Changes of the schema that the write may make.
    counted : CountedRecords, optional
        The counts, if the caller has counted the records for a table without commits.
    still_match : CommitStep, optional
        For records that are rows of the table: the check right before the commit that they still
        are. So the result counts exactly, even if no stored row was looked at.
    rows : RowMerge
        How the columns of a record and of the stored row are combined.
    count_changes : callable, optional
        With ``still_match``: checks the records once they are packed, and returns what they change.
        By default each updates or deletes a row.
    checks : sequence of CommitStep
        Further checks right before the commit.

    Returns
    -------
    WriteResult
        Without an instant if nothing changed, or the batch was written before.
    """
    timeline = target.snapshot.timeline
    if was_committed(target.table, timeline, origin):
        return WriteResult(None, skipped=True)
    source, schema = _fitting(target, operation, source, merge, rows)
    combining = row_writing(target, operation, schema, source, rows)
    meets = still_match is None or count_changes is not None  # Else they are stored rows, changed.
    tombstones = target.tombstones(schema, operation, meets=meets)
    tagger = target.tagger(schema, tombstones)
    target, packed, listed = _packed(target, operation, source, tagger, counted)
    changes: dict[str, Any] | None = None if count_changes is None else count_changes()
    counts = packed.counts
    changes_nothing = not counts and operation is not Operation.INSERT_OVERWRITE_TABLE
    if changes_nothing and origin.position is None:
        return WriteResult(None, ignored=packed.late)
    if operation is Operation.BULK_INSERT and listed.slices:
        require_empty_partitions(SliceReader.of_snapshot(target.snapshot), listed.slices)
    is_blind = combining is None and still_match is None and not checks
    appended = appended_slots(target, operation, packed, listed.slices) if is_blind else frozenset()
    if not target.layout.locates:  # Else the groups of the records are not known yet.
        keys, clock = conflict_keys(target.layout, counts), target.table.clock
        wait_for_writers(target.storage, timeline, clock, keys, appends=bool(appended))
    with begun_write(target, operation, appended) as write:
        listed.require_whole(write.begun)
        slots = slots_by_partition(counts)
        begun = BegunWrite.on(write, target, slots, listed.slices, schema, combining)
        nothing = Written(WritePlan((), {}, 0), index_files=())  # Only the position moves.
        done = nothing if changes_nothing else run_stages(begun, packed, origin.batch)
        done = replace(
            done, tombstones=tombstones, deletes=packed.deletes, ignored=done.ignored + packed.late
        )
        checks = checks if still_match is None else (*checks, still_match)
        result = commit_written(begun, done, origin=origin, checks=checks)
    result = replace(result, in_driver=packed.engine.in_memory)
    if still_match is None:
        return result
    if changes is None:
        deleted = sum(counts.values()) - result.written
        changes = {"inserted": 0, "updated": result.written, "deleted": deleted, "ignored": 0}
    else:
        changes["inserted"] -= packed.late  # Rows of a merge whose keys are not stored.
        changes["ignored"] += packed.late
    return replace(result, **changes)


def _packed(
    target: Target,
    operation: Operation,
    source: RecordSource,
    tagger: Tagger,
    counted: CountedRecords | None,
) -> tuple[Target, PackedRecords, ListedSlices]:
    """Pack the records; return them, the table with the setting of its index, and its slices."""
    if counted is not None and counted.hold_for(target, tagger.schema):
        packed = counted.packed
    else:
        with doing("reading the records"):
            packed = source.pack(tagger)
            LOGGER.info("%s records are read", f"{sum(packed.counts.values()):,}")
    listed = _touched(target, operation, packed.counts)
    if packed.by_tasks is not None and not (target.appends or operation.replaces):
        sizes = sorted((held.size_bytes for held in listed.slices), reverse=True)
        # A record changes a slice at most.
        if sum(sizes[: sum(packed.counts.values())]) > threads.HERE_REWRITTEN_MAX:
            packed = packed.by_tasks()
    known = target.layout.hash_fields
    target = decided(target, packed.elsewhere, listed.slices)
    if target.layout.hash_fields != known:  # The files show another rule than was assumed.
        packed = source.pack(replace(tagger, layout=target.layout.unpinned))
    if target.adopts:  # Checking the setting needs all files.
        listed.require_whole(load_timeline(target.table))
    adopt_index(target, listed.slices)
    return target, packed, listed


def _fitting(
    target: Target, operation: Operation, source: RecordSource, merge: SchemaMerge, rows: RowMerge
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


def _touched(target: Target, operation: Operation, counts: SlotCounts) -> ListedSlices:
    """List the partitions of a write; the caller checks for cleans after the write has begun."""
    is_whole_table = operation is Operation.INSERT_OVERWRITE_TABLE
    partitions = None if is_whole_table else sorted({path for path, _ in counts})
    listed = target.snapshot.listed(partitions)
    return listed.with_lost_files() if operation.replaces else listed


# ---- Writes of whole partitions: with another index, with their own rows, or to delete them ------


def overwrite_partitions(
    target: Target,
    index: TableIndex,
    partitions: Sequence[str],
    source: RecordSource | RehashSource,
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
    source : RecordSource or RehashSource
        All rows of those partitions as ``target`` pins them.

    Raises
    ------
    CommitConflictError
        If one of the partitions, or the setting, changed meanwhile.
    """
    renewed = replace(target, index=index)
    tagger = renewed.tagger(target.snapshot.schema)
    slices = target.snapshot.partition_slices(partitions)
    if not partitions:
        source = ArrowSource(tagger.schema.empty_table())
    packed = source.pack(tagger)
    _require_own_rows(packed.counts, partitions)
    adopt_index(target, slices)
    held = newest_versions(target.storage, target.snapshot.timeline)
    check = partial(require_same_setting, target.layout, renewed.layout, held)
    with begun_write(target, Operation.INSERT_OVERWRITE) as write:
        mark_instant(target.storage, write.instant)
        save_setting(target.storage, target.index, index, write.instant)
        return _written(write, renewed, packed, slices, check)


def rewrite_partitions(
    target: Target, partitions: Sequence[str], source: RecordSource
) -> WriteResult:
    """Rewrite partitions with their own rows in one commit: each row in its bucket, one per key.

    Under a global record-level index, a key that is in several of them stays in one.

    Parameters
    ----------
    target : Target
        The table.
    partitions : sequence of str
        Paths of the partitions. Their files may contradict the index.
    source : RecordSource
        All rows of the partitions as ``target`` pins them, older ones first.

    Raises
    ------
    IndexStateError
        If the partition columns of a row give another partition.
    CommitConflictError
        If one of the partitions changed meanwhile.
    """
    slices = target.snapshot.partition_slices(partitions)
    target = as_stored(target, slices)
    tagger = target.tagger(target.snapshot.schema)
    packed = source.pack(tagger)
    _require_own_rows(packed.counts, partitions)
    with begun_write(target, Operation.INSERT_OVERWRITE) as write:
        return _written(write, target, packed, slices)


def _written(
    write: PendingWrite,
    target: Target,
    packed: Packed,
    slices: Sequence[FileSlice],
    settings: CommitStep | None = None,
) -> WriteResult:
    slots, schema = slots_by_partition(packed.counts), target.snapshot.schema
    begun = BegunWrite.on(write, target, slots, slices, schema)
    return commit_written(begun, run_stages(begun, packed), settings=settings)


def delete_partitions(target: Target, partitions: Sequence[str]) -> WriteResult:
    """Remove whole partitions from the table: a replace commit lists their file groups."""
    if not partitions:
        return WriteResult(None)
    slices = target.snapshot.replaceable_slices(dict.fromkeys(partitions))
    target.snapshot.by_partition(slices, partitions, "delete")
    with begun_write(target, Operation.DELETE_PARTITION) as write:
        slots: dict[str, tuple[int, ...]] = dict.fromkeys(partitions, ())
        begun = BegunWrite.on(write, target, slots, slices, target.snapshot.schema)
        layout, upkeep = begun.layout, begun.upkeep(slots)
        plan = plan_write(Operation.DELETE_PARTITION, {}, begun.slices, layout, tasks_wanted=1)
        done = Written(plan, upkeep=upkeep)
        if upkeep is not None:
            index_files, removed = upkeep.remove([*slots])
            changed = removed if layout.locates else None
            done = replace(done, index_files=index_files, changed=changed)
        return commit_written(begun, done)


def _require_own_rows(counts: SlotCounts, partitions: Sequence[str]) -> None:
    strayed = {path for path, _ in counts}.difference(partitions)
    if strayed:
        raise IndexStateError(
            f"the rows of partitions {', '.join(map(repr, partitions))} belong there",
            f"the partition columns of some rows give partition {min(strayed)!r}",
            "overwrite the partitions with their own rows first",
        )
