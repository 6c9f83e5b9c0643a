"""Rescaling: rewriting partitions with other bucket counts (RFC-89).

One replace commit has the new rules, the rows in their new buckets and the replaced file groups. So
a reader sees either the old or the new layout. If another writer and a rescale touch the same
partition, the second to commit raises ``CommitConflictError``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from bucketlake.actions.progress import LOGGER
from bucketlake.errors import IndexStateError, StorageError
from bucketlake.flow.stage import Engine
from bucketlake.index.hashing_config import archive_configs
from bucketlake.index.partition import PartitionBucket
from bucketlake.index.setting import TableIndex, require_index, require_known_index
from bucketlake.model.file_name import InstantTime
from bucketlake.model.grouping import grouped
from bucketlake.model.result import Shown, WriteResult
from bucketlake.read.handle import Handle
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot
from bucketlake.timeline.active import load_timeline
from bucketlake.write.ingest import overwrite_partitions
from bucketlake.write.pack import RecordSource
from bucketlake.write.rehash import RehashSource
from bucketlake.write.target import Target, target_of

RowsOf: TypeAlias = Callable[[Snapshot, Sequence[str]], RecordSource]
"""Returns all rows of some partitions of a pinned table."""

_SHOWN = 5  # Names in a warning.


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A partition whose bucket count changes.

    Attributes
    ----------
    partition_path : str
        Path of the partition.
    old_count, new_count : int
        Bucket counts before and after.
    file_groups : int
        Number of file groups that are rewritten.
    size_bytes : int
        Size of these file groups.
    """

    partition_path: str
    old_count: int
    new_count: int
    file_groups: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RescaleReport(Shown):
    """What a rescale rewrites or has rewritten.

    Attributes
    ----------
    index : PartitionBucket
        The new index of the table.
    partitions : tuple of PartitionChange
        Partitions that are rewritten, sorted by path; all others keep their files.
    instant : InstantTime or None
        The commit; None for a dry run.
    unused_rules : tuple of str
        Expressions that match no partition of the table; perhaps of partitions to come.
    shrunk_by_default : tuple of str
        Partitions that get fewer buckets although no rule matches them: the default is less than
        their count.
    """

    index: PartitionBucket
    partitions: tuple[PartitionChange, ...]
    instant: InstantTime | None
    unused_rules: tuple[str, ...] = ()
    shrunk_by_default: tuple[str, ...] = ()


def plan_rescale(snapshot: Snapshot, held: TableIndex, index: PartitionBucket) -> RescaleReport:
    """Return what a rescale would change; the cost is that of listing the table.

    Raises
    ------
    ConfigError
        If the version of the table has no rules.
    """
    require_known_index(index, snapshot.config.version, snapshot.storage.root)
    slices = grouped((held.partition_path, held) for held in snapshot.all_slices())
    old, new = held.layout(), index.layout()
    counts = {path: (old.slot_count(path), new.slot_count(path)) for path in slices}
    changes = tuple(
        PartitionChange(
            path, before, after, len(slices[path]), sum(s.size_bytes for s in slices[path])
        )
        for path, (before, after) in sorted(counts.items())
        if before != after
    )
    shrunk = (change.partition_path for change in changes if change.new_count < change.old_count)
    return RescaleReport(
        index,
        changes,
        None,
        index.unused_rules(slices),
        tuple(path for path in shrunk if not index.names(path)),
    )


def warn_of_surprises(plan: RescaleReport) -> None:
    """Log a warning of rules that match nothing, and of partitions that shrink without a rule.

    Rules may be meant for partitions to come, so a job with strict warnings must not fail here.
    """
    told = []
    if plan.unused_rules:
        told.append(f"no partition matches {_listed(plan.unused_rules)}")
    if plan.shrunk_by_default:
        told.append(
            f"no rule matches {_listed(plan.shrunk_by_default)}, which get fewer buckets, the "
            f"default of {plan.index.default}"
        )
    if told:
        LOGGER.warning("rescale: %s", "; ".join(told))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(map(repr, names[:_SHOWN])) + (f" and {more} others" if more > 0 else "")


def rescale(
    handle: Handle,
    renewed: Callable[[TableIndex], PartitionBucket],
    rows_of: RowsOf,
    engine: Engine,
    *,
    dry_run: bool,
) -> RescaleReport:
    """Rescale a table, or return what that would change.

    Parameters
    ----------
    handle : Handle
        The table.
    renewed : callable
        Returns the index after the rescale, given the table's.
    rows_of : callable
        Returns all rows of given partitions of a pinned table.
    engine : Engine
        Moves rows bucket by bucket.
    dry_run : bool
        Only return what would be done.
    """
    if dry_run:
        snapshot = handle.snapshot()
        index = require_index(snapshot.table, snapshot.timeline, handle.index)
        return plan_rescale(snapshot, index, renewed(index))
    target = target_of(handle, handle.open(), engine)
    plan = plan_rescale(target.snapshot, target.index, renewed(target.index))
    warn_of_surprises(plan)
    return run_rescale(target, plan, partial(rows_of, target.snapshot), engine)


def run_rescale(
    target: Target,
    plan: RescaleReport,
    rows_of: Callable[[Sequence[str]], RecordSource],
    engine: Engine,
) -> RescaleReport:
    """Rewrite partitions and save the rules, in one commit.

    Parameters
    ----------
    target : Target
        The table, pinned.
    plan : RescaleReport
        From :func:`plan_rescale`.
    rows_of : callable
        Returns all rows of given partitions, as ``target`` pins them.
    engine : Engine
        Moves rows bucket by bucket; if the rows of each bucket fit into a task.
    """
    partitions = [change.partition_path for change in plan.partitions]
    result = move_partitions(target, plan.index, partitions, rows_of, engine)
    with suppress(StorageError):  # The rescale is done; the next rescale archives the rest.
        archive_configs(target.storage, load_timeline(target.table))
    return replace(plan, instant=result.instant)


def move_partitions(
    target: Target,
    index: TableIndex,
    partitions: Sequence[str],
    rows_of: Callable[[Sequence[str]], RecordSource],
    engine: Engine,
) -> WriteResult:
    """Rewrite partitions with another index, without a shuffle if the layouts allow it."""
    source = _in_place(target, index, partitions, engine) or rows_of(partitions)
    try:
        return overwrite_partitions(target, index, partitions, source)
    finally:
        source.close()


def _in_place(
    target: Target, index: TableIndex, partitions: Sequence[str], engine: Engine
) -> RehashSource | None:
    snapshot = target.snapshot
    slices = snapshot.partition_slices(partitions)
    reader = SliceReader.of_snapshot(snapshot)
    try:
        return RehashSource.between(target.layout, index.layout(), slices, reader, engine)
    except IndexStateError:  # A shuffle finds the slot of every row, also of misplaced rows.
        return None
