"""Converting a table from one file group per bucket to several, or back (RFC-29).

``services/rebucket/kind_conversion.py`` converts to another kind of index.

A conversion from one file group (pattern 1) to several (pattern 2) writes no file: a bucket with
several groups may also have a single group. A conversion back rewrites the partitions that have a
bucket with several groups. In both cases one commit has the new setting and the rows; an upsert
that used the old setting conflicts with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bucketlake.errors import ConfigError
from bucketlake.flow.stage import Engine
from bucketlake.index.setting import INDEXED_KINDS, IndexedKind, TableIndex
from bucketlake.model.file_name import InstantTime
from bucketlake.model.shown import Shown
from bucketlake.read.snapshot import Snapshot
from bucketlake.services.rebucket.rescale import move_partitions
from bucketlake.write.pack import SlotSource
from bucketlake.write.target import Target


@dataclass(frozen=True, slots=True)
class ConversionReport(Shown):
    """What a conversion rewrites or has rewritten.

    Attributes
    ----------
    index : TableIndex
        The new index of the table.
    partitions : tuple of str
        Partitions that are rewritten; all others keep their files.
    file_groups, size_bytes : int
        Number and size of the file groups of these partitions.
    instant : InstantTime or None
        The commit; None for a plan, or if the table already has this index.
    builds_index : bool
        Whether a record-level index is built.
    indexed_groups, indexed_keys : int
        Number of file groups whose keys are read for it, and estimated number of these keys.
    """

    index: TableIndex
    partitions: tuple[str, ...]
    file_groups: int
    size_bytes: int
    instant: InstantTime | None = None
    builds_index: bool = False
    indexed_groups: int = 0
    indexed_keys: int = 0


def plan_conversion(snapshot: Snapshot, held: TableIndex, index: TableIndex) -> ConversionReport:
    """Return what a conversion would rewrite; the cost is that of listing the table.

    Raises
    ------
    ConfigError
        If the index differs from the table's in more than its ``max_file_size``.
    """
    if isinstance(held, INDEXED_KINDS):
        raise ConfigError("index", index, _why_not(held, index))
    if held.with_max_file_size(index.max_file_size) != index:
        raise ConfigError(
            "index",
            index,
            f"the table has {held!r}, and a conversion changes only max_file_size; to change "
            "bucket counts use table.rescale(...) (bucketlake rescale --run)",
        )
    slices = snapshot.all_slices()
    partitions: set[str] = set()
    if index.max_file_size is None:
        live = held.layout().live_slots(slices)
        partitions = {partition for (partition, _), groups in live.items() if len(groups) > 1}
    rewritten = [file_slice for file_slice in slices if file_slice.partition_path in partitions]
    size_bytes = sum(file_slice.size_bytes for file_slice in rewritten)
    return ConversionReport(index, tuple(sorted(partitions)), len(rewritten), size_bytes)


def _why_not(held: IndexedKind, index: TableIndex) -> str:
    """Return why a table whose keys are in the record-level index is not converted."""
    name = type(held).__name__
    if type(index) is type(held):
        return (
            f"a {name} is not converted: open the table with other sizes, "
            f"open_table(path, index={name}(...))"
        )
    return (
        f"the table has {held!r}, and its keys may be in any file group, so all of its rows would "
        "have to move: make a new table with create_table(...) (bucketlake create), and write them "
        "to it with table.bulk_insert(...); a conversion leads from any kind to a DynamicBucket"
    )


def run_conversion(
    target: Target,
    index: TableIndex,
    rows_of: Callable[[Sequence[str]], SlotSource],
    engine: Engine,
) -> ConversionReport:
    """Convert a table; see :func:`plan_conversion`.

    Parameters
    ----------
    target : Target
        The table, pinned.
    index : TableIndex
        The new index of the table.
    rows_of, engine
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
    result = move_partitions(target, renewed, plan.partitions, rows_of, engine)
    return replace(plan, instant=result.instant)
