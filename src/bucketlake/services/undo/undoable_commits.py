"""Which commits a rollback can undo.

A commit can be undone while the table still has the files from before the commit, and if no later
commit builds on it, or the later commits are undone too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from bucketlake.actions.tombstone_list import TOMBSTONES, added_by
from bucketlake.errors import IndexStateError, MissingFileError, TimelineError
from bucketlake.index.conflict_keys import ChangedShards, looked_at_keys, written_keys
from bucketlake.index.setting import TableIndex, resolve_index, without_records
from bucketlake.index.state import setting_instants
from bucketlake.model.file_name import Group, InstantTime, log_instant
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.read.snapshot import Snapshot, load_snapshot
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
    require_own_logs(snapshot, undone)
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
    for savepoint in timeline.savepoints():
        if savepoint.requested_at >= instant:
            raise TimelineError(
                instant,
                f"savepoint {savepoint.requested_at} holds it: delete the savepoint first with "
                f"table.delete_savepoint('{savepoint.requested_at}') (bucketlake savepoint PATH "
                f"{savepoint.requested_at} --delete)",
            )


def require_own_logs(snapshot: Snapshot, undone: Sequence[Instant]) -> None:
    """Raise TimelineError if log files of another layout are in the way of an undo.

    Up to table version 7 log files may have rows of several commits, and an upgrade keeps such
    files. Since then each commit has its own, which an undo deletes. In the older layout these come
    after all that is written later, so a downgrade compacts them, and they must not come back.
    """
    timeline, times = snapshot.timeline, {commit.requested_at for commit in undone}
    if timeline.layout.logs_name_slices and any(i.action is Action.COMMIT for i in undone):
        for held in replace(snapshot, timeline=timeline.without(times)).all_slices():
            for log in held.log_files:
                if log.name.instant not in {held.instant, *times}:
                    raise TimelineError(
                        undone[-1].requested_at,
                        f"log files from before a downgrade would be read again, such as {log.path}"
                        ", and this version has another order of them: first call table.upgrade() "
                        "(bucketlake upgrade --run)",
                    )
    for commit in undone:
        is_moved = commit.completed_at == commit.requested_at
        is_delta = commit.action is Action.DELTA_COMMIT
        if is_moved and is_delta and not timeline.layout.logs_name_slices:
            raise TimelineError(
                commit.requested_at,
                "it was committed before an upgrade from version 6, into log files that may have "
                "rows of other commits: it cannot be undone; write the earlier rows again",
            )


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
    held = {file_slice.group for file_slice in slices}
    created = {
        stat.group
        for instant, commit in zip(undone, commits, strict=True)
        for stat in commit.stats
        if stat.opens_group or _is_copy(snapshot.timeline, stat, instant.requested_at)
    }
    lost = {group for commit in commits for group in commit.file_groups} - created - held
    if lost:  # A commit that stays may have replaced them: a resize that the undone one served.
        replaced = before.timeline.replaced_file_groups(storage).keys()
        lost -= _opened_with_logs(before, lost) | replaced
    if lost:
        partition, file_id = min(lost)
        what = f"those of file group {file_id} in partition {partition!r} were cleaned"
        raise _needs_files_before(min(times), what)
    known = resolve_index(snapshot.table, before.timeline, index)
    if known is not None:
        known.layout().live_slots(slices)


def _needs_files_before(instant: InstantTime, held: str) -> IndexStateError:
    return IndexStateError(
        f"a rollback of {instant} needs the files from before the commit",
        held,
        "keep the commit, and write the rows that you want with another commit",
    )


def _is_copy(timeline: Timeline, stat: WriteStat, instant: InstantTime) -> bool:
    """Return whether a log file was made for a pending resize, in a group that is not read yet."""
    named = log_instant(stat.path)
    if timeline.layout.logs_name_slices:
        return named is not None and not timeline.has_slice(named)
    return named not in (None, instant)


def _opened_with_logs(before: Snapshot, groups: set[Group]) -> set[Group]:
    """Return the groups that no commit before wrote: Hudi does not tell that it opens a group."""
    if has_archive(before.table):
        return set()  # An archived commit may have made the group.
    timeline = before.timeline
    earlier: set[Group] = set()
    for instant in timeline.completed_commits():
        earlier |= timeline.read_commit(before.storage, instant).file_groups
    return groups - earlier


# ---- Which commits build on others, and must be rolled back with them ----------------------------
#
# A commit builds on an earlier commit if it wrote, overwrote or looked at the same buckets, counted
# buckets with its rules (RFC-89), cast rows to its schema, or remembers its deletes.


def with_dependents(snapshot: Snapshot, index: TableIndex | None, found: Instant) -> list[Instant]:
    """Return a commit and all commits that build on it; each follows the commits it builds on."""
    storage, timeline = snapshot.storage, snapshot.timeline
    counts = _BucketCounts(snapshot, index, setting_instants(storage, timeline))
    undone = {found: timeline.read_commit(storage, found)}
    left = [commit for commit in timeline.completed_commits() if commit != found]
    added = True
    while added:  # A commit that began first and completed last may build on later ones.
        added = False
        for later in [*left]:
            before = {i: held for i, held in undone.items() if _is_later(timeline, later, i)}
            if not before:
                continue
            commit, metadata = timeline.read_commit(storage, later), before.values()
            ruling = [i for i, held in before.items() if not _is_served_by(commit, i, held)]
            if (
                any(_builds_on(later, commit, i, earlier) for i, earlier in before.items())
                or counts.were_used(later, commit, ruling)
                # A resize names all that it replaces, and leaves other buckets on the ring.
                or (not commit.resizes and counts.were_changed(later, metadata))
                or (commit.compacted and _is_cast(snapshot, later, before))
            ):
                undone[later] = commit
                left.remove(later)
                added = True
    return [*undone]


def _is_later(timeline: Timeline, later: Instant, earlier: Instant) -> bool:
    """Return whether a commit was requested or completed after another commit."""
    completed, limit = (timeline.completion_time(i.requested_at) or "" for i in (later, earlier))
    return later.requested_at > earlier.requested_at or completed > limit


def _builds_on(
    later_instant: Instant, later: CommitMetadata, earlier_instant: Instant, earlier: CommitMetadata
) -> bool:
    """Return whether a commit touched, overwrote or looked at buckets of an earlier commit."""
    if _is_served_by(later, earlier_instant, earlier):
        return False  # Its records are in the file groups of before, too.
    if _is_served_by(earlier, later_instant, later):
        return False  # The resize did not read its records, which have files of their own.
    looked = looked_at_keys(later, later_instant.requested_at)
    if (later.file_groups | looked) & earlier.file_groups:
        return True  # Also if it changed nothing there: its records lost to those of before.
    if TOMBSTONES in later.extra and added_by(earlier, f"commit {earlier_instant.requested_at}"):
        return True  # Late rows stayed out by its deletes, and would after it.
    if later.operation == Operation.INSERT_OVERWRITE_TABLE.value:
        return True  # It also overwrote partitions that had no files then.
    added = ChangedShards.of_commit(later, later_instant.requested_at)
    removed = ChangedShards.of_commit(earlier, earlier_instant.requested_at)
    if added is not None and removed is not None and (looked | added.added) & removed.removed:
        return True  # It found no entry of a key whose entry comes back, or a shard that goes.
    if later.resizes or earlier.resizes:
        # A resize leaves the other buckets of its partitions alone.
        return not looked.isdisjoint(written_keys(earlier))
    partitions = set(later.partitions)
    overwritten = {*later.replaced_file_ids, *earlier.replaced_file_ids}
    if later.operation == Operation.INSERT_OVERWRITE.value:
        # A commit that found no file and wrote no row only names these keys.
        partitions.update(path for path, _ in looked)
        overwritten |= partitions
    if overwritten & partitions & earlier.partitions:
        return True
    return not looked.isdisjoint(written_keys(earlier))


def _is_served_by(commit: CommitMetadata, instant: Instant, resize: CommitMetadata) -> bool:
    """Return whether another commit is a resize for which a commit made copies of its log files.

    In timeline layout 1, log files of later commits have the instant of the resize, too. But only
    copies repeat log files of the groups that it replaced.
    """
    if not resize.resizes:
        return False
    is_named = any(log_instant(stat.path) == instant.requested_at for stat in commit.stats)
    return is_named and not resize.replaced_groups.isdisjoint(commit.file_groups)


def _is_cast(snapshot: Snapshot, compaction: Instant, undone: Collection[Instant]) -> bool:
    """Return whether a compaction cast rows to a schema that will be undone."""
    then = snapshot.timeline.as_of(compaction.requested_at)
    without = then.without({instant.requested_at for instant in undone})
    return then.latest_schema(snapshot.storage) != without.latest_schema(snapshot.storage)


@dataclass(frozen=True, slots=True)
class _BucketCounts:
    """The bucket counts of a table, by the rules that some of its commits wrote (RFC-89)."""

    snapshot: Snapshot
    index: TableIndex | None
    rules: set[InstantTime]

    def were_used(self, later: Instant, commit: CommitMetadata, undone: Iterable[Instant]) -> bool:
        """Return whether a commit changed rules that will be undone, or counted with them."""
        instants = {instant.requested_at for instant in undone}
        if not instants.intersection(self.rules):
            return False
        if later.requested_at in self.rules:
            return True
        looked = {path for path, _ in looked_at_keys(commit, later.requested_at)}
        return self._differ(later, instants, commit.partitions | looked)

    def were_changed(self, later: Instant, undone: Iterable[CommitMetadata]) -> bool:
        """Return whether a commit changed counts of partitions with rows of undone commits.

        If the undone commits had removed all rows, the change found no row to move. Rows that come
        back are in buckets of the earlier count.
        """
        if later.requested_at not in self.rules:
            return False
        partitions = {path for commit in undone for path in commit.partitions}
        return self._differ(later, {later.requested_at}, partitions)

    def _differ(self, then: Instant, without: set[InstantTime], partitions: Iterable[str]) -> bool:
        """Return whether partitions would have other counts at a commit without some instants.

        Rescales that completed after the commit are ignored: they may restore earlier counts, and
        a commit uses the rules that are valid when it completes. Only the rules are compared,
        because Hudi does not know recorded counts and must find the rows too.
        """
        table, timeline = self.snapshot.table, self.snapshot.timeline
        until = timeline.completion_time(then.requested_at) or ""
        newer = {rule for rule in self.rules if (timeline.completion_time(rule) or "") > until}
        actual, reduced = (
            resolve_index(table, timeline.without(instants), self.index)
            for instants in (newer, newer | without)
        )
        if actual is None or reduced is None:
            return True
        layouts = [without_records(index).layout() for index in (actual, reduced)]
        return any(len({layout.setting_of(path) for layout in layouts}) > 1 for path in partitions)
