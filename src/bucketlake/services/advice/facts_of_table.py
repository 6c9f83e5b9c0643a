"""The facts of a table: from its timeline and the list of its files, without a look into a file.

The cost is that of one listing, and of reading the metadata of the last commits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeAlias

from bucketlake.config.recorded_entries import RECORDED
from bucketlake.config.table_config import TableConfig
from bucketlake.format.commit_metadata import changes_rows
from bucketlake.index.setting import TableIndex
from bucketlake.model.file_name import Group
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import grouped, summed
from bucketlake.model.keys import KeyGenerator
from bucketlake.model.table_type import TableType
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.read.buckets import RECENT_COMMITS
from bucketlake.read.snapshot import Snapshot
from bucketlake.services.advice.workload import Conditions, PartitionFacts, Workload
from bucketlake.services.upkeep import waiting_services
from bucketlake.timeline.instant import Action

COMMITS_READ = 40
"""Commits that are read for the sizes of rows and files: more than archival leaves on a timeline
that is archived."""

GROWTH_MIN = 0.1
"""A partition grows if the newer half of the recent commits added this share of its bytes."""

LATE_SHARE = 0.01
"""A commit that rewrites a partition for less than this share of its rows came late for it."""

_Commits: TypeAlias = list[tuple[Action, CommitMetadata]]


@dataclass(frozen=True, slots=True)
class _Write:
    """A commit that changed rows: what it wrote, and the rows that it added to each partition.

    With a compaction after it, ``added`` has the rows of several commits.
    """

    commit: CommitMetadata
    added: Mapping[str, int]
    commits: int = 1


def workload_of_table(snapshot: Snapshot, index: TableIndex | None) -> Workload:
    """Collect the facts of a pinned table.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    index : TableIndex or None
        Its index, if it is known.
    """
    slices = snapshot.all_slices()
    commits = _commits(snapshot)
    writes = _writes(commits)[-RECENT_COMMITS:]
    bytes_per_row = _bytes_per_row(commits, slices)
    is_merged = snapshot.config.table_type is TableType.MERGE_ON_READ
    counts_are_exact = not is_merged or (index is not None and index.finds_keys)
    facts = _mix(writes, counts_are_exact=counts_are_exact)
    sizes = grouped((held.partition_path, held.size_bytes) for held in slices)
    growing = _growing(writes, sizes, bytes_per_row)
    return replace(
        _rewriting(facts, writes, len(slices)),
        partitions=tuple(
            PartitionFacts(path, sum(held), len(held), max(held), path in growing)
            for path, held in sorted(sizes.items())
        ),
        bytes_per_row=bytes_per_row,
        log_bytes=sum(held.log_bytes for held in slices),
    )


def conditions_of_table(
    snapshot: Snapshot,
    address: str,
    index: TableIndex | None,
    given: TableIndex | None,
    target_bytes: int,
) -> Conditions:
    """Return what advice about a pinned table must keep to.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    address : str
        Its address as the user knows it.
    index : TableIndex or None
        Its index, if it is known.
    given : TableIndex or None
        What the caller knows of the index.
    target_bytes : int
        Bytes that a file should have.
    """
    config = snapshot.config
    spec = config.key_spec
    writes = [commit for _, commit in _commits(snapshot) if changes_rows(commit)]
    return Conditions(
        path=address,
        record_key=spec.record_key_fields,
        partition_by=spec.partition_fields,
        ordering=config.ordering_fields,
        version=config.version,
        hudi_writers=any(RECORDED not in held.extra for held in writes[-RECENT_COMMITS:]),
        index=index,
        table_type=config.table_type,
        hive_style=spec.hive_style,
        is_usual=_is_usual(config),
        upkeep=config.upkeep,
        waiting=waiting_services(snapshot.table, snapshot.timeline, given),
        target_bytes=target_bytes,
    )


def _is_usual(config: TableConfig) -> bool:
    """Return whether the usual arguments of ``create_table`` make a table with these properties."""
    spec = config.key_spec
    has_usual_keys = not spec.url_encode and spec.generator not in (
        KeyGenerator.TIMESTAMP,
        KeyGenerator.CUSTOM,
    )
    further = config.cdc_enabled, config.delete_field, config.partial_update_mode
    return has_usual_keys and not any(further)


def _commits(snapshot: Snapshot) -> _Commits:
    timeline = snapshot.timeline
    last = timeline.completed_commits()[-COMMITS_READ:]
    read = timeline.read_commits(snapshot.storage, last)
    return [(instant.action, commit) for instant, commit in read]


def _writes(commits: _Commits) -> list[_Write]:
    """Return the commits that changed rows.

    An overwrite is none: it tells nothing of the rows that usually come. A compaction tells how
    many rows log files have added, and counts for the write before it.
    """
    found: list[_Write] = []
    rows: dict[Group, int] = {}
    for action, commit in commits:
        added: dict[str, int] = defaultdict(int)
        is_write = changes_rows(commit)
        for stat in commit.stats:
            if stat.is_log or not stat.path:
                if is_write and stat.opens_group:
                    added[stat.partition_path] += stat.insert_count
                continue
            group = stat.group
            before = rows.get(group, stat.record_count)
            net = stat.insert_count - stat.delete_count if is_write else stat.record_count - before
            added[stat.partition_path] += net
            rows[group] = stat.record_count
        if action is Action.REPLACE_COMMIT:
            continue
        if is_write:
            found.append(_Write(commit, added))
        elif found:
            sums = summed((*found[-1].added.items(), *added.items()))
            found[-1] = replace(found[-1], added=sums, commits=2)
    return found


def _mix(writes: Sequence[_Write], *, counts_are_exact: bool) -> Workload:
    """Return which changes a write makes, on average; a large load counts as any other write.

    Log files may not tell updates from inserts.
    """
    inserts: list[float] = []
    deletes: list[float] = []
    for write in writes:
        stats = write.commit.stats
        changed = sum(map(_changed, stats))
        if changed:
            inserts.append(sum(stat.insert_count for stat in stats) / changed)
            deletes.append(sum(stat.delete_count for stat in stats) / changed)
    return Workload(
        (),
        commits=len(writes),
        inserts=fmean(inserts) if inserts and counts_are_exact else None,
        deletes=fmean(deletes) if deletes else None,
    )


def _rewriting(facts: Workload, writes: Sequence[_Write], file_groups: int) -> Workload:
    """Return the facts, and what the writes rewrote of stored files."""
    written = changed = rewritten_bytes = rewritten_groups = rewriting = 0
    late: set[str] = set()
    for write in writes:
        bases = [stat for stat in write.commit.stats if stat.path and not stat.is_log]
        old = [stat for stat in bases if not stat.opens_group]
        if not old:
            continue
        rewriting += 1
        written += sum(stat.record_count for stat in bases)
        changed += sum(map(_changed, bases))
        rewritten_bytes += sum(stat.file_size_bytes for stat in old)
        rewritten_groups += len(old)
        late |= _late(old)
    if not rewriting:
        return facts
    return replace(
        facts,
        amplification=written / max(changed, 1),
        rewritten_bytes=rewritten_bytes // rewriting,
        rewritten_share=min(rewritten_groups / rewriting / max(file_groups, 1), 1.0),
        late_partitions=len(late),
    )


def _late(stats: Sequence[WriteStat]) -> set[str]:
    """Return the partitions of which only few of the rewritten rows changed."""
    written = summed((stat.partition_path, stat.record_count) for stat in stats)
    changed = summed((stat.partition_path, _changed(stat)) for stat in stats)
    return {path for path, rows in written.items() if changed[path] < LATE_SHARE * rows}


def _growing(
    writes: Sequence[_Write], sizes: Mapping[str, Sequence[int]], bytes_per_row: float | None
) -> set[str]:
    """Return the partitions to which the newer half of the writes kept adding rows."""
    if bytes_per_row is None:
        return set()
    newer = writes[len(writes) // 2 :]
    pairs = [(own, write.commits) for write in newer for own in write.added.items()]
    added = summed(own for own, _ in pairs)
    times = summed((path, commits) for (path, net), commits in pairs if net > 0)
    return {
        path
        for path, held in sizes.items()
        if times[path] > 1 and added[path] * bytes_per_row >= GROWTH_MIN * sum(held)
    }


def _bytes_per_row(commits: _Commits, slices: Sequence[FileSlice]) -> float | None:
    """Return the mean of the live base files whose commits were read; None if there are none."""
    live = {held.base_file.path for held in slices if held.base_file is not None}
    stats = [stat for _, commit in commits for stat in commit.stats if stat.path in live]
    rows = sum(stat.record_count for stat in stats)
    return sum(stat.file_size_bytes for stat in stats) / rows if rows else None


def _changed(stat: WriteStat) -> int:
    return stat.insert_count + stat.update_count + stat.delete_count
