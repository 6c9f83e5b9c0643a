"""Converting a table: one file group a bucket becomes several, or the other way round (RFC-29).

From pattern 1 to pattern 2 no file is written: a bucket of one group is a bucket of several groups
that has one. Back, partitions with buckets of several groups are written anew. Either way the new
setting and the rows are one commit, which an upsert that used the old setting conflicts with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bucketlake.errors import ConfigError
from bucketlake.index.settings import TableIndex
from bucketlake.model.file_name import InstantTime
from bucketlake.read.snapshot import Snapshot
from bucketlake.services.rescale import move_partitions
from bucketlake.write.ingest import Target
from bucketlake.write.rehash import RehashRunner
from bucketlake.write.source import SlotSource


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """What a conversion does, or has done.

    Attributes
    ----------
    index : TableIndex
        The index that the table gets.
    partitions : tuple of str
        Partitions that are written anew; all others keep their files.
    file_groups, size_bytes : int
        File groups of those partitions, and their bytes.
    instant : InstantTime or None
        The commit; None for a plan, or where the table has that index.
    """

    index: TableIndex
    partitions: tuple[str, ...]
    file_groups: int
    size_bytes: int
    instant: InstantTime | None = None


def plan_conversion(snapshot: Snapshot, held: TableIndex, index: TableIndex) -> ConversionReport:
    """Return what a conversion would write anew; the cost is that of listing the table.

    Raises
    ------
    ConfigError
        If the index differs from the table's in more than its ``max_file_size``.
    """
    if held.with_max_file_size(index.max_file_size) != index:
        raise ConfigError(
            "index",
            index,
            f"the table has {held!r}, and a conversion changes max_file_size alone; to change "
            "bucket counts use Table.rescale",
        )
    slices = snapshot.all_slices()
    partitions: set[str] = set()
    if index.max_file_size is None:
        live = held.layout().live_slots(slices)
        partitions = {partition for (partition, _), groups in live.items() if len(groups) > 1}
    rewritten = [one for one in slices if one.partition_path in partitions]
    size_bytes = sum(one.size_bytes for one in rewritten)
    return ConversionReport(index, tuple(sorted(partitions)), len(rewritten), size_bytes)


def run_conversion(
    target: Target,
    index: TableIndex,
    rows_of: Callable[[Sequence[str]], SlotSource],
    run: RehashRunner,
) -> ConversionReport:
    """Convert a table; see :func:`plan_conversion`.

    Parameters
    ----------
    target : Target
        The table, pinned.
    index : TableIndex
        The index that it gets.
    rows_of, run : callable
        See ``run_rescale``.

    Raises
    ------
    CommitConflictError
        If another writer committed to one of the partitions, or changed the setting, meanwhile.
    """
    plan = plan_conversion(target.snapshot, target.index, index)
    if target.index == index:
        return plan
    renewed = target.index.with_max_file_size(index.max_file_size)
    result = move_partitions(target, renewed, plan.partitions, rows_of, run)
    return replace(plan, instant=result.instant)
