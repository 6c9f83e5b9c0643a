"""Rescaling partitions: other bucket counts, by writing those partitions anew (RFC-89).

New rules, the rows in their new buckets and the file groups that leave are one replace commit, so
a reader sees the old layout or the new one. Where another writer and a rescale touch one partition,
the later of the two to commit is refused.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from bucketlake.errors import ConfigError, IndexStateError, StorageError
from bucketlake.index.hashing_config import archive_configs
from bucketlake.index.partition import PartitionBucket
from bucketlake.index.partition_rules import Expressions, RuleCompiler
from bucketlake.index.settings import TableIndex
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot
from bucketlake.timeline.active import load_timeline
from bucketlake.write.ingest import Target, overwrite_partitions
from bucketlake.write.plan import live_buckets
from bucketlake.write.rehash import Rehash, RehashJob, RehashRunner, RehashSource
from bucketlake.write.source import GroupSource

Rules = Mapping[str, int] | Expressions


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


def new_index(
    held: TableIndex,
    rules: Rules | None,
    add: Rules | None,
    default: int | None,
    rule: str | RuleCompiler | None,
) -> PartitionBucket:
    """Return the index that is asked for.

    Parameters
    ----------
    held : SimpleBucket or PartitionBucket
        What the table has.
    rules : mapping of str to int, optional
        All rules of the new index.
    add : mapping of str to int, optional
        Rules to put before those that the table has.
    default : int, optional
        Count where no rule fits; by default the last one.
    rule : str or callable, optional
        Kind of the rules; by default the last one.

    Raises
    ------
    ConfigError
        If not exactly one of ``rules`` and ``add`` is given, or they are none.
    """
    if (rules is None) == (add is None):
        raise ConfigError("rescale", None, "give rules= for a new list, or add= for further rules")
    pairs = _pairs(rules if rules is not None else add or ())
    if isinstance(held, SimpleBucket):
        default = held.count if default is None else default
        return PartitionBucket(pairs, default, rule or "regex", held.hash_fields)
    if add is not None:
        if rule is not None and rule != held.rule:
            raise ConfigError("rule", rule, f"the rules that are there are {held.rule_name!r}")
        pairs += _pairs(held.rules)
    default = held.default if default is None else default
    return PartitionBucket(pairs, default, rule or held.rule, held.hash_fields)


def plan_rescale(
    snapshot: Snapshot, held: TableIndex, index: PartitionBucket
) -> tuple[PartitionChange, ...]:
    """Return the partitions whose count changes; the cost is that of listing the table."""
    slices: dict[str, list[FileSlice]] = defaultdict(list)
    for file_slice in snapshot.all_slices():
        slices[file_slice.partition_path].append(file_slice)
    counts = {path: (held.count_of(path), index.count_of(path)) for path in slices}
    return tuple(
        PartitionChange(
            path, old, new, len(slices[path]), sum(one.size_bytes for one in slices[path])
        )
        for path, (old, new) in sorted(counts.items())
        if old != new
    )


def run_rescale(
    target: Target,
    index: PartitionBucket,
    changes: Sequence[PartitionChange],
    rows_of: Callable[[Sequence[str]], GroupSource],
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
    source: GroupSource = _in_place(target, index, partitions, run) or rows_of(partitions)
    try:
        result = overwrite_partitions(target, index, partitions, source)
    finally:
        source.close()
    with suppress(StorageError):  # The rescale is done; the next one archives what stayed.
        archive_configs(target.storage, load_timeline(target.storage, target.config))
    return RescaleReport(index, tuple(changes), result.instant)


def rehash_here(rehash: Rehash, jobs: Sequence[RehashJob]) -> list[WriteStat]:
    """Run jobs in threads of this process."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [stat for stats in pool.map(rehash.run, jobs) for stat in stats]


def _in_place(
    target: Target, index: PartitionBucket, partitions: Sequence[str], run: RehashRunner
) -> GroupSource | None:
    snapshot = target.snapshot
    slices = snapshot.partition_slices(partitions)
    try:
        live_buckets(slices, target.index)
    except IndexStateError:  # By the shuffle every row finds its bucket, wherever it lay.
        return None
    reader = SliceReader.of_snapshot(snapshot)
    source = RehashSource(reader, slices, target.index, index, run)
    return source if slices and source.fits else None


def _pairs(rules: Rules) -> Expressions:
    return tuple(rules.items()) if isinstance(rules, Mapping) else tuple(rules)
