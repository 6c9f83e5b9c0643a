"""Writing dynamic buckets shard by shard: look up, choose, merge and write entries in one task.

New keys of a shard of the index go only to buckets of that shard. So the task that gets the records
of a shard owns the buckets of the shard too, as long as these buckets hold no keys of other shards.
Other programs put new keys into any bucket. A task that finds a key in a bucket of another shard
writes nothing for its shard and says so; then the write begins again and takes the general way with
two stages (``write/record_index/indexed_write.py``). ``write/record_index/new_partitions.py`` notes
such partitions.

The plan and the set of the records decide everything, so a task that runs twice makes the same
files: new keys are sorted before they are given to buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.flow.stage import Int32Array, Rows
from bucketlake.index.dynamic import MAX_FILE_SIZE_DEFAULT
from bucketlake.index.groups_for_new_keys import Filling, bucket_of_group, owner_of_group
from bucketlake.index.layout import GroupChoice, Slot, SlotPlan
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.metadata.record_index.entries_of_write import NewKeys
from bucketlake.metadata.record_index.locations import NOT_FOUND
from bucketlake.metadata.record_index.shards import IndexShards, Shard, rows_by_number
from bucketlake.model.arrays import is_everything
from bucketlake.model.file_name import FileId, Group
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.grouping import summed
from bucketlake.read.slice_reader import opened_base
from bucketlake.storage.base import Storage
from bucketlake.timeline.data_file import DataFiles
from bucketlake.write.record_index.index_writer import (
    IndexWriter,
    KnownKeys,
    Removal,
    ShardPlan,
    ShardResult,
    is_removed,
)
from bucketlake.write.record_index.locate import KeyFinder, LookupResult
from bucketlake.write.record_index.lookups import StoredShards
from bucketlake.write.slot_stage import WriteStage, WriteTask
from bucketlake.write.tag import SlotCounts
from bucketlake.write.write_plan import SlotResult, WritePlan

RowArray: TypeAlias = npt.NDArray[np.int64]

BYTES_MAX = 256 << 20
"""Greatest size in memory of the records of a shard in one write; more records take the general
way, which divides them among tasks."""

_KEY_BYTES_AT_ONCE = 1 << 20
"""Entries of the index are made together for keys of so many bytes."""

STORED_BYTES_MAX = 8 * MAX_FILE_SIZE_DEFAULT
"""Greatest size of the buckets of a shard that one task may have to rewrite; larger ones take the
general way, which gives each bucket to a task."""


@dataclass(frozen=True, slots=True)
class ShardStage:
    """Writes shards; a picklable value that all tasks of a write share.

    Attributes
    ----------
    records : WriteStage
        Sends records to the tasks of their shards.
    finder : KeyFinder
        Looks keys up.
    index_writer : IndexWriter
        Writes the entries of shards.
    filling : Filling
        Says which buckets get new keys.
    row_bytes : float
        Estimated bytes of a stored row.
    removes_entries : bool
        Whether deletes that are certain to win remove the entry of their key.
    """

    records: WriteStage
    finder: KeyFinder
    index_writer: IndexWriter
    filling: Filling
    row_bytes: float
    removes_entries: bool

    def route(self, rows: Rows) -> tuple[Int32Array, pa.Table]:
        """Send each record to the task of its shard."""
        return self.records.route(rows)

    def run(
        self, plans: Sequence[ShardPlan], received: dict[str, pa.Table]
    ) -> Iterator[SlotResult | ShardResult | LookupResult]:
        """Write the shards of a task; of a shard without records only its entries change."""
        files, index_files = self.records.task.writer.files(), self.index_writer.files()
        known: list[KnownKeys] = [(plan, [], _NO_KEYS) for plan in plans if plan.slot is None]
        known_bytes = 0
        slots = [plan.slot for plan in plans if plan.slot is not None]
        if slots:
            plan_of = {plan.slot.number: plan for plan in plans if plan.slot is not None}
            arrived = self.records.task.incoming(slots, self.records.records_of(received))
            for slot, incoming, count in arrived:
                plan = plan_of[slot.number]
                yield from self._write(plan, slot, incoming, count, files, known)
                known_bytes += incoming.keys.nbytes
                if known_bytes >= _KEY_BYTES_AT_ONCE:
                    yield from self.index_writer.write_known(known, index_files)
                    known, known_bytes = [], 0
        files.publish()
        yield from self.index_writer.write_known(known, index_files)
        index_files.publish()

    def _write(
        self,
        plan: ShardPlan,
        slot: SlotPlan,
        incoming: IncomingRecords,
        records: int,
        files: DataFiles,
        known: list[KnownKeys],
    ) -> Iterator[SlotResult | ShardResult | LookupResult]:
        task = self.records.task
        codes, groups, from_cache = self.finder.find(plan.looked_up, incoming.keys)
        places = np.array([*self._places(slot, groups), NOT_FOUND], np.int32)[codes]
        looked_up = 0 if plan.looked_up is None else len(codes)
        result = LookupResult(slot.number, records, looked_up=looked_up, from_cache=from_cache)
        shared = codes[places == _SHARED]
        if len(shared):
            yield replace(result, groups=((*groups[shared[0]], len(shared)),))
            yield SlotResult(slot.number, records, ())
            yield ShardResult(plan.number, None)
            return
        unknown = incoming.deleted & (places == NOT_FOUND)
        if unknown.any():
            kept = np.flatnonzero(~unknown)
            incoming, places = incoming.take(kept), places[kept]
        is_new = places == NOT_FOUND
        new: RowArray = incoming.in_key_order(np.flatnonzero(is_new))
        buckets, owners = self._fill(slot, plan.used, places, new)
        ordered = np.concatenate([np.flatnonzero(~is_new), new])
        choices: list[GroupChoice] = []
        entries: list[NewKeys] = []
        for number, at in rows_by_number(owners[ordered]):
            file_id, held = buckets[number]
            rows = ordered[at]
            choices.append(GroupChoice(file_id, held, rows))
            added = _taken(incoming.keys, rows[is_new[rows]])  # In order, as the entries are.
            if len(added):
                entries.append(NewKeys(added, slot.partition_path, file_id, is_sorted=True))
        yield task.writer.write_choices(slot, choices, incoming, records, files)
        gone = self._gone(task, incoming) if self.removes_entries else _NO_ROWS
        known.append((plan, entries, _taken(incoming.keys, gone)))
        yield replace(result, new=((0, len(new)),), gone=len(gone), unknown=int(unknown.sum()))

    def _places(self, slot: SlotPlan, groups: Sequence[Group]) -> Iterator[int]:
        """Yield the positions of groups among the live groups of a shard.

        An entry may name a group of the shard that is no longer live; its key is new.
        """
        live, count = {held.group: n for n, held in enumerate(slot.slices)}, self._count(slot)
        for path, file_id in groups:
            is_own = (path, owner_of_group(file_id, count)) == slot.key
            yield live.get((path, file_id), NOT_FOUND if is_own else _SHARED)

    def _count(self, slot: SlotPlan) -> int:
        counts = self.records.placement.shard_counts
        assert counts is not None, "the slots of the write are shards"
        return counts[slot.partition_path]

    def _fill(
        self,
        slot: SlotPlan,
        used: Sequence[FileId],
        places: npt.NDArray[np.int32],
        new: RowArray,
    ) -> tuple[list[tuple[FileId, FileSlice | None]], npt.NDArray[np.int32]]:
        """Choose the bucket of each record: new keys fill buckets with room, and then new ones.

        Parameters
        ----------
        slot, used
            The shard, and its ``ShardPlan.used``.
        places : ndarray of int32, shape (n_records,)
            For each record, the position of the live bucket that has its key, or ``NOT_FOUND``.
        new : ndarray of int64, shape (n_new,)
            The records with new keys, in the order of keys.

        Returns
        -------
        list of (FileId, FileSlice or None)
            The live buckets of the shard, and then the new ones.
        ndarray of int32, shape (n_records,)
            The position of each record's bucket.
        """
        writer, slices, owners = self.records.task.writer, slot.slices, places.copy()
        buckets: list[tuple[FileId, FileSlice | None]] = [(s.file_id, s) for s in slices]
        numbers = {file_id: number for number, (file_id, _) in enumerate(buckets)}
        left = new
        known = np.unique(places[places != NOT_FOUND]).tolist() if slices else []
        written = {slices[n].file_id for n in known}
        rows_of, count = partial(rows_of_group, writer.storage), self._count(slot)
        for held in self.filling.candidates(slot.slot, count, slices, written):
            if not len(left):
                break
            room = max(0, self.filling.room(held, self.row_bytes, rows_of))
            owners[left[:room]] = numbers[held.file_id]
            left = left[room:]
        rows_max = self.filling.rows_max(self.row_bytes)
        free = self.filling.new_numbers(slot.slot, count, lambda: [*numbers, *used])
        for start in range(0, len(left), rows_max):
            owners[left[start : start + rows_max]] = len(buckets)
            path = slot.partition_path
            buckets.append((self.filling.new_group_id(writer.instant, path, next(free)), None))
        return buckets, owners

    def _gone(self, task: WriteTask, incoming: IncomingRecords) -> RowArray:
        """Return the rows whose keys are certain to be gone after the write."""
        if task.reader.deletes_by_key or not task.reader.rule.compares:
            return np.flatnonzero(incoming.deleted)
        return np.flatnonzero(incoming.deleted & incoming.is_reset)


_SHARED = -2  # In place of a position: the key is in a bucket of another shard.
_NO_KEYS = pa.nulls(0, pa.string())
_NO_ROWS = np.empty(0, np.int64)


def rows_of_group(storage: Storage, held: FileSlice) -> int:
    """Return the rows of a group: exact for a base file, estimated for its log files."""
    base = held.base_file
    if base is None:
        return 0
    rows = rows_in(storage, base)
    logged = held.size_bytes - base.size_bytes
    return rows + int(logged * rows / base.size_bytes)


def rows_in(storage: Storage, base: DataFile) -> int:
    """Return the rows of a base file, from its footer."""
    with opened_base(storage, base) as reader:
        return reader.row_count


def _taken(keys: pa.Array, rows: RowArray) -> pa.Array:
    return keys if is_everything(rows, len(keys)) else keys.take(pa.array(rows))


# ---- The plan of a write shard by shard, and what its tasks did ----------------------------------


def counts_of_shards(counts: SlotCounts, shards: IndexShards) -> dict[Slot, int]:
    """Return the records of each shard, from those of each tag.

    A tag is the shard that a record would have in a large partition. A small partition has fewer
    shards; their number divides that of the tags, so all records with one tag are of one shard.
    """
    return summed(
        ((path, tag % shards.count(path)), count) for (path, tag), count in counts.items()
    )


def plan_shard_writes(
    plan: WritePlan,
    changed: Sequence[ShardPlan],
    *,
    shards: IndexShards,
    stored: StoredShards,
    removal: Removal,
    gone: Mapping[str, Sequence[FileId]],
) -> list[ShardPlan]:
    """Return what tasks do: shards with records, and those whose entries alone change.

    Parameters
    ----------
    plan : WritePlan
        The slots, each of which is a shard.
    changed : sequence of ShardPlan
        How the entries of shards change.
    shards : IndexShards
        The shards of the index, with those that the write opens.
    stored : mapping
        The slices of stored shards.
    removal : tuple of str, or None
        Partitions whose entries go.
    gone : mapping of str to sequence of FileId
        Groups of each partition that are no longer live.
    """
    numbers = {shard.shard: shard for shard in changed}
    written: list[ShardPlan] = []
    for slot in plan.slots:
        path, number = slot.key
        count = shards.count(path)
        shard = replace(numbers.pop(Shard(number, path)), slot=slot, task=slot.task)
        if not is_removed(removal, path) and (held := stored.get(path)):
            shard = replace(shard, stored=held[number])
        ids = [*gone.get(path, ()), *plan.replaced.get(path, ())]
        own = [file_id for file_id in ids if owner_of_group(file_id, count) == number]
        own.sort(key=lambda file_id: bucket_of_group(file_id) or 0)
        written.append(replace(shard, used=tuple(own[-1:])))
    left = [shard for shard in numbers.values() if shard.opens or shard.stored is not None]
    return written + [replace(shard, task=n % plan.task_count) for n, shard in enumerate(left)]
