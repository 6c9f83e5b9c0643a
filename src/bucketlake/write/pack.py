"""Packing: the first step of a write, which reads the records once.

Each record gets its tags (key, partition path, slot) as hidden columns, and the records of each
slot are counted. The engine keeps the tagged records until the plan of the write says where they
go; no later step tags a record again, and rows cross from Spark to Python once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from bucketlake.flow.stage import Flow, Rows, TaskPlan
from bucketlake.write.slot_stage import RECORDS, TaskResult, WriteStage, WriteTask
from bucketlake.write.tag import POSITION, SlotCounts, Tagger
from bucketlake.write.write_plan import WritePlan

if TYPE_CHECKING:  # Most writes do not need the record-level index.
    from bucketlake.write.record_index.by_shard import ShardStage
    from bucketlake.write.record_index.locate import LocateStage
    from bucketlake.write.record_index.lookups import LookupPlan


class Packed(Protocol):
    """Records that wait for the plan of their write."""

    @property
    def counts(self) -> SlotCounts:
        """The records of each slot."""
        ...

    @property
    def tasks_wanted(self) -> int:
        """Number of tasks that the engine prefers for a write."""
        ...

    def write(self, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        """Write every slot and every shard of the plan; return a result for each of them."""
        ...


class SlotSource(Protocol):
    """Where the records of a write come from."""

    def pack(self, tagger: Tagger) -> Packed:
        """Tag and count the records; raise InputError if a record has no usable key."""
        ...

    def close(self) -> None:
        """Drop everything that the source kept for the write."""
        ...


class RecordSource(Protocol):
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

    def pack(self, tagger: Tagger) -> PackedRecords:
        """Tag and count the records; raise InputError if a record has no usable key."""
        ...

    def close(self) -> None:
        """Drop everything that the source kept for the write."""
        ...


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
    for rows in chunks:
        tagged = tagger.tag_first(rows)
        groups = tagged.groups()
        counts.update(groups.counts())
        size_bytes += rows.nbytes
        packed = tagger.with_tags(rows, tagged)
        if position is not None:
            positions = np.arange(position, position + len(rows))
            packed = packed.append_column(POSITION, pa.array(positions))
            position += len(rows)
        yield Rows(RECORDS, packed, groups)
    yield PackedCounts(dict(counts), size_bytes)


@dataclass(frozen=True, slots=True)
class PackedCounts:
    """What a task packed.

    Attributes
    ----------
    slots : mapping of (str, int) to int
        The records of each slot.
    size_bytes : int
        Size of the records in memory.
    """

    slots: SlotCounts
    size_bytes: int


@dataclass(frozen=True)
class PackedRecords:
    """Records that an engine keeps, with their tags.

    Attributes
    ----------
    flow : Flow
        The kept records; its results are their counts.
    schema : pa.Schema
        Columns of the records, without tags.
    tasks_wanted : int
        Number of tasks that the engine prefers for a write.
    """

    flow: Flow
    schema: pa.Schema
    tasks_wanted: int

    @cached_property
    def counts(self) -> SlotCounts:
        """The records of each slot."""
        counts = Counter[Any]()
        for counted in self.flow.results():
            counts.update(counted.slots)
        return dict(counts)

    @property
    def size_bytes(self) -> int:
        """Size of the records in memory."""
        return sum(counted.size_bytes for counted in self.flow.results())

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

    def locate(self, plan: LookupPlan, task: LocateStage) -> Flow:
        """Send each record to the task of its lookup, and keep the located records."""
        return self.flow.then(task, plan.lookups, plan.task_count).kept()
