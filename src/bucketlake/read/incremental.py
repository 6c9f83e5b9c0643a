"""Incremental reads: the commits between two times, and the file groups with their rows.

The range is of completion times; its begin is excluded and its end included. So consecutive ranges
contain every commit once, whatever the order of their requested times. Up to table version 7,
commits have only requested times, so a range ends before the first pending write.

A read returns a record once, as it was at the end of the range, if a commit of the range wrote it
last. Hudi's reader also returns records of log files that lost against a base file outside of the
range. Rows that a rescale, a repair or a log compaction of Hudi rewrote have its time, so they are
changes of that commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bucketlake.errors import TimelineError
from bucketlake.format.commit_metadata import stamps_rows
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import grouped
from bucketlake.model.schema import COMMIT_TIME
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import archived_commit, may_be_archived, read_archive
from bucketlake.timeline.instant import WRITES, Instant
from bucketlake.timeline.open_table import OpenTable


@dataclass(frozen=True, slots=True)
class Changes:
    """Commits of a range of time.

    Attributes
    ----------
    timeline : Timeline
        The timeline at the end of the range.
    instants : tuple of InstantTime
        The commits, sorted by requested time.
    file_groups : mapping of str to set of FileId
        File groups that the commits wrote, by partition path.
    """

    timeline: Timeline
    instants: tuple[InstantTime, ...]
    file_groups: dict[str, set[FileId]]

    def condition(self, where: str | None) -> str:
        """Return a SQL condition for the rows of the commits, combined with the caller's."""
        instants = ", ".join(f"'{instant}'" for instant in self.instants or ("",))
        own = f"{COMMIT_TIME} IN ({instants})"
        return own if where is None else f"({where}) AND {own}"

    def among(self, slices: Sequence[FileSlice]) -> list[FileSlice]:
        """Return the slices that may hold rows of the commits.

        If a written file group was replaced later, any slice of its partition may hold its rows.
        """
        by_partition = grouped(file_slice.group for file_slice in slices)
        live = {path: {*file_ids} for path, file_ids in by_partition.items()}

        def may_hold(file_slice: FileSlice) -> bool:
            partition = file_slice.partition_path
            written = self.file_groups.get(partition, set())
            return file_slice.file_id in written or not written <= live[partition]

        return [file_slice for file_slice in slices if may_hold(file_slice)]


@dataclass(frozen=True, slots=True)
class RangeCommit:
    """A commit of a range of time: its requested and completion time, and what it wrote."""

    instant: InstantTime
    completed_at: InstantTime
    metadata: CommitMetadata

    @property
    def size_bytes(self) -> int:
        """Size of the files with the rows that it changed; a compaction has none."""
        if not stamps_rows(self.metadata):
            return 0
        return sum(sum(stat.file_sizes.values()) for stat in self.metadata.stats)


def changes_between(
    table: OpenTable, timeline: Timeline, since: InstantTime | None, until: InstantTime | None
) -> Changes:
    """Return the commits whose rows an incremental read returns; see :func:`commits_between`."""
    at_end, commits = commits_between(table, timeline, since, until)
    written = [commit for commit in commits if stamps_rows(commit.metadata)]
    groups: dict[str, set[FileId]] = defaultdict(set)
    for commit in written:
        for partition, stats in commit.metadata.write_stats.items():
            groups[partition].update(stat.file_id for stat in stats)
    return Changes(at_end, tuple(sorted(commit.instant for commit in written)), dict(groups))


def commits_between(
    table: OpenTable, timeline: Timeline, since: InstantTime | None, until: InstantTime | None
) -> tuple[Timeline, list[RangeCommit]]:
    """Return the commits that completed after ``since`` and up to ``until``.

    Parameters
    ----------
    table : OpenTable
    timeline : Timeline
        The table's timeline.
    since, until : InstantTime or None
        Completion times; None to begin with the first commit, or to end with the last commit.

    Returns
    -------
    Timeline
        The timeline at the end of the range.
    list of RangeCommit
        The commits, also of table services, in the order of their completion.

    Raises
    ------
    TimelineError
        If a pending write may still complete inside the range (up to table version 7).
    """
    first_open = _first_open(timeline)
    if first_open is not None:
        if until is not None and first_open <= until:
            raise TimelineError(
                first_open,
                f"this write is pending, and may still complete inside the range up to {until}; "
                "leave the end of the range out, or give one before the write; the next write ends "
                "it if its process died",
            )
        until = first_open
    within: list[Instant] = []
    later: set[InstantTime] = set()
    for instant in timeline.completed_commits():
        at = _time_of(timeline, instant.requested_at)
        if until is not None and at > until:
            later.add(instant.requested_at)
        elif since is None or at > since:
            within.append(instant)
    read = timeline.read_commits(table.storage, within)
    found = [
        RangeCommit(instant.requested_at, _time_of(timeline, instant.requested_at), commit)
        for instant, commit in read
    ]
    if _reaches_into_archive(table.storage, timeline, since):
        for entry in read_archive(table):
            if timeline.find_completed(entry.requested_at) is not None:
                continue  # The commit is in both timelines.
            if until is not None and entry.completed_at > until:
                later.add(entry.requested_at)
            elif since is None or entry.completed_at > since:
                commit = archived_commit(entry)
                if commit is not None:
                    found.append(RangeCommit(entry.requested_at, entry.completed_at, commit))
    found.sort(key=lambda commit: (commit.completed_at, commit.instant))
    return timeline.without(later), found


def completion_times(
    table: OpenTable, timeline: Timeline, since: InstantTime | None
) -> list[InstantTime]:
    """Return when the commits completed that completed after a time; ascending, each time once.

    Up to table version 6, commits that wait for a pending write are left out.
    """
    times = {_time_of(timeline, commit.requested_at) for commit in timeline.completed_commits()}
    if _reaches_into_archive(table.storage, timeline, since):
        archived = read_archive(table, with_metadata=False)
        times |= {entry.completed_at for entry in archived if entry.action.endswith("commit")}
    first_open = _first_open(timeline)
    if first_open is not None:
        times = {time for time in times if time < first_open}
    return sorted(time for time in times if since is None or time > since)


def timeline_at(table: OpenTable, until: InstantTime) -> Timeline:
    """Return the timeline of a completion time, without the commits that completed later."""
    return commits_between(table, load_timeline(table), until, until)[0]


def _reaches_into_archive(storage: Storage, timeline: Timeline, since: InstantTime | None) -> bool:
    """Return whether the archive may hold commits that completed after a time.

    An archival moves no commit that completed after the first remaining commit was requested. But
    an archival that died half-way may have moved such a commit, and left a commit that began later
    and completed earlier.
    """
    start = timeline.start
    if start is None:
        return False
    if since is None or since < start:
        return True
    return may_be_archived(storage, timeline.history_folder, start)


def _first_open(timeline: Timeline) -> InstantTime | None:
    """Return the first pending write, if it may complete with a time before completed commits.

    Commits after it wait until it ends. Otherwise whoever goes on from range to range misses it.
    """
    if timeline.layout.has_completion_times:
        return None
    return min((i.requested_at for i in timeline.pending() if i.action in WRITES), default=None)


def _time_of(timeline: Timeline, instant: InstantTime) -> InstantTime:
    return timeline.completion_time(instant) or instant
