"""The plan of a write under a record-level index: where new keys go, and which task writes what.

The driver makes it between the two stages of the write: ``write/record_index/locate.py``, and
:class:`PlaceStage`. A record of a stored key goes to the file group of the key. New
keys fill groups with room first, and then new ones; the index kind says which groups have room for
which keys (``index/groups_for_new_keys.py``). Each group is filled before the next one, so few
groups get new keys.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from bucketlake.flow.stage import Int32Array, Rows, in_task_order, spread
from bucketlake.index.groups_for_new_keys import Filling, RowCounter
from bucketlake.index.layout import SlotPlan
from bucketlake.metadata.record_index.shards import IndexShards, Shard
from bucketlake.model.file_name import FileId, Group, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import grouped
from bucketlake.write.record_index.index_writer import (
    PLACED_ENTRIES,
    IndexWriter,
    Removal,
    ShardPlan,
    placed_entries,
    removed_shards,
)
from bucketlake.write.record_index.locate import (
    ENTRIES,
    LOCATED,
    LOOKUP,
    PLACE,
    RANK,
    Cut,
    LookupResult,
    Routes,
)
from bucketlake.write.record_index.lookups import StoredShards
from bucketlake.write.slot_stage import TaskResult, WriteTask
from bucketlake.write.tag import with_numbers
from bucketlake.write.write_plan import (
    RECORD_SIZE_BYTES_ESTIMATE,
    WritePlan,
    task_count_of,
    weight_of,
)

_ENTRY_BYTES_ESTIMATE = 16


def dead_groups(found: Sequence[LookupResult], live: Mapping[Group, FileSlice]) -> set[Group]:
    """Return the groups of entries that are not live; their keys are looked up again as new."""
    return {
        (path, file_id)
        for result in found
        for path, file_id, count in result.groups
        if count and (path, file_id) not in live
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlanner:
    """Plans the second stage of a write.

    Attributes
    ----------
    partitions : sequence of str
        Data partitions of the batch, as lookups number them.
    lookups : sequence of SlotPlan
        The first stage.
    found : sequence of LookupResult
        What the lookups found, in their order.
    live : mapping of (str, FileId) to FileSlice
        The live file groups that may get records; without groups that the write replaces.
    replaced : mapping of str to file ids
        Groups that the write replaces.
    filling : Filling
        Says which groups get new keys.
    row_bytes : float
        Estimated bytes of a stored row.
    rows_of : callable
        Counts the rows of a stored group.
    used : callable
        Returns the groups of a partition that are no longer live.
    shards : IndexShards
        The shards of the index, with those that the write opens.
    stored : mapping
        The slices of stored shards.
    removal : tuple of str, or None
        Partitions whose entries go.
    instant : InstantTime
        The instant of the write.
    tasks_wanted : int
        Number of tasks that the engine prefers.
    """

    partitions: Sequence[str]
    lookups: Sequence[SlotPlan]
    found: Sequence[LookupResult]
    live: Mapping[Group, FileSlice]
    replaced: Mapping[str, tuple[FileId, ...]]
    filling: Filling
    row_bytes: float
    rows_of: RowCounter
    used: Callable[[str], Collection[FileId]]
    shards: IndexShards
    stored: StoredShards
    removal: Removal
    instant: InstantTime
    tasks_wanted: int

    def plan(self) -> tuple[WritePlan, Routes]:
        """Return the groups that get records, each a slot, and the shards whose entries change.

        The routes send records and keys there.
        """
        records, opened, filled = self._filled()
        groups = [*sorted(records.keys() - opened.keys()), *opened]
        groups.sort(key=lambda group: group[0])  # Stable: new groups stay behind.
        slots = self._slots(groups, records, opened)
        numbers = {group: number for number, group in enumerate(groups)}
        cuts = [(lookup, place, rank, numbers[group]) for lookup, place, rank, group in filled]
        places = [
            [numbers.get((path, file_id), 0) for path, file_id, _ in result.groups]
            for result in self.found
        ]
        shard_plans, shard_of_lookup = self._shards(cuts, groups)
        weights = [*map(weight_of, slots)]
        weights += [(plan.new + plan.gone) * _ENTRY_BYTES_ESTIMATE for plan in shard_plans]
        task_count = task_count_of(len(slots), records.total(), wanted=self.tasks_wanted)
        tasks = spread(weights, task_count)
        own = [replace(slot, task=task) for slot, task in zip(slots, tasks, strict=False)]
        placed = [
            replace(plan, task=task)
            for plan, task in zip(shard_plans, tasks[len(slots) :], strict=True)
        ]
        return (
            WritePlan(tuple(own), self.replaced, task_count, tuple(placed)),
            Routes.of(places, len(self.partitions), cuts, shard_of_lookup),
        )

    def _filled(
        self,
    ) -> tuple[Counter[Group], dict[Group, int], list[tuple[int, int, int, Group]]]:
        """Choose the groups of all keys.

        Returns
        -------
        Counter of Group
            The records of each group that gets some.
        dict of Group to int
            The numbers of the new groups.
        list of (int, int, int, Group)
            Where new keys begin in a group: lookup, partition, first rank, and group.
        """
        filling, row_bytes = self.filling, self.row_bytes
        records = Counter[Group]()
        for path, file_id, count in (group for result in self.found for group in result.groups):
            if count:
                records[path, file_id] += count
        held_in = grouped((path, held) for (path, _), held in self.live.items())
        written = grouped(records)
        filled: list[tuple[int, int, int, Group]] = []
        opened: dict[Group, int] = {}
        for (place, pool), counts in sorted(self._pools().items()):
            path = self.partitions[place]
            left, shard_count = sum(count for _, count in counts), self.shards.count(path)
            rooms: list[tuple[Group, int]] = []
            live, in_any_case = held_in.get(path, []), {*written.get(path, ())}
            for held in filling.candidates(pool, shard_count, live, in_any_case):
                if left <= 0:
                    break
                room = filling.room(held, row_bytes, self.rows_of)
                if room > 0:
                    rooms.append((held.group, room))
                    left -= room
            rows_max = filling.rows_max(row_bytes)
            ids = partial(self._ids_of, path, live)
            numbers_left = filling.new_numbers(pool, shard_count, ids)
            for _ in range(-(-max(0, left) // rows_max)):
                number = next(numbers_left)
                group = path, filling.new_group_id(self.instant, path, number)
                opened[group] = number
                rooms.append((group, rows_max))
            for lookup, rank, group, count in _fill(rooms, sorted(counts)):
                filled.append((lookup, place, rank, group))
                records[group] += count
        return records, opened, filled

    def _slots(
        self, groups: Sequence[Group], records: Mapping[Group, int], opened: Mapping[Group, int]
    ) -> list[SlotPlan]:
        """Return a slot for each group, numbered within its partition.

        A new group has its own number, which makes its id. Stored groups get numbers after these.
        """
        slots: list[SlotPlan] = []
        next_number = Counter[str]()
        for (path, _), number in opened.items():
            next_number[path] = max(next_number[path], number + 1)
        for group in groups:
            path, slices = group[0], () if group in opened else (self.live[group],)
            slot = next_number[path] if slices else opened[group]
            next_number[path] += len(slices)
            slots.append(SlotPlan(path, slot, slices, records[group], len(slots)))
        return slots

    def _ids_of(self, path: str, slices: Sequence[FileSlice]) -> set[FileId]:
        """Return all groups that a partition has or had."""
        return {held.file_id for held in slices} | {*self.used(path)}

    def _pools(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Return the new keys of each partition and pool: the lookups and their numbers of keys."""
        pools: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for result in self.found:
            pool = self.filling.pool(self.lookups[result.number].slot)
            for place, count in result.new:
                pools[place, pool].append((result.number, count))
        return pools

    def _shards(
        self, cuts: Sequence[Cut], groups: Sequence[Group]
    ) -> tuple[list[ShardPlan], list[int]]:
        """Return the plans of shards whose entries change, and the plan of each lookup's shard."""
        new, gone = Counter[Shard](), Counter[Shard]()
        of_shard: dict[Shard, set[int]] = defaultdict(set)
        looked_up = [self.shards.shard(own.slot, own.partition_path) for own in self.lookups]
        for shard, result in zip(looked_up, self.found, strict=True):
            new[shard] += result.inserted
            gone[shard] += result.gone
        for lookup, _, _, slot in cuts:
            of_shard[looked_up[lookup]].add(slot)
        opened: set[Shard] = set()
        if self.shards.is_partitioned:
            paths = {path for path, _ in groups}
            opened.update(self.shards.shards(path for path in paths if not self.stored.get(path)))
        changed = {shard for shard in (*new, *gone) if new[shard] or gone[shard]} | opened
        removing = dict(removed_shards(self.removal, self.stored))
        plans: list[ShardPlan] = []
        numbers: dict[Shard, int] = {}
        for shard in sorted(changed | {*removing}, key=lambda shard: shard.file_id):
            numbers[shard] = len(plans)
            held = removing.get(shard)
            replaced = () if held is None else self.removal
            plans.append(
                ShardPlan(
                    len(plans),
                    shard,
                    {number: groups[number] for number in sorted(of_shard[shard])},
                    new[shard],
                    gone[shard],
                    shard in opened,
                    held,
                    replaced,
                )
            )
        return plans, [numbers.get(shard, -1) for shard in looked_up]


def _fill(
    rooms: Iterable[tuple[Group, int]], counts: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int, Group, int]]:
    """Divide the new keys of lookups among groups, whose room is enough for all.

    Yields lookup, first rank, group, and the number of keys from this rank on that it gets.
    """
    left = iter(rooms)
    group, room = next(left)
    for lookup, count in counts:
        rank = 0
        while rank < count:
            while not room:
                group, room = next(left)
            taken = min(count - rank, room)
            yield lookup, rank, group, taken
            rank, room = rank + taken, room - taken


def weight_of_rows(size_bytes: int, rows: int) -> float:
    """Return estimated stored bytes of a row, from the size of rows in memory."""
    return (
        max(1.0, size_bytes / rows * _STORED_SHARE) if rows else float(RECORD_SIZE_BYTES_ESTIMATE)
    )


_STORED_SHARE = 0.5  # Stored bytes per byte in memory: a guess where there is no base file yet.


# ---- Placing located records: the second stage ---------------------------------------------------
#
# The writer of the slots is that of all index kinds. In the same stage, other rows bring changed
# keys to the tasks that write the log files of the index (``write/record_index/index_writer.py``).


@dataclass(frozen=True, slots=True)
class PlaceStage:
    """Writes the located records of a task; a picklable value that all tasks of a write share.

    Attributes
    ----------
    task : WriteTask
        Writes file groups.
    index_writer : IndexWriter
        Writes the entries of shards.
    routes : Routes
        Give each located record its slot, and each changed key its shard.
    slot_tasks, shard_tasks : ndarray of int32
        The tasks of the slots and of the shards of the plan.
    schema : pa.Schema
        Columns of the records, without hidden columns.
    """

    task: WriteTask
    index_writer: IndexWriter
    routes: Routes
    slot_tasks: Int32Array
    shard_tasks: Int32Array
    schema: pa.Schema

    def route(self, rows: Rows) -> tuple[Int32Array, pa.Table]:
        """Send records to the tasks of their slots, and keys to those of their shards."""
        if rows.channel == LOCATED:
            slots = self.routes.slots(rows.table)
            table = rows.table.drop_columns([LOOKUP, PLACE, RANK])
            return in_task_order(self.slot_tasks[slots], slots, with_numbers(table, slots))
        shards = self.routes.shard_of_lookup[rows.table[LOOKUP].to_numpy()]
        entries = placed_entries(rows.table, self.routes, shards)
        return in_task_order(self.shard_tasks[shards], shards, entries)

    def run(
        self, plans: Sequence[SlotPlan | ShardPlan], received: dict[str, pa.Table]
    ) -> Iterator[TaskResult | Rows]:
        """Write the shards and the slots of a task."""
        shards = [plan for plan in plans if isinstance(plan, ShardPlan)]
        slots = [plan for plan in plans if isinstance(plan, SlotPlan)]
        if shards:
            entries = received.get(ENTRIES, PLACED_ENTRIES.empty_table())
            yield from self.index_writer.write(shards, entries)
        if slots:  # No name here keeps the rows.
            rows_of = self.task.rows_of
            yield from self.task.write(
                slots, rows_of(received, LOCATED, self.schema), is_distinct=True
            )
