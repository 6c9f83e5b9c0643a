"""Rescaling partitions: other bucket counts, by writing those partitions anew (RFC-89).

New rules, the rows in their new buckets and the file groups that leave are one replace commit, so
a reader sees the old layout or the new one. Where another writer and a rescale touch one partition,
the later of the two to commit is refused.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from bucketlake.errors import IndexStateError, StorageError
from bucketlake.index.hashing_config import archive_configs
from bucketlake.index.partition import PartitionBucket
from bucketlake.index.settings import TableIndex
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.result import WriteResult
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot
from bucketlake.timeline.active import load_timeline
from bucketlake.write.ingest import Target, overwrite_partitions
from bucketlake.write.plan import SlotResult
from bucketlake.write.rehash import Rehash, RehashJob, RehashRunner, RehashSource
from bucketlake.write.source import SlotSource


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A partition whose bucket count changes.

    Attributes
    ----------
    partition_path : str
        Which one.
    old_count, new_count : int
        Buckets before and after.
    file_groups : int
        File groups that are written anew.
    size_bytes : int
        Their bytes.
    """

    partition_path: str
    old_count: int
    new_count: int
    file_groups: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RescaleReport:
    """What a rescale does, or has done.

    Attributes
    ----------
    index : PartitionBucket
        The index that the table gets.
    partitions : tuple of PartitionChange
        Partitions that are written anew, by path; all others keep their files.
    instant : InstantTime or None
        The commit; None for a dry run.
    """

    index: PartitionBucket
    partitions: tuple[PartitionChange, ...]
    instant: InstantTime | None


def plan_rescale(
    snapshot: Snapshot, held: TableIndex, index: PartitionBucket
) -> tuple[PartitionChange, ...]:
    """Return the partitions whose count changes; the cost is that of listing the table."""
    slices: dict[str, list[FileSlice]] = defaultdict(list)
    for file_slice in snapshot.all_slices():
        slices[file_slice.partition_path].append(file_slice)
    old, new = held.layout(), index.layout()
    counts = {path: (old.slot_count(path), new.slot_count(path)) for path in slices}
    return tuple(
        PartitionChange(
            path, before, after, len(slices[path]), sum(one.size_bytes for one in slices[path])
        )
        for path, (before, after) in sorted(counts.items())
        if before != after
    )


def run_rescale(
    target: Target,
    index: PartitionBucket,
    changes: Sequence[PartitionChange],
    rows_of: Callable[[Sequence[str]], SlotSource],
    run: RehashRunner,
) -> RescaleReport:
    """Write the partitions anew and save the rules, in one commit.

    Parameters
    ----------
    target : Target
        The table, pinned.
    index : PartitionBucket
        The index that it gets.
    changes : sequence of PartitionChange
        From :func:`plan_rescale`.
    rows_of : callable
        Gives all rows of some partitions, as ``target`` pins them.
    run : callable
        Has an engine move rows bucket by bucket; so it is done where a bucket's rows fit a task.
    """
    partitions = [change.partition_path for change in changes]
    result = move_partitions(target, index, partitions, rows_of, run)
    with suppress(StorageError):  # The rescale is done; the next one archives what stayed.
        archive_configs(target.storage, load_timeline(target.storage, target.config))
    return RescaleReport(index, tuple(changes), result.instant)


def move_partitions(
    target: Target,
    index: TableIndex,
    partitions: Sequence[str],
    rows_of: Callable[[Sequence[str]], SlotSource],
    run: RehashRunner,
) -> WriteResult:
    """Write partitions anew under another index, in place where the layouts allow it."""
    source: SlotSource = _in_place(target, index, partitions, run) or rows_of(partitions)
    try:
        return overwrite_partitions(target, index, partitions, source)
    finally:
        source.close()


def rehash_here(rehash: Rehash, jobs: Sequence[RehashJob]) -> list[SlotResult]:
    """Run jobs in threads of this process."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [one for results in pool.map(rehash.run, jobs) for one in results]


def _in_place(
    target: Target, index: TableIndex, partitions: Sequence[str], run: RehashRunner
) -> SlotSource | None:
    snapshot = target.snapshot
    slices = snapshot.partition_slices(partitions)
    reader = SliceReader.of_snapshot(snapshot)
    try:
        return RehashSource.between(target.layout, index.layout(), slices, reader, run)
    except IndexStateError:  # By the shuffle every row finds its slot, wherever it lay.
        return None
