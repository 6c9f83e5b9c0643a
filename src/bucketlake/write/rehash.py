"""Moving rows from one layout to another without a shuffle, from old to new file groups.

The layouts decide which slots exchange rows (``Layout.moves_to``): each such part is one job.
From 4 to 8 buckets, each job splits one file group (RFC-29, multiple rehash).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from bucketlake.errors import IndexStateError
from bucketlake.index.layout import Layout, Moves, Slot
from bucketlake.model.file_slice import FileSlice
from bucketlake.read.slice_reader import SliceReader
from bucketlake.write.batch_source import SlotCounts, TaskResult, WriteTask
from bucketlake.write.counted import UNCOUNTED
from bucketlake.write.tag import Tagger
from bucketlake.write.write_plan import NO_TASK, Placement, SlotPlan, SlotResult, WritePlan

if TYPE_CHECKING:  # Most writes do not maintain a record-level index.
    from bucketlake.write.record_index.index_writer import ShardPlan
    from bucketlake.write.record_index.key_changes import ChangedKeys

JOB_BYTES_MAX = 128 * 2**20
"""Greatest size of the files that one job reads; a job holds its rows in memory."""


@dataclass(frozen=True, slots=True)
class RehashJob:
    """Old file groups of one part, and the new slots that get their rows."""

    slices: tuple[FileSlice, ...]
    slots: tuple[SlotPlan, ...]

    def to_text(self) -> str:
        """Print the job as text, to send it to a task."""
        slices, slots = ([part.to_text() for part in parts] for parts in (self.slices, self.slots))
        return json.dumps([slices, slots])

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse what :meth:`to_text` printed."""
        slices, slots = json.loads(text)
        return cls(
            tuple(FileSlice.from_text(file_slice) for file_slice in slices),
            tuple(SlotPlan.from_text(slot) for slot in slots),
        )

    @property
    def size_bytes(self) -> int:
        """Size of the files that the job reads."""
        return sum(file_slice.size_bytes for file_slice in self.slices)


@dataclass(frozen=True, slots=True)
class Rehash:
    """The values that all jobs of one rehash share; small and picklable."""

    reader: SliceReader
    task: WriteTask

    def run(self, job: RehashJob, changed: ChangedKeys | None = None) -> list[SlotResult]:
        """Write the new slots of a job, and add their keys to the changed keys."""
        names = self.task.writer.schema.names
        chunks = [
            chunk for file_slice in job.slices for chunk in self.reader.read(file_slice, names)
        ]
        rows = pa.concat_tables(chunks) if chunks else self.task.writer.schema.empty_table()
        self._require_own(job, rows)
        return list(self.task.write(list(job.slots), rows, None, changed=changed))

    def _require_own(self, job: RehashJob, rows: pa.Table) -> None:
        """Raise IndexStateError for rows without a slot in the job: they would be lost."""
        tagged = self.task.tagger.tag(rows)
        partition = job.slices[0].partition_path
        strayed = [path for path in tagged.partitions if path != partition]
        if strayed:
            raise IndexStateError(
                f"the rows of partition {partition!r} belong there",
                f"the partition columns of some rows give partition {min(strayed)!r}",
                "overwrite the partition with its own rows first",
            )
        slots = sorted(job.slots, key=lambda slot: slot.number)
        if (Placement.of_slots(slots).positions(tagged) == NO_TASK).any():
            raise IndexStateError(
                f"the keys of {job.slices[0].file_id} belong to its bucket",
                "some keys belong to another bucket",
                "a writer used another bucket count: overwrite the partition first",
            )


RehashRunner = Callable[[Rehash, "Sequence[RehashJob]", "Sequence[ShardPlan]"], "list[TaskResult]"]
"""A function that runs jobs on an engine, several at once, and then writes shards of the index."""


class RehashSource:
    """The rows of some slices as a source of a write; rows never leave their part."""

    def __init__(
        self,
        reader: SliceReader,
        live: dict[Slot, tuple[FileSlice, ...]],
        moves: dict[str, Moves],
        run: RehashRunner,
    ) -> None:
        self._reader, self._run, self._moves = reader, run, moves
        self._slices: dict[tuple[str, int], list[FileSlice]] = defaultdict(list)
        for (partition, slot), slices in live.items():
            self._slices[partition, moves[partition].part_of_old[slot]] += slices

    @classmethod
    def between(
        cls,
        old: Layout,
        new: Layout,
        slices: Sequence[FileSlice],
        reader: SliceReader,
        run: RehashRunner,
    ) -> Self | None:
        """Return a source that moves the rows of some slices from one layout to another.

        Returns None if rows must be shuffled: the layouts have no parts in common, or the rows of a
        part would not fit into the memory of a task.

        Raises
        ------
        IndexStateError
            If the slices contradict the old layout.
        """
        moves: dict[str, Moves] = {}
        for partition in {file_slice.partition_path for file_slice in slices}:
            found = old.moves_to(new, partition)
            if found is None:
                return None
            moves[partition] = found
        source = cls(reader, old.live_slots(slices), moves, run)
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

    def count_slots(self, tagger: Tagger) -> SlotCounts:  # noqa: ARG002 -- nothing is counted.
        """Return every new slot that may get rows; the number of rows is not known before."""
        return {
            (partition, slot): UNCOUNTED
            for partition, moves in self._moves.items()
            for slot, part in moves.part_of_new.items()
            if (partition, part) in self._slices
        }

    def write_slots(self, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        """Run the jobs of the plan."""
        slots: dict[tuple[str, int], list[SlotPlan]] = defaultdict(list)
        for slot in plan.slots:
            part = self._moves[slot.partition_path].part_of_new[slot.slot]
            slots[slot.partition_path, part].append(slot)
        jobs = [RehashJob(tuple(self._slices[part]), tuple(held)) for part, held in slots.items()]
        return self._run(Rehash(self._reader, task), jobs, plan.shards)

    def close(self) -> None:
        """Do nothing: the source keeps nothing."""
