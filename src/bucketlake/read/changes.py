"""What changed between two times: the commits of a range, and where their rows lie.

The range is of completion times, its begin excluded and its end included, so that consecutive
ranges see every commit once, whatever order commits were requested in. Up to table version 6
commits know requested times alone. A record counts once, as it was at the end of the range, and
where one of those commits wrote it last; Hudi's own reader also returns records of log files that
lost against a base file outside of the range. Rows that a rescale, a repair or a log compaction of
Hudi's wrote anew bear its time, and so count as changed by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bucketlake.config.table_config import TableConfig
from bucketlake.format.commit_metadata import stamps_rows
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import COMMIT_TIME
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import archived_commit, newest_manifest, read_archive
from bucketlake.timeline.instant import Instant


@dataclass(frozen=True, slots=True)
class Changes:
    """Commits of a range of time.

    Attributes
    ----------
    timeline : Timeline
        As it was at the end of the range.
    instants : tuple of InstantTime
        The commits, by requested time.
    file_groups : mapping of str to set of FileId
        File groups that they wrote, by partition path.
    """

    timeline: Timeline
    instants: tuple[InstantTime, ...]
    file_groups: dict[str, set[FileId]]

    def condition(self, where: str | None) -> str:
        """Return the condition that keeps their rows, besides one of the caller's."""
        instants = ", ".join(f"'{one}'" for one in self.instants or ("",))
        own = f"{COMMIT_TIME} IN ({instants})"
        return own if where is None else f"({where}) AND {own}"

    def among(self, slices: Sequence[FileSlice]) -> list[FileSlice]:
        """Return the slices that may hold their rows.

        Where a file group was replaced since, its rows lie in any of the partition.
        """
        live: dict[str, set[FileId]] = defaultdict(set)
        for one in slices:
            live[one.partition_path].add(one.file_id)
        return [
            one
            for one in slices
            if one.file_id in self.file_groups.get(one.partition_path, ())
            or not self.file_groups.get(one.partition_path, set()) <= live[one.partition_path]
        ]


def changes_between(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    since: InstantTime | None,
    until: InstantTime | None,
) -> Changes:
    """Return what was committed after ``since`` and no later than ``until``.

    Parameters
    ----------
    storage, config
        The table.
    timeline : Timeline
        Its timeline.
    since, until : InstantTime or None
        Completion times; None for the first commit, and for the last.
    """
    within: list[Instant] = []
    later: set[InstantTime] = set()
    for instant in timeline.completed_commits():
        at = _time_of(timeline, instant.requested_at)
        if until is not None and at > until:
            later.add(instant.requested_at)
        elif since is None or at > since:
            within.append(instant)
    found = [(one.requested_at, commit) for one, commit in timeline.read_commits(storage, within)]
    if _reaches_into_archive(storage, timeline, since):
        for entry in read_archive(storage, config):
            if timeline.find_completed(entry.requested_at) is not None:
                continue  # It is still in both timelines.
            if until is not None and entry.completed_at > until:
                later.add(entry.requested_at)
            elif since is None or entry.completed_at > since:
                commit = archived_commit(entry)
                if commit is not None:
                    found.append((entry.requested_at, commit))
    written = [(instant, commit) for instant, commit in found if stamps_rows(commit)]
    groups: dict[str, set[FileId]] = defaultdict(set)
    for _, commit in written:
        for partition, stats in commit.write_stats.items():
            groups[partition].update(stat.file_id for stat in stats)
    return Changes(
        timeline.without(later), tuple(sorted(instant for instant, _ in written)), dict(groups)
    )


def _reaches_into_archive(storage: Storage, timeline: Timeline, since: InstantTime | None) -> bool:
    """Tell whether the archive may hold commits that completed after a time.

    An archival takes none that completed after the first one that stays was requested. But one
    that died half-way may have taken a commit, and left one that began later and completed first.
    """
    start, folder = timeline.start, timeline.history_folder
    if start is None:
        return False
    if since is None or since < start:
        return True
    files = () if folder is None else newest_manifest(storage, folder).files
    return any(file.may_hold(start, None) for file in files)


def _time_of(timeline: Timeline, instant: InstantTime) -> InstantTime:
    completed_at = None if timeline.layout_version == 1 else timeline.completion_time(instant)
    return completed_at or instant
