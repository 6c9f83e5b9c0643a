"""Restore to a savepoint by a plan on the timeline, in Hudi's form.

Each instant that goes is rolled back by a plan of its own, newest first, so that a reader meanwhile
sees the table as it was at some time. These plans stay pending until the restore is completed,
whose metadata holds them, and then they go, too.

A restore that is requested has undone nothing yet. To begin, it takes a turn in the order of
commits, and finds that nothing was committed that it does not undo; whoever commits later sees it.
Only who planned it begins it. What has begun is carried on by the next write.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import CommitConflictError, TimelineError
from bucketlake.format.restore_metadata import RestorePlan, decode_restore_plan, encode_restore
from bucketlake.format.rollback_metadata import RollbackPlan, encode_rollback_plan
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.clock import InstantClock
from bucketlake.timeline.commit_order import last_turn, take_turn
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.transitions import instant_path
from bucketlake.write.commit import after_turn
from bucketlake.write.completion import complete_instant
from bucketlake.write.pending_actions import decide_plan, put_inflight, put_plan, withdraw_plan
from bucketlake.write.progress import counted
from bucketlake.write.timeline_rollback import (
    carry_out_rollback,
    read_rollback_plan,
    rollback_plan,
    undo,
)

_SERVICES = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)


def later_instants(timeline: Timeline, savepoint: Instant) -> list[Instant]:
    """Return what a restore undoes, newest first: what the savepoint did not see.

    It saw the commits up to its own that were completed when it was made. Compactions that were
    planned later go, too; writes that are pending are others' business.
    """
    gone = [
        one
        for one in timeline.completed_commits()
        if one.requested_at > savepoint.requested_at
        or (timeline.completion_time(one.requested_at) or "") > (savepoint.completed_at or "")
    ]
    gone.sort(key=lambda one: timeline.completion_time(one.requested_at) or "", reverse=True)
    planned = [
        one for one in timeline.pending_compactions() if one.requested_at > savepoint.requested_at
    ]
    return planned[::-1] + gone


def begin_restore(
    storage: Storage, config: TableConfig, clock: InstantClock, instant: InstantTime
) -> None:
    """Take a turn for a restore of this process's, which is on the timeline and not begun.

    Raises
    ------
    CommitConflictError
        If its plan does not fit the table any more; it is taken off the timeline then.
    """
    plan = _read_plan(storage, config, instant)
    while True:
        turn = last_turn(storage)
        timeline = after_turn(storage, config, clock, turn, instant)
        problem = _misfit(timeline, plan)
        if problem is not None:
            withdraw_plan(storage, config, instant, Action.RESTORE)
            raise CommitConflictError(
                instant, f"{problem}, which this restore did not know; it is given up"
            )
        if take_turn(storage, instant, after=turn):
            return


def carry_out_restore(
    storage: Storage, config: TableConfig, clock: InstantClock, instant: InstantTime
) -> None:
    """Undo what the plan of a pending restore lists, and complete the restore.

    Raises
    ------
    CommitConflictError
        If another writer, who took this one for dead, has withdrawn it.
    """
    plan = _read_plan(storage, config, instant)
    rollbacks = _rollbacks(storage, config, plan)

    def metadata(duration_ms: int) -> bytes:
        return encode_restore(
            plan, rollbacks, storage.root, started_at=instant, duration_ms=duration_ms
        )

    outcome = decide_plan(storage, config, clock, instant, Action.RESTORE, metadata)
    if outcome.publication is None:
        raise CommitConflictError(
            instant, "another writer took this restore for dead before it began; restore again"
        )
    put_inflight(storage, config, instant, Action.RESTORE)
    begun = {one.instant for one in _pending_rollbacks(storage, config, rollbacks).values()}
    actions = {action.value: action for action in Action}
    told = counted(f"restore {instant}", len(plan.undone), "instants")
    for done, (one, name) in enumerate(plan.undone):
        told(done)
        if one not in rollbacks:
            continue  # It was undone before.
        timeline = load_timeline(storage, config)
        if one not in begun and timeline.find(one) is not None:
            content = encode_rollback_plan(rollbacks[one], storage.root)
            put_plan(storage, config, timeline, clock, Action.ROLLBACK, content)
        undo(storage, config, rollbacks[one], _begun_as(storage, config, one, actions[name]))
    inflight = Instant(instant, Action.RESTORE, State.INFLIGHT)
    complete_instant(storage, config, inflight, outcome.publication)
    for rollback, plan_of_one in _pending_rollbacks(storage, config, rollbacks).items():
        if not withdraw_plan(storage, config, rollback, Action.ROLLBACK):
            # Somebody took it for one that was left behind, and has begun it.
            carry_out_rollback(storage, config, clock, rollback, plan_of_one)


def require_newest_savepoint(timeline: Timeline, savepoint: Instant) -> None:
    """Refuse a restore to a savepoint where there is a later one, which would be lost."""
    later = _later_savepoint(timeline, savepoint.requested_at)
    if later is not None:
        raise TimelineError(
            savepoint.requested_at,
            f"the later savepoint {later} would be lost: delete that first",
        )


def _later_savepoint(timeline: Timeline, savepoint: InstantTime) -> InstantTime | None:
    savepoints = (i.requested_at for i in timeline.instants if i.action is Action.SAVEPOINT)
    return next((one for one in savepoints if one > savepoint), None)


def _read_plan(storage: Storage, config: TableConfig, instant: InstantTime) -> RestorePlan:
    requested = instant_path(config, Instant(instant, Action.RESTORE, State.REQUESTED))
    return decode_restore_plan(storage.read(requested), requested)


def _misfit(timeline: Timeline, plan: RestorePlan) -> str | None:
    """Tell what is on the timeline that the plan does not know of."""
    if plan.savepoint is None:
        return "there is a plan without a savepoint"
    savepoints = (one for one in timeline.completed() if one.action is Action.SAVEPOINT)
    found = next((one for one in savepoints if one.requested_at == plan.savepoint), None)
    if found is None:
        return f"the savepoint {plan.savepoint} was deleted"
    later = _later_savepoint(timeline, plan.savepoint)
    if later is not None:
        return f"the later savepoint {later} was made"
    listed = {one for one, _ in plan.undone}
    missed = [i for i in later_instants(timeline, found) if i.requested_at not in listed]
    return f"instant {missed[0].requested_at} was committed" if missed else None


def _rollbacks(
    storage: Storage, config: TableConfig, plan: RestorePlan
) -> dict[InstantTime, RollbackPlan]:
    """Return what goes with each instant, as far as it is not gone yet."""
    while True:
        timeline = load_timeline(storage, config)
        undone = {one for one, _ in plan.undone}
        found = {one.instant: one for one in _pending_rollbacks(storage, config, undone).values()}
        held = {one: timeline.find(one) for one in undone - found.keys()}
        with suppress(TimelineError):  # Another process carries it on, and was faster.
            return found | {
                one: rollback_plan(storage, timeline, instant)
                for one, instant in held.items()
                if instant is not None
            }


def _pending_rollbacks(
    storage: Storage, config: TableConfig, undone: Collection[InstantTime]
) -> dict[InstantTime, RollbackPlan]:
    """Return the plans of rollbacks that the restore began before, by their own instant."""
    found = {}
    for one in load_timeline(storage, config).pending():
        if one.action is Action.ROLLBACK:
            plan = read_rollback_plan(storage, config, one.requested_at)
            if plan.instant in undone:
                found[one.requested_at] = plan
    return found


def _begun_as(
    storage: Storage, config: TableConfig, instant: InstantTime, action: Action
) -> Action:
    """Return the action of an instant's pending files: a completed compaction is a commit."""
    for service in _SERVICES:
        if service.completes_as is action.completes_as:
            for state in (State.REQUESTED, State.INFLIGHT):
                if storage.stat(instant_path(config, Instant(instant, service, state))) is not None:
                    return service
    return action
