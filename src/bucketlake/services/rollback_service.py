"""Rolling back commits: which can go, what goes with them, and what must then hold.

A commit can go while the table still has the files of before, and while no later commit builds on
it. Files, rules (RFC-89) and the instant go together, newest commit first.
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
    StorageError,
    TimelineError,
)
from bucketlake.format.rollback_metadata import RollbackPlan, encode_rollback_plan
from bucketlake.index.settings import TableIndex, resolve_index
from bucketlake.index.state import setting_instants
from bucketlake.model.file_name import InstantTime
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
from bucketlake.write.timeline_rollback import carry_out_rollback, rollback_plan

_ARCHIVED = "is archived: only a commit of the active timeline can be rolled back"


@dataclass(frozen=True, slots=True)
class UndoneCommit:
    """A commit that is rolled back.

    Attributes
    ----------
    instant : InstantTime
        Its requested time.
    operation : str
        What it did, in Hudi's spelling.
    partitions : tuple of str
        Partitions that it touched.
    files : int
        Files of its that are deleted.
    size_bytes : int
        Their bytes.
    rules : bool
        Whether it wrote partition rules, which go with it.
    """

    instant: InstantTime
    operation: str
    partitions: tuple[str, ...]
    files: int
    size_bytes: int
    rules: bool


@dataclass(frozen=True, slots=True)
class RollbackReport:
    """What a rollback does, or has done.

    Attributes
    ----------
    commits : tuple of UndoneCommit
        Commits that go, newest first.
    instants : tuple of InstantTime
        The rollbacks on the timeline, one a commit; none for a dry run.
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
    """Roll a commit back, or tell what that would do.

    Parameters
    ----------
    storage, config
        The table.
    index : TableIndex or None
        What the caller knows of the index; None where that is nothing.
    instant : InstantTime
        The commit.
    cascade : bool
        Whether later commits that build on it go, too; otherwise they forbid it.
    dry_run : bool
        Whether to leave the table as it is.
    lock : TableLock
        Held meanwhile.
    now_ms : callable
        Milliseconds since 1970 UTC.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written.
    TimelineError
        If there is no such commit, a savepoint holds it, or later commits build on it.
    IndexStateError
        If files of before were cleaned meanwhile, or would not fit the index of before.
    CommitOutcomeUnknownError
        If storage failed after it may have begun.
    """
    check_writable(config, storage.root)
    if dry_run:
        snapshot = load_snapshot(storage, config)
        return _report(snapshot, _commits_to_undo(snapshot, index, instant, cascade))
    clock = table_clock(storage.root, config.timeline_timezone, now_ms)
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
                    f"storage failed while it was rolled back ({error}); the next write carries "
                    "it on, or withdraws it where nothing was undone yet",
                ) from error
            if instants:
                return replace(report, instants=instants)


def _report(snapshot: Snapshot, commits: Sequence[Instant]) -> RollbackReport:
    rules = setting_instants(snapshot.storage, snapshot.timeline)
    return RollbackReport(tuple(describe(snapshot, one, rules) for one in commits))


def _undo(
    snapshot: Snapshot,
    clock: InstantClock,
    commits: Sequence[Instant],
    turn: Turn | None,
    require_held: Check,
) -> tuple[InstantTime, ...]:
    """Roll commits back; none where something was committed or archived since the snapshot.

    It takes a turn in the order of commits once the plans are on the timeline. So whoever commits
    has taken one before, which this sees, or takes one later, and sees the plans or what they did.
    """
    storage, config = snapshot.storage, snapshot.config
    plans = [rollback_plan(storage, snapshot.timeline, one) for one in commits]
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
        is_active = all(keep_active(storage, config, one.requested_at) for one in commits)
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
    """Carry plans out in order; False where another writer withdrew them while this one slept."""
    for done, (plan, instant) in enumerate(zip(plans, instants, strict=True)):
        if not carry_out_rollback(snapshot.storage, snapshot.config, clock, instant, plan):
            if done:
                raise CommitOutcomeUnknownError(
                    plan.instant,
                    f"this and earlier commits were not rolled back, only {done} later ones: "
                    "another writer took this one for dead meanwhile; do it again",
                )
            return False
    return True


def _settled(timeline: Timeline, but: Collection[InstantTime]) -> set[Instant]:
    """Return what a rollback depends on: all instants but writes that are still pending."""
    return {
        one
        for one in timeline.instants
        if one.requested_at not in but
        and (one.state is State.COMPLETED or one.action not in WRITES)
    }


def _commits_to_undo(
    snapshot: Snapshot, index: TableIndex | None, instant: InstantTime, cascade: bool
) -> list[Instant]:
    """Return the commits that go, newest first; refuse what would lose or double rows."""
    timeline = snapshot.timeline
    times = archived_completion_times(
        snapshot.storage, snapshot.config, since=instant, until=instant
    )
    if instant in times:  # Perhaps it is in both timelines: an archival died.
        raise TimelineError(instant, _ARCHIVED)
    found = timeline.find_completed(instant)
    if found is None:
        raise TimelineError(instant, why_absent(timeline, instant))
    _require_no_savepoint(timeline, instant)
    gone = with_dependents(snapshot, index, found)
    if len(gone) > 1 and not cascade:
        later = ", ".join(one.requested_at for one in gone[1:4]) + (", …" if len(gone) > 4 else "")
        raise TimelineError(
            instant,
            f"{len(gone) - 1} later commits build on it ({later}): roll them back with it by "
            "cascade=True (--cascade), which loses what they wrote; or keep the rows, and where it "
            "is a rescale write the earlier rules by another rescale",
        )
    _require_places(snapshot, gone)
    _require_commit_left(snapshot, gone)
    _require_no_plan(snapshot, gone)
    _require_no_clean(timeline, instant)
    _require_state_of_before(snapshot, index, gone)
    return gone[::-1]


def describe(snapshot: Snapshot, instant: Instant, rules: set[InstantTime]) -> UndoneCommit:
    """Tell what goes with a completed commit."""
    commit = snapshot.timeline.read_commit(snapshot.storage, instant)
    return UndoneCommit(
        instant.requested_at,
        commit.operation,
        tuple(sorted(commit.partitions)),
        len(commit.stats),
        sum(stat.file_size_bytes for stat in commit.stats),
        instant.requested_at in rules,
    )


def why_absent(timeline: Timeline, instant: InstantTime) -> str:
    """Say why there is no completed commit of a time."""
    if timeline.start is not None and instant < timeline.start:
        return (
            f"it is older than the active timeline, which starts at {timeline.start}; "
            "to go back further restore a savepoint"
        )
    if any(one.requested_at == instant for one in timeline.pending()):
        return "it is not completed; the next write rolls it back"
    starts = "is empty" if timeline.start is None else f"starts at {timeline.start}"
    return (
        f"no commit of the active timeline has this time (it {starts}): "
        "see table.timeline() (bucketlake timeline)"
    )


def _require_no_savepoint(timeline: Timeline, instant: InstantTime) -> None:
    for one in timeline.instants:
        if one.action is Action.SAVEPOINT and one.requested_at >= instant:
            raise TimelineError(
                instant,
                f"savepoint {one.requested_at} holds it: delete that first by "
                "table.delete_savepoint() (bucketlake savepoint TABLE INSTANT --delete)",
            )


def _require_places(snapshot: Snapshot, gone: Sequence[Instant]) -> None:
    """Refuse metadata that name files where no data can be."""
    for one in gone:
        commit = snapshot.timeline.read_commit(snapshot.storage, one)
        named = [(stat.partition_path, stat.path.rpartition("/")[2]) for stat in commit.stats]
        named += [
            (path, file_id) for path, ids in commit.replaced_file_ids.items() for file_id in ids
        ]
        for partition, name in named:
            require_data_place(partition, name, f"metadata of commit {one.requested_at}")


def _require_commit_left(snapshot: Snapshot, gone: Sequence[Instant]) -> None:
    if not _leaves_commit(snapshot, gone):
        raise TimelineError(
            gone[0].requested_at,
            "with it the last commit would leave the active timeline, and those before it are "
            "archived: write another commit first",
        )


def _leaves_commit(snapshot: Snapshot, gone: Sequence[Instant]) -> bool:
    """Tell whether a commit stays on the active timeline, if any is archived: else none counts.

    What an archival that died left in both timelines is about to go.
    """
    storage, config = snapshot.storage, snapshot.config
    if not has_archive(storage, config):
        return True
    left = {i.requested_at for i in snapshot.timeline.completed_commits() if i not in gone}
    if not left:
        return False
    return bool(left - archived_completion_times(storage, config, since=min(left)).keys())


def _require_no_plan(snapshot: Snapshot, gone: Sequence[Instant]) -> None:
    """Refuse where a compaction is planned for files that are to go."""
    storage, timeline = snapshot.storage, snapshot.timeline
    files = {s.path: one for one in gone for s in timeline.read_commit(storage, one).stats}
    for pending in timeline.pending_compactions():
        for planned in timeline.read_compaction_plan(storage, pending):
            for file in planned.log_files:
                if file.path in files:
                    raise TimelineError(
                        files[file.path].requested_at,
                        f"the pending compaction {pending.requested_at} names {file.path}: carry "
                        "it out by table.compact() (bucketlake compact)",
                    )


def _require_no_clean(timeline: Timeline, instant: InstantTime) -> None:
    for clean in timeline.pending_cleans():
        raise TimelineError(
            instant,
            f"the pending clean {clean.requested_at} may delete what was before it: let "
            "table.clean() (bucketlake clean) end it",
        )


def _require_state_of_before(
    snapshot: Snapshot, index: TableIndex | None, gone: Sequence[Instant]
) -> None:
    """Refuse where the table could not be read or written as it was before."""
    storage, undone = snapshot.storage, {one.requested_at for one in gone}
    commits = [snapshot.timeline.read_commit(storage, one) for one in gone]
    before = load_snapshot(storage, snapshot.config, snapshot.timeline.without(undone))
    slices = before.partition_slices(sorted({p for commit in commits for p in commit.partitions}))
    held = {(one.partition_path, one.file_id) for one in slices}
    created = {
        (stat.partition_path, stat.file_id)
        for commit in commits
        for stat in commit.stats
        if stat.opens_group
    }
    lost = {group for commit in commits for group in commit.file_groups} - created - held
    if lost:
        partition, file_id = min(lost)
        raise IndexStateError(
            f"a rollback of {min(undone)} needs the files of before",
            f"those of file group {file_id} in partition {partition!r} were cleaned",
            "keep the commit, and write the rows that you want with another one",
        )
    known = resolve_index(storage, before.timeline, index)
    if known is not None:
        known.layout().live_slots(slices)
