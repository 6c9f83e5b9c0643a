"""The commit protocol: taking turns, deciding an instant, and completing it.

Every action that changes a table goes through these steps:

1. :func:`head` waits until the commit of the last turn is completed or rolled back, and gives the
   table as it is then.
2. The action checks and prepares what it needs on that state, and takes the next turn with
   ``Head.take``. If another writer was faster, it begins again at 1.
3. :func:`publish` decides the instant and completes it, later than all turns before.

Only checks and contents differ between actions. ``timeline/commit_order.py`` explains why there are
turns, ``timeline/outcome.py`` how an instant is decided.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bucketlake.actions.completion import complete_instant
from bucketlake.errors import CommitConflictError, CommitOutcomeUnknownError, StorageError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.clock import InstantClock
from bucketlake.timeline.commit_order import Head, Turn, last_turn
from bucketlake.timeline.heartbeat import is_alive
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.locks import Check
from bucketlake.timeline.markers import delete_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import (
    Outcome,
    Publication,
    claim_commit,
    claim_rollback,
    outcome_path,
    read_outcome,
)
from bucketlake.timeline.table_properties import read_table_config

_DECISION_SECONDS_MAX = 10.0  # Only one put lies between a turn and its decision.
_DECISION_LOOK_SECONDS = 0.05


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


def publish(
    head: Head,
    pending: Instant,
    content: bytes,
    metadata_commit: bytes | None,
    require_held: Check,
) -> InstantTime:
    """Decide and complete an instant that has taken its turn; return its completion time.

    Parameters
    ----------
    head : Head
        The state after which the turn was taken.
    pending : Instant
        The inflight instant.
    content : bytes
        Content of its completed file.
    metadata_commit : bytes or None
        Content of the delta commit of the metadata table; None if there is none to complete.
    require_held : callable
        Raises if the lock of the table is lost.

    Raises
    ------
    CommitConflictError
        If another process rolled the instant back.
    CommitOutcomeUnknownError
        If storage failed while the instant was decided or completed.
    """
    storage, at = head.table.storage, pending.requested_at
    completed_at = head.table.config.layout.completion_time(at, head.next_instant())
    require_held()
    publication = Publication(completed_at, pending.action.completes_as, content, metadata_commit)
    outcome = claim_commit(storage, at, publication)
    # Several processes may execute the plan of a table service. A write has one process: a commit
    # that it did not win belongs to another action with this timestamp.
    is_of_another = pending.action in WRITES and not outcome.won
    if outcome.publication is None or is_of_another:
        raise CommitConflictError(at, "another writer rolled it back; run it again")
    complete_instant(head.table, pending, outcome.publication)
    with suppress(StorageError):  # The next write deletes leftover markers.
        delete_markers(storage, at)
    return outcome.publication.completed_at


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
        if outcome is not None and outcome.publication is not None:
            complete_instant(table, before, outcome.publication)
    return load_timeline(table)


def _decision(storage: Storage, clock: InstantClock, pending: Instant) -> Outcome | None:
    """Return the outcome of a write that took its turn; None for an undecided compaction."""
    instant = pending.requested_at
    deadline = time.monotonic() + _DECISION_SECONDS_MAX
    while (outcome := read_outcome(storage, instant)) is None:
        if pending.action not in WRITES and pending.action is not Action.CLUSTERING:
            return None  # It changes no row, and may stay pending for years.
        if not is_alive(storage, instant, clock.now_ms) or time.monotonic() > deadline:
            return claim_rollback(storage, instant)
        time.sleep(_DECISION_LOOK_SECONDS)
    return outcome
