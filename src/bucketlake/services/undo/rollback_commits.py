"""Rolling back commits: their files, their rules (RFC-89) and their instants are removed together.

``services/undo/undoable_commits.py`` says which commits can be undone. The newest commit is first.
If the record-level index that the kind of the table needs could not be kept, it is built again at
the end (``services/metadata/needed_index.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from bucketlake.actions.pending import begin_instant, withdraw_plan
from bucketlake.actions.recovery import end_undoing, settle_failed_writes, writable_timeline
from bucketlake.actions.rollback import carry_out_rollback, rollback_plan, withdraw_resize
from bucketlake.actions.transact import AGAIN, Answer, Ready, transact
from bucketlake.errors import CommitOutcomeUnknownError, ObjectNotFoundError, StorageError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.rollback_metadata import RollbackPlan, encode_rollback_plan
from bucketlake.index.setting import TableIndex
from bucketlake.index.state import setting_instants
from bucketlake.model.file_name import InstantTime
from bucketlake.model.result import Shown
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.metadata.needed_index import keep_needed_index
from bucketlake.services.undo.undoable_commits import commits_to_undo, leaves_commit
from bucketlake.slices.file_system_view import list_files
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_writer import keep_active
from bucketlake.timeline.commit_order import Head
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.open_table import OpenTable


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
    table: OpenTable,
    index: TableIndex | None,
    instant: InstantTime,
    *,
    cascade: bool = False,
    dry_run: bool = False,
    engine: Engine = HERE,
) -> RollbackReport:
    """Roll a commit back, or return what that would undo.

    A resize that is pending is withdrawn; that leaves no rollback on the timeline.

    Parameters
    ----------
    table : OpenTable
    index : TableIndex or None
        The index that the caller states; None if the caller states none.
    instant : InstantTime
        The commit, or the pending resize.
    cascade : bool
        Whether to also undo later commits that build on it; otherwise they raise TimelineError.
    dry_run : bool
        Whether to change nothing.
    engine : Engine
        Builds shards of a record-level index on an engine.

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
    timeline = writable_timeline(table, settles=not dry_run)
    resize = _describe_pending(table.storage, timeline, instant)
    if dry_run:
        if resize is not None:
            return RollbackReport((resize,))
        snapshot = load_snapshot(table)
        return _report(snapshot, commits_to_undo(snapshot, index, instant, cascade))
    if resize is not None:
        with table.lock.held(table.storage):
            if withdraw_resize(table, instant):
                return RollbackReport((resize,))
        settle_failed_writes(table, load_timeline(table))
    report = _roll_back(table, index, instant, cascade=cascade)
    keep_needed_index(table, engine)
    return report


def _roll_back(
    table: OpenTable, index: TableIndex | None, instant: InstantTime, *, cascade: bool
) -> RollbackReport:
    has_planned = False
    attempts = ExitStack()

    def change(now: Head) -> Answer[_Rollbacks]:
        nonlocal has_planned
        has_planned = False
        if end_undoing(table, now.timeline):
            return AGAIN
        snapshot = load_snapshot(table, now.timeline)
        commits = commits_to_undo(snapshot, index, instant, cascade)
        report = _report(snapshot, commits)
        has_planned = True
        rollbacks = _begun(snapshot, commits, report, attempts.enter_context(ExitStack()))
        if rollbacks is None:
            return AGAIN
        require_held()
        return Ready(rollbacks.instants[0], rollbacks, if_lost=rollbacks.withdraw)

    with table.lock.held(table.storage) as require_held:
        try:
            with attempts:
                while not (rollbacks := transact(table, change).value).carry_out():
                    rollbacks.withdraw()
                return replace(rollbacks.report, instants=rollbacks.instants)
        except StorageError as error:
            if not has_planned:
                raise
            raise CommitOutcomeUnknownError(
                instant,
                f"storage failed while it was rolled back ({error}); the next write "
                "continues the rollback, or withdraws it if nothing was undone yet",
            ) from error


def _report(snapshot: Snapshot, commits: Sequence[Instant]) -> RollbackReport:
    rules = setting_instants(snapshot.storage, snapshot.timeline)
    return RollbackReport(tuple(describe(snapshot, commit, rules) for commit in commits))


@dataclass(frozen=True, slots=True)
class _Rollbacks:
    """Plans of rollbacks on the timeline, one for each commit.

    Attributes
    ----------
    table : OpenTable
    plans : sequence of RollbackPlan
        The newest commit is first.
    instants : tuple of InstantTime
        Their instants.
    report : RollbackReport
        What they undo.
    beats : ExitStack
        Their heartbeats.
    """

    table: OpenTable
    plans: Sequence[RollbackPlan]
    instants: tuple[InstantTime, ...]
    report: RollbackReport
    beats: ExitStack

    def carry_out(self) -> bool:
        """Execute the plans in order; return False if another writer withdrew them meanwhile."""
        for done, (plan, instant) in enumerate(zip(self.plans, self.instants, strict=True)):
            if not carry_out_rollback(self.table, instant, plan):
                if done:
                    raise CommitOutcomeUnknownError(
                        plan.instant,
                        f"this and earlier commits were not rolled back, only {done} later commits:"
                        " another writer treated this writer as dead meanwhile; roll back again",
                    )
                return False
        return True

    def withdraw(self) -> None:
        """Take the plans off the timeline."""
        for instant in self.instants:
            withdraw_plan(self.table, instant, Action.ROLLBACK)
        self.beats.close()


def _begun(
    snapshot: Snapshot, commits: Sequence[Instant], report: RollbackReport, beats: ExitStack
) -> _Rollbacks | None:
    """Put the plans on the timeline; return None if the table changed since the snapshot.

    The plans are on the timeline before the rollback takes its turn. So another commit either took
    an earlier turn, which the rollback sees, or takes a later turn and sees the plans or their
    effect.
    """
    storage, table = snapshot.storage, snapshot.table
    plans = [rollback_plan(storage, snapshot.timeline, commit) for commit in commits]
    begun = [
        beats.enter_context(
            begin_instant(
                table,
                load_timeline(table),
                Action.ROLLBACK,
                encode_rollback_plan(plan, storage.root),
            )
        )
        for plan in plans
    ]
    rollbacks = _Rollbacks(table, plans, tuple(instant for instant, _ in begun), report, beats)
    is_active = all(keep_active(table, commit.requested_at) for commit in commits)
    is_same = _settled(begun[-1][1], rollbacks.instants) == _settled(snapshot.timeline, ())
    if is_active and is_same and leaves_commit(snapshot, commits):
        return rollbacks
    rollbacks.withdraw()
    return None


def _settled(timeline: Timeline, but: Collection[InstantTime]) -> set[Instant]:
    """Return what a rollback depends on: all instants except pending writes."""
    return {
        instant
        for instant in timeline.instants
        if instant.requested_at not in but
        and (instant.state is State.COMPLETED or instant.action not in WRITES)
    }


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
