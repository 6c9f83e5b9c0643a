"""Packing: the first step of a write, which reads the records once.

Each record gets its tags (key, partition path, slot) as hidden columns, and the records of each
slot are counted. The engine keeps the tagged records until the plan of the write says where they
go; no later step tags a record again, and rows cross from Spark to Python once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from bucketlake.flow.stage import Engine, Flow, Rows, TaskPlan
from bucketlake.flow.threads import ThreadFlow, Threads
from bucketlake.index.layout import Slot, SlotPlan
from bucketlake.model.cast import selectable
from bucketlake.model.field_path import columns_at
from bucketlake.model.grouping import grouped, summed
from bucketlake.write.slot_stage import RECORDS, TaskResult, WriteStage, WriteTask
from bucketlake.write.tag import POSITION, SlotCounts, Tagger
from bucketlake.write.write_plan import Elsewhere, WritePlan

if TYPE_CHECKING:
    from bucketlake.write.record_index.by_shard import ShardStage
    from bucketlake.write.record_index.locate import LocateStage
    from bucketlake.write.rehash import RehashSource


Packed: TypeAlias = "PackedRecords | RehashSource"
"""Records that wait for the plan of their write."""


class RecordSource(Protocol):
    """Records of the caller, whose columns are not checked yet."""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the caller's records; raises InputError for a type that Arrow lacks."""

    @property
    def gaps(self) -> frozenset[str]:
        """Columns that some records lack, so that a null keeps the stored value."""

    def is_empty(self) -> bool:
        """Return whether there are no records."""

    def keep(self, paths: list[str]) -> None:
        """Keep only the values at these paths."""

    def pack(self, tagger: Tagger) -> PackedRecords:
        """Tag and count the records; raise InputError if a record has no usable key."""

    def close(self) -> None:
        """Drop everything that the source kept for the write."""


def pack_records(
    tagger: Tagger, chunks: Iterable[pa.Table], *, first_position: int | None = None
) -> Iterator[Any]:
    """Tag the records of a task; yield them, and at the end the counts of their slots.

    Parameters
    ----------
    tagger : Tagger
        Finds key, partition path and slot of each record.
    chunks : iterable of pa.Table
        The records.
    first_position : int, optional
        Position of the first record, if the order of the records decides between equal ordering
        values.
    """
    counts, position, size_bytes = Counter[Any](), first_position, 0
    elsewhere: dict[Slot, set[int]] = defaultdict(set)
    deletes, late = list[pa.Table](), 0
    for rows in chunks:
        tagged = tagger.tag_first(rows)
        positions = None
        if position is not None:
            positions = np.arange(position, position + len(rows))
            position += len(rows)
        if tagger.tombstones is not None:
            rows, passing, new = tagger.tombstones.sift(rows, tagged)
            if new is not None:
                deletes.append(new)
            if passing is not None:
                late += len(rows) - len(passing)
                rows, tagged = rows.take(pa.array(passing)), tagged.take(passing)
                positions = None if positions is None else positions[passing]
        groups = tagged.groups()
        counts.update(groups.counts())
        size_bytes += rows.nbytes
        for slot, others in tagger.elsewhere(tagged).items():
            elsewhere[slot] |= others
        packed = tagger.with_tags(rows, tagged)
        if positions is not None:
            packed = packed.append_column(POSITION, pa.array(positions))
        yield Rows(RECORDS, packed, groups)
    yield PackedCounts(dict(counts), size_bytes, dict(elsewhere), deletes, late)


@dataclass(frozen=True, slots=True)
class PackedCounts:
    """What a task packed.

    Attributes
    ----------
    slots : mapping of (str, int) to int
        The records of each slot.
    size_bytes : int
        Size of the records in memory.
    elsewhere : mapping of (str, int) to set of int
        Slots with keys that another rule puts elsewhere (``index/key_rule.py``), and where.
    deletes : list of pa.Table
        New tombstones.
    late : int
        Records that lost to a tombstone.
    """

    slots: SlotCounts
    size_bytes: int
    elsewhere: Elsewhere
    deletes: list[pa.Table]
    late: int


@dataclass(frozen=True)
class PackedRecords:
    """Records that an engine keeps, with their tags.

    Attributes
    ----------
    flow : Flow
        The kept records; its results are their counts. Or a flow that makes the records again for
        each flow that goes on from it.
    schema : pa.Schema
        Columns of the records, without tags.
    engine : Engine
        Writes the records.
    by_tasks : callable, optional
        Packs the records for tasks of Spark, if they are so few that this process packed them.
    told : sequence, optional
        The counts, if the flow makes the records again.
    """

    flow: Flow
    schema: pa.Schema
    engine: Engine
    by_tasks: Callable[[], PackedRecords] | None = field(default=None, kw_only=True)
    told: Sequence[Any] | None = field(default=None, kw_only=True)

    @property
    def tasks_wanted(self) -> int:
        """Number of tasks that the engine prefers for a write."""
        return self.engine.tasks_wanted

    @cached_property
    def counts(self) -> SlotCounts:
        """The records of each slot."""
        return summed(pair for counted in self._counted for pair in counted.slots.items())

    @property
    def elsewhere(self) -> Elsewhere:
        """The slots with keys that another rule puts elsewhere, and where it puts them."""
        found = grouped(pair for counted in self._counted for pair in counted.elsewhere.items())
        return {slot: set[int]().union(*others) for slot, others in found.items()}

    @property
    def deletes(self) -> list[pa.Table]:
        """New tombstones."""
        return [table for counted in self._counted for table in counted.deletes]

    @property
    def late(self) -> int:
        """Number of records that lost to a tombstone, and are not among the others."""
        return sum(counted.late for counted in self._counted)

    @property
    def size_bytes(self) -> int:
        """Size of the records in memory."""
        return sum(counted.size_bytes for counted in self._counted)

    @property
    def _counted(self) -> list[PackedCounts]:
        """Return the counts; tasks may have told more (``spark/merge.py``)."""
        told = self.flow.results() if self.told is None else self.told
        return [each for each in told if isinstance(each, PackedCounts)]

    def write(self, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        """Send each record to its task, which writes it."""
        from bucketlake.write.record_index.index_writer import with_index

        stage = WriteStage(task, plan.placement(), self.schema)
        tasks = stage.tasks_of(self.counts)
        flow = self.flow.then(stage, plan.slots, plan.task_count, tasks)
        return with_index(flow, task.index, plan.shards).results()

    def write_by_shard(
        self, stage: ShardStage, plans: Sequence[TaskPlan], task_count: int
    ) -> list[Any]:
        """Send each record to the task that owns its shard of the index, which writes it."""
        tasks = stage.records.tasks_of(self.counts)
        return self.flow.then(stage, plans, task_count, tasks).results()

    def locate(self, lookups: Sequence[SlotPlan], stage: LocateStage) -> Flow:
        """Send each record to the task of its lookup, and keep the located records."""
        return self.flow.then(stage, lookups, stage.placement.task_count).kept()


# ---- Arrow tables as the source of a write: without an engine, the tasks are threads -------------

_PART_ROWS_MIN = 1 << 16  # Of a part of the records that a thread tags and routes.


class ArrowSource:
    """Records of an Arrow table; its row order decides between equal ordering values."""

    def __init__(self, rows: pa.Table, threads: int | None = None) -> None:
        self._rows = selectable(rows)
        self._threads = Threads(threads)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [*self._rows.column_names]

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table."""
        return self._rows.schema

    gaps: frozenset[str] = frozenset()  # Each record has all columns.

    def is_empty(self) -> bool:
        """Return whether the table has no rows."""
        return len(self._rows) == 0

    def keep(self, paths: list[str]) -> None:
        """Keep only the values at these paths."""
        self._rows = columns_at(self._rows, paths)

    def pack(self, tagger: Tagger) -> PackedRecords:
        """Tag and count the records, in parts of equal size."""
        count = len(self._rows)
        size = max(_PART_ROWS_MIN, -(-count // self._threads.tasks_wanted))

        def packed(start: int) -> Iterator[Any]:
            part = self._rows.slice(start, size)
            return pack_records(tagger, [part], first_position=start)

        starts = range(0, max(1, count), size)  # A table without rows is a part, too.
        flow = ThreadFlow(self._threads, self._threads.each(packed, starts)).kept()
        return PackedRecords(flow, self._rows.schema, self._threads)

    def close(self) -> None:
        """Do nothing: the source keeps nothing."""
