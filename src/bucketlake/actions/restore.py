"""Restore to a savepoint by a plan on the timeline, in Hudi's form.

Each undone instant is rolled back with its own plan, newest first, so that readers meanwhile see
the table as it was at some time. These plans stay pending until the restore completes; its metadata
contains them, and then they are deleted.

A requested restore has undone nothing yet. To begin, it takes a turn in the order of commits and
checks that no commit completed that it does not undo; later commits see the restore. Only the
writer of the plan may begin it. The next write continues a restore that has begun.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from bucketlake.actions.completion import finish
from bucketlake.actions.metadata_upkeep import prepare_undoing
from bucketlake.actions.pending import decide_plan, put_plan, withdraw_plan
from bucketlake.actions.progress import counted_progress
from bucketlake.actions.rollback import carry_out_rollback, read_rollback_plan, rollback_plan, undo
from bucketlake.actions.transact import Ready, transact
from bucketlake.errors import CommitConflictError, TimelineError
from bucketlake.format.rollback_metadata import (
    RestorePlan,
    RollbackPlan,
    decode_restore_plan,
    encode_restore,
    encode_rollback_plan,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.commit_order import Head
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.transitions import instant_path, to_inflight

_SERVICES = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)


def later_instants(timeline: Timeline, savepoint: Instant) -> list[Instant]:
    """Return the instants that a restore undoes, newest first: all that the savepoint lacks.

    The savepoint includes the commits up to its own commit that were completed when it was made.
    Compactions and resizes planned later are undone too; pending writes are not.
    """
    undone = [
        commit
        for commit in timeline.completed_commits()
        if commit.requested_at > savepoint.requested_at
        or (timeline.completion_time(commit.requested_at) or "") > (savepoint.completed_at or "")
    ]
    undone.sort(key=lambda i: timeline.completion_time(i.requested_at) or "", reverse=True)
    planned = [
        service
        for service in (*timeline.pending_compactions(), *timeline.pending_clusterings())
        if service.requested_at > savepoint.requested_at
    ]
    planned.sort(key=lambda service: service.order, reverse=True)
    found = planned + undone
    if timeline.layout.logs_name_slices:  # Log files may be in the slice of a pending compaction.
        found.sort(key=lambda instant: instant.order, reverse=True)
    return found


def begin_restore(table: OpenTable, instant: InstantTime) -> None:
    """Take a turn for a requested restore of this process.

    Raises
    ------
    CommitConflictError
        If its plan no longer fits the table; then the plan is removed from the timeline.
    """
    plan = _read_plan(table, instant)

    def look(now: Head) -> Ready[None]:
        problem = _misfit(now.timeline, plan)
        if problem is not None:
            withdraw_plan(table, instant, Action.RESTORE)
            raise CommitConflictError(
                instant, f"{problem} after this restore was planned; the restore is given up"
            )
        return Ready(instant, None)

    transact(table, look, own=instant)


def carry_out_restore(table: OpenTable, instant: InstantTime) -> None:
    """Undo the instants of a pending restore's plan, and complete the restore.

    Raises
    ------
    CommitConflictError
        If another writer treated this one as dead and withdrew the restore.
    """
    plan = _read_plan(table, instant)
    rollbacks = _rollbacks(table, plan)

    def metadata(duration_ms: int) -> bytes:
        return encode_restore(
            plan, rollbacks, table.storage.root, started_at=instant, duration_ms=duration_ms
        )

    timeline = load_timeline(table)
    metadata_commit = prepare_undoing(table, timeline, instant, [*rollbacks.values()])
    outcome = decide_plan(table, instant, Action.RESTORE, metadata, metadata_commit)
    if outcome.publication is None:
        raise CommitConflictError(
            instant, "another writer treated this restore as dead before it began; restore again"
        )
    to_inflight(table, instant, Action.RESTORE)
    pending = _pending_rollbacks(table, rollbacks)
    begun = {rollback.instant for rollback in pending.values()}
    actions = {action.value: action for action in Action}
    log_progress = counted_progress(f"restore {instant}", len(plan.undone), "instants")
    for done, (undone, name) in enumerate(plan.undone):
        log_progress(done)
        if undone not in rollbacks:
            continue  # It was undone before.
        timeline = load_timeline(table)
        if undone not in begun and timeline.find(undone) is not None:
            content = encode_rollback_plan(rollbacks[undone], table.storage.root)
            put_plan(table, timeline, Action.ROLLBACK, content)
        undo(table, rollbacks[undone], _begun_as(table, undone, actions[name]))
    finish(table, instant, Action.RESTORE, outcome)
    for rollback, own_plan in _pending_rollbacks(table, rollbacks).items():
        if not withdraw_plan(table, rollback, Action.ROLLBACK):
            # Another writer treated the rollback as left behind and has begun it.
            carry_out_rollback(table, rollback, own_plan)


def require_newest_savepoint(timeline: Timeline, savepoint: Instant) -> None:
    """Raise TimelineError if there is a later savepoint, which the restore would lose."""
    later = _later_savepoint(timeline, savepoint.requested_at)
    if later is not None:
        raise TimelineError(
            savepoint.requested_at, f"the later savepoint {later} would be lost: delete it first"
        )


def _later_savepoint(timeline: Timeline, savepoint: InstantTime) -> InstantTime | None:
    savepoints = (found.requested_at for found in timeline.savepoints())
    return next((later for later in savepoints if later > savepoint), None)


def _read_plan(table: OpenTable, instant: InstantTime) -> RestorePlan:
    requested = instant_path(table.config, Instant(instant, Action.RESTORE, State.REQUESTED))
    return decode_restore_plan(table.storage.read(requested), requested)


def _misfit(timeline: Timeline, plan: RestorePlan) -> str | None:
    """Return what happened on the timeline after the plan; None if nothing did."""
    if plan.savepoint is None:
        return "there is a plan without a savepoint"
    savepoints = timeline.completed(Action.SAVEPOINT)
    found = next((i for i in savepoints if i.requested_at == plan.savepoint), None)
    if found is None:
        return f"the savepoint {plan.savepoint} was deleted"
    later = _later_savepoint(timeline, plan.savepoint)
    if later is not None:
        return f"the later savepoint {later} was made"
    listed = {undone for undone, _ in plan.undone}
    missed = [i for i in later_instants(timeline, found) if i.requested_at not in listed]
    return f"instant {missed[0].requested_at} was committed" if missed else None


def _rollbacks(table: OpenTable, plan: RestorePlan) -> dict[InstantTime, RollbackPlan]:
    """Return the remaining files of each instant."""
    while True:
        timeline = load_timeline(table)
        undone = {instant for instant, _ in plan.undone}
        pending = _pending_rollbacks(table, undone)
        found = {rollback.instant: rollback for rollback in pending.values()}
        held = {instant: timeline.find(instant) for instant in undone - found.keys()}
        with suppress(TimelineError):  # Another process also executes the restore and was faster.
            return found | {
                requested_at: rollback_plan(table.storage, timeline, instant)
                for requested_at, instant in held.items()
                if instant is not None
            }


def _pending_rollbacks(
    table: OpenTable, undone: Collection[InstantTime]
) -> dict[InstantTime, RollbackPlan]:
    """Return the plans of rollbacks that the restore has already begun, by their instant."""
    found = {}
    for pending in load_timeline(table).pending(Action.ROLLBACK):
        plan = read_rollback_plan(table, pending.requested_at)
        if plan.instant in undone:
            found[pending.requested_at] = plan
    return found


def _begun_as(table: OpenTable, instant: InstantTime, action: Action) -> Action:
    """Return the action of an instant's pending files; a completed compaction is a commit."""
    for service in _SERVICES:
        if service.completes_as is action.completes_as:
            for state in (State.REQUESTED, State.INFLIGHT):
                if (
                    table.storage.stat(instant_path(table.config, Instant(instant, service, state)))
                    is not None
                ):
                    return service
    return action
