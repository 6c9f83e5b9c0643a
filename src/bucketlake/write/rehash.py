"""Moving rows from one layout to another without a shuffle, from old to new file groups.

The layouts decide which slots exchange rows (``Layout.parts_of_move``): each such part is one job.
From 4 to 8 buckets, each job splits one file group (RFC-29, multiple rehash).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import IndexStateError
from bucketlake.flow.stage import NO_TASK, Engine, Rows
from bucketlake.index.layout import Layout, Slot, SlotPlan
from bucketlake.model.file_slice import FileSlice
from bucketlake.read.slice_reader import SliceReader
from bucketlake.write.record_index.index_writer import with_index
from bucketlake.write.slot_stage import TaskResult, WriteTask
from bucketlake.write.tag import UNCOUNTED, SlotCounts, TaggedRecords, Tagger, with_numbers
from bucketlake.write.write_plan import Elsewhere, Placement, SlotResult, WritePlan

JOB_BYTES_MAX = 128 * 2**20
"""Greatest size of the files that one job reads; a job holds its rows in memory."""


@dataclass(frozen=True, slots=True)
class RehashJob:
    """Old file groups of one part, and the new slots that get their rows."""

    slices: tuple[FileSlice, ...]
    slots: tuple[SlotPlan, ...]

    @property
    def size_bytes(self) -> int:
        """Size of the files that the job reads."""
        return sum(file_slice.size_bytes for file_slice in self.slices)


def _run(reader: SliceReader, task: WriteTask, job: RehashJob) -> Iterator[SlotResult | Rows]:
    """Write the new slots of a part from its old groups; the keys go on to the index's shards."""
    return task.write(job.slots, _rows(reader, task, job))


def _rows(reader: SliceReader, task: WriteTask, job: RehashJob) -> pa.Table:
    """Return the rows of a job, with the numbers of their new slots."""
    schema, tagger = task.writer.schema, task.tagger
    chunks = [chunk for held in job.slices for chunk in reader.read(held, schema.names)]
    rows = pa.concat_tables(chunks) if chunks else schema.empty_table()
    tagged = tagger.tag(rows)
    return with_numbers(tagger.with_tags(rows, tagged), _numbers(job, tagged))


def _numbers(job: RehashJob, tagged: TaggedRecords) -> npt.NDArray[np.int64]:
    """Raise IndexStateError for rows without a slot in the job: they would be lost."""
    partition = job.slices[0].partition_path
    strayed = [path for path in tagged.partitions if path != partition]
    if strayed:
        raise IndexStateError(
            f"the rows of partition {partition!r} belong there",
            f"the partition columns of some rows give partition {min(strayed)!r}",
            "overwrite the partition with its own rows first",
        )
    slots = sorted(job.slots, key=lambda slot: slot.number)
    places = Placement.of_slots(slots).positions(tagged)
    if (places == NO_TASK).any():
        raise IndexStateError(
            f"the keys of {job.slices[0].file_id} belong to its bucket",
            "some keys belong to another bucket",
            "a writer used another bucket count: overwrite the partition first",
        )
    numbers: npt.NDArray[np.int64] = np.array([slot.number for slot in slots])[places]
    return numbers


class RehashSource:
    """The rows of some slices as a source of a write; rows never leave their part."""

    def __init__(
        self,
        reader: SliceReader,
        live: dict[Slot, tuple[FileSlice, ...]],
        new: Layout,
        parts: dict[str, int],
        engine: Engine,
    ) -> None:
        self._reader, self._engine, self._new, self._parts = reader, engine, new, parts
        self._slices: dict[tuple[str, int], list[FileSlice]] = defaultdict(list)
        for (partition, slot), slices in live.items():
            self._slices[partition, slot % parts[partition]] += slices

    @classmethod
    def between(
        cls,
        old: Layout,
        new: Layout,
        slices: Sequence[FileSlice],
        reader: SliceReader,
        engine: Engine,
    ) -> Self | None:
        """Return a source that moves the rows of some slices from one layout to another.

        Returns None if rows must be shuffled: the layouts have no parts in common, or the rows of a
        part would not fit into the memory of a task.

        Raises
        ------
        IndexStateError
            If the slices contradict the old layout.
        """
        parts: dict[str, int] = {}
        for partition in {file_slice.partition_path for file_slice in slices}:
            count = old.parts_of_move(new, partition)
            if count is None:
                return None
            parts[partition] = count
        source = cls(reader, old.live_slots(slices), new, parts, engine)
        return source if slices and source._fits else None

    @property
    def _fits(self) -> bool:
        """Whether the rows of every job fit into the memory of a task."""
        sizes = (sum(s.size_bytes for s in held) for held in self._slices.values())
        return max(sizes, default=0) <= JOB_BYTES_MAX

    @property
    def tasks_wanted(self) -> int:
        """One task per job."""
        return max(1, len(self._slices))

    def pack(self, tagger: Tagger) -> Self:  # noqa: ARG002 -- the jobs tag their own rows.
        """Return the source: its rows are read when they are written."""
        return self

    @property
    def counts(self) -> SlotCounts:
        """Every new slot that may get rows; the number of rows is not known before."""
        return {
            (partition, slot): UNCOUNTED
            for partition, parts in self._parts.items()
            for slot in range(self._new.slot_count(partition))
            if (partition, slot % parts) in self._slices
        }

    @property
    def elsewhere(self) -> Elsewhere:
        """No slots: the partitions are replaced."""
        return {}

    def write(self, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        """Run the jobs of the plan."""
        slots: dict[tuple[str, int], list[SlotPlan]] = defaultdict(list)
        for slot in plan.slots:
            part = slot.slot % self._parts[slot.partition_path]
            slots[slot.partition_path, part].append(slot)
        jobs = [RehashJob(tuple(self._slices[part]), tuple(held)) for part, held in slots.items()]
        sizes = [job.size_bytes for job in jobs]
        flow = self._engine.start(partial(_run, self._reader, task), jobs, sizes)
        return with_index(flow, task.index, plan.shards).results()

    def close(self) -> None:
        """Do nothing: the source keeps nothing."""
