"""How a table grew: its rows and bytes after each commit of the active timeline.

The metadata of the commits says what each of them wrote. It is replayed in the order of completion,
without a look into a data file. A file group that is older than the timeline counts with its first
known size until a commit writes to it. The last point is the listed state itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from bucketlake.errors import BucketLakeError
from bucketlake.format.commit_metadata import changes_rows
from bucketlake.model.file_name import Group, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.shown import Shown
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.read.pruning.by_record_index import group_of
from bucketlake.read.snapshot import Snapshot
from bucketlake.storage.at_once import at_once
from bucketlake.timeline.instant import Instant

RECENT_COMMITS = 10
"""Number of commits that count as recent."""


@dataclass(frozen=True, slots=True)
class TableSize(Shown):
    """The size of a table after a commit.

    Attributes
    ----------
    instant : InstantTime
        The commit.
    completed_at : InstantTime
        Its completion time.
    rows : int or None
        Rows of base files, and those that log files are known to insert. None if those of a file
        group are unknown, see :class:`Bucket`.
    size_bytes : int
        Size of base files and log files.
    log_bytes : int
        Size of the log files alone.
    file_groups : int
        Number of file groups.
    """

    instant: InstantTime
    completed_at: InstantTime
    rows: int | None
    size_bytes: int
    log_bytes: int
    file_groups: int


@dataclass(frozen=True, slots=True)
class Growth:
    """How a table grew.

    Attributes
    ----------
    sizes : tuple of TableSize
        After each commit, by completion time.
    recent_commits : int
        How many writes ``bytes_before`` and ``written`` look back.
    bytes_before : mapping of Group to int
        Bytes of each file group before these writes.
    written : mapping of Group to int
        Records that these writes inserted, updated or deleted in each file group.
    rows : mapping of Group to int
        Rows of each live file group, if its commits are on the active timeline.
    """

    sizes: tuple[TableSize, ...]
    recent_commits: int
    bytes_before: Mapping[Group, int]
    written: Mapping[Group, int]
    rows: Mapping[Group, int]


@dataclass(frozen=True, slots=True)
class _GroupState:
    """A file group during the replay; the logs are (completed_at, bytes, inserted rows)."""

    rows: int | None
    base_bytes: int
    logs: tuple[tuple[InstantTime, int, int], ...] = ()

    @property
    def log_bytes(self) -> int:
        return sum(size for _, size, _ in self.logs)

    @property
    def size_bytes(self) -> int:
        return self.base_bytes + self.log_bytes

    @property
    def rows_with_logs(self) -> int | None:
        return None if self.rows is None else self.rows + sum(rows for *_, rows in self.logs)


_Commit: TypeAlias = tuple[Instant, InstantTime, CommitMetadata]


def table_growth(snapshot: Snapshot, slices: Sequence[FileSlice]) -> Growth:
    """Replay the commits of a pinned table, whose live slices are known."""
    commits = _commits(snapshot)
    writes = [place for place, (*_, commit) in enumerate(commits) if changes_rows(commit)]
    recent = writes[-RECENT_COMMITS:]
    rows = _rows_of_groups(slices, (stat for *_, commit in commits for stat in commit.stats))
    replay = _Replay(_older_groups(commits, slices))
    sizes: list[TableSize] = []
    before: dict[Group, int] = {}
    written: dict[Group, int] = {}
    for place, (instant, completed_at, commit) in enumerate(commits):
        if recent and place == recent[0]:
            before = {group: held.size_bytes for group, held in replay.groups.items()}
        replay.apply(instant, completed_at, commit)
        if place in recent:
            for stat in commit.stats:
                group = stat.partition_path, stat.file_id
                count = stat.insert_count + stat.update_count + stat.delete_count
                written[group] = written.get(group, 0) + count
        sizes.append(replay.size_after(instant, completed_at))
    if sizes:
        sizes[-1] = _listed_size(sizes[-1], slices, rows)
    return Growth(tuple(sizes), len(recent), before, written, rows)


def _commits(snapshot: Snapshot) -> list[_Commit]:
    """Return the commits that can be read, by completion time; the doctor names the others."""
    timeline, storage = snapshot.timeline, snapshot.storage

    def read(instant: Instant) -> _Commit | None:
        try:
            commit = timeline.read_commit(storage, instant)
        except BucketLakeError:
            return None
        at = instant.requested_at
        return instant, timeline.completion_time(at) or at, commit

    found = at_once(storage, read, timeline.completed_commits())
    commits = [commit for commit in found if commit is not None]
    return sorted(commits, key=lambda each: (each[1], each[0].requested_at))


def _rows_of_groups(slices: Iterable[FileSlice], stats: Iterable[WriteStat]) -> dict[Group, int]:
    known = {stat.path: stat for stat in stats}
    found = {}
    for held in slices:
        base = held.base_file
        logs = (known[file.path] for file in held.log_files if file.path in known)
        added = sum(stat.insert_count for stat in logs)
        if base is None and added:
            found[group_of(held)] = added
        elif base is not None and base.path in known:  # Otherwise its commit is archived.
            found[group_of(held)] = known[base.path].record_count + added
    return found


def _older_groups(
    commits: Sequence[_Commit], slices: Iterable[FileSlice]
) -> dict[Group, _GroupState]:
    """Return the file groups that were there before the first commit, with what is known of them.

    That is their first known base file: of a commit, or else the listed one.
    """
    older: dict[Group, _GroupState | None] = {}
    opened: set[Group] = set()
    for *_, commit in commits:
        for stat in commit.stats:
            group = stat.partition_path, stat.file_id
            if group in opened or older.get(group) is not None:
                continue
            if stat.opens_group and group not in older:
                opened.add(group)
            elif stat.path and not stat.is_log:
                rows = stat.record_count - stat.insert_count + stat.delete_count
                older[group] = _GroupState(max(rows, 0), stat.file_size_bytes)
            else:
                older[group] = None
    for held in slices:
        group = group_of(held)
        if group not in opened and older.get(group) is None:
            older[group] = _GroupState(None, held.base_file.size_bytes if held.base_file else 0)
    return {group: state for group, state in older.items() if state is not None}


class _Replay:
    """The file groups of a table while its commits are replayed, and their sums."""

    def __init__(self, groups: dict[Group, _GroupState]) -> None:
        self.groups: dict[Group, _GroupState] = {}
        self._rows = self._unknown = self._size_bytes = self._log_bytes = 0
        for group, held in groups.items():
            self._set(group, held)

    def apply(self, instant: Instant, completed_at: InstantTime, commit: CommitMetadata) -> None:
        for partition, file_ids in commit.replaced_file_ids.items():
            for file_id in file_ids:
                self._set((partition, file_id), None)
        for stat in commit.stats:
            if not stat.path:
                continue  # Nothing was written.
            group = stat.partition_path, stat.file_id
            held = self.groups.get(group)
            if stat.is_log:
                # Without a base file, a log file may tell nothing about its rows.
                before = held or _GroupState(0 if stat.insert_count else None, 0)
                log = completed_at, stat.file_size_bytes, stat.insert_count
                self._set(group, replace(before, logs=(*before.logs, log)))
            else:
                # A compaction leaves the log files that were written after its plan.
                logs = () if held is None else held.logs
                later = tuple(log for log in logs if log[0] > instant.requested_at)
                self._set(group, _GroupState(stat.record_count, stat.file_size_bytes, later))

    def size_after(self, instant: Instant, completed_at: InstantTime) -> TableSize:
        return TableSize(
            instant.requested_at,
            completed_at,
            None if self._unknown else self._rows,
            self._size_bytes,
            self._log_bytes,
            len(self.groups),
        )

    def _set(self, group: Group, state: _GroupState | None) -> None:
        old = self.groups.pop(group, None)
        for held, sign in ((old, -1), (state, 1)):
            if held is not None:
                rows = held.rows_with_logs
                self._rows += sign * (rows or 0)
                self._unknown += sign * (rows is None)
                self._size_bytes += sign * held.size_bytes
                self._log_bytes += sign * held.log_bytes
        if state is not None:
            self.groups[group] = state


def _listed_size(
    last: TableSize, slices: Sequence[FileSlice], rows: Mapping[Group, int]
) -> TableSize:
    return TableSize(
        last.instant,
        last.completed_at,
        sum(rows.values()) if len(rows) == len(slices) else None,
        sum(held.size_bytes for held in slices),
        sum(held.log_bytes for held in slices),
        len(slices),
    )
