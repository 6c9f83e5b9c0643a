"""Writes of whole partitions: with another index, with their own rows, or to delete them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bucketlake.actions.commit import CommitStep, PendingWrite
from bucketlake.errors import IndexStateError
from bucketlake.index.setting import TableIndex
from bucketlake.index.state import newest_versions, save_setting
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.result import WriteResult
from bucketlake.model.table_type import Operation
from bucketlake.timeline.markers import mark_instant
from bucketlake.write.arrow_source import ArrowSource
from bucketlake.write.commit_checks import require_same_setting
from bucketlake.write.key_rule_check import as_stored
from bucketlake.write.pack import Packed, RecordSource
from bucketlake.write.rehash import RehashSource
from bucketlake.write.stages import run_stages, slots_by_partition
from bucketlake.write.tag import SlotCounts
from bucketlake.write.target import Target, adopt_index
from bucketlake.write.transaction import BegunWrite, Written, begun_write, commit_written
from bucketlake.write.write_plan import plan_write


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
