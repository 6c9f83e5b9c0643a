"""The steps of a write under a record-level index, between its begin and its commit.

Dynamic buckets whose keys are of one shard each are written in one stage
(``write/record_index/by_shard.py``). In general there are two: the records are located, the driver
plans which file group gets which of them, and tasks write the groups and the changed entries of the
index (``write/record_index/locate.py``, ``write/record_index/group_plan.py``,
``write/record_index/place.py``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import pyarrow as pa

from bucketlake.actions.commit import PendingWrite
from bucketlake.actions.early_conflict import wait_for_writers
from bucketlake.actions.progress import telling_progress
from bucketlake.actions.stream_batches import Batch
from bucketlake.errors import IndexStateError
from bucketlake.flow.stage import Flow
from bucketlake.index.conflict_keys import ChangedShards
from bucketlake.index.groups_for_new_keys import bucket_of_group
from bucketlake.index.layout import Slot
from bucketlake.index.record_layout import PinnedIndex, RecordLayout
from bucketlake.index.shared_groups import have_shared_groups
from bucketlake.metadata.location_cache.eviction import Checkpoint
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.metadata.record_index.shards import Shard
from bucketlake.model.file_name import FileId, Group
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.table_type import Operation
from bucketlake.read.snapshot import Snapshot
from bucketlake.write.batch_reader import BatchReader
from bucketlake.write.counted import INPUT_CHANGED, STABLE_INPUT
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.pack import PackedRecords
from bucketlake.write.record_index.by_shard import (
    BYTES_MAX,
    STORED_BYTES_MAX,
    ShardStage,
    rows_in,
    rows_of_group,
)
from bucketlake.write.record_index.group_plan import (
    GroupPlan,
    Removal,
    dead_groups,
    plan_groups,
    weight_of_rows,
)
from bucketlake.write.record_index.index_upkeep import IndexUpkeep, files_of, key_of
from bucketlake.write.record_index.index_writer import IndexWriter, ShardResult
from bucketlake.write.record_index.indexed_result import IndexedResult
from bucketlake.write.record_index.locate import KeyFinder, LocateStage, MovingKeys
from bucketlake.write.record_index.located import LookupResult
from bucketlake.write.record_index.lookups import LookupPlan, plan_lookups
from bucketlake.write.record_index.place import PlaceStage
from bucketlake.write.record_index.shard_plan import (
    counts_of_shards,
    plan_shard_writes,
    result_of_shards,
)
from bucketlake.write.slot_stage import TaskResult, WriteStage, WriteTask
from bucketlake.write.tag import SlotCounts, Tagger
from bucketlake.write.write_plan import (
    SlotResult,
    WritePlan,
    file_ids_by_partition,
    plan_write,
    require_new_partitions,
)


@dataclass(frozen=True, slots=True)
class IndexedWrite:
    """A write under a record-level index that has begun.

    Attributes
    ----------
    write : PendingWrite
        The write.
    snapshot : Snapshot
        The table as pinned for the write.
    layout : RecordLayout
        The pinned layout.
    tagger : Tagger
        Finds key and partition of each row.
    reader : BatchReader
        Makes incoming records of rows.
    writer : GroupWriter
        Writes file groups.
    upkeep : IndexUpkeep
        Writes the entries of the index.
    """

    write: PendingWrite
    snapshot: Snapshot
    layout: RecordLayout
    tagger: Tagger
    reader: BatchReader
    writer: GroupWriter
    upkeep: IndexUpkeep

    @property
    def _index(self) -> PinnedIndex:
        return self.upkeep.index

    @property
    def _index_writer(self) -> IndexWriter:
        writer = self.upkeep.writer
        return replace(writer, logs=replace(writer.logs, cache=self.layout.cache))

    def run(
        self,
        packed: PackedRecords,
        slices: Sequence[FileSlice],
        batch: Batch | None = None,
    ) -> IndexedResult:
        """Locate records and write them.

        Parameters
        ----------
        packed : PackedRecords
            The records; each partition is one slot.
        slices : sequence of FileSlice
            Live slices of the partitions of the batch; for a table overwrite, of all partitions.
        batch : Batch, optional
            The batch of a stream that the records are.
        """
        operation, counts = self.write.operation, packed.counts
        if operation is Operation.BULK_INSERT:
            require_new_partitions(counts, self.layout.live_slots(slices))
        records: dict[str, int] = Counter()
        for (path, _), count in counts.items():
            records[path] += count
        if self._goes_by_shard(packed, slices):
            return self._run_by_shard(packed, records, slices, batch)
        removal, replaced = self._removal(records), {}
        if operation.replaces:
            replaced, slices = file_ids_by_partition(slices), ()
        self._index.reader.require_shards(held.partition_path for held in slices)
        looked_up = {
            path: held for path, held in self._index.stored.items() if not removal.has(path)
        }
        lookups = plan_lookups(
            records, self._index.shards, looked_up, tasks_wanted=packed.tasks_wanted
        )
        located, live, first = self._located(packed, lookups, removal, slices, batch)
        found, removed = _lookup_results(located), cache(self._replaced)
        try:
            _require_received(records, lookups, found)
            plan = plan_groups(
                lookups,
                found,
                live,
                replaced,
                self.layout.filling,
                self._row_bytes(live, packed) if any(result.new for result in found) else 1.0,
                partial(rows_of_group, self.write.table.storage),
                used=lambda path: [*removed().get(path, ()), *replaced.get(path, ())],
                shards=self._index.shards,
                stored=self._index.stored,
                removal=removal,
                instant=self.write.instant,
                tasks_wanted=packed.tasks_wanted,
            )
            self._wait_for_writers(plan.write, [s.shard for s in plan.shards if s.new])
            results = self._write(located, plan, packed.schema)
        finally:
            located.close()
        done = _result(plan, results, lookups, found)
        return replace(
            done,
            looked_up=sum(result.looked_up for result in first),
            from_cache=sum(result.from_cache for result in first),
        )

    def _goes_by_shard(self, packed: PackedRecords, slices: Sequence[FileSlice]) -> bool:
        """Return whether the tasks of shards may own the buckets of their shards."""
        if not self.layout.of_shards.by_shard or not packed.counts:
            return False
        shards, tags = self._index.shards, self.layout.new_shards.of_large
        paths = {path for path, _ in packed.counts} | {held.partition_path for held in slices}
        if any(tags % shards.count(path) for path in paths):
            return False
        row_bytes = packed.size_bytes / sum(packed.counts.values())
        counts = counts_of_shards(packed.counts, shards)
        return (
            all(
                # The only shard of a partition that grew gets less, for the sake of more tasks.
                records * row_bytes <= BYTES_MAX * shards.count(path) / tags
                for (path, _), records in counts.items()
            )
            and all(bucket_of_group(held.file_id) is not None for held in slices)
            and not have_shared_groups(self.write.table.storage, paths)
            and not self._rewrites_much(counts, slices)
        )

    def _rewrites_much(self, written: Collection[Slot], slices: Sequence[FileSlice]) -> bool:
        """Return whether the task of a shard may have to rewrite more than a task should."""
        if self.writer.appends or self.write.operation.replaces:
            return False
        live = self.layout.of_shards.live_slots(slices)
        return any(
            len(held) > 1 and sum(each.size_bytes for each in held) > STORED_BYTES_MAX
            for slot, held in live.items()
            if slot in written
        )

    def _run_by_shard(
        self,
        packed: PackedRecords,
        records: Mapping[str, int],
        slices: Sequence[FileSlice],
        batch: Batch | None,
    ) -> IndexedResult:
        """Write the records shard by shard, in one stage."""
        operation, removal = self.write.operation, self._removal(records)
        self._index.reader.require_shards(held.partition_path for held in slices)
        live: dict[Group, FileSlice] = {(s.partition_path, s.file_id): s for s in slices}
        shards = self._index.shards
        counts = counts_of_shards(packed.counts, shards)
        plan = self._plan_by_shard(packed, counts, slices)
        changed = self.upkeep.plan(
            plan, operation, looks_up=False, tasks_wanted=packed.tasks_wanted
        )
        slots_of = {path: shards.count(path) for path in records}
        placement = replace(plan.placement(), shard_counts=slots_of)
        stage = ShardStage(
            WriteStage(self._task(plan), placement, packed.schema),
            self._finder(batch),
            self._index_writer,
            self.layout.filling,
            self._row_bytes(live, packed),
            removes_entries=not self.writer.appends,
        )
        works = plan_shard_writes(
            plan,
            changed,
            shards=shards,
            stored=self._index.stored,
            removal=removal,
            gone=self._replaced(),
        )
        self._wait_for_writers(plan, [Shard(s.slot, s.partition_path) for s in plan.slots])
        results: list[Any] = []
        if plan.slots:
            with self._telling_progress(plan):
                results = packed.write_by_shard(stage, works, plan.task_count)
        done = result_of_shards(plan, works, results)
        # A delete looks for nothing in an empty partition, but must see who adds its keys.
        empty = counts.keys() - {slot.key for slot in plan.slots}
        looked_at = {key_of(Shard(number, path)) for path, number in empty}
        return replace(done, looked_at=done.looked_at | looked_at)

    def _plan_by_shard(
        self, packed: PackedRecords, counts: SlotCounts, slices: Sequence[FileSlice]
    ) -> WritePlan:
        """Plan a slot for each shard with records; deletes need none in an empty partition."""
        operation = self.write.operation
        if operation is Operation.DELETE:
            held = {file_slice.partition_path for file_slice in slices}
            counts = {slot: count for slot, count in counts.items() if slot[0] in held}
            operation = Operation.UPSERT  # The keys of every shard are looked at.
        return plan_write(
            operation, counts, slices, self.layout.of_shards, tasks_wanted=packed.tasks_wanted
        )

    def _finder(self, batch: Batch | None) -> KeyFinder:
        return KeyFinder(
            RecordIndexReader(self._index.reader.table),
            self.layout.cache,
            None if batch is None else _checkpoint(batch),
        )

    def _located(
        self,
        packed: PackedRecords,
        lookups: LookupPlan,
        removal: Removal,
        slices: Sequence[FileSlice],
        batch: Batch | None,
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
        first : list of LookupResult
            What the lookups found the first time. The second time, the first time has filled the
            cache, so only the first time tells what the cache had.
        """
        replaced = frozenset(removal.partitions or ())
        task = LocateStage(
            self.tagger,
            lookups.placement,
            self._finder(batch),
            self.reader,
            packed.schema,
            replaced,
            removes_entries=not self.writer.appends,
            moving=None if self.layout.partitioned else MovingKeys(self.snapshot),
        )
        live = {(held.partition_path, held.file_id): held for held in slices}
        listed = {*lookups.placement.partitions}
        first: list[LookupResult] | None = None
        while True:
            located = packed.locate(lookups, task)
            results = _lookup_results(located)
            first = first or results
            found = {path for result in results for path, _, n in result.groups if n}
            if found - listed:
                more = self.snapshot.listed(sorted(found - listed))
                more.require_whole(self.write.begun)
                live |= {(held.partition_path, held.file_id): held for held in more.slices}
                listed |= found
            dead = dead_groups(results, live)
            if not dead:
                return located, live, first
            assert not dead & task.dead, "an entry that is ignored is not found"
            located.close()
            task = replace(task, dead=task.dead | dead)

    def _wait_for_writers(self, plan: WritePlan, shards: Collection[Shard]) -> None:
        """Wait for other writes to the same groups, or that add keys to some shards."""
        layout, wanted = self.layout, {key_of(shard) for shard in shards}
        for slot in plan.slots:
            for held in slot.slices:
                wanted.add(layout.conflict_key_of_group(held.partition_path, held.file_id))
        wait_for_writers(
            self.write.table.storage,
            self.write.begun,
            self.write.table.clock,
            wanted,
            group_key=layout.conflict_key_of_group,
            metadata=self._index.reader.table.storage if shards else None,
        )

    def _write(self, located: Flow, plan: GroupPlan, schema: pa.Schema) -> list[TaskResult]:
        slots = plan.write.slots
        if not slots:
            return [*self.upkeep.write_shards(plan.shards)]
        stage = PlaceStage.of(plan, self._task(plan.write), self._index_writer, schema)
        with self._telling_progress(plan.write):
            flow = located.then(stage, [*slots, *plan.shards], plan.write.task_count)
            return flow.results()

    def _task(self, plan: WritePlan) -> WriteTask:
        writer, reader = replace(self.writer, slot_count=len(plan.slots)), self.reader
        return WriteTask(
            self.tagger,
            writer,
            reader.deletes_by_key,
            reader.delete_marker,
            refuses_repeats=reader.refuses_repeats,
        )

    def _telling_progress(self, plan: WritePlan) -> AbstractContextManager[None]:
        doing = self.write.operation.value.lower().replace("_", " ")
        return telling_progress(
            self.write.table.storage, self.write.instant, doing, len(plan.slots)
        )

    def _removal(self, records: Mapping[str, int]) -> Removal:
        match self.write.operation:
            case Operation.INSERT_OVERWRITE:
                return Removal(tuple(sorted(records)))
            case Operation.INSERT_OVERWRITE_TABLE:
                return Removal(None)
        return Removal()

    def _replaced(self) -> dict[str, list[FileId]]:
        """Return the groups that replace commits removed, by partition."""
        found: dict[str, list[FileId]] = defaultdict(list)
        for path, file_id in self.snapshot.timeline.replaced_file_groups(self.write.table.storage):
            found[path].append(file_id)
        return found

    def _row_bytes(self, live: Mapping[Group, FileSlice], packed: PackedRecords) -> float:
        """Return the stored bytes of a row: from the largest base file, else a guess."""
        bases = [held.base_file for held in live.values() if held.base_file is not None]
        largest = max(bases, key=lambda base: (base.size_bytes, base.path), default=None)
        if largest is not None:
            stored = rows_in(self.write.table.storage, largest)
            if stored:
                return max(1.0, largest.size_bytes / stored)
        return weight_of_rows(packed.size_bytes, sum(packed.counts.values()))


def _checkpoint(batch: Batch) -> Checkpoint:
    """Return the progress of a stream: its batches are committed one after the other."""
    return Checkpoint(batch.query_name, batch.batch_id, batch.batch_id - 1)


def _require_received(
    records: Mapping[str, int], lookups: LookupPlan, found: Sequence[LookupResult]
) -> None:
    """Raise IndexStateError if the lookups got other records than were counted."""
    numbers = [result.number for result in found]
    assert numbers == [lookup.number for lookup in lookups.lookups], "each lookup has one result"
    received = Counter[str | None]()
    for lookup, result in zip(lookups.lookups, found, strict=True):
        received[lookup.shard.data_partition] += result.records
    counted = Counter[str | None](records)
    if None in received:
        counted = Counter({None: sum(records.values())})
    for path, count in counted.items():
        if received[path] != count:
            where = "" if path is None else f" of partition {path!r}"
            raise IndexStateError(
                f"the first pass over the input counted {count} records{where}",
                f"{received[path]} arrived: {INPUT_CHANGED}",
                STABLE_INPUT,
            )


def _lookup_results(located: Flow) -> list[LookupResult]:
    return sorted(located.results(), key=lambda result: result.number)


def _result(
    plan: GroupPlan,
    results: Sequence[TaskResult],
    lookups: LookupPlan,
    found: Sequence[LookupResult],
) -> IndexedResult:
    shards = [result for result in results if isinstance(result, ShardResult)]
    answered = sorted(result.number for result in shards)
    assert answered == [shard.number for shard in plan.shards], "each shard has one result"
    looked_at = {
        key_of(lookup.shard)
        for lookup, result in zip(lookups.lookups, found, strict=True)
        if result.unknown
    }
    return IndexedResult(
        plan.write,
        [result for result in results if isinstance(result, SlotResult)],
        files_of(shards),
        ChangedShards(
            frozenset(key_of(shard.shard) for shard in plan.shards if shard.new),
            frozenset(
                key_of(shard.shard)
                for shard in plan.shards
                if shard.gone or shard.stored or shard.opens
            ),
        ),
        frozenset(looked_at),
        sum(count for result in found for _, count in result.new),
        ignored=sum(result.ignored for result in found),
    )
