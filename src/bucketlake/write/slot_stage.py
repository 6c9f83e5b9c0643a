"""Writing slots: the stage of a write that merges records into the file groups of their slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from bucketlake.errors import IndexStateError
from bucketlake.flow.stage import NO_TASK, IntArray, Rows
from bucketlake.index.layout import WHOLE_SLOT, Slot
from bucketlake.merge.incoming import IncomingRecords, collapse_duplicates
from bucketlake.write.batch_reader import BatchReader
from bucketlake.write.counted import INPUT_CHANGED, STABLE_INPUT, require_count
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.tag import MOVED, PARTITION, POSITION, SLOT, Tagger, without_tags
from bucketlake.write.write_plan import Placement, SlotPlan, SlotResult, WritePlan

if TYPE_CHECKING:  # Most writes do not need the record-level index.
    from bucketlake.write.record_index.index_writer import IndexTask, ShardResult
    from bucketlake.write.record_index.key_changes import ChangedKeys

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
    deletes_by_key : bool
        Whether every row deletes its key; then the rows have only key columns.
    delete_marker : (field, value) or None
        The column and value that mark a delete in this table, beside ``_hoodie_is_deleted``.
    index : IndexTask or None
        Maintains the record-level index; None if the write does not maintain one.
    """

    tagger: Tagger
    writer: GroupWriter
    deletes_by_key: bool
    delete_marker: tuple[str, str] | None = None
    index: IndexTask | None = None

    def write(
        self, slots: Sequence[SlotPlan], rows: pa.Table, changed: ChangedKeys | None = None
    ) -> Iterator[SlotResult]:
        """Write the slots of one task from all of its rows; yield the result of each slot.

        Parameters
        ----------
        slots : sequence of SlotPlan
            Slots and parts of slots that the task owns.
        rows : pa.Table
            The records of those slots, in any order, with hidden columns: ``SLOT`` has the number
            of the slot.
        changed : ChangedKeys, optional
            Gets the keys whose entries in the record-level index may change.
        """
        for slot, incoming, count in self.incoming(slots, rows):
            done = self.writer.write(slot, incoming, changed)
            yield SlotResult(slot.number, count, done.stats, done.ignored)

    def incoming(
        self, slots: Sequence[SlotPlan], rows: pa.Table
    ) -> Iterator[tuple[SlotPlan, IncomingRecords, int]]:
        """Yield each slot of a task, its records with distinct keys, and how many arrived."""
        numbers = rows[SLOT].to_numpy()
        order = np.argsort(numbers, kind="stable")
        if (np.diff(order) != 1).any():
            rows, numbers = rows.take(pa.array(order)), numbers[order]
        for slot in sorted(slots, key=lambda slot: slot.number):
            start, end = np.searchsorted(numbers, [slot.number, slot.number + 1])
            if slot.part == WHOLE_SLOT:
                require_count(slot.key, slot.records, int(end - start))
            yield slot, self._incoming(rows.slice(start, end - start)), int(end - start)

    def _incoming(self, rows: pa.Table) -> IncomingRecords:
        """Return records with distinct keys."""
        names = rows.column_names
        positions = rows[POSITION].to_numpy() if POSITION in names else None
        moved = rows[MOVED].to_numpy() if MOVED in names else None
        records = self.reader.read(without_tags(rows), self.tagger.keys_of(rows))
        if moved is None:
            return collapse_duplicates(records, positions)
        # The record has won already, so its key goes, whatever its ordering value.
        return replace(records, deleted=records.deleted | moved, is_reset=records.is_reset | moved)

    @property
    def reader(self) -> BatchReader:
        """Makes incoming records of rows."""
        writer = self.writer
        return BatchReader(
            writer.storage.root,
            writer.schema,
            writer.rule,
            self.deletes_by_key,
            self.delete_marker,
            self.tagger.key_spec.record_key_fields,
        )


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

    def route(self, rows: Rows) -> tuple[IntArray, pa.Table]:
        """Return the task of each record; keys to delete in slots that do not exist are dropped."""
        numbers = self.placement.positions(self.task.tagger.tags_of(rows.table))
        strayed = numbers == NO_TASK
        if not self.task.deletes_by_key and strayed.any():
            raise IndexStateError(
                "the first pass over the input counted every record for a slot of the plan",
                f"{strayed.sum()} records belong to other slots: {INPUT_CHANGED}",
                STABLE_INPUT,
            )
        return self.placement.tasks_of(numbers), with_numbers(rows.table, numbers)

    def run(
        self, plans: Sequence[SlotPlan], received: Mapping[str, pa.Table]
    ) -> Iterator[SlotResult | Rows]:
        """Write the slots of a task, and send changed keys to the shards of the index."""
        index = self.task.index
        changed = None if index is None else index.collector()
        yield from self.task.write(plans, self.or_none(received.get(RECORDS)), changed)
        if changed is not None:
            yield changed.rows()

    def or_none(self, rows: pa.Table | None) -> pa.Table:
        """Return the records of a task, which may have got none."""
        if rows is not None:
            return rows
        return with_numbers(self.task.tagger.no_rows(self.schema), np.empty(0, np.int64))


def with_numbers(rows: pa.Table, numbers: np.ndarray) -> pa.Table:
    """Return records with the numbers of their slots, in place of partition path and slot."""
    names = [name for name in (PARTITION, SLOT) if name in rows.column_names]
    return rows.drop_columns(names).append_column(SLOT, pa.array(numbers.astype(np.int32)))


def require_counted(plan: WritePlan, results: Sequence[SlotResult]) -> None:
    """Refuse a write where the parts of a slot got more or fewer records than were counted.

    How many records each part should get is not known before, so tasks cannot tell.
    """
    counted, found = Counter[Slot](), Counter[Slot]()
    for result in results:
        slot = plan.slots[result.number]
        if slot.part != WHOLE_SLOT:
            counted[slot.key] += slot.records
            found[slot.key] += result.records
    for key, records in counted.items():
        require_count(key, records, found[key])
