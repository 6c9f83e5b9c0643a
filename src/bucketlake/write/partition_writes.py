"""Writes of whole partitions: with another index, with their own rows, or to delete them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bucketlake.actions.commit import CommitPlan
from bucketlake.errors import IndexStateError, InputError
from bucketlake.index.setting import TableIndex
from bucketlake.index.state import newest_versions, save_setting
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.names import did_you_mean
from bucketlake.model.result import WriteResult
from bucketlake.model.table_type import Operation
from bucketlake.timeline.markers import mark_instant
from bucketlake.write.arrow_source import ArrowSource
from bucketlake.write.commit_checks import (
    require_same_index,
    require_same_setting,
    require_same_settings,
)
from bucketlake.write.ingest import (
    layout_of_write,
    save_written,
    upkeep_of,
    write_into_slots,
    write_located,
)
from bucketlake.write.pack import RecordSource, SlotSource
from bucketlake.write.tag import SlotCounts
from bucketlake.write.target import Target, adopt_index
from bucketlake.write.transaction import begun_write, commit_planned
from bucketlake.write.write_plan import plan_write


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
        return write_into_slots(write, renewed, packed, tagger, slices, check)


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
    tagger = target.tagger(target.snapshot.schema)
    slices = target.snapshot.partition_slices(partitions)
    packed = source.pack(tagger)
    _require_own_rows(packed.counts, partitions)
    with begun_write(target, Operation.INSERT_OVERWRITE) as write:
        if target.layout.locates:
            return write_located(write, target, packed, tagger, slices)
        return write_into_slots(write, target, packed, tagger, slices)


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
            "name partitions by their path, as table.buckets() (bucketlake buckets) shows it"
            + did_you_mean(
                absent[0], {held.partition_path for held in target.snapshot.all_slices()}
            ),
        )
    with begun_write(target, Operation.DELETE_PARTITION) as write:
        layout = layout_of_write(target, write, held)
        plan = plan_write(Operation.DELETE_PARTITION, {}, slices, layout, tasks_wanted=1)
        own = CommitPlan(
            checks=(partial(require_same_settings, target, layout, dict.fromkeys(held, ())),),
            saves=(partial(save_written, target.index, layout, ()),),
            group_key=layout.conflict_key_of_group,
        )
        upkeep = upkeep_of(write, target, layout, [*held], slices)
        if upkeep is not None:
            index_files, changed = upkeep.remove([*held])
            own = replace(
                own,
                checks=(*own.checks, partial(require_same_index, upkeep)),
                extra=changed.to_metadata() if layout.locates else {},
                index_files=index_files,
            )
        return commit_planned(write, target, plan, target.snapshot.schema, own)


def _require_own_rows(counts: SlotCounts, partitions: Sequence[str]) -> None:
    strayed = {path for path, _ in counts}.difference(partitions)
    if strayed:
        raise IndexStateError(
            f"the rows of partitions {', '.join(map(repr, partitions))} belong there",
            f"the partition columns of some rows give partition {min(strayed)!r}",
            "overwrite the partitions with their own rows first",
        )
