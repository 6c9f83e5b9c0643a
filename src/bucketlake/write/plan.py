"""The plan of a write: which file groups it writes, each from what to what, and in which task.

The driver makes it from the counts of the batch and the live slices of the touched partitions;
nothing else of the table is looked at. File ids come from the plan alone, so no task draws one.
Tasks get their file groups as rows (:class:`GroupPlan` prints itself as text), not in a closure.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from bucketlake.errors import BucketOutOfRangeError, IndexStateError, InputError
from bucketlake.index.kinds import BucketIndex
from bucketlake.index.simple import bucket_id_of_file_id, new_file_id
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.table_type import Operation
from bucketlake.write.tag import TaggedRecords

RECORDS_PER_TASK_MAX = 131_072
"""A task that holds several file groups holds no more incoming records than this at once."""

NO_TASK = -1

UNCOUNTED = -1
"""Stands for a number of records that nobody counted."""

RECORD_SIZE_BYTES_ESTIMATE = 50  # Compressed; only weighs records against stored bytes.


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What one write does to one file group; a fact that travels to its task.

    Attributes
    ----------
    partition_path, bucket_id, file_id
        Which file group.
    base_path : str or None
        Newest base file, relative to the table; None where the group is new, its content is not
        wanted, or it gets a log file.
    base_size_bytes : int
        Size of that file, 0 without one.
    records : int
        Incoming records that the driver counted; the task checks that it got as many, unless it
        is ``UNCOUNTED``.
    number : int
        Position in the plan; no other group of the write has it.
    task : int
        The task that writes the group.
    appends : bool
        Whether the group exists and gets a log file, as in merge-on-read tables.
    """

    partition_path: str
    bucket_id: int
    file_id: FileId
    base_path: str | None
    base_size_bytes: int
    records: int
    number: int
    task: int = 0
    appends: bool = False

    def to_text(self) -> str:
        """Print as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse what :meth:`to_text` printed."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class WritePlan:
    """All file groups of one write, and the file groups it takes out of the table."""

    groups: tuple[GroupPlan, ...]
    replaced: Mapping[str, tuple[FileId, ...]]
    task_count: int

    def placement(self) -> Placement:
        """Return the part of the plan that places records: 4 bytes a group."""
        partitions = sorted({g.partition_path for g in self.groups})
        codes = {path: i for i, path in enumerate(partitions)}
        width = max((g.bucket_id for g in self.groups), default=0) + 1
        tasks = np.full((len(partitions), width), NO_TASK, np.int32)
        for group in self.groups:
            tasks[codes[group.partition_path], group.bucket_id] = group.task
        return Placement(tuple(partitions), tasks)


@dataclass(frozen=True, slots=True)
class Placement:
    """Which task writes which file group; small enough to travel with the task's code.

    Attributes
    ----------
    partitions : tuple of str
        Partition paths of the plan.
    tasks : ndarray of int32, shape (n_partitions, n_buckets)
        Task numbers; ``NO_TASK`` where the plan writes nothing.
    """

    partitions: tuple[str, ...]
    tasks: npt.NDArray[np.int32]

    def place(self, tagged: TaggedRecords) -> npt.NDArray[np.int32]:
        """Return the task of each record; ``NO_TASK`` for those that nothing is done for."""
        known = {path: i for i, path in enumerate(self.partitions)}
        codes = np.array([known.get(path, -1) for path in tagged.partitions], np.int32)
        rows, columns = codes[tagged.partition_codes], tagged.bucket_ids
        planned = (rows >= 0) & (columns < self.tasks.shape[1])
        found = np.full(len(rows), NO_TASK, np.int32)
        found[planned] = self.tasks[rows[planned], columns[planned]]
        return found


def live_buckets(
    slices: Sequence[FileSlice], index: BucketIndex
) -> dict[tuple[str, int], FileSlice]:
    """Map (partition path, bucket) to its live slice, checking the file groups found.

    Raises
    ------
    BucketOutOfRangeError
        If a file group names a bucket that the index does not have.
    IndexStateError
        If two file groups claim one bucket, or a file id names no bucket (RFC-29).
    """
    found: dict[tuple[str, int], FileSlice] = {}
    for file_slice in slices:
        bucket_id = bucket_id_of_file_id(file_slice.file_id)
        count = index.count_of(file_slice.partition_path)
        if bucket_id >= count:
            raise BucketOutOfRangeError(file_slice.file_id, bucket_id, count)
        other = found.setdefault((file_slice.partition_path, bucket_id), file_slice)
        if other is not file_slice:
            raise IndexStateError(
                f"a bucket index has one file group per bucket ({count} buckets)",
                f"partition {file_slice.partition_path!r} has two for bucket {bucket_id}: "
                f"{other.file_id} (instant {other.instant}) and {file_slice.file_id} "
                f"(instant {file_slice.instant})",
                "roll one of the instants back with Hudi, or overwrite the partition",
            )
    return found


def plan_write(
    operation: Operation,
    instant: InstantTime,
    counts: Mapping[tuple[str, int], int],
    slices: Sequence[FileSlice],
    index: BucketIndex,
    *,
    tasks_wanted: int,
    appends: bool = False,
) -> WritePlan:
    """Plan a write of records.

    Parameters
    ----------
    operation : Operation
        What the write does.
    instant : InstantTime
        Instant of the write; new file ids derive from it.
    counts : mapping of (partition path, bucket) to int
        Incoming records per file group.
    slices : sequence of FileSlice
        Live slices of the partitions that the write touches (of all, for a table overwrite).
    index : BucketIndex
        The table's index.
    tasks_wanted : int
        Tasks to spread the groups over; fewer where there are fewer groups, more where a task
        would hold too many records.
    appends : bool
        Whether groups that exist get log files, and no new base file.
    """
    if operation.replaces:
        live: dict[tuple[str, int], FileSlice] = {}
        replaced = _file_ids(slices)
    else:
        live, replaced = live_buckets(slices, index), {}
    if operation is Operation.BULK_INSERT:
        _require_new_partitions(counts, live)
    groups = [
        _plan_group(
            partition, bucket, records, live.get((partition, bucket)), instant, number, appends
        )
        for number, ((partition, bucket), records) in enumerate(sorted(counts.items()))
        if operation is not Operation.DELETE or (partition, bucket) in live
    ]
    task_count = _task_count(groups, tasks_wanted)
    return WritePlan(tuple(_place(groups, task_count)), replaced, task_count)


def _plan_group(
    partition: str,
    bucket: int,
    records: int,
    live: FileSlice | None,
    instant: InstantTime,
    number: int,
    appends: bool,
) -> GroupPlan:
    if live is None:
        file_id = new_file_id(instant, partition, bucket)
        return GroupPlan(partition, bucket, file_id, None, 0, records, number)
    if appends:
        return GroupPlan(partition, bucket, live.file_id, None, 0, records, number, appends=True)
    base = live.base_file
    assert base is not None, "without log files a slice has a base file"
    return GroupPlan(partition, bucket, live.file_id, base.path, base.size_bytes, records, number)


def _require_new_partitions(
    counts: Mapping[tuple[str, int], int], live: Mapping[tuple[str, int], FileSlice]
) -> None:
    held = sorted({partition for partition, _ in live} & {partition for partition, _ in counts})
    if held:
        raise InputError(
            f"bulk_insert into partition {held[0]!r}",
            f"{len(held)} of the partitions already hold records, which bulk_insert would not "
            "look at",
            "use upsert or insert, or insert_overwrite to replace them",
        )


def _file_ids(slices: Sequence[FileSlice]) -> dict[str, tuple[FileId, ...]]:
    ids: dict[str, list[FileId]] = defaultdict(list)
    for file_slice in slices:
        ids[file_slice.partition_path].append(file_slice.file_id)
    return {partition: tuple(sorted(held)) for partition, held in ids.items()}


def _task_count(groups: Sequence[GroupPlan], wanted: int) -> int:
    """Count tasks so that each gets as many groups as the next, and not too many records."""
    if not groups:
        return 1
    records = sum(group.records for group in groups)
    needed = max(1, wanted, -(-records // RECORDS_PER_TASK_MAX))
    groups_of_task = max(1, len(groups) // needed)
    return -(-len(groups) // groups_of_task)


def _place(groups: Sequence[GroupPlan], task_count: int) -> list[GroupPlan]:
    """Spread groups over tasks by weight."""
    if len(groups) == task_count:
        return [replace(group, task=i) for i, group in enumerate(groups)]
    tasks = spread([_weight(group) for group in groups], task_count)
    return [replace(group, task=task) for group, task in zip(groups, tasks, strict=True)]


def spread(weights: Sequence[int], task_count: int) -> list[int]:
    """Return a task for each piece of work: the heaviest first, each to the lightest task."""
    loads = [(0, task) for task in range(task_count)]
    tasks = [0] * len(weights)
    for place in sorted(range(len(weights)), key=lambda i: -weights[i]):
        load, task = heapq.heappop(loads)
        tasks[place] = task
        heapq.heappush(loads, (load + weights[place], task))
    return tasks


def _weight(group: GroupPlan) -> int:
    return group.base_size_bytes + group.records * RECORD_SIZE_BYTES_ESTIMATE
