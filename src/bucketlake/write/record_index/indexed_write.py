"""The steps of a write under a record-level index, between its begin and its commit.

Dynamic buckets whose keys are of one shard each are written in one stage
(``write/record_index/by_shard.py``). In general there are two: the records are located, the driver
plans which file group gets which of them, and tasks write the groups and the changed entries of the
index (``write/record_index/locate.py``, ``write/record_index/group_plan.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bucketlake.actions.conflict import ReplanError, wait_for_writers
from bucketlake.flow.stage import Flow
from bucketlake.index.conflict_keys import ChangedShards
from bucketlake.index.groups_for_new_keys import bucket_of_group
from bucketlake.index.layout import Slot, SlotPlan
from bucketlake.index.record_layout import RecordLayout, located
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.metadata.record_index.pinned_index import PinnedIndex
from bucketlake.metadata.record_index.shards import Shard
from bucketlake.model.file_name import FileId, Group
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import grouped, summed
from bucketlake.model.position import Batch
from bucketlake.model.table_type import Operation
from bucketlake.storage.base import Storage
from bucketlake.write.pack import PackedRecords
from bucketlake.write.record_index.by_shard import (
    BYTES_MAX,
    STORED_BYTES_MAX,
    ShardStage,
    counts_of_shards,
    plan_shard_writes,
    rows_in,
    rows_of_group,
)
from bucketlake.write.record_index.group_plan import (
    GroupPlanner,
    PlaceStage,
    dead_groups,
    weight_of_rows,
)
from bucketlake.write.record_index.index_upkeep import IndexUpkeep, key_of, write_stats_of
from bucketlake.write.record_index.index_writer import (
    IndexWriter,
    Removal,
    ShardPlan,
    ShardResult,
    is_removed,
)
from bucketlake.write.record_index.locate import KeyFinder, LocateStage, LookupResult, Routes
from bucketlake.write.record_index.lookups import LookupPlacement, plan_lookups
from bucketlake.write.record_index.new_partitions import (
    have_shared_groups,
    note_shared_groups,
    with_new_shards,
)
from bucketlake.write.slot_stage import TaskResult, WriteStage, WriteTask
from bucketlake.write.tag import SlotCounts, input_changed
from bucketlake.write.transaction import BegunWrite, Written
from bucketlake.write.write_plan import SlotResult, WritePlan, file_ids_by_partition, plan_write

if TYPE_CHECKING:
    from bucketlake.metadata.location_cache.cache import Checkpoint


@dataclass(frozen=True, slots=True)
class IndexedWrite:
    """A write under a record-level index that has begun.

    Attributes
    ----------
    begun : BegunWrite
        The write; its slots are partitions, or shards.
    packed : PackedRecords
        The records.
    records : mapping of str to int
        Number of records of each partition.
    upkeep : IndexUpkeep
        Writes the entries of the index.
    task : WriteTask
        Writes file groups.
    finder : KeyFinder
        Looks keys up in the tasks.
    """

    begun: BegunWrite
    packed: PackedRecords
    records: Mapping[str, int]
    upkeep: IndexUpkeep
    task: WriteTask
    finder: KeyFinder

    @classmethod
    def of(cls, begun: BegunWrite, packed: PackedRecords, batch: Batch | None) -> Self:
        """Choose the shards of new partitions, and open the index.

        Parameters
        ----------
        begun : BegunWrite
        packed : PackedRecords
            The records; each partition is one slot, or each shard.
        batch : Batch, optional
            The batch of a stream that the records are.
        """
        records = summed((path, count) for (path, _), count in packed.counts.items())
        target, layout = begun.target, located(begun.layout)
        index = target.pinned_index({*begun.slots, *(held.partition_path for held in begun.slices)})
        index = with_new_shards(index, layout.new_shards, records, target.snapshot)
        begun = replace(begun, layout=replace(layout, shards=index.shards))
        upkeep = IndexUpkeep(begun.pending.table, begun.instant, index)
        reader = RecordIndexReader(index.reader.table)
        finder = KeyFinder(reader, target.cache, None if batch is None else _checkpoint(batch))
        return cls(begun, packed, records, upkeep, begun.task(), finder)

    @property
    def _layout(self) -> RecordLayout:
        return located(self.begun.layout)

    @property
    def _storage(self) -> Storage:
        return self.begun.target.storage

    @property
    def _index(self) -> PinnedIndex:
        return self.upkeep.index

    @property
    def _index_writer(self) -> IndexWriter:
        return replace(self.upkeep.writer, cache=self.begun.target.cache)

    def run(self) -> Written:
        """Write the records shard by shard, or locate and place them."""
        slices = self.begun.slices
        if self._goes_by_shard():
            return self._run_by_shard()
        removal, replaced = self._removal(), {}
        if self.begun.operation.replaces:
            replaced, slices = file_ids_by_partition(slices), ()
        self._index.reader.require_shards(held.partition_path for held in slices)
        looked_up = {
            path: held for path, held in self._index.stored.items() if not is_removed(removal, path)
        }
        wanted = self.packed.tasks_wanted
        shards = self._index.shards
        lookups, placement = plan_lookups(self.records, shards, looked_up, tasks_wanted=wanted)
        located, live, found = self._located(lookups, placement, removal, slices)
        removed = cache(self._replaced)
        try:
            records = self.records if shards.is_partitioned else {"": sum(self.records.values())}
            _require_received(records, lookups, found)
            plan, routes = GroupPlanner(
                partitions=placement.partitions,
                lookups=lookups,
                found=found,
                live=live,
                replaced=replaced,
                filling=self._layout.filling,
                row_bytes=self._row_bytes(live) if any(result.new for result in found) else 1.0,
                rows_of=partial(rows_of_group, self._storage),
                used=lambda path: [*removed().get(path, ()), *replaced.get(path, ())],
                shards=shards,
                stored=self._index.stored,
                removal=removal,
                instant=self.begun.pending.instant,
                tasks_wanted=wanted,
            ).plan()
            self._wait_for_writers(plan, [s.shard for s in plan.shards if s.new])
            results = self._write(located, plan, routes)
        finally:
            located.close()
        searched = [shards.shard(own.slot, own.partition_path) for own in lookups]
        return self._result(plan, plan.shards, results, searched, found)

    def _goes_by_shard(self) -> bool:
        """Return whether the tasks of shards may own the buckets of their shards."""
        packed, slices = self.packed, self.begun.slices
        if not self._layout.shards_have_groups or not packed.counts:
            return False
        shards, tags = self._index.shards, self._layout.new_shards.of_large
        paths = {*self.records, *(held.partition_path for held in slices)}
        if any(tags % shards.count(path) for path in paths):
            return False
        row_bytes = packed.size_bytes / sum(self.records.values())
        counts = counts_of_shards(packed.counts, shards)
        return (
            all(
                # The only shard of a partition that grew gets less, for the sake of more tasks.
                records * row_bytes <= BYTES_MAX * shards.count(path) / tags
                for (path, _), records in counts.items()
            )
            and all(bucket_of_group(held.file_id) is not None for held in slices)
            and not have_shared_groups(self._storage, paths)
            and not self._rewrites_much(counts)
        )

    def _rewrites_much(self, written: Collection[Slot]) -> bool:
        """Return whether the task of a shard may have to rewrite more than a task should."""
        if self.begun.target.appends or self.begun.operation.replaces:
            return False
        live = self._layout.live_shards(self.begun.slices)
        return any(
            len(held) > 1 and sum(each.size_bytes for each in held) > STORED_BYTES_MAX
            for slot, held in live.items()
            if slot in written
        )

    def _run_by_shard(self) -> Written:
        """Write the records shard by shard, in one stage."""
        packed, slices, removal = self.packed, self.begun.slices, self._removal()
        self._index.reader.require_shards(held.partition_path for held in slices)
        live: dict[Group, FileSlice] = {s.group: s for s in slices}
        shards = self._index.shards
        counts = counts_of_shards(packed.counts, shards)
        plan = self._plan_by_shard(counts)
        changed = self.upkeep.plan(
            plan, self.begun.operation, looks_up=False, tasks_wanted=packed.tasks_wanted
        )
        slots_of = {path: shards.count(path) for path in self.records}
        placement = replace(plan.placement(), shard_counts=slots_of)
        stage = ShardStage(
            WriteStage(self._task_of(plan), placement, packed.schema),
            self.finder,
            self._index_writer,
            self._layout.filling,
            self._row_bytes(live),
            removes_entries=not self.begun.target.appends,
        )
        works = plan_shard_writes(
            plan,
            changed,
            shards=shards,
            stored=self._index.stored,
            removal=removal,
            gone=self._replaced(),
        )
        owned = [Shard(slot.slot, slot.partition_path) for slot in plan.slots]
        self._wait_for_writers(plan, owned)
        results: list[Any] = []
        if plan.slots:
            with self.begun.telling_progress(plan):
                results = packed.write_by_shard(stage, works, plan.task_count)
        self._require_own_groups(plan, results)
        # A delete looks for nothing in an empty partition, but must see who adds its keys.
        empty = counts.keys() - {slot.key for slot in plan.slots}
        lookups = [result for result in results if isinstance(result, LookupResult)]
        lookups.sort(key=lambda result: result.number)
        done = self._result(plan, works, results, owned, lookups)
        looked_at = {*done.looked_at, *(key_of(Shard(number, path)) for path, number in empty)}
        return replace(done, looked_at=frozenset(looked_at))

    def _require_own_groups(self, plan: WritePlan, results: Sequence[Any]) -> None:
        """Raise ReplanError if a task found a key in a bucket of another shard.

        The partition is noted, so that the next plan takes two stages.
        """
        found = [each for each in results if isinstance(each, LookupResult) and each.groups]
        shared = {plan.slots[each.number].partition_path for each in found}
        if shared:
            note_shared_groups(self._storage, shared)
            raise ReplanError(
                self.begun.pending.instant,
                f"buckets of partition {min(shared)!r} hold keys of several shards; write again",
            )

    def _plan_by_shard(self, counts: SlotCounts) -> WritePlan:
        """Plan a slot for each shard with records; deletes need none in an empty partition."""
        operation, slices = self.begun.operation, self.begun.slices
        if operation is Operation.DELETE:
            held = {file_slice.partition_path for file_slice in slices}
            counts = {slot: count for slot, count in counts.items() if slot[0] in held}
            operation = Operation.UPSERT  # The keys of every shard are looked at.
        layout, wanted = self._layout, self.packed.tasks_wanted
        live = layout.live_shards(slices)
        return plan_write(operation, counts, slices, layout, tasks_wanted=wanted, live=live)

    def _located(
        self,
        lookups: Sequence[SlotPlan],
        placement: LookupPlacement,
        removal: Removal,
        slices: Sequence[FileSlice],
    ) -> tuple[Flow, dict[Group, FileSlice], list[LookupResult]]:
        """Locate the records.

        An entry may name a group that is no longer live: the write of another program replaced it
        and left the entry. Then the records are located again without such entries.

        Returns
        -------
        located : Flow
            The records.
        live : dict of (str, FileId) to FileSlice
            The live groups of the partitions that the records concern.
        found : list of LookupResult
            What the lookups found. The first time has filled the cache for the second time, so only
            the first time tells what the cache had.
        """
        replaced = frozenset(removal or ())
        packed, snapshot = self.packed, self.begun.target.snapshot
        task = LocateStage(
            self.task.tagger,
            placement,
            self.finder,
            self.task.reader,
            packed.schema,
            replaced,
            removes_entries=not self.begun.target.appends,
            moving=None if self._layout.partitioned else snapshot,
        )
        live = {held.group: held for held in slices}
        listed = {*placement.partitions}
        first: list[LookupResult] | None = None
        while True:
            located = packed.locate(lookups, task)
            results = sorted(located.results(), key=lambda result: result.number)
            first = first or results
            found = {path for result in results for path, _, n in result.groups if n}
            if found - listed:
                more = snapshot.listed(sorted(found - listed))
                more.require_whole(self.begun.pending.begun)
                live |= {held.group: held for held in more.slices}
                listed |= found
            dead = dead_groups(results, live)
            if not dead:
                told = [
                    replace(result, looked_up=before.looked_up, from_cache=before.from_cache)
                    for result, before in zip(results, first, strict=True)
                ]
                return located, live, told
            assert not dead & task.dead, "an entry that is ignored is not found"
            located.close()
            task = replace(task, dead=task.dead | dead)

    def _wait_for_writers(self, plan: WritePlan, shards: Collection[Shard]) -> None:
        """Wait for other writes to the same groups, or that add keys to some shards."""
        layout, wanted = self._layout, {key_of(shard) for shard in shards}
        for slot in plan.slots:
            for held in slot.slices:
                wanted.add(layout.conflict_key_of_group(held.partition_path, held.file_id))
        wait_for_writers(
            self._storage,
            self.begun.pending.begun,
            self.begun.pending.table.clock,
            wanted,
            group_key=layout.conflict_key_of_group,
            metadata=self._index.reader.table.storage if shards else None,
        )

    def _write(self, located: Flow, plan: WritePlan, routes: Routes) -> list[TaskResult]:
        if not plan.slots:
            return [*self.upkeep.task(plan.shards).write_shards_here(plan.shards)]
        slot_tasks, shard_tasks = (
            np.array([own.task for own in plans], np.int32) for plans in (plan.slots, plan.shards)
        )
        stage = PlaceStage(
            self._task_of(plan),
            self._index_writer,
            routes,
            slot_tasks,
            shard_tasks,
            self.packed.schema,
        )
        with self.begun.telling_progress(plan):
            flow = located.then(stage, [*plan.slots, *plan.shards], plan.task_count)
            return flow.results()

    def _task_of(self, plan: WritePlan) -> WriteTask:
        return replace(self.task, writer=replace(self.task.writer, slot_count=len(plan.slots)))

    def _removal(self) -> Removal:
        operation = self.begun.operation
        if operation is Operation.INSERT_OVERWRITE_TABLE:
            return None
        return tuple(sorted(self.records)) if operation.replaces else ()

    def _replaced(self) -> dict[str, list[FileId]]:
        """Return the groups that replace commits removed, by partition."""
        return grouped(self.begun.target.snapshot.timeline.replaced_file_groups(self._storage))

    def _row_bytes(self, live: Mapping[Group, FileSlice]) -> float:
        """Return the stored bytes of a row: from the largest base file, else a guess."""
        bases = [held.base_file for held in live.values() if held.base_file is not None]
        largest = max(bases, key=lambda base: (base.size_bytes, base.path), default=None)
        if largest is not None:
            stored = rows_in(self._storage, largest)
            if stored:
                return max(1.0, largest.size_bytes / stored)
        return weight_of_rows(self.packed.size_bytes, sum(self.records.values()))

    def _result(
        self,
        plan: WritePlan,
        plans: Sequence[ShardPlan],
        results: Sequence[TaskResult | LookupResult],
        shards: Sequence[Shard],
        found: Sequence[LookupResult],
    ) -> Written:
        """Return what was done.

        Parameters
        ----------
        plan : WritePlan
            The slots.
        plans : sequence of ShardPlan
            The shards whose entries may have changed.
        results : sequence
            What tasks did.
        shards, found : sequence
            The shard of each lookup, and what it found.
        """
        written = [result for result in results if isinstance(result, ShardResult)]
        answered = sorted(result.number for result in written)
        assert answered == sorted(each.number for each in plans), "each shard has one result"
        pairs = [*zip(map(key_of, shards), found, strict=True)]
        removed = {key_of(each.shard) for each in plans if each.replaced != () or each.opens}
        every = ((path, held, n) for result in found for path, held, n in result.groups)
        return Written(
            plan,
            [result for result in results if isinstance(result, SlotResult)],
            self.upkeep,
            write_stats_of(written),
            ChangedShards(
                frozenset(key for key, result in pairs if result.inserted),
                frozenset(removed | {key for key, result in pairs if result.gone}),
            ),
            frozenset(key for key, result in pairs if result.unknown),
            {self._layout.conflict_key_of_group(path, held) for path, held, n in every if not n},
            ignored=sum(result.ignored for result in found),
            lookups=found,
        )


def _checkpoint(batch: Batch) -> Checkpoint:
    """Return the progress of a stream: its batches are committed one after the other."""
    from bucketlake.metadata.location_cache.cache import Checkpoint

    return Checkpoint(batch.query_name, batch.batch_id, batch.batch_id - 1)


def _require_received(
    records: Mapping[str, int], lookups: Sequence[SlotPlan], found: Sequence[LookupResult]
) -> None:
    """Raise IndexStateError if the lookups got other records than were counted."""
    numbers = [result.number for result in found]
    assert numbers == [lookup.number for lookup in lookups], "each lookup has one result"
    pairs = zip(lookups, found, strict=True)
    received = summed((lookup.partition_path, result.records) for lookup, result in pairs)
    for path, count in records.items():
        if received[path] != count:
            where = f" of partition {path!r}" if path else ""
            raise input_changed(f"{count} records{where}", f"{received[path]} arrived")
