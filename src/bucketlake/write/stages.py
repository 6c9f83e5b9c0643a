"""The stages of a write, which are planned after its records are packed.

What differs between kinds of index is decided here:

- Buckets: each slot has its file groups. One stage writes the slots, and a second one the shards of
  a record-level index, if the table has one.
- A record-level index: one stage for each shard with its own buckets, or a stage that locates the
  records and one that places them (``write/record_index/indexed_write.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.conflict_keys import ConflictKey, ConflictKeys
from bucketlake.index.layout import Layout, Slot
from bucketlake.model.file_name import FileId
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import grouped
from bucketlake.model.position import Batch
from bucketlake.model.table_type import Operation
from bucketlake.read.slice_reader import SliceReader
from bucketlake.write.pack import Packed, PackedRecords
from bucketlake.write.record_index.indexed_write import IndexedWrite
from bucketlake.write.slot_stage import TaskResult, require_counted
from bucketlake.write.target import Target
from bucketlake.write.transaction import BegunWrite, Written
from bucketlake.write.write_plan import SlotResult, WritePlan, plan_write


def run_stages(begun: BegunWrite, packed: Packed, batch: Batch | None = None) -> Written:
    """Plan the stages of a write, and let tasks carry them out.

    Parameters
    ----------
    begun : BegunWrite
    packed : Packed
        The records.
    batch : Batch, optional
        The batch of a stream that the records are.
    """
    if begun.layout.locates:
        assert isinstance(packed, PackedRecords), "only buckets are rehashed"
        done = IndexedWrite.of(begun, packed, batch).run()
    else:
        done = _by_slot(begun, packed)
    _require_complete(done.plan, done.slots)
    return done


def slots_by_partition(slots: Iterable[Slot]) -> dict[str, set[int]]:
    """Return slots by their partition."""
    return {path: {*own} for path, own in grouped(slots).items()}


def conflict_keys(layout: Layout, slots: Iterable[Slot]) -> set[ConflictKey]:
    """Return the conflict keys of slots."""
    return {layout.conflict_key(*slot) for slot in slots}


APPENDED_MAX = 4096
"""Slots to which a write appends blindly: they are in its heartbeat, which is put again and again.

A write to more slots waits for others, as writes do that are no blind appends.
"""


def appended_slots(
    target: Target, operation: Operation, packed: PackedRecords, slices: Sequence[FileSlice]
) -> ConflictKeys:
    """Return the slots to which a write of whole rows appends blindly; none if it does not.

    A *blind append* reads no stored row, and adds a log file to file groups that are there in each
    of its slots. So it would write the same files after other such writes, except for the time in
    their names (``actions/conflict.py``). It does not if the name of a log file has the slice to
    which it belongs, or the commit names the files of the slice; if keys are looked up in several
    groups of a bucket, by two rules, or in a record-level index; or if a resize is pending, for
    which log files are repeated.

    Parameters
    ----------
    target : Target
    operation : Operation
    packed : PackedRecords
        The records.
    slices : sequence of FileSlice
        Live slices of the partitions of the records.
    """
    config, layout = target.config, target.layout
    is_read = layout.looks_up or packed.elsewhere
    is_named = config.layout.logs_name_slices or config.change_log is not None
    is_indexed = MetadataPartition.RECORD_INDEX in config.written_metadata_partitions
    is_resized = target.snapshot.timeline.pending_clusterings()
    is_upsert = operation is Operation.UPSERT and target.appends
    if not is_upsert or is_read or is_named or is_indexed or is_resized:
        return frozenset()
    wanted = conflict_keys(layout, packed.counts)
    there = {layout.conflict_key_of_group(*held.group) for held in slices}
    return wanted if wanted <= there and len(wanted) <= APPENDED_MAX else frozenset()


def _by_slot(begun: BegunWrite, packed: Packed) -> Written:
    """Let tasks write the file groups of slots, and the entries of a record-level index."""
    target, layout, operation = begun.target, begun.layout, begun.operation
    wanted, counts = packed.tasks_wanted, packed.counts
    plan = plan_write(
        operation,
        counts,
        begun.slices,
        layout,
        tasks_wanted=wanted,
        elsewhere=packed.elsewhere,
    )
    upkeep = begun.upkeep({slot.partition_path for slot in plan.slots} | {*plan.replaced})
    if upkeep is not None:
        looks_up = target.appends
        shards = upkeep.plan(plan, operation, looks_up=looks_up, tasks_wanted=wanted)
        plan = replace(plan, shards=shards)
    is_doubtful = any(slot.elsewhere for slot in plan.slots)
    task = replace(
        begun.task(len(plan.slots)),
        index=None if upkeep is None else upkeep.task(plan.shards),
        stored=SliceReader.of_snapshot(target.snapshot) if is_doubtful else None,
    )
    results: Sequence[TaskResult] = []  # Without slots, the plan of shards is enough.
    with begun.telling_progress(plan):
        if plan.slots:
            results = packed.write(plan, task)
        elif task.index is not None:
            results = task.index.write_shards_here(plan.shards)
    slots = [result for result in results if isinstance(result, SlotResult)]
    index_files = None
    if upkeep is not None:
        shard_results = [result for result in results if not isinstance(result, SlotResult)]
        stats = [stat for result in slots for stat in result.stats]
        index_files = upkeep.files(plan, shard_results, stats, target.snapshot)
    return Written(
        plan,
        slots,
        upkeep,
        index_files,
        # A delete that found no key has still looked in the slots of its partitions.
        looked_at=conflict_keys(layout, counts),
        served=layout.served_resizes(begun.slots) if target.appends else {},
    )


def _require_complete(plan: WritePlan, results: Sequence[SlotResult]) -> None:
    answered = sorted(result.number for result in results)
    assert answered == [slot.number for slot in plan.slots], "each slot of the plan has one result"
    require_counted(plan, results)
    known = {file_slice.group for slot in plan.slots for file_slice in slot.slices}
    writers: dict[tuple[str, FileId], int] = {}
    for result in results:
        for stat in result.stats:
            writer = writers.setdefault(stat.group, result.number)
            assert writer == result.number, "two slots, or parts of one, wrote one file group"
            assert stat.opens_group != (stat.group in known), "a group is new, or in the plan"
    paths = [stat.path for result in results for stat in result.stats]
    assert len(set(paths)) == len(paths), "a slot wrote one file twice"
