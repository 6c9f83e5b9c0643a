"""Which slice a new log file belongs to in timeline layout 1, and that it still does at the commit.

There the name of a log file has the instant of its slice. A compaction reads the log files that its
plan names, and makes a new slice. So a write that finds a plan adds its log files to the slice that
the compaction will make: their names have the instant of the compaction. A write that began before
the plan, and commits after it, would add to the old slice, which nobody reads once the compaction
is completed. It raises CommitConflictError and is repeated. ``services/compaction.py``
has the other side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from bucketlake.actions.commit import CommitView
from bucketlake.errors import CommitConflictError, ObjectNotFoundError
from bucketlake.index.conflict_keys import describe_key, key_of_group
from bucketlake.model.file_name import Group, InstantTime, log_instant
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action, Instant


def with_compactions(
    storage: Storage, pinned: Timeline, slices: Sequence[FileSlice]
) -> Sequence[FileSlice]:
    """Return the slices, each with the pending compaction that a write must add to, if any.

    A plan that is older than a slice is left out: another compaction overtook it.
    """
    if not pinned.layout.logs_name_slices:
        return slices
    planned = _planned(storage, pinned)
    groups = ((held, planned.get(held.group, held.instant)) for held in slices)
    return [
        replace(held, compaction=instant) if instant > held.instant else held
        for held, instant in groups
    ]


def require_newest_slices(stats: Sequence[WriteStat], view: CommitView) -> None:
    """Raise CommitConflictError if a compaction makes a newer slice than that of a log file.

    A commit that takes a later turn than the plan of a compaction sees the plan here.
    """
    write, newest = view.write, view.timeline
    if not newest.layout.logs_name_slices:
        return
    logs = dict(_named_slices(stats))
    if not logs:
        return
    made = _planned(write.table.storage, newest)
    for other, commit in view.since:
        if commit.compacted:
            for stat in commit.stats:
                group = stat.group
                made[group] = max(other, made.get(group, other))
    followed = {compaction.requested_at for compaction in _compactions(write.pinned)}
    for group, named in sorted(logs.items()):
        newest_slice = made.get(group, named)
        if newest_slice > named:
            instant, problem = newest_slice, "planned"
        elif named in followed and made.get(group) != named:
            instant, problem = named, "withdrawn"
        else:
            continue
        what = describe_key(key_of_group(*group))
        raise CommitConflictError(
            write.instant,
            f"compaction {instant} of {what} was {problem} meanwhile; retry the write",
        )


def _named_slices(stats: Iterable[WriteStat]) -> Iterator[tuple[Group, InstantTime]]:
    """Yield the file group of each log file, and the slice in its name; of its copies, too."""
    for stat in stats:
        named = log_instant(stat.path)
        if named is not None:
            yield stat.group, named
        if stat.log_copy is not None:
            yield (stat.partition_path, stat.log_copy.file_id), stat.log_copy.resize


def _planned(storage: Storage, timeline: Timeline) -> dict[Group, InstantTime]:
    """Return the newest pending compaction of each file group that has one."""
    planned: dict[Group, InstantTime] = {}
    for pending in _compactions(timeline):
        with suppress(ObjectNotFoundError):  # It was withdrawn since the listing.
            for held in timeline.read_compaction_plan(storage, pending):
                planned[held.partition_path, held.file_id] = pending.requested_at
    return planned


def _compactions(timeline: Timeline) -> list[Instant]:
    return [i for i in timeline.pending_compactions() if i.action is Action.COMPACTION]
