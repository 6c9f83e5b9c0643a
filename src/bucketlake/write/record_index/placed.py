"""Writing located records: the second stage of a write under a record-level index.

Each slot of the plan is a file group, and a task owns some of them
(``write/record_index/group_plan.py``). The writer of the slots is that of all index kinds. In the
same stage, other rows bring changed keys to the tasks that write the log files of the index
(``write/record_index/index_writer.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from bucketlake.merge.incoming import BoolArray, IncomingRecords
from bucketlake.write.batch_reader import BatchReader
from bucketlake.write.counted import require_count
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.record_index.group_plan import GroupPlan
from bucketlake.write.record_index.index_writer import IndexWriter, ShardResult
from bucketlake.write.record_index.located import MOVED, SLOT, LookupResult
from bucketlake.write.tag import Tagger
from bucketlake.write.write_plan import SlotPlan, SlotResult


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """Writes the located rows of a task; a picklable value that all tasks of a write share.

    Attributes
    ----------
    tagger : Tagger
        Makes the keys of rows.
    writer : GroupWriter
        Writes file groups.
    reader : BatchReader
        Makes incoming records of rows.
    index_writer : IndexWriter
        Writes the entries of shards.
    """

    tagger: Tagger
    writer: GroupWriter
    reader: BatchReader
    index_writer: IndexWriter

    def write(self, slots: Sequence[SlotPlan], rows: pa.Table) -> Iterator[SlotResult]:
        """Write the slots of one task from all of its rows; yield the result of each slot.

        Parameters
        ----------
        slots : sequence of SlotPlan
            The slots that the task owns.
        rows : pa.Table
            The located records of those slots, in any order, each with its ``SLOT``.
        """
        places = rows[SLOT].to_numpy()
        for slot in sorted(slots, key=lambda slot: slot.number):
            chosen = np.flatnonzero(places == slot.number)
            require_count(slot.key, slot.records, len(chosen))
            own = rows if len(chosen) == rows.num_rows else rows.take(pa.array(chosen))
            done = self.writer.write(slot, self._incoming(own))
            yield SlotResult(slot.number, len(chosen), done.stats, done.ignored)

    def _incoming(self, rows: pa.Table) -> IncomingRecords:
        moved = _moved(rows)
        rows = rows.drop_columns([name for name in (SLOT, MOVED) if name in rows.column_names])
        records = self.reader.read(rows, self.tagger.keys(rows))
        if moved is None:
            return records
        # The record has won already, so its key goes, whatever its ordering value.
        return replace(records, deleted=records.deleted | moved, is_reset=records.is_reset | moved)


def _moved(rows: pa.Table) -> BoolArray | None:
    if MOVED not in rows.column_names:
        return None
    moved: BoolArray = rows[MOVED].to_numpy()
    return moved if moved.any() else None


@dataclass(frozen=True, slots=True)
class PlacedResults:
    """What the tasks of the second stage did."""

    slots: list[SlotResult]
    shards: list[ShardResult]


class LocatedRecords(Protocol):
    """The records of a batch after the first stage, as the engine keeps them."""

    @property
    def results(self) -> list[LookupResult]:
        """What the lookups found, in the order of the plan."""
        ...

    def write(self, plan: GroupPlan, task: PlacedTask) -> PlacedResults:
        """Write every slot and every shard of the plan."""
        ...

    def close(self) -> None:
        """Drop the records."""
        ...
