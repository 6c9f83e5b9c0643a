"""Restore to a savepoint by a plan on the timeline, in Hudi's form.

Each instant that goes is rolled back by a plan of its own, newest first, so that a reader meanwhile
sees the table as it was at some time. These plans stay pending until the restore is completed,
whose metadata holds them, and then they go, too.

A restore that is requested has undone nothing yet. To begin, it takes a turn in the order of
commits, and finds that nothing was committed that it does not undo; whoever commits later sees it.
What is inflight is carried on by the next write, whoever began it.
"""

from __future__ import annotations

from collections.abc import Collection

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import CommitConflictError
from bucketlake.format.restore_metadata import RestorePlan, decode_restore_plan, encode_restore
from bucketlake.format.rollback_metadata import RollbackPlan, encode_rollback_plan
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.clock import InstantClock
from bucketlake.timeline.commit_order import last_turn, take_turn
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.transitions import instant_path, remove_pending
from bucketlake.write.commit import after_turn
from bucketlake.write.planned import complete_plan, put_inflight, put_plan
from bucketlake.write.rollback import read_rollback_plan, rollback_plan, undo

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


def carry_out_restore(
    storage: Storage, config: TableConfig, clock: InstantClock, instant: InstantTime
) -> None:
    """Undo what the plan of a pending restore lists, and complete the restore.

    Raises
    ------
    CommitConflictError
        If something else was committed before it began; it is taken off the timeline then.
    """
    requested = instant_path(config, Instant(instant, Action.RESTORE, State.REQUESTED))
    plan = decode_restore_plan(storage.read(requested), requested)
    if storage.stat(instant_path(config, Instant(instant, Action.RESTORE, State.INFLIGHT))) is None:
        _begin(storage, config, clock, instant, plan)
    undone = {one for one, _ in plan.undone}
    begun = _pending_rollbacks(storage, config, undone)
    rollbacks = {rollback.instant: rollback for rollback in begun.values()}
    actions = {action.value: action for action in Action}
    for one, name in plan.undone:
        timeline = load_timeline(storage, config)
        found = next((i for i in timeline.instants if i.requested_at == one and _is_data(i)), None)
        if one not in rollbacks and found is not None:
            rollbacks[one] = rollback_plan(storage, timeline, found)
            content = encode_rollback_plan(rollbacks[one], storage.root)
            own = put_plan(storage, config, timeline, clock, Action.ROLLBACK, content)
            begun[own] = rollbacks[one]
        if one in rollbacks:
            undo(storage, config, rollbacks[one], _begun_as(storage, config, one, actions[name]))

    def metadata(duration_ms: int) -> bytes:
        return encode_restore(
            plan, rollbacks, storage.root, started_at=instant, duration_ms=duration_ms
        )

    complete_plan(storage, config, clock, instant, Action.RESTORE, metadata)
    for rollback in begun:
        remove_pending(storage, config, rollback, Action.ROLLBACK)


def _begin(
    storage: Storage,
    config: TableConfig,
    clock: InstantClock,
    instant: InstantTime,
    plan: RestorePlan,
) -> None:
    while True:
        turn = last_turn(storage)
        timeline = after_turn(storage, config, clock, turn, instant)
        missed = _missed(timeline, plan)
        if missed:
            remove_pending(storage, config, instant, Action.RESTORE)
            raise CommitConflictError(
                instant,
                f"this restore had not begun when {missed[0]} was committed, which it does not "
                "undo; it is given up, restore again",
            )
        if take_turn(storage, instant, after=turn):
            put_inflight(storage, config, instant, Action.RESTORE)
            return


def _missed(timeline: Timeline, plan: RestorePlan) -> list[InstantTime]:
    """Return the commits that would have to go and are not in the plan."""
    listed = {one for one, _ in plan.undone}
    for one in timeline.completed():
        if one.action is Action.SAVEPOINT and one.requested_at == plan.savepoint:
            later = later_instants(timeline, one)
            return [i.requested_at for i in later if i.requested_at not in listed]
    return []


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


def _is_data(instant: Instant) -> bool:
    return instant.action.writes_data
