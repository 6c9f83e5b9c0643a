"""The plan of change data: which stored versions of which file groups to compare.

Each commit is compared with the state before it, file group by file group, so nothing needs to be
turned on when rows are written. Groups without a commit in the range are not looked at, nor are
commits of table services, which only move rows. Where a commit replaced file groups, all of them in
a partition are compared at once. ``read/change_reader.py`` reads the versions.

The versions must still be there. If a clean or an archival took away what is needed, the plan
raises an error that says since when changes can be read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from bucketlake.errors import MissingFileError, TimelineError
from bucketlake.format.commit_metadata import changes_rows
from bucketlake.model.file_name import Group, InstantTime, LogFileName, log_instant
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.read.clean_guard import cleaned_files
from bucketlake.read.incremental import RangeCommit, commits_between
from bucketlake.read.pruning.by_partition import partitions_that_may_match
from bucketlake.read.request import ReadRequest, read_range
from bucketlake.read.slice_reader import ALL_KEYS, KeyShare, shares_of
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.slices.file_system_view import group_files, newest_slice
from bucketlake.timeline.active import files_of, load_timeline, written_files
from bucketlake.timeline.open_table import OpenTable
from bucketlake.where.predicate import Predicate

BYTES_PER_SHARE = 128 * 2**20

_BEFORE_RANGE = -1


@dataclass(frozen=True, slots=True)
class ComparedStates:
    """States of some file groups of a partition, one after the other, and what made each.

    Attributes
    ----------
    states : tuple of tuple of FileSlice
        The slices of each state.
    commits : tuple of int
        For each state but the first, the commit that made it: its place in the range.
    share : KeyShare
        The keys to compare.
    """

    states: tuple[tuple[FileSlice, ...], ...]
    commits: tuple[int, ...]
    share: KeyShare = ALL_KEYS

    @property
    def size_bytes(self) -> int:
        """Bytes to read."""
        return sum(held.size_bytes for state in self.states for held in state)

    @property
    def needed_by(self) -> tuple[int, ...]:
        """The last commit whose changes need each state: the one that it is before, if any."""
        return (*self.commits, self.commits[-1])

    @property
    def are_files(self) -> bool:
        """Whether each state is at most one base file."""
        return all(len(state) < 2 and not any(s.log_files for s in state) for state in self.states)

    @property
    def add_logs(self) -> bool:
        """Whether the states are one slice, to which each commit adds log files."""
        return all(map(_adds_logs, self.states, self.states[1:]))

    def cut(self) -> Iterator[ComparedStates]:
        """Yield parts with a share of the keys each, whose rows fit into memory."""
        largest = max(sum(held.size_bytes for held in state) for state in self.states)
        for share in shares_of(largest, BYTES_PER_SHARE):
            yield replace(self, share=share)


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """A range of commits, and the table pinned at its end.

    Attributes
    ----------
    snapshot : Snapshot
        The table at the end of the range.
    commits : tuple of RangeCommit
        The commits of the range, in the order of their completion.
    """

    snapshot: Snapshot
    commits: tuple[RangeCommit, ...]


def pin_changes(table: OpenTable, request: ReadRequest) -> ChangeRange:
    """Pin a table at the end of a range, with the commits of the range.

    Raises
    ------
    ConfigError
        If a time cannot be parsed, or ``since`` is later than ``until``, or than now.
    """
    timeline, since, until = read_range(table, request)
    at_end, commits = commits_between(table, timeline, since, until)
    return ChangeRange(load_snapshot(table, at_end), tuple(commits))


def compared_states(found: ChangeRange, predicate: Predicate | None) -> list[ComparedStates]:
    """Return what to compare for the changes of a range.

    Parameters
    ----------
    found : ChangeRange
    predicate : Predicate or None
        Partitions that cannot have a matching row are left out.

    Raises
    ------
    TimelineError
        If a clean deleted a version that must be compared.
    MissingFileError
        If a committed file is missing for another reason.
    """
    places = range(len(found.commits))
    changing = [place for place in places if changes_rows(found.commits[place].metadata)]
    partitions = _partitions(found, changing, predicate)
    if not partitions:
        return []
    versions = _Versions(found, partitions)
    chains = list(_chains(found, changing, versions))
    versions.require_whole(chains)
    return [part for chain in chains for part in chain.cut()]


def _partitions(
    found: ChangeRange, changing: Iterable[int], predicate: Predicate | None
) -> list[str]:
    touched = {path for place in changing for path in found.commits[place].metadata.partitions}
    paths, config = sorted(touched), found.snapshot.config
    if predicate is None or not config.paths_follow_keys:
        return paths
    schema = found.snapshot.readable_schema
    kept = partitions_that_may_match(predicate, paths, config.key_spec, schema)
    return [path for path, is_kept in zip(paths, kept, strict=True) if is_kept]


def _chains(
    found: ChangeRange, changing: Iterable[int], versions: _Versions
) -> Iterator[ComparedStates]:
    """Yield the states before and after each commit of the file groups that it changed.

    A state that a commit left and the next one found is read once.
    """
    by_groups: dict[tuple[Group, ...], list[int]] = defaultdict(list)
    for place in changing:
        for groups in _changed_together(found.commits[place].metadata, versions.partitions):
            by_groups[groups].append(place)
    for groups, places in sorted(by_groups.items()):
        states: list[tuple[FileSlice, ...]] = []
        commits: list[int] = []
        for place in places:
            before, after = versions.at(groups, place), versions.at(groups, place + 1)
            adds = _adds_logs(before, after)
            # A service ran since the last commit, or the commit wrote in another way.
            if not commits or states[-1] != before or adds != _adds_logs(*states[-2:]):
                if commits:
                    yield ComparedStates(tuple(states), tuple(commits))
                states, commits = [before], []
            if before or after:
                states.append(after)
                commits.append(place)
        if commits:
            yield ComparedStates(tuple(states), tuple(commits))


def _adds_logs(before: Sequence[FileSlice], after: Sequence[FileSlice]) -> bool:
    """Return whether a commit only added log files to a slice, or began a slice with them."""
    if len(before) > 1 or len(after) != 1:
        return False
    held = {file for old in before for file in old.files}
    return bool(after[0].log_files) and {*after[0].files} > held >= {after[0].base_file} - {None}


def _changed_together(commit: CommitMetadata, partitions: set[str]) -> Iterator[tuple[Group, ...]]:
    """Yield file groups that a commit changed, together if rows may have moved between them."""
    for partition in sorted(commit.partitions & partitions):
        written = {stat.file_id for stat in commit.write_stats.get(partition, ())}
        replaced = commit.replaced_file_ids.get(partition, ())
        groups = [(partition, file_id) for file_id in sorted(written.union(replaced))]
        if replaced:
            yield tuple(groups)
        else:
            yield from ((group,) for group in groups)


class _Versions:
    """The slices of file groups between the commits of a range.

    Parameters
    ----------
    found : ChangeRange
    partitions : list of str
        The partitions that are looked at.
    """

    def __init__(self, found: ChangeRange, partitions: list[str]) -> None:
        snapshot = self._snapshot = found.snapshot
        self._found = found
        self.partitions = {*partitions}
        self._place = {commit.instant: place for place, commit in enumerate(found.commits)}
        listed = snapshot.listed(partitions).files
        self._there = {file.path for file in listed}
        known = {file.path: file for file in self._committed()}
        known |= {path: file for path, (file, _) in self._cleaned_by.items()}
        known |= {file.path: file for file in listed}
        self._seen = snapshot.seen_files()
        self._files = group_files(snapshot.known_files(known.values()), self._seen)

    def at(self, groups: Iterable[Group], place: int) -> tuple[FileSlice, ...]:
        """Return the slices of groups as they were before the commit at a place of the range."""
        slices = (self._slice(group, place) for group in groups)
        return tuple(held for held in slices if held is not None)

    def _slice(self, group: Group, place: int) -> FileSlice | None:
        replaced = self._replaced_at.get(group)
        if replaced is not None and replaced < place:
            return None
        files = [file for file in self._files.get(group, ()) if self._is_before(file, place)]
        return newest_slice(group, files, self._seen)

    def _is_before(self, file: DataFile, place: int) -> bool:
        name = file.name
        writer = name.writer if isinstance(name, LogFileName) else None
        places = [self._written_at.get(file.path, _BEFORE_RANGE)]
        places += [
            self._place.get(instant, _BEFORE_RANGE)
            for instant in (name.instant, writer)
            if instant is not None
        ]
        return max(places) < place

    @cached_property
    def _written_at(self) -> Mapping[str, int]:
        """The place of the commit of each log file whose name has the instant of its slice."""
        if not self._snapshot.timeline.layout.logs_name_slices:
            return {}
        return {
            stat.path: place
            for place, commit in enumerate(self._found.commits)
            for stat in commit.metadata.stats
            if log_instant(stat.path) is not None
        }

    @cached_property
    def _replaced_at(self) -> Mapping[Group, int]:
        """The place of the commit that replaced each group."""
        active = self._snapshot.timeline.replaced_file_groups(self._snapshot.storage)
        replaced = {
            group: self._place.get(instant, _BEFORE_RANGE) for group, instant in active.items()
        }
        for place, commit in enumerate(self._found.commits):
            for group in commit.metadata.replaced_groups:
                replaced.setdefault(group, place)
        return replaced

    def _committed(self) -> Iterator[DataFile]:
        """Yield the files that commits say they wrote, whether they are still there or not."""
        snapshot = self._snapshot
        active = (files for _, files in written_files(snapshot.storage, snapshot.timeline))
        in_range = (files_of(commit.metadata) for commit in self._found.commits)
        for written in (*active, *in_range):
            for partition in written.keys() & self.partitions:
                yield from written[partition].values()

    @cached_property
    def _cleaned_by(self) -> Mapping[str, tuple[DataFile, InstantTime]]:
        snapshot = self._snapshot
        since = min(commit.instant for commit in self._found.commits)
        newest = load_timeline(snapshot.table)
        return cleaned_files(snapshot.table, snapshot.timeline, newest, self.partitions, since)

    def lost(self, state: Iterable[FileSlice]) -> list[str]:
        """Return the paths of the files of a state that are missing."""
        return [path for held in state for path in held.paths if path not in self._there]

    def require_whole(self, chains: Iterable[ComparedStates]) -> None:
        """Raise an error if a file of a state is missing."""
        lost = [
            (commit, path)
            for chain in chains
            for commit, state in zip(chain.needed_by, chain.states, strict=True)
            for path in self.lost(state)
        ]
        if not lost:
            return
        place, path = max(lost)
        commit = self._found.commits[place]
        cleaned = self._cleaned_by.get(path)
        if cleaned is None:
            where = f"{self._snapshot.storage.root}/{path}"
            raise MissingFileError(where, f"the changes of the commit {commit.instant} need it")
        error = TimelineError(
            cleaned[1],
            f"this clean deleted {path}, which the changes of the commit {commit.instant} need; "
            f"ask for changes since {commit.completed_at} or later",
        )
        error.readable_since = commit.completed_at
        raise error
