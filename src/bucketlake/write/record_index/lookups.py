"""The plan of lookups: which task looks up the stored locations of which keys.

Under a record-level index a file group may hold any key of its partition, so records are located
before they are placed. All records of a key belong to one *lookup*: a slot that is a shard of the
index, or a part of a shard if it gets more records than a task should hold. The driver makes the
plan from the records of each partition and the shards of the index; tasks get their lookups as
rows. Its slices are the stored entries of the shard; in a global index its partition is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bucketlake.flow.stage import NO_TASK, spread
from bucketlake.hashing.index_key import hash_strings
from bucketlake.hashing.key_filter import parts_of_keys
from bucketlake.index.layout import SlotPlan
from bucketlake.metadata.record_index.shards import IndexShards
from bucketlake.model.file_slice import FileSlice
from bucketlake.write import write_plan
from bucketlake.write.tag import TaggedRecords
from bucketlake.write.write_plan import task_count_of

LOOKED_UP_MAX = 1 << 20
"""Greatest number of records in one task that looks keys up in a stored shard.

Each part of a shard reads the blocks of the shard again, so there are fewer parts than for a shard
without entries.
"""

_RECORD_WEIGHT = 100  # Weighs records against stored bytes, of which a key takes some 15.

StoredShards = Mapping[str | None, Sequence[FileSlice]]
"""Slices of the index by data partition, in the order of shards; None in a global index."""


@dataclass(frozen=True, slots=True, eq=False)
class LookupPlacement:
    """Which lookup each record belongs to; small enough to travel with the task's code.

    Attributes
    ----------
    partitions : tuple of str
        Data partitions of the batch, sorted.
    shard_counts : ndarray of int32, shape (n_partitions,)
        Shards of the index for keys of each partition.
    part_counts : ndarray of int32, shape (n_partitions,)
        Parts of each of these shards.
    first : ndarray of int32, shape (n_partitions,)
        Number of the first lookup of each partition; the same for all in a global index.
    tasks : ndarray of int32, shape (n_lookups,)
        Tasks of the lookups.
    task_count : int
        Number of tasks.
    """

    partitions: tuple[str, ...]
    shard_counts: npt.NDArray[np.int32]
    part_counts: npt.NDArray[np.int32]
    first: npt.NDArray[np.int32]
    tasks: npt.NDArray[np.int32]
    task_count: int

    def numbers(self, tagged: TaggedRecords) -> npt.NDArray[np.int32]:
        """Return the lookup of each record; ``NO_TASK`` if its partition is not in the plan."""
        codes = self.partition_codes(tagged)
        numbers = self.first[codes].copy()
        if (self.shard_counts > 1).any():
            hashes = np.abs(hash_strings(tagged.keys).astype(np.int64))
            shards = (hashes % self.shard_counts[codes]).astype(np.int32)
            numbers += shards * self.part_counts[codes]
        if (self.part_counts > 1).any():
            numbers += parts_of_keys(tagged.keys, self.part_counts[codes])
        numbers[codes == NO_TASK] = NO_TASK
        return numbers

    def partition_codes(self, tagged: TaggedRecords) -> npt.NDArray[np.int32]:
        """Return the position of each record's partition; ``NO_TASK`` if it is not in the plan."""
        known = {path: place for place, path in enumerate(self.partitions)}
        places = np.array([known.get(path, NO_TASK) for path in tagged.partitions], np.int32)
        return np.asarray(places[tagged.partition_codes])

    def place(self, numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the tasks of lookups; ``NO_TASK`` for ``NO_TASK``."""
        return np.asarray(np.append(self.tasks, np.int32(NO_TASK))[numbers])


def plan_lookups(
    counts: Mapping[str, int], shards: IndexShards, stored: StoredShards, *, tasks_wanted: int
) -> tuple[list[SlotPlan], LookupPlacement]:
    """Plan the lookups of a batch; return them by number, and what places records.

    Parameters
    ----------
    counts : mapping of str to int
        Records of each data partition.
    shards : IndexShards
        The shards of the index, with those of new data partitions.
    stored : mapping
        Slices of the shards in which keys are looked up; data partitions that are new, or that the
        write replaces, have none.
    tasks_wanted : int
        Number of tasks that the engine prefers; there are fewer tasks if there are fewer lookups,
        more if a task would hold too many records.
    """

    def parts(records: int, shard_count: int, path: str | None) -> int:
        records_max = LOOKED_UP_MAX if stored.get(path) else write_plan.RECORDS_PER_TASK_MAX
        return max(1, -(-records // (shard_count * records_max)))

    partitions = tuple(sorted(counts))
    shard_counts = np.array([shards.count(path) for path in partitions], np.int32)
    groups: list[tuple[str | None, int, int, int]]
    if shards.is_partitioned:
        held = [counts[path] for path in partitions]
        part_counts = np.array([*map(parts, held, shard_counts.tolist(), partitions)], np.int32)
        numbers = shard_counts * part_counts
        first = (np.cumsum(numbers) - numbers).astype(np.int32)
        groups = [*zip(partitions, held, shard_counts.tolist(), part_counts.tolist(), strict=True)]
    else:
        total, count = sum(counts.values()), shards.count("")
        part_count = parts(total, count, None)
        part_counts = np.full(len(partitions), part_count, np.int32)
        first = np.zeros(len(partitions), np.int32)
        groups = [(None, total, count, part_count)]
    lookups: list[SlotPlan] = []
    for path, records, shard_count, part_count in groups:
        slices: Sequence[FileSlice | None] = stored.get(path) or [None] * shard_count
        share = -(-records // (shard_count * part_count))
        for shard, held_slice in enumerate(slices):
            entries = () if held_slice is None else (held_slice,)
            lookups += [
                SlotPlan(
                    path or "",
                    shard,
                    entries,
                    share,
                    len(lookups) + part,
                    part=part,
                    part_count=part_count,
                )
                for part in range(part_count)
            ]
    task_count = task_count_of(len(lookups), sum(counts.values()), wanted=tasks_wanted)
    tasks = spread([*map(_weight, lookups)], task_count)
    placed = [replace(held, task=task) for held, task in zip(lookups, tasks, strict=True)]
    return placed, LookupPlacement(
        partitions, shard_counts, part_counts, first, np.array(tasks, np.int32), task_count
    )


def _weight(lookup: SlotPlan) -> int:
    """Return estimated work: each part of a shard reads the whole shard, if keys are spread."""
    return lookup.records * _RECORD_WEIGHT + sum(held.size_bytes for held in lookup.slices)
