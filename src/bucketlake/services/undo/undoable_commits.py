"""Which commits a rollback can undo.

A commit can be undone while the table still has the files from before the commit, and if no later
commit builds on it, or the later commits are undone too.
"""

from __future__ import annotations

from collections.abc import Sequence

from bucketlake.config.inner_path import require_data_place
from bucketlake.errors import IndexStateError, MissingFileError, TimelineError
from bucketlake.index.setting import TableIndex, resolve_index
from bucketlake.model.file_name import InstantTime, log_instant
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.undo.dependents import with_dependents
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import archived_completion_times, has_archive
from bucketlake.timeline.instant import WRITES, Action, Instant
from bucketlake.timeline.open_table import OpenTable

_COMPACT = "table.compact() (bucketlake compact --run)"
_RESIZE = "table.resize() (bucketlake resize --run)"
_ARCHIVED = "is archived: only a commit of the active timeline can be rolled back"


def commits_to_undo(
    snapshot: Snapshot, index: TableIndex | None, instant: InstantTime, cascade: bool
) -> list[Instant]:
    """Return the commits to undo, newest first; raise if rows would be lost or doubled."""
    timeline = snapshot.timeline
    times = archived_completion_times(snapshot.table, since=instant, until=instant)
    if instant in times:  # If an archival died, it may be on both timelines.
        raise TimelineError(instant, _ARCHIVED)
    found = timeline.find_completed(instant)
    if found is None:
        raise TimelineError(instant, why_absent(snapshot.table, timeline, instant))
    _require_no_savepoint(timeline, instant)
    undone = with_dependents(snapshot, index, found)
    if len(undone) > 1 and not cascade:
        later = ", ".join(i.requested_at for i in undone[1:4]) + (", …" if len(undone) > 4 else "")
        raise TimelineError(
            instant,
            f"{len(undone) - 1} later commits build on it ({later}): roll them back with it by "
            "cascade=True (--cascade), which loses what they wrote; or keep the rows, and if it is "
            "a rescale, restore the earlier rules with another rescale",
        )
    _require_places(snapshot, undone)
    require_own_logs(timeline, undone)
    _require_commit_left(snapshot, undone)
    _require_no_plan(snapshot, undone)
    _require_no_clean(timeline, instant)
    _require_state_of_before(snapshot, index, undone)
    return undone[::-1]


def why_absent(table: OpenTable, timeline: Timeline, instant: InstantTime) -> str:
    """Return the reason why the active timeline has no completed commit with a time."""
    if instant in archived_completion_times(table, since=instant, until=instant):
        return (
            f"it is archived: the active timeline starts at {timeline.start}; to go back further "
            "restore a savepoint"
        )
    see = "see table.timeline() (bucketlake timeline)"
    for known in timeline.instants:
        if instant == known.completed_at:
            return (
                f"this is the completion time of the {known.action.value} {known.requested_at}: "
                f"commits are named by their requested time; {see}"
            )
        if instant == known.requested_at and known.action in WRITES:
            return "it is not completed; the next write rolls it back"
        if instant == known.requested_at:
            return f"this is a {known.action.value}, not a commit; {see}"
    starts = "is empty" if timeline.start is None else f"starts at {timeline.start}"
    return f"the table has no commit of this time (its active timeline {starts}); {see}"


def _require_no_savepoint(timeline: Timeline, instant: InstantTime) -> None:
    for savepoint in timeline.instants:
        if savepoint.action is Action.SAVEPOINT and savepoint.requested_at >= instant:
            raise TimelineError(
                instant,
                f"savepoint {savepoint.requested_at} holds it: delete the savepoint first with "
                f"table.delete_savepoint('{savepoint.requested_at}') (bucketlake savepoint PATH "
                f"{savepoint.requested_at} --delete)",
            )


def require_own_logs(timeline: Timeline, undone: Sequence[Instant]) -> None:
    """Raise TimelineError if a commit wrote to log files that may have rows of other commits.

    Up to table version 7 they may, and an upgrade keeps such files. Since then each commit has its
    own, which an undo deletes.
    """
    for commit in undone:
        is_moved = commit.completed_at == commit.requested_at
        is_delta = commit.action is Action.DELTA_COMMIT
        if is_moved and is_delta and not timeline.layout.logs_name_slices:
            raise TimelineError(
                commit.requested_at,
                "it was committed before an upgrade from version 6, into log files that may have "
                "rows of other commits: it cannot be undone; write the earlier rows again",
            )


def _require_places(snapshot: Snapshot, undone: Sequence[Instant]) -> None:
    """Raise if commit metadata names files outside of the data folders."""
    for instant in undone:
        commit = snapshot.timeline.read_commit(snapshot.storage, instant)
        named = [
            (stat.partition_path, path.rpartition("/")[2])
            for stat in commit.stats
            for path in stat.file_sizes
        ]
        named += [
            (path, file_id) for path, ids in commit.replaced_file_ids.items() for file_id in ids
        ]
        for partition, name in named:
            require_data_place(partition, name, f"metadata of commit {instant.requested_at}")


def _require_commit_left(snapshot: Snapshot, undone: Sequence[Instant]) -> None:
    if not leaves_commit(snapshot, undone):
        raise TimelineError(
            undone[0].requested_at,
            "it is the last commit of the active timeline, and all earlier commits are archived: "
            "write another commit first",
        )


def leaves_commit(snapshot: Snapshot, undone: Sequence[Instant]) -> bool:
    """Return whether a commit stays on the active timeline, which is needed if there is an archive.

    Instants that a dead archival left on both timelines do not count: they will be removed.
    """
    if not has_archive(snapshot.table):
        return True
    left = {i.requested_at for i in snapshot.timeline.completed_commits() if i not in undone}
    if not left:
        return False
    return bool(left - archived_completion_times(snapshot.table, since=min(left)).keys())


def _require_no_plan(snapshot: Snapshot, undone: Sequence[Instant]) -> None:
    """Raise TimelineError if a pending compaction or resize needs files that would be deleted."""
    storage, timeline = snapshot.storage, snapshot.timeline
    commits = [(commit, timeline.read_commit(storage, commit)) for commit in undone]
    files = {stat.path: commit for commit, metadata in commits for stat in metadata.stats}
    plans = [
        (pending, timeline.read_compaction_plan(storage, pending), "compaction", _COMPACT)
        for pending in timeline.pending_compactions()
    ]
    plans += [
        (pending, [*timeline.read_clustering_plan(storage, pending).slices], "resize", _RESIZE)
        for pending in timeline.pending_clusterings()
    ]
    for pending, slices, what, call in plans:
        for path in (path for planned in slices for path in planned.paths):
            if path in files:
                raise TimelineError(
                    files[path].requested_at,
                    f"the pending {what} {pending.requested_at} names {path}: execute it with "
                    f"{call}",
                )


def _require_no_clean(timeline: Timeline, instant: InstantTime) -> None:
    for clean in timeline.pending_cleans():
        raise TimelineError(
            instant,
            f"the pending clean {clean.requested_at} may delete files from before it: complete "
            "the clean with table.clean() (bucketlake clean --run)",
        )


def _require_state_of_before(
    snapshot: Snapshot, index: TableIndex | None, undone: Sequence[Instant]
) -> None:
    """Raise IndexStateError if the table could not be read or written after the rollback."""
    storage, times = snapshot.storage, {commit.requested_at for commit in undone}
    commits = [snapshot.timeline.read_commit(storage, commit) for commit in undone]
    timeline = snapshot.timeline.without(times)
    before = load_snapshot(snapshot.table, timeline, lists_storage=True)
    try:
        slices = before.partition_slices({p for commit in commits for p in commit.partitions})
    except MissingFileError as error:
        raise _needs_files_before(min(times), f"{error.path} is missing") from error
    held = {(file_slice.partition_path, file_slice.file_id) for file_slice in slices}
    created = {
        (stat.partition_path, stat.file_id)
        for instant, commit in zip(undone, commits, strict=True)
        for stat in commit.stats
        if stat.opens_group or _is_copy(snapshot.timeline, stat, instant.requested_at)
    }
    lost = {group for commit in commits for group in commit.file_groups} - created - held
    lost -= _opened_with_logs(before, lost) | _replaced_since(before, lost)
    if lost:
        partition, file_id = min(lost)
        what = f"those of file group {file_id} in partition {partition!r} were cleaned"
        raise _needs_files_before(min(times), what)
    known = resolve_index(storage, before.timeline, index)
    if known is not None:
        known.layout().live_slots(slices)


def _needs_files_before(instant: InstantTime, held: str) -> IndexStateError:
    return IndexStateError(
        f"a rollback of {instant} needs the files from before the commit",
        held,
        "keep the commit, and write the rows that you want with another commit",
    )


def _replaced_since(before: Snapshot, groups: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the groups that a commit replaced which stays: a resize that the undone one served."""
    replaced = set()
    if groups:
        timeline = before.timeline
        for commit in timeline.completed_commits():
            if commit.action is Action.REPLACE_COMMIT:
                held = timeline.read_commit(before.storage, commit).replaced_file_ids
                replaced |= {(path, file_id) for path, ids in held.items() for file_id in ids}
    return groups & replaced


def _is_copy(timeline: Timeline, stat: WriteStat, instant: InstantTime) -> bool:
    """Return whether a log file was made for a pending resize, in a group that is not read yet."""
    named = log_instant(stat.path)
    if timeline.layout.logs_name_slices:
        return named is not None and not timeline.has_slice(named)
    return named not in (None, instant)


def _opened_with_logs(before: Snapshot, groups: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the groups that no commit before wrote: Hudi does not tell that it opens a group."""
    if not groups or has_archive(before.table):
        return set()  # An archived commit may have made the group.
    timeline = before.timeline
    earlier: set[tuple[str, str]] = set()
    for instant in timeline.completed_commits():
        earlier |= timeline.read_commit(before.storage, instant).file_groups
    return groups - earlier
