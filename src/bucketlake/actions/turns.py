"""The head of the order of commits: the table as it is after the last turn.

``timeline/commit_order.py`` explains why there are turns, ``timeline/outcome.py`` how an instant is
decided, ``actions/transact.py`` the steps of a change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bucketlake.actions.completion import finish
from bucketlake.errors import CommitConflictError, CommitOutcomeUnknownError, StorageError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.storage.waiting import looks
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.commit_order import Head, Turn, last_turn
from bucketlake.timeline.heartbeat import is_alive
from bucketlake.timeline.instant import WRITES, Action, Instant, InstantClock, State
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import Outcome, claim_rollback, outcome_path, read_outcome
from bucketlake.timeline.table_properties import read_table_config

_DECISION_SECONDS_MAX = 10.0  # Only one put lies between a turn and its decision.


def head(table: OpenTable, own: InstantTime | None = None) -> Head:
    """Wait until the commit of the last turn is completed or rolled back; return the state then.

    Parameters
    ----------
    table : OpenTable
    own : InstantTime, optional
        The caller's instant; the function does not wait for it.

    Raises
    ------
    CommitConflictError
        If the timeline moves to another layout, or has moved.
    StorageError
        If storage failed while the commit of another writer was finished.
    """
    turn = last_turn(table.storage)
    _require_layout(table, turn)
    return Head(table, turn, _after(table, turn, own))


@contextmanager
def finishing_another() -> Iterator[None]:
    """Raise StorageError instead of CommitOutcomeUnknownError for another writer's instant.

    CommitOutcomeUnknownError would seem to concern the caller's own write, which has not committed.
    """
    try:
        yield
    except CommitOutcomeUnknownError as error:
        path, step = outcome_path(InstantTime(error.instant)), "finish the commit of another writer"
        raise StorageError(path, step, str(error)) from error


def _require_layout(table: OpenTable, turn: Turn | None) -> None:
    """Raise CommitConflictError if a change of version moves the timeline, or has moved it.

    If the change died before it was decided, the properties still have the layout of the caller.
    The next turn then has this layout, and the change can be decided no more.
    """
    own = table.config.layout.number
    if turn is None or turn.layout in (None, own):
        return
    if is_alive(table.storage, turn.instant, table.clock.now_ms):
        problem = "the version of the table is being changed; repeat the call when that has ended"
    elif read_table_config(table.storage).layout.number != own:
        problem = "the version of the table was changed meanwhile; open it, and repeat the call"
    else:
        return
    raise CommitConflictError(turn.instant, problem)


def _after(table: OpenTable, turn: Turn | None, own: InstantTime | None) -> Timeline:
    """Complete or roll back the commit of a turn; return the timeline."""
    timeline = load_timeline(table)
    if turn is None or turn.instant == own:
        return timeline
    before = timeline.find(turn.instant)
    if before is None or before.state is State.COMPLETED:
        return timeline
    with finishing_another():
        outcome = _decision(table.storage, table.clock, before)
        finish(table, before.requested_at, before.action, outcome)
    return load_timeline(table)


def _decision(storage: Storage, clock: InstantClock, pending: Instant) -> Outcome | None:
    """Return the outcome of a write that took its turn; None for an undecided compaction."""
    instant = pending.requested_at
    for _ in looks(_DECISION_SECONDS_MAX):
        outcome = read_outcome(storage, instant)
        if outcome is not None:
            return outcome
        if pending.action not in WRITES and pending.action is not Action.CLUSTERING:
            return None  # It changes no row, and may stay pending for years.
        if not is_alive(storage, instant, clock.now_ms):
            break
    return claim_rollback(storage, instant)
