"""What feeds a write: the seam between the driver's steps and the engine that holds the records.

An Arrow table in this process is one source (``write/arrow_source.py``), a Spark DataFrame another
(``spark/source.py``). Both count the records of each slot first and then write the slots of a plan;
everything else of a write is the same for both (``write/ingest.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import IndexStateError, InputError
from bucketlake.index.layout import Slot
from bucketlake.merge.records import (
    IncomingRecords,
    collapse_duplicates,
    commit_time_deletes,
    comparable,
    delete_flags,
)
from bucketlake.model.cast import require_valid
from bucketlake.model.schema import cast_table
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.plan import UNCOUNTED, Placement, SlotPlan, SlotResult, WritePlan
from bucketlake.write.tag import TaggedRecords, Tagger

SlotCounts = Mapping[Slot, int]
"""Incoming records by partition path and slot."""

INPUT_CHANGED = "the input changed between two evaluations of it"
STABLE_INPUT = "write from a stable input, or cache it to storage first"


class SlotSource(Protocol):
    """Records on their way into slots."""

    @property
    def tasks_wanted(self) -> int:
        """Tasks over which the engine likes to spread a write."""
        ...

    def count_slots(self, tagger: Tagger) -> SlotCounts:
        """Count the records of each slot; InputError where one has no usable key."""
        ...

    def write_slots(self, plan: WritePlan, task: WriteTask) -> list[SlotResult]:
        """Have every slot of the plan written; return a result for each of them."""
        ...

    def close(self) -> None:
        """Drop what was kept for the write."""
        ...


class RecordSource(SlotSource, Protocol):
    """Records as they are handed in, whose columns are yet to be looked at."""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Schema of the records as handed in, in Arrow's types; InputError where one has none."""
        ...

    def keep(self, columns: list[str]) -> None:
        """Leave all columns out but these, each of which is there once."""
        ...


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What tasks do with the rows of a write; a picklable value that all of them share.

    Attributes
    ----------
    tagger : Tagger
        Gives rows their slot.
    writer : GroupWriter
        Writes the file groups of a slot.
    deletes_by_key : bool
        Whether every row deletes its key, so that only key columns are there.
    delete_marker : (field, value) or None
        The table's own sign of a delete, beside ``_hoodie_is_deleted``.
    """

    tagger: Tagger
    writer: GroupWriter
    deletes_by_key: bool
    delete_marker: tuple[str, str] | None = None

    def write(
        self,
        slots: list[SlotPlan],
        rows: pa.Table,
        positions: npt.NDArray[np.int64] | None,
        tagged: TaggedRecords | None = None,
    ) -> Iterator[SlotResult]:
        """Write the slots of one task from all of its rows; yield the result of each slot.

        Parameters
        ----------
        slots : list of SlotPlan
            The task's part of the plan.
        rows : pa.Table
            The records of those slots, in any order.
        positions : ndarray of int64 or None
            Where the rows stood in an input that has an order, see ``collapse_duplicates``.
        tagged : TaggedRecords, optional
            Locations of the rows, where the caller has them.
        """
        tagged = tagged or self.tagger.tag(rows)
        ordered = sorted(slots, key=lambda one: one.key)
        places = Placement.of_slots(ordered).positions(tagged)
        for place, slot in enumerate(ordered):
            chosen = np.flatnonzero(places == place)
            _require_count(slot, len(chosen))
            if len(chosen) == rows.num_rows:
                incoming = self._incoming(rows, tagged.keys)
            else:
                indices = pa.array(chosen)
                incoming = self._incoming(rows.take(indices), tagged.keys.take(indices))
            own = None if positions is None else positions[chosen]
            yield self.writer.write(slot, collapse_duplicates(incoming, own))

    def _incoming(self, rows: pa.Table, keys: pa.Array) -> IncomingRecords:
        if self.deletes_by_key:
            every = np.ones(rows.num_rows, np.bool_)
            return IncomingRecords(keys, rows.select([]), (), every, every)
        require_valid(rows, where=f"write to {self.writer.storage.root}")
        columns = cast_table(rows, self.writer.schema).combine_chunks()
        rule = self.writer.rule
        fields = rule.ordering_fields if rule.compares else ()
        deleted = delete_flags(rows, self.delete_marker)
        return IncomingRecords(
            keys,
            columns,
            tuple(comparable(columns[field]) for field in fields),
            deleted,
            commit_time_deletes(deleted, columns, fields),
        )


def require_columns(source: RecordSource, names: tuple[str, ...], table: str, role: str) -> None:
    """Refuse a batch that lacks columns it must have, or has one of them several times."""
    where = f"write to {table}"
    for name in names:
        if name not in source.names:
            raise InputError(
                where,
                f"the {role} column {name!r} is missing; the batch has {source.names}",
                "add the column to the batch",
            )
        # Spark ignores case, and so could not tell which of them is meant.
        if sum(other.lower() == name.lower() for other in source.names) > 1:
            raise InputError(
                where,
                f"the {role} column {name!r} is there more than once; the batch has {source.names}",
                "drop or rename the others",
            )


def _require_count(slot: SlotPlan, found: int) -> None:
    if slot.records not in (found, UNCOUNTED):
        raise IndexStateError(
            f"the first pass over the input counted {slot.records} records for slot {slot.slot} "
            f"of partition {slot.partition_path!r}",
            f"{found} arrived: {INPUT_CHANGED}",
            STABLE_INPUT,
        )
