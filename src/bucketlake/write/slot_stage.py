"""Writing slots: the stage of a write that merges records into the file groups of their slots."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.flow.stage import NO_TASK, Int32Array, NumberedRows, Rows, in_task_order
from bucketlake.index.layout import Slot, SlotPlan
from bucketlake.merge.incoming import IncomingRecords, codes_of_repeated_keys, key_order
from bucketlake.model.arrays import number_order
from bucketlake.model.grouping import summed
from bucketlake.read.slice_reader import SliceReader
from bucketlake.write.adopt import require_one_rule
from bucketlake.write.batch_reader import BatchReader
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.tag import (
    MOVED,
    PARTITION,
    SLOT,
    Tagger,
    input_changed,
    positions_of,
    require_count,
    with_numbers,
    without_tags,
)
from bucketlake.write.write_plan import Placement, SlotResult, WritePlan

if TYPE_CHECKING:  # Most writes do not need the record-level index.
    from bucketlake.write.record_index.index_writer import IndexTask, ShardResult

_ROWS_AT_ONCE, _BYTES_AT_ONCE = 65_536, 4 << 20
"""So many records of small slots are read at once."""

RECORDS = "records"
"""The channel of records."""

TaskResult: TypeAlias = "SlotResult | ShardResult"
"""What a task did to a slot, or to a shard of the record-level index."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the rows of a task; a picklable value that all tasks of a write share.

    Attributes
    ----------
    tagger : Tagger
        Knows the key of each row.
    writer : GroupWriter
        Writes the file groups of a slot.
    reader : BatchReader
        Makes incoming records of rows.
    index : IndexTask or None
        Maintains the record-level index; None if the write does not maintain one.
    stored : SliceReader or None
        Reads the slices in which another rule would put keys; None if there are none.
    """

    tagger: Tagger
    writer: GroupWriter
    reader: BatchReader
    index: IndexTask | None = None
    stored: SliceReader | None = None

    def write(
        self, slots: Sequence[SlotPlan], rows: pa.Table, *, is_distinct: bool = False
    ) -> Iterator[SlotResult | Rows]:
        """Write the slots of one task from all of its rows.

        Yields the result of each slot, and then the keys whose entries in the record-level index
        may change, on their way to its shards.

        Parameters
        ----------
        slots : sequence of SlotPlan
            Slots and parts of slots that the task owns.
        rows : pa.Table
            The records of those slots, in any order, with hidden columns: ``SLOT`` has the number
            of the slot.
        is_distinct : bool
            Whether the keys are known to be distinct.
        """
        arrived = self.incoming(slots, rows, is_distinct=is_distinct)
        del rows  # They are not needed when they are divided.
        files = self.writer.files()
        changed = None if self.index is None else self.index.collector()
        for slot, incoming, count in arrived:
            if slot.elsewhere and self.stored is not None:
                require_one_rule(self.writer.layout, self.stored, slot, incoming.keys)
            yield self.writer.write(slot, incoming, count, files, changed)
        files.publish()
        if changed is not None:
            yield changed.rows()

    def incoming(
        self, slots: Sequence[SlotPlan], rows: pa.Table, *, is_distinct: bool = False
    ) -> Iterator[tuple[SlotPlan, IncomingRecords, int]]:
        """Yield each slot of a task, its records with distinct keys, and how many arrived.

        When the last slot is yielded, nothing else is kept of the rows.
        """
        rows_max = min(_ROWS_AT_ONCE, _BYTES_AT_ONCE * len(rows) // max(rows.nbytes, 1))
        numbered = NumberedRows.of(rows, SLOT)
        del rows
        some: list[SlotPlan] = []
        left = rows_max
        for slot in sorted(slots, key=lambda slot: slot.number):
            count = numbered.count(slot.number)
            if some and count > left:
                yield from self._arrived(some, numbered, is_distinct=is_distinct)
                some, left = [], rows_max
            some.append(slot)
            left -= count
        yield from self._arrived(some, numbered, is_distinct=is_distinct)

    def _arrived(
        self, slots: Sequence[SlotPlan], numbered: NumberedRows, *, is_distinct: bool
    ) -> Iterator[tuple[SlotPlan, IncomingRecords, int]]:
        """Yield slots, their records with distinct keys, and how many arrived.

        If all their keys are distinct, the records of all of them are read, and sorted, at once.
        """
        if len(slots) == 1:  # No name here keeps its rows.
            slot = slots[0]
            yield slot, *self._read(slot, numbered.take(slot.number), is_distinct=is_distinct)
            return
        rows = numbered.take(*(slot.number for slot in slots))
        numbers, together = rows[SLOT].to_numpy(), None
        if codes_of_repeated_keys(self.tagger.keys_of(rows)) is None:
            records = self._incoming(rows)
            order = key_order(records.keys)
            order = order[number_order(numbers[order])]
            together = replace(records.take(order), is_sorted=True)
        bounds = np.searchsorted(numbers, [slot.number for slot in slots]).tolist()
        for slot, (start, end) in zip(slots, pairwise([*bounds, len(numbers)]), strict=True):
            count = end - start
            if together is None:
                own = rows.slice(start, count)
                yield slot, *self._read(slot, own, is_distinct=is_distinct)
            else:
                _require_count(slot, count)
                yield slot, together.slice(start, end), count

    def _read(
        self, slot: SlotPlan, rows: pa.Table, *, is_distinct: bool
    ) -> tuple[IncomingRecords, int]:
        """Return the records of a slot with distinct keys, and how many arrived."""
        _require_count(slot, rows.num_rows)
        records = self._incoming(rows)
        if not is_distinct:
            records, _ = self.reader.distinct(records, positions_of(rows))
        return records, rows.num_rows

    def _incoming(self, rows: pa.Table) -> IncomingRecords:
        records = self.reader.read(without_tags(rows), self.tagger.keys_of(rows))
        if MOVED not in rows.column_names:
            return records
        moved = rows[MOVED].to_numpy()
        # The record has won already, so its key goes, whatever its ordering value.
        return replace(records, deleted=records.deleted | moved, is_reset=records.is_reset | moved)

    def rows_of(self, received: dict[str, pa.Table], channel: str, columns: pa.Schema) -> pa.Table:
        """Take the rows of a channel out of what a task got, which may have none.

        ``columns`` are those of the rows without tags.
        """
        rows = received.pop(channel, None)
        return self.tagger.no_numbered_rows(columns) if rows is None else rows


@dataclass(frozen=True, slots=True)
class WriteStage:
    """Sends packed records to the tasks of their slots, which write them.

    Attributes
    ----------
    task : WriteTask
        Writes slots.
    placement : Placement
        Places the records.
    schema : pa.Schema
        Columns of the records, without tags.
    """

    task: WriteTask
    placement: Placement
    schema: pa.Schema

    def tasks_of(self, slots: Collection[Slot]) -> dict[Slot, int] | None:
        """Return the tasks of tagged slots; None if parts of a slot are of several tasks."""
        tasks = self.placement.tasks_of_slots(slots)
        if tasks is None or self.task.reader.deletes_by_key:
            return tasks
        return {slot: task for slot, task in tasks.items() if task != NO_TASK}

    def route(self, rows: Rows) -> tuple[Int32Array, pa.Table]:
        """Send each record to the task of its slot."""
        numbered, numbers = self._numbered(rows.table)
        return in_task_order(self.placement.tasks_of(numbers), numbers, numbered)

    def _numbered(self, rows: pa.Table) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Return tagged records with the numbers of their slots, and the numbers.

        Keys to delete in slots that do not exist have ``NO_TASK``.
        """
        numbers = self.placement.positions(self.task.tagger.tags_of(rows))
        strayed = numbers == NO_TASK
        if not self.task.reader.deletes_by_key and strayed.any():
            arrived = f"{strayed.sum()} records belong to other slots"
            raise input_changed("every record for a slot of the plan", arrived)
        return with_numbers(rows, numbers), numbers

    def run(
        self, plans: Sequence[SlotPlan], received: dict[str, pa.Table]
    ) -> Iterator[SlotResult | Rows]:
        """Write the slots of a task, and send changed keys to the shards of the index."""
        return self.task.write(plans, self.records_of(received))

    def records_of(self, received: dict[str, pa.Table]) -> pa.Table:
        """Take out the records of a task, which may have got none, with numbers of slots."""
        rows = self.task.rows_of(received, RECORDS, self.schema)
        if PARTITION not in rows.column_names:
            return rows
        numbered, numbers = self._numbered(rows)
        is_placed = numbers != NO_TASK
        return numbered if is_placed.all() else numbered.filter(pa.array(is_placed))


def _require_count(slot: SlotPlan, found: int) -> None:
    if not slot.is_cut:
        require_count(slot.key, slot.records, found)


def require_counted(plan: WritePlan, results: Sequence[SlotResult]) -> None:
    """Refuse a write where the parts of a slot got more or fewer records than were counted.

    How many records each part should get is not known before, so tasks cannot tell.
    """
    pairs = ((plan.slots[result.number], result.records) for result in results)
    parts = [(slot, count) for slot, count in pairs if slot.is_cut]
    counted = summed((slot.key, slot.records) for slot, _ in parts)
    found = summed((slot.key, count) for slot, count in parts)
    for key, records in counted.items():
        require_count(key, records, found[key])
