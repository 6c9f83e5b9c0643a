"""Rehashing buckets in place: rows go from old file groups to new ones without a shuffle.

A key's old bucket is its hash modulo N, its new one modulo M. Both agree modulo the greatest common
divisor g of N and M, so the old buckets of one residue hold the rows of the new buckets of that
residue, and of no other. Each residue is a job of its own: from 4 to 8 buckets every file group is
split by itself (RFC-29, multiple rehash).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from bucketlake.errors import IndexStateError
from bucketlake.index.kinds import BucketIndex
from bucketlake.index.simple import bucket_id_of_file_id
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.slice_reader import SliceReader
from bucketlake.write.plan import UNCOUNTED, GroupPlan, WritePlan
from bucketlake.write.source import GroupCounts, WriteTask
from bucketlake.write.tag import Tagger

JOB_BYTES_MAX = 128 * 2**20
"""Files that one job reads at most; the rows of a job are held in memory."""


@dataclass(frozen=True, slots=True)
class RehashJob:
    """Old file groups of one residue, and the new ones that take their rows."""

    slices: tuple[FileSlice, ...]
    groups: tuple[GroupPlan, ...]

    def to_text(self) -> str:
        """Print the job, to travel to a task."""
        return json.dumps(
            [[one.to_text() for one in self.slices], [asdict(group) for group in self.groups]]
        )

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse a job; undoes :meth:`to_text`."""
        slices, groups = json.loads(text)
        return cls(
            tuple(FileSlice.from_text(one) for one in slices),
            tuple(GroupPlan(**group) for group in groups),
        )

    @property
    def size_bytes(self) -> int:
        """Size of the files that it reads."""
        return sum(one.size_bytes for one in self.slices)


@dataclass(frozen=True, slots=True)
class Rehash:
    """What all jobs of one rehash share; a small picklable value."""

    reader: SliceReader
    task: WriteTask

    def run(self, job: RehashJob) -> list[WriteStat]:
        """Write the new file groups of a job."""
        names = self.task.writer.schema.names
        chunks = [chunk for one in job.slices for chunk in self.reader.read(one, names)]
        if not chunks:
            return []
        rows = pa.concat_tables(chunks)
        self._require_own(job, rows)
        return self.task.write(list(job.groups), rows, None)

    def _require_own(self, job: RehashJob, rows: pa.Table) -> None:
        """Refuse rows that would find no group of the job, and so be lost."""
        tagged = self.task.tagger.tag(rows)
        partition = job.slices[0].partition_path
        strayed = [path for path in tagged.partitions if path != partition]
        if strayed:
            raise IndexStateError(
                f"the rows of partition {partition!r} belong there",
                f"some belong into {min(strayed)!r} by their columns",
                "overwrite the partition with its own rows first",
            )
        wanted = np.array(sorted(group.bucket_id for group in job.groups))
        if not np.isin(tagged.bucket_ids, wanted).all():
            raise IndexStateError(
                f"the keys of {job.slices[0].file_id} belong into its bucket",
                "some belong into another one",
                "another writer used another bucket count: overwrite the partition first",
            )


RehashRunner = Callable[[Rehash, Sequence[RehashJob]], list[WriteStat]]
"""Has an engine run jobs, some at once."""


class RehashSource:
    """The rows of some slices as a source of a write, which never leave their residues."""

    def __init__(
        self,
        reader: SliceReader,
        slices: Sequence[FileSlice],
        old: BucketIndex,
        new: BucketIndex,
        run: RehashRunner,
    ) -> None:
        self._reader, self._run = reader, run
        self._old, self._new = old, new
        self._slices: dict[tuple[str, int], list[FileSlice]] = defaultdict(list)
        for one in slices:
            bucket_id = bucket_id_of_file_id(one.file_id)
            self._slices[self._class_of(one.partition_path, bucket_id)].append(one)

    @property
    def fits(self) -> bool:
        """Whether the rows of every job fit into the memory of a task."""
        sizes = (sum(one.size_bytes for one in held) for held in self._slices.values())
        return max(sizes, default=0) <= JOB_BYTES_MAX

    @property
    def tasks_wanted(self) -> int:
        """One a job."""
        return max(1, len(self._slices))

    def count_groups(self, tagger: Tagger) -> GroupCounts:  # noqa: ARG002 -- nothing is counted.
        """Return every new file group that may get rows; how many is not known before."""
        return {
            (partition, bucket): UNCOUNTED
            for partition, residue in self._slices
            for bucket in range(residue, self._new.count_of(partition), self._divisor(partition))
        }

    def write_groups(self, plan: WritePlan, task: WriteTask) -> list[WriteStat]:
        """Run the jobs of the plan."""
        groups: dict[tuple[str, int], list[GroupPlan]] = defaultdict(list)
        for group in plan.groups:
            groups[self._class_of(group.partition_path, group.bucket_id)].append(group)
        jobs = [
            RehashJob(tuple(self._slices[place]), tuple(held)) for place, held in groups.items()
        ]
        return self._run(Rehash(self._reader, task), jobs)

    def close(self) -> None:
        """Nothing is kept."""

    def _divisor(self, partition: str) -> int:
        return math.gcd(self._old.count_of(partition), self._new.count_of(partition))

    def _class_of(self, partition: str, bucket: int) -> tuple[str, int]:
        return partition, bucket % self._divisor(partition)
