"""Rolling back commits: which commits can be undone, and what a rollback requires.

A commit can be undone while the table still has the files from before the commit, and if no later
commit builds on it. Its files, its rules (RFC-89) and its instant are removed together, newest
commit first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from bucketlake.config.inner_path import require_data_place
from bucketlake.config.support import check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import (
    CommitOutcomeUnknownError,
    IndexStateError,
    MissingFileError,
    ObjectNotFoundError,
    StorageError,
    TimelineError,
)
from bucketlake.format.rollback_metadata import RollbackPlan, encode_rollback_plan
from bucketlake.index.settings import TableIndex, resolve_index
from bucketlake.index.state import setting_instants
from bucketlake.model.file_name import InstantTime, log_instant
from bucketlake.model.shown import Shown
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.file_system_view import list_files
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.dependents import with_dependents
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import archived_completion_times, has_archive
from bucketlake.timeline.archive_writer import keep_active
from bucketlake.timeline.clock import InstantClock, system_now_ms, table_clock
from bucketlake.timeline.commit_order import Turn, last_turn, take_turn
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.locks import NO_LOCK, Check, TableLock
from bucketlake.write.commit import after_turn
from bucketlake.write.pending_actions import begin_instant, withdraw_plan
from bucketlake.write.recovery import end_undoing, settle_failed_writes
from bucketlake.write.resize_withdrawal import withdraw_resize
from bucketlake.write.timeline_rollback import carry_out_rollback, rollback_plan

_ARCHIVED = "is archived: only a commit of the active timeline can be rolled back"


@dataclass(frozen=True, slots=True)
class UndoneCommit:
    """A commit that is rolled back.

    Attributes
    ----------
    instant : InstantTime
        Requested time of the commit.
    operation : str
        Operation of the commit, in Hudi's spelling.
    partitions : tuple of str
        Partitions that the commit touched.
    files : int
        Number of its files, which are deleted.
    size_bytes : int
        Size of these files.
    rules : bool
        Whether the commit wrote partition rules, which are removed too.
    """

    instant: InstantTime
    operation: str
    partitions: tuple[str, ...]
    files: int
    size_bytes: int
    rules: bool


@dataclass(frozen=True, slots=True)
class RollbackReport(Shown):
    """What a rollback undoes or has undone.

    Attributes
    ----------
    commits : tuple of UndoneCommit
        Undone commits, newest first.
    instants : tuple of InstantTime
        The rollbacks on the timeline, one per commit; empty for a dry run, and for a pending
        resize.
    """

    commits: tuple[UndoneCommit, ...]
    instants: tuple[InstantTime, ...] = ()


def roll_back(
    storage: Storage,
    config: TableConfig,
    index: TableIndex | None,
    instant: InstantTime,
    *,
    cascade: bool = False,
    dry_run: bool = False,
    lock: TableLock = NO_LOCK,
    now_ms: Callable[[], int] = system_now_ms,
) -> RollbackReport:
    """Roll a commit back, or return what that would undo.

    A resize that is pending is withdrawn; that leaves no rollback on the timeline.

    Parameters
    ----------
    storage, config
        The table.
    index : TableIndex or None
        The index that the caller states; None if the caller states none.
    instant : InstantTime
        The commit, or the pending resize.
    cascade : bool
        Whether to also undo later commits that build on it; otherwise they raise TimelineError.
    dry_run : bool
        Whether to change nothing.
    lock : TableLock
        Held during the rollback.
    now_ms : callable
        Milliseconds since 1970 UTC.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written.
    TimelineError
        If there is no such commit, a savepoint holds it, or later commits build on it.
    IndexStateError
        If files from before the commit were cleaned, or do not fit the index from before it.
    CommitOutcomeUnknownError
        If storage failed and the rollback may have begun.
    """
    check_writable(config, storage.root)
    if dry_run:
        snapshot = load_snapshot(storage, config)
        resize = _describe_pending(storage, snapshot.timeline, instant)
        if resize is not None:
            return RollbackReport((resize,))
        return _report(snapshot, _commits_to_undo(snapshot, index, instant, cascade))
    clock = table_clock(storage.root, config.timeline_timezone, now_ms)
    timeline = settle_failed_writes(storage, config, load_timeline(storage, config), clock, lock)
    resize = _describe_pending(storage, timeline, instant)
    if resize is not None:
        with lock.held(storage):
            if withdraw_resize(storage, config, clock, instant):
                return RollbackReport((resize,))
        settle_failed_writes(storage, config, load_timeline(storage, config), clock, lock)
    with lock.held(storage) as require_held:
        while True:
            turn = last_turn(storage)
            timeline = after_turn(storage, config, clock, turn, None)
            if end_undoing(storage, config, timeline, clock):
                continue
            snapshot = load_snapshot(storage, config, timeline)
            commits = _commits_to_undo(snapshot, index, instant, cascade)
            report = _report(snapshot, commits)
            try:
                instants = _undo(snapshot, clock, commits, turn, require_held)
            except StorageError as error:
                raise CommitOutcomeUnknownError(
                    instant,
                    f"storage failed while it was rolled back ({error}); the next write "
                    "continues the rollback, or withdraws it if nothing was undone yet",
                ) from error
            if instants:
                return replace(report, instants=instants)


def _report(snapshot: Snapshot, commits: Sequence[Instant]) -> RollbackReport:
    rules = setting_instants(snapshot.storage, snapshot.timeline)
    return RollbackReport(tuple(describe(snapshot, commit, rules) for commit in commits))


def _undo(
    snapshot: Snapshot,
    clock: InstantClock,
    commits: Sequence[Instant],
    turn: Turn | None,
    require_held: Check,
) -> tuple[InstantTime, ...]:
    """Roll commits back; return () if another commit or an archival came after the snapshot.

    The rollback takes a turn in the order of commits after its plans are on the timeline. So
    another commit either took an earlier turn, which the rollback sees, or takes a later turn and
    sees the plans or their effect.
    """
    storage, config = snapshot.storage, snapshot.config
    plans = [rollback_plan(storage, snapshot.timeline, commit) for commit in commits]
    with ExitStack() as stack:
        begun = [
            stack.enter_context(
                begin_instant(
                    storage,
                    config,
                    load_timeline(storage, config),
                    clock,
                    Action.ROLLBACK,
                    encode_rollback_plan(plan, storage.root),
                )
            )
            for plan in plans
        ]
        instants = tuple(instant for instant, _ in begun)
        now, then = begun[-1][1], snapshot.timeline
        is_active = all(keep_active(storage, config, commit.requested_at) for commit in commits)
        is_same = _settled(now, instants) == _settled(then, ())
        require_held()
        if (
            is_active
            and is_same
            and _leaves_commit(snapshot, commits)
            and take_turn(storage, instants[0], after=turn)
            and _carry_out(snapshot, clock, plans, instants)
        ):
            return instants
        for instant in instants:
            withdraw_plan(storage, config, instant, Action.ROLLBACK)
        return ()


def _carry_out(
    snapshot: Snapshot,
    clock: InstantClock,
    plans: Sequence[RollbackPlan],
    instants: Sequence[InstantTime],
) -> bool:
    """Execute plans in order; return False if another writer withdrew them meanwhile."""
    for done, (plan, instant) in enumerate(zip(plans, instants, strict=True)):
        if not carry_out_rollback(snapshot.storage, snapshot.config, clock, instant, plan):
            if done:
                raise CommitOutcomeUnknownError(
                    plan.instant,
                    f"this and earlier commits were not rolled back, only {done} later commits: "
                    "another writer treated this writer as dead meanwhile; roll back again",
                )
            return False
    return True


def _settled(timeline: Timeline, but: Collection[InstantTime]) -> set[Instant]:
    """Return what a rollback depends on: all instants except pending writes."""
    return {
        instant
        for instant in timeline.instants
        if instant.requested_at not in but
        and (instant.state is State.COMPLETED or instant.action not in WRITES)
    }


def _commits_to_undo(
    snapshot: Snapshot, index: TableIndex | None, instant: InstantTime, cascade: bool
) -> list[Instant]:
    """Return the commits to undo, newest first; raise if rows would be lost or doubled."""
    timeline = snapshot.timeline
    times = archived_completion_times(
        snapshot.storage, snapshot.config, since=instant, until=instant
    )
    if instant in times:  # If an archival died, it may be on both timelines.
        raise TimelineError(instant, _ARCHIVED)
    found = timeline.find_completed(instant)
    if found is None:
        raise TimelineError(instant, why_absent(timeline, instant))
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
    _require_commit_left(snapshot, undone)
    _require_no_plan(snapshot, undone)
    _require_no_clean(timeline, instant)
    _require_state_of_before(snapshot, index, undone)
    return undone[::-1]


def describe(snapshot: Snapshot, instant: Instant, rules: set[InstantTime]) -> UndoneCommit:
    """Describe what a rollback of a completed commit removes."""
    commit = snapshot.timeline.read_commit(snapshot.storage, instant)
    return UndoneCommit(
        instant.requested_at,
        commit.operation,
        tuple(sorted(commit.partitions)),
        len(commit.stats),
        sum(stat.file_size_bytes for stat in commit.stats),
        instant.requested_at in rules,
    )


def _describe_pending(
    storage: Storage, timeline: Timeline, instant: InstantTime
) -> UndoneCommit | None:
    """Describe what a withdrawal of a pending resize removes; None if it is none."""
    pending = {found.requested_at: found for found in timeline.pending_clusterings()}.get(instant)
    if pending is None:
        return None
    try:
        plan = timeline.read_clustering_plan(storage, pending)
    except ObjectNotFoundError:
        return None
    if not plan.is_resize:
        return None
    partitions = sorted({planned.partition_path for planned in plan.slices})
    files = [file for file in list_files(storage, partitions) if file.name.instant == instant]
    size_bytes = sum(file.size_bytes for file in files)
    return UndoneCommit(instant, "CLUSTER", tuple(partitions), len(files), size_bytes, rules=False)


def why_absent(timeline: Timeline, instant: InstantTime) -> str:
    """Return the reason why there is no completed commit with a time."""
    if timeline.start is not None and instant < timeline.start:
        return (
            f"it is older than the active timeline, which starts at {timeline.start}; "
            "to go back further restore a savepoint"
        )
    if any(pending.requested_at == instant for pending in timeline.pending()):
        return "it is not completed; the next write rolls it back"
    starts = "is empty" if timeline.start is None else f"starts at {timeline.start}"
    return (
        f"no commit of the active timeline has this time (it {starts}): "
        "see table.timeline() (bucketlake timeline)"
    )


def _require_no_savepoint(timeline: Timeline, instant: InstantTime) -> None:
    for savepoint in timeline.instants:
        if savepoint.action is Action.SAVEPOINT and savepoint.requested_at >= instant:
            raise TimelineError(
                instant,
                f"savepoint {savepoint.requested_at} holds it: delete the savepoint first with "
                "table.delete_savepoint() (bucketlake savepoint TABLE INSTANT --delete)",
            )


def _require_places(snapshot: Snapshot, undone: Sequence[Instant]) -> None:
    """Raise if commit metadata names files outside of the data folders."""
    for instant in undone:
        commit = snapshot.timeline.read_commit(snapshot.storage, instant)
        named = [(stat.partition_path, stat.path.rpartition("/")[2]) for stat in commit.stats]
        named += [
            (path, file_id) for path, ids in commit.replaced_file_ids.items() for file_id in ids
        ]
        for partition, name in named:
            require_data_place(partition, name, f"metadata of commit {instant.requested_at}")


def _require_commit_left(snapshot: Snapshot, undone: Sequence[Instant]) -> None:
    if not _leaves_commit(snapshot, undone):
        raise TimelineError(
            undone[0].requested_at,
            "it is the last commit of the active timeline, and all earlier commits are archived: "
            "write another commit first",
        )


def _leaves_commit(snapshot: Snapshot, undone: Sequence[Instant]) -> bool:
    """Return whether a commit stays on the active timeline, which is needed if there is an archive.

    Instants that a dead archival left on both timelines do not count: they will be removed.
    """
    storage, config = snapshot.storage, snapshot.config
    if not has_archive(storage, config):
        return True
    left = {i.requested_at for i in snapshot.timeline.completed_commits() if i not in undone}
    if not left:
        return False
    return bool(left - archived_completion_times(storage, config, since=min(left)).keys())


def _require_no_plan(snapshot: Snapshot, undone: Sequence[Instant]) -> None:
    """Raise TimelineError if a pending compaction or resize needs files that would be deleted."""
    storage, timeline = snapshot.storage, snapshot.timeline
    commits = [(commit, timeline.read_commit(storage, commit)) for commit in undone]
    files = {stat.path: commit for commit, metadata in commits for stat in metadata.stats}
    plans = [
        (pending, timeline.read_compaction_plan(storage, pending), "compaction", "compact")
        for pending in timeline.pending_compactions()
    ]
    plans += [
        (pending, [*timeline.read_clustering_plan(storage, pending).slices], "resize", "resize")
        for pending in timeline.pending_clusterings()
    ]
    for pending, slices, what, verb in plans:
        for path in (path for planned in slices for path in planned.paths):
            if path in files:
                raise TimelineError(
                    files[path].requested_at,
                    f"the pending {what} {pending.requested_at} names {path}: execute it with "
                    f"table.{verb}() (bucketlake {verb})",
                )


def _require_no_clean(timeline: Timeline, instant: InstantTime) -> None:
    for clean in timeline.pending_cleans():
        raise TimelineError(
            instant,
            f"the pending clean {clean.requested_at} may delete files from before it: complete "
            "the clean with table.clean() (bucketlake clean)",
        )


def _require_state_of_before(
    snapshot: Snapshot, index: TableIndex | None, undone: Sequence[Instant]
) -> None:
    """Raise IndexStateError if the table could not be read or written after the rollback."""
    storage, times = snapshot.storage, {commit.requested_at for commit in undone}
    commits = [snapshot.timeline.read_commit(storage, commit) for commit in undone]
    timeline = snapshot.timeline.without(times)
    before = load_snapshot(storage, snapshot.config, timeline, lists_storage=True)
    try:
        slices = before.partition_slices({p for commit in commits for p in commit.partitions})
    except MissingFileError as error:
        raise _needs_files_before(min(times), f"{error.path} is missing") from error
    held = {(file_slice.partition_path, file_slice.file_id) for file_slice in slices}
    created = {
        (stat.partition_path, stat.file_id)
        for instant, commit in zip(undone, commits, strict=True)
        for stat in commit.stats
        if stat.opens_group or _is_copy(stat, instant.requested_at)
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


def _is_copy(stat: WriteStat, instant: InstantTime) -> bool:
    """Return whether a log file was made for a pending resize, in a group that is not read yet."""
    return log_instant(stat.path) not in (None, instant)


def _opened_with_logs(before: Snapshot, groups: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the groups that no commit before wrote: Hudi does not tell that it opens a group."""
    if not groups or has_archive(before.storage, before.config):
        return set()  # An archived commit may have made the group.
    timeline = before.timeline
    earlier: set[tuple[str, str]] = set()
    for instant in timeline.completed_commits():
        earlier |= timeline.read_commit(before.storage, instant).file_groups
    return groups - earlier
