"""The plan of a write: which slots it writes, what each slot holds, and which task writes it.

The driver makes the plan from the record counts of the batch and the live slices of the touched
partitions; it reads nothing else of the table. Tasks get their slots as rows, not in a
closure. The task chooses the file groups of a slot's records (``Layout.choose``) from the plan
alone, so no task draws a random file id.

A slot without stored rows, such as a slot of a first load, may be cut into parts with a task each,
if the layout allows parts (``Layout.parts_max``). The part of a record follows from its key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.flow.stage import NO_TASK, spread
from bucketlake.hashing.key_filter import parts_of_keys
from bucketlake.index.layout import Layout, Slot, SlotPlan
from bucketlake.model.file_name import FileId
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import grouped
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import WriteStat
from bucketlake.write.tag import TaggedRecords, slot_codes

if TYPE_CHECKING:  # Most writes do not maintain a record-level index.
    from bucketlake.write.record_index.index_writer import ShardPlan

RECORDS_PER_TASK_MAX = 131_072
"""Greatest number of incoming records in one task, unless the task holds a single file group.

A slot with more records is cut into parts, if the layout allows it.
"""

RECORD_SIZE_BYTES_ESTIMATE = 50  # Compressed; weighs records against stored and full files.


Elsewhere: TypeAlias = Mapping[Slot, Collection[int]]
"""Slots with keys that another rule puts elsewhere (``index/key_rule.py``), and where it does."""


@dataclass(frozen=True, slots=True)
class SlotResult:
    """What a task did to one slot, or to a part of it; sent to the driver.

    Attributes
    ----------
    number : int
        Position of the slot or part in the plan.
    records : int
        Number of incoming records that the task received for it.
    stats : tuple of WriteStat
        Files that were written; empty if there was nothing to write.
    ignored : int
        Records that lost to a stored row by their ordering value.
    kept : tuple of FileId
        File groups in which no record changed anything.
    """

    number: int
    records: int
    stats: tuple[WriteStat, ...]
    ignored: int = 0
    kept: tuple[FileId, ...] = ()


@dataclass(frozen=True, slots=True)
class WritePlan:
    """All slots and parts of one write, and the file groups that it removes from the table.

    Attributes
    ----------
    slots : tuple of SlotPlan
        The slots and parts, in order of their numbers.
    replaced : mapping of partition path to file ids
        The removed file groups.
    task_count : int
        Number of tasks that share the slots.
    shards : tuple of ShardPlan
        Shards of the record-level index whose entries the write may change, in order of their
        numbers; empty if the write does not maintain an index.
    """

    slots: tuple[SlotPlan, ...]
    replaced: Mapping[str, tuple[FileId, ...]]
    task_count: int
    shards: tuple[ShardPlan, ...] = ()

    def placement(self) -> Placement:
        """Return what places records: 12 bytes per slot, or 20 bytes if any slot is cut."""
        return Placement.of_slots(self.slots)


@dataclass(frozen=True, slots=True)
class Placement:
    """Which slot of a plan each record belongs to; small enough to travel with the task's code.

    Attributes
    ----------
    partitions : tuple of str
        Partition paths of the slots.
    codes : ndarray of int64, shape (n_slots,)
        Partition and slot as one number, ascending; see :func:`slot_codes`. Parts of one slot
        have the same number, and stand in order.
    tasks : ndarray of int32, shape (n_slots,)
        Tasks of the slots.
    parts : ndarray of int32, shape (n_slots, 2), or None
        Number of the part and count of parts; None if no slot is cut.
    shard_counts : mapping of str to int, or None
        Slots of each partition, if records are tagged for more; see :meth:`TaggedRecords.joined`.
    """

    partitions: tuple[str, ...]
    codes: npt.NDArray[np.int64]
    tasks: npt.NDArray[np.int32]
    parts: npt.NDArray[np.int32] | None = None
    shard_counts: Mapping[str, int] | None = None
    _numbers: Mapping[str, int] = field(init=False, repr=False, compare=False)
    _part_codes: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {path: i for i, path in enumerate(self.partitions)}
        object.__setattr__(self, "_numbers", numbers)
        first = np.searchsorted(self.codes, self.codes)
        own = np.zeros(len(first), np.int32) if self.parts is None else self.parts[:, 0]
        part_codes = slot_codes(first, own)
        is_ordered = (np.diff(self.codes) >= 0).all() and (np.diff(part_codes) > 0).all()
        assert is_ordered, "a plan is in order, and names a slot or a part of it once"
        object.__setattr__(self, "_part_codes", part_codes)

    @classmethod
    def of_slots(cls, slots: Sequence[SlotPlan]) -> Self:
        """Return the placement of slots and parts that are sorted by number."""
        partitions = tuple(sorted({slot.partition_path for slot in slots}))
        numbers = {path: i for i, path in enumerate(partitions)}
        codes = slot_codes(
            np.array([numbers[slot.partition_path] for slot in slots], np.int64),
            np.array([slot.slot for slot in slots], np.int32),
        )
        parts = np.array([(slot.part, slot.part_count) for slot in slots], np.int32)
        tasks = np.array([slot.task for slot in slots], np.int32)
        return cls(partitions, codes, tasks, parts if any(slot.is_cut for slot in slots) else None)

    def positions(self, tagged: TaggedRecords) -> npt.NDArray[np.int64]:
        """Return the position of each record's slot or part; ``NO_TASK`` for records of none."""
        if self.shard_counts is not None:
            tagged = tagged.joined(self.shard_counts)
        found = _find(self.codes, tagged.codes(self._numbers))
        if self.parts is not None:
            cut = np.flatnonzero((found != NO_TASK) & (self.parts[found, 1] > 1))
            first = found[cut]  # Any part of a slot tells how many there are.
            own = parts_of_keys(tagged.keys.take(pa.array(cut)), self.parts[first, 1])
            found[cut] = _find(self._part_codes, slot_codes(first, own))
        return found

    def tasks_of(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the task of each slot or part; ``NO_TASK`` for ``NO_TASK``."""
        return np.asarray(np.append(self.tasks, np.int32(NO_TASK))[positions])

    def tasks_of_slots(self, slots: Collection[Slot]) -> dict[Slot, int] | None:
        """Return the tasks of slots as records are tagged; None if a slot is cut into parts."""
        if self.parts is not None:
            return None
        tasks = self.tasks_of(self.positions(TaggedRecords.of_slots(slots)))
        return dict(zip(slots, tasks.tolist(), strict=True))


def plan_write(
    operation: Operation,
    counts: Mapping[Slot, int],
    slices: Sequence[FileSlice],
    layout: Layout,
    *,
    tasks_wanted: int,
    elsewhere: Elsewhere = MappingProxyType({}),
    live: Mapping[Slot, tuple[FileSlice, ...]] | None = None,
) -> WritePlan:
    """Plan a write of records.

    Parameters
    ----------
    operation : Operation
        Operation of the write.
    counts : mapping of (partition path, slot) to int
        Incoming records per slot.
    slices : sequence of FileSlice
        Live slices of the partitions that the write touches; a table overwrite touches all.
    layout : Layout
        The table's layout.
    tasks_wanted : int
        Number of tasks that share the slots; the plan has fewer if there are fewer slots, more if
        a task would hold too many records.
    elsewhere : mapping of (partition path, slot) to slots
        Slots with keys that may be stored in other slots.
    live : mapping of (partition path, slot) to FileSlice, optional
        The slices of each slot, if slots are not those of the layout.

    Raises
    ------
    IndexStateError
        If the file groups contradict the layout.
    """
    if operation.replaces:
        live, replaced = {}, file_ids_by_partition(slices)
    else:
        live, replaced = layout.live_slots(slices) if live is None else live, {}
    beside = {
        slot: tuple(held for other in others for held in live.get((slot[0], other), ()))
        for slot, others in elsewhere.items()
    }
    # A delete does nothing in a slot without file groups.
    slots: list[SlotPlan] = []
    for slot, counted in sorted(counts.items()):
        if operation is Operation.DELETE and slot not in live and not beside.get(slot):
            continue
        held, doubtful = live.get(slot, ()), beside.get(slot, ())
        shares = _shares(counted, layout, is_new=slot not in live)
        for part, records in enumerate(shares):
            slots.append(
                SlotPlan(
                    *slot,
                    held,
                    records,
                    len(slots),
                    part=part,
                    part_count=len(shares),
                    elsewhere=doubtful,
                )
            )
    records_total = sum(slot.records for slot in slots)
    task_count = task_count_of(len(slots), records_total, wanted=tasks_wanted)
    return WritePlan(tuple(_place(slots, task_count)), replaced, task_count)


def _shares(records: int, layout: Layout, *, is_new: bool) -> list[int]:
    """Return the share of the records of each part that a slot is cut into.

    Keys that are stored must be looked up in all groups of a slot, so only a new slot is cut.
    """
    count = 1
    if is_new and records > RECORDS_PER_TASK_MAX:
        wanted = -(-records // RECORDS_PER_TASK_MAX)
        count = min(wanted, layout.parts_max(records * RECORD_SIZE_BYTES_ESTIMATE))
    ends = [records * number // count for number in range(count + 1)]
    return [end - start for start, end in pairwise(ends)]


def _find(codes: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the first position of each wanted code; ``NO_TASK`` for codes that are not there."""
    if not len(codes):
        return np.full(len(wanted), NO_TASK, np.int64)
    found = np.searchsorted(codes, wanted)
    held = codes[np.minimum(found, len(codes) - 1)] == wanted
    return np.where(held, found, NO_TASK)


def file_ids_by_partition(slices: Sequence[FileSlice]) -> dict[str, tuple[FileId, ...]]:
    """Return the file groups of slices, by partition path."""
    ids = grouped(file_slice.group for file_slice in slices)
    return {partition: tuple(sorted(held)) for partition, held in ids.items()}


def task_count_of(count: int, records: int, *, wanted: int) -> int:
    """Return a number of tasks for some slots or lookups, equally many each.

    Parameters
    ----------
    count : int
        Number of slots or lookups.
    records : int
        Number of their records; a task does not get too many, unless it has a single slot.
    wanted : int
        Number of tasks that the engine prefers.
    """
    if count == 0:
        return 1
    needed = max(1, wanted, -(-records // RECORDS_PER_TASK_MAX))
    return -(-count // max(1, count // needed))


def weight_of(slot: SlotPlan) -> int:
    """Return estimated bytes to read and write; only compared with the weights of other slots."""
    stored = sum(file_slice.size_bytes for file_slice in slot.slices)
    return stored + slot.records * RECORD_SIZE_BYTES_ESTIMATE


def _place(slots: Sequence[SlotPlan], task_count: int) -> list[SlotPlan]:
    """Spread slots over tasks by weight."""
    if len(slots) == task_count:
        return [replace(slot, task=i) for i, slot in enumerate(slots)]
    tasks = spread([*map(weight_of, slots)], task_count)
    return [replace(slot, task=task) for slot, task in zip(slots, tasks, strict=True)]
