"""Sources of a write: the seam between the driver's steps and the engine that holds the records.

An Arrow table in this process is one source (``write/arrow_source.py``), a Spark DataFrame another
(``spark/frame_source.py``). Both first count the records of each slot and then write the slots of a
plan; the other steps of a write are the same for both (``write/ingest.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.index.layout import WHOLE_SLOT, Slot
from bucketlake.merge.incoming import collapse_duplicates
from bucketlake.model.field_path import field_at, roots_of, why_missing
from bucketlake.model.names import did_you_mean
from bucketlake.write.batch_reader import BatchReader
from bucketlake.write.counted import require_count
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.tag import TaggedRecords, Tagger
from bucketlake.write.write_plan import Placement, SlotPlan, SlotResult, WritePlan

if TYPE_CHECKING:  # Most writes do not need the record-level index.
    from bucketlake.write.record_index.index_writer import IndexTask, ShardPlan, ShardResult
    from bucketlake.write.record_index.key_changes import ChangedKeys
    from bucketlake.write.record_index.locate import LocateTask
    from bucketlake.write.record_index.lookups import LookupPlan
    from bucketlake.write.record_index.placed import LocatedRecords

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

SlotCounts = Mapping[Slot, int]
"""Incoming records by partition path and slot."""


TaskResult: TypeAlias = "SlotResult | ShardResult"
"""What a task did to a slot, or to a shard of the record-level index."""


class SlotSource(Protocol):
    """Records to be written to slots."""

    @property
    def tasks_wanted(self) -> int:
        """Number of tasks that the engine prefers for a write."""
        ...

    def count_slots(self, tagger: Tagger) -> SlotCounts:
        """Count the records of each slot; raise InputError if a record has no usable key."""
        ...

    def write_slots(self, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        """Write every slot and every shard of the plan; return a result for each of them."""
        ...

    def close(self) -> None:
        """Drop everything that the source kept for the write."""
        ...


class RecordSource(SlotSource, Protocol):
    """Records of the caller, whose columns are not checked yet."""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the caller's records; raises InputError for a type that Arrow lacks."""
        ...

    def is_empty(self) -> bool:
        """Return whether there are no records."""
        ...

    def keep(self, paths: list[str]) -> None:
        """Keep only the values at these paths."""
        ...

    def locate(self, plan: LookupPlan, task: LocateTask) -> LocatedRecords:
        """Locate all records in the record-level index, before they are placed."""
        ...


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the rows of a task; a picklable value that all tasks of a write share.

    Attributes
    ----------
    tagger : Tagger
        Finds the slot of each row.
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
        self,
        slots: list[SlotPlan],
        rows: pa.Table,
        positions: npt.NDArray[np.int64] | None,
        tagged: TaggedRecords | None = None,
        changed: ChangedKeys | None = None,
    ) -> Iterator[SlotResult]:
        """Write the slots of one task from all of its rows; yield the result of each slot.

        Parameters
        ----------
        slots : list of SlotPlan
            Slots and parts of slots that the task owns.
        rows : pa.Table
            The records of those slots, in any order.
        positions : ndarray of int64 or None
            Positions of the rows in an ordered input, see ``collapse_duplicates``.
        tagged : TaggedRecords, optional
            Locations of the rows, if the caller has them.
        changed : ChangedKeys, optional
            Gets the keys whose entries in the record-level index may change.
        """
        tagged, reader = tagged or self.tagger.tag(rows), self.reader
        ordered = sorted(slots, key=lambda slot: slot.number)
        places = Placement.of_slots(ordered).positions(tagged)
        for place, slot in enumerate(ordered):
            chosen = np.flatnonzero(places == place)
            if slot.part == WHOLE_SLOT:
                require_count(slot.key, slot.records, len(chosen))
            if len(chosen) == rows.num_rows:
                incoming = reader.read(rows, tagged.keys)
            else:
                indices = pa.array(chosen)
                incoming = reader.read(rows.take(indices), tagged.keys.take(indices))
            own = None if positions is None else positions[chosen]
            done = self.writer.write(slot, collapse_duplicates(incoming, own), changed)
            yield SlotResult(slot.number, len(chosen), done.stats, done.ignored)

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


def written_in_threads(
    run: Callable[[_Task, ChangedKeys | None], list[_Result]],
    tasks: Sequence[_Task],
    shards: Sequence[ShardPlan],
    index: IndexTask | None,
    threads: int | None,
) -> list[_Result | ShardResult]:
    """Run the tasks of a write in threads of this process, then those of its shards.

    Parameters
    ----------
    run : callable
        Runs a task, which adds its changed keys to the given collector.
    tasks : sequence
        The tasks.
    shards : sequence of ShardPlan
        Shards of the record-level index that the write may change.
    index : IndexTask or None
        Maintains the index; None if the write does not maintain one.
    threads : int or None
        Number of threads.
    """
    with ThreadPoolExecutor(threads) as pool:
        if index is None:
            return [r for results in pool.map(lambda task: run(task, None), tasks) for r in results]
        collected = [index.collector() for _ in tasks]
        written = [r for results in pool.map(run, tasks, collected) for r in results]
        keys = [changed.table() for changed in collected]
        return [*written, *index.write_shards(pool, shards, keys)]


def require_columns(source: RecordSource, paths: tuple[str, ...], table: str, role: str) -> None:
    """Raise InputError if the batch lacks a required column, or has it several times.

    The fields inside a column are checked by :func:`require_fields`.
    """
    where = f"write to {table}"
    for name in roots_of(paths, source.names):
        if name not in source.names:
            raise InputError(
                where,
                f"the {role} column {name!r} is missing; the batch has {source.names}",
                f"add the column to the batch{did_you_mean(name, source.names)}",
            )
        # Spark ignores case, so the column name would be ambiguous.
        if sum(other.lower() == name.lower() for other in source.names) > 1:
            raise InputError(
                where,
                f"the {role} column {name!r} occurs more than once; the batch has {source.names}",
                "drop or rename the other columns",
            )


def require_fields(schema: pa.Schema, paths: Iterable[str], table: str) -> None:
    """Raise InputError if a batch with the required columns lacks a field inside a column."""
    for path in paths:
        if field_at(schema, path) is None:
            raise InputError(
                f"write to {table}",
                f"the field {path!r} is missing; the batch {why_missing(schema, path)}",
                "add the field to the batch",
            )


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
