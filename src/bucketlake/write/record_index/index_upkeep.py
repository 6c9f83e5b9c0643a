"""Upkeep of the record-level index by a write, whatever the index kind of the table.

The driver opens the index that the table has, plans which shards the write may change, and sends
the plans to tasks (``write/record_index/index_writer.py``). A table without a record-level index
costs nothing. An index that the write cannot maintain is taken off at the commit
(``actions/metadata_upkeep.py``).

A global index has each key once, but a bucket index stores a key once in each partition. If a write
finds one of its keys in another partition, no entry can be right for both rows, so the index is
taken off too. Two writes at the same time may add one key to two partitions without seeing each
other; readers of bucketlake do not prune by a global index if the table has a bucket index.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bucketlake.errors import CommitConflictError, MetadataTableWarning
from bucketlake.flow.stage import spread
from bucketlake.index.conflict_keys import ChangedShards, ConflictKey, key_of_shard
from bucketlake.metadata.log_files import EntryEncoder
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.metadata.record_index.pinned_index import PinnedIndex
from bucketlake.metadata.record_index.shards import Shard
from bucketlake.model.file_name import FileId, Group, LogFileName
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import summed
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.snapshot import Snapshot
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.commit_order import Turn
from bucketlake.timeline.instant import Instant
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.transitions import instant_path
from bucketlake.write.record_index.index_writer import (
    IndexTask,
    IndexWriter,
    Removal,
    ShardPlan,
    ShardResult,
    removed_shards,
)
from bucketlake.write.write_plan import RECORD_SIZE_BYTES_ESTIMATE, WritePlan

_SHARD_TASKS_OF_RESIZE = 8
_KEY_WEIGHT = 100  # Weighs keys against stored bytes, of which an entry takes some 15.


@dataclass(frozen=True, slots=True)
class IndexUpkeep:
    """The record-level index of a table, as a write maintains it.

    Attributes
    ----------
    table : OpenTable
    pending : Instant
        The inflight instant of the write, or of a resize.
    index : PinnedIndex
        The pinned index.
    """

    table: OpenTable
    pending: Instant
    index: PinnedIndex

    @property
    def writer(self) -> IndexWriter:
        """Writes the entries of shards."""
        reader, instant = self.index.reader, self.pending.requested_at
        table = reader.table
        names: dict[FileId, LogFileName] = {}
        if table.timeline.layout.logs_name_slices:
            slices = (held for found in reader.slices.values() for held in found)
            names = {held.file_id: held.next_log_file(instant) for held in slices}
        return IndexWriter(
            RecordIndexReader(table),
            self.table.storage,
            EntryEncoder.of(self.table.config, instant),
            instant_path(self.table.config, self.pending),
            names=names,
        )

    def plan(
        self, plan: WritePlan, operation: Operation, *, looks_up: bool, tasks_wanted: int
    ) -> tuple[ShardPlan, ...]:
        """Plan which shards a write may change.

        Parameters
        ----------
        plan : WritePlan
            The slots of the write.
        operation : Operation
            The operation of the write.
        looks_up : bool
            Whether tasks send keys of which they do not know whether they are new.
        tasks_wanted : int
            Number of tasks that the engine prefers.
        """
        records = summed((slot.partition_path, max(1, slot.records)) for slot in plan.slots)
        whole = operation is Operation.INSERT_OVERWRITE_TABLE
        removal = None if whole else tuple(sorted(plan.replaced))
        looks_up = looks_up or not self.index.shards.is_partitioned
        return self._planned(records, removal, (), looks_up=looks_up, tasks_wanted=tasks_wanted)

    def plan_moves(
        self, slices: Sequence[FileSlice], *, may_have_dead_entries: bool
    ) -> tuple[ShardPlan, ...]:
        """Plan which shards a resize changes.

        Parameters
        ----------
        slices : sequence of FileSlice
            The slices whose rows move to other file groups.
        may_have_dead_entries : bool
            Whether the index may have entries of these file groups whose rows are deleted.
        """
        records = summed(
            (held.partition_path, held.size_bytes // RECORD_SIZE_BYTES_ESTIMATE + 1)
            for held in slices
        )
        left = [held.group for held in slices]
        left = sorted(left) if may_have_dead_entries else []
        return self._planned(
            records, (), left, looks_up=bool(left), tasks_wanted=_SHARD_TASKS_OF_RESIZE
        )

    def _planned(
        self,
        records: Mapping[str, int],
        removal: Removal,
        left: Sequence[Group],
        *,
        looks_up: bool,
        tasks_wanted: int,
    ) -> tuple[ShardPlan, ...]:
        shards, stored = self.index.shards, self.index.stored
        removing = dict(removed_shards(removal, stored))
        touched = shards.shards(sorted(records)) if records else []
        plans: list[ShardPlan] = []
        for shard in sorted({*touched, *removing}, key=lambda shard: shard.file_id):
            path = shard.data_partition
            held = removing.get(shard)
            replaced = () if held is None else removal
            if held is None and looks_up and stored.get(path):
                held = stored[path][shard.number]
            opens = self.index.reader.shards.count(path or "") == 0
            own = tuple(group for group in left if path in (None, group[0]))
            plans.append(
                ShardPlan(len(plans), shard, opens=opens, stored=held, replaced=replaced, left=own)
            )
        tasks = spread([self._weight(plan, records) for plan in plans], max(1, tasks_wanted))
        numbers = {task: number for number, task in enumerate(sorted({*tasks}))}
        return tuple(
            replace(plan, task=numbers[task]) for plan, task in zip(plans, tasks, strict=True)
        )

    def task(self, plans: Sequence[ShardPlan]) -> IndexTask:
        """Return what the tasks of the write need."""
        first: dict[str, int] = {}
        for plan in plans:
            first.setdefault(plan.shard.data_partition or "", plan.number - plan.shard.number)
        tasks = np.array([plan.task for plan in plans], np.int32)
        return IndexTask(self.index.shards, first, tasks, self.writer)

    def files(
        self,
        plan: WritePlan,
        results: Sequence[ShardResult],
        stats: Sequence[WriteStat],
        snapshot: Snapshot,
    ) -> tuple[WriteStat, ...] | None:
        """Return the log files of the index; None if the write could not maintain it.

        Parameters
        ----------
        plan : WritePlan
            The plan of the write.
        results : sequence of ShardResult
            What the tasks of shards did.
        stats : sequence of WriteStat
            The data files of the write.
        snapshot : Snapshot
            The pinned table.
        """
        answered = sorted(result.number for result in results)
        assert answered == [shard.number for shard in plan.shards], "each shard has one result"
        if any(stat.log_copy is not None for stat in stats):
            return None  # A resize will move the keys, and does not know them all.
        found = _stored_in_two_partitions(results, snapshot)
        if found is not None:
            key, path = found
            warnings.warn(
                f"key {key!r} is in partition {path!r} of {snapshot.storage.root} and was written "
                "to another partition: a global record-level index has a key once, so it is taken "
                "off; build a partitioned index",
                MetadataTableWarning,
                stacklevel=2,
            )
            return None
        return write_stats_of(results)

    def remove(self, partitions: Sequence[str]) -> tuple[tuple[WriteStat, ...], ChangedShards]:
        """Remove the entries of partitions whose file groups the write removes.

        Returns
        -------
        tuple of WriteStat
            Log files of the index.
        ChangedShards
            The shards of the partitions.
        """
        removal = tuple(partitions)
        removing = removed_shards(removal, self.index.stored)
        plans = [
            ShardPlan(number, shard, stored=held, replaced=removal)
            for number, (shard, held) in enumerate(removing)
        ]
        changed = ChangedShards(removed=frozenset(key_of(plan.shard) for plan in plans))
        return write_stats_of(self.task(plans).write_shards_here(plans)), changed

    def require_same_index(self, turn: Turn | None, timeline: Timeline | None) -> None:
        """Raise CommitConflictError if the index has other shards than when it was pinned.

        Parameters
        ----------
        turn : Turn or None
            The turn after which the write takes its own.
        timeline : Timeline or None
            The newest timeline, if other commits may have opened shards meanwhile.
        """
        instant = self.pending.requested_at
        if turn is not None and turn.metadata_changed and self.index.was_built_again():
            problem = "the record-level index was built again meanwhile; retry it"
            raise CommitConflictError(instant, problem)
        if timeline is None:
            return
        partition = self.index.differing_partition(self.table.config, timeline)
        if partition is not None:
            raise CommitConflictError(
                instant,
                f"another write gave partition {partition!r} another number of index shards "
                "meanwhile; retry the write",
            )

    def _weight(self, plan: ShardPlan, records: Mapping[str, int]) -> int:
        path = plan.shard.data_partition
        count = sum(records.values()) if path is None else records.get(path, 0)
        share = count // max(1, self.index.shards.count(path or ""))
        held = 0 if plan.stored is None else sum(file.size_bytes for file in plan.stored.files)
        return 1 + share * _KEY_WEIGHT + held


def write_stats_of(results: Sequence[ShardResult]) -> tuple[WriteStat, ...]:
    """Return the log files of shards, in order."""
    ordered = sorted(results, key=lambda result: result.number)
    return tuple(result.stat for result in ordered if result.stat is not None)


def key_of(shard: Shard) -> ConflictKey:
    """Return the conflict key of a shard."""
    return key_of_shard(shard.data_partition, shard.number)


def _stored_in_two_partitions(
    results: Sequence[ShardResult], snapshot: Snapshot
) -> tuple[str, str] | None:
    """Return a written key with a row in another data partition, and that partition; else None.

    An entry may name a file group that is no longer live, because another program left it.
    """
    found = [each for result in results for each in result.elsewhere]
    slices = snapshot.partition_slices(sorted({path for _, path, _ in found}))
    live = {held.group for held in slices}
    return next(((key, path) for key, path, id_ in found if (path, id_) in live), None)
