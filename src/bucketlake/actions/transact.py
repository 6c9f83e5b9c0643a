"""The transaction: whatever changes a table takes its turn, is decided and completed here.

A *change* is a function of the head: it looks at the table as it is after the last turn, checks,
saves what must be there before its turn, and answers what it takes the turn with. If another writer
was faster, it is called again on the newer head; so it must not decide by anything that it looked
at before. :func:`transact` is the only loop that takes turns. Only checks and contents differ
between commits, compactions, resizes, rollbacks, restores, cleans, savepoints and builds; the steps
are the same:

1. :func:`bucketlake.actions.turns.head` waits until the commit of the last turn is completed or
   rolled back.
2. The change prepares. It is called again if another writer takes the turn.
3. The turn is taken.
4. What only makes sense after the turn is done (``Decision.between``).
5. The instant is decided and completed, later than all turns before.

A change without a decision only orders itself: it ends with step 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from bucketlake.actions.completion import finish
from bucketlake.actions.metadata_upkeep import PreparedCommit
from bucketlake.actions.turns import head
from bucketlake.errors import AlreadyExistsError, CommitConflictError, StorageError
from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.commit_order import Head, take_turn
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import WRITES, Instant
from bucketlake.timeline.locks import LockCheck
from bucketlake.timeline.markers import delete_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import Publication, claim_commit

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Again(Enum):
    """The answer of a change that changed the head itself, or waits: it is to look again."""

    AGAIN = "again"


AGAIN = Again.AGAIN


@dataclass(frozen=True, slots=True)
class Settled(Generic[T_co]):
    """The answer of a change that needs no turn: there is nothing to do, or another did it.

    Attributes
    ----------
    value : object
        What the caller gets.
    """

    value: T_co


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Ready(Generic[T_co]):
    """The answer of a change that is prepared for its turn.

    Attributes
    ----------
    instant : InstantTime
        The instant that takes the turn.
    value : object
        What the caller gets.
    if_lost : callable
        Takes back what was prepared, if another writer takes the turn.
    beats : ExitStack or None
        If given, the instant is new and on no timeline: it beats from before its turn until the
        stack is closed, so that no other writer uses it.
    changes_metadata : bool
        Whether the turn turns the metadata table on or off.
    layout : int or None
        Number of the timeline layout since the turn, if a change of version moves it.
    """

    instant: InstantTime
    value: T_co
    if_lost: Callable[[], None] = nothing
    beats: ExitStack | None = None
    changes_metadata: bool = False
    layout: int | None = None


Answer: TypeAlias = Ready[T] | Settled[T] | Again


@dataclass(frozen=True, slots=True)
class Done(Generic[T_co]):
    """A change that took its turn, or that needed none.

    Attributes
    ----------
    head : Head
        The state that the change saw last.
    value : object
        What the change answered.
    took_turn : bool
        Whether it took a turn.
    """

    head: Head
    value: T_co
    took_turn: bool


def transact(
    table: OpenTable,
    change: Callable[[Head], Answer[T]],
    *,
    own: InstantTime | None = None,
    look: Callable[[], Head] | None = None,
) -> Done[T]:
    """Take the next turn for a change.

    Parameters
    ----------
    table : OpenTable
    change : callable
        See the module.
    own : InstantTime, optional
        The instant of the change, if it is on the timeline already: nobody waits for it here.
    look : callable, optional
        Returns the head, in place of :func:`bucketlake.actions.turns.head`.
    """
    look = look or partial(head, table, own)
    while True:
        now = look()
        answer = change(now)
        if isinstance(answer, Settled):
            return Done(now, answer.value, took_turn=False)
        if isinstance(answer, Ready):
            if _takes(now, answer):
                return Done(now, answer.value, took_turn=True)
            answer.if_lost()


def _takes(now: Head, ready: Ready[object]) -> bool:
    """Take the turn, with the heartbeat of a new instant; return False if it is lost."""
    with ExitStack() as attempt:
        try:
            if ready.beats is not None:
                attempt.enter_context(beating(now.table.storage, ready.instant))
        except AlreadyExistsError:  # Another writer uses the instant.
            return False
        layout = ready.layout
        if layout is None and now.turn is not None and now.turn.layout is not None:
            layout = now.table.config.layout.number
        is_taken = take_turn(
            now.table.storage,
            ready.instant,
            now.turn,
            changes_metadata=ready.changes_metadata,
            layout=layout,
        )
        if is_taken and ready.beats is not None:
            ready.beats.push(attempt.pop_all())
        return is_taken


@contextmanager
def beating_turn(
    table: OpenTable,
    *,
    is_ready: Callable[[Head], bool] = lambda _: True,
    look: Callable[[], Head] | None = None,
    **facts: Any,
) -> Iterator[tuple[InstantTime, Timeline]]:
    """Take a turn with a new instant, which beats until the body ends.

    The heartbeat keeps other writers from using the instant, which is on no timeline.

    Parameters
    ----------
    table : OpenTable
    is_ready : callable
        Checks the head before each try; the turn waits while it returns False.
    look : callable, optional
        As for :func:`transact`.
    **facts
        What the turn changes, as in :class:`Ready`.

    Yields
    ------
    InstantTime
        The instant.
    Timeline
        The timeline since the turn.
    """
    with ExitStack() as beats:

        def change(now: Head) -> Answer[InstantTime]:
            if not is_ready(now):
                return AGAIN
            instant = now.next_instant()
            return Ready(instant, instant, beats=beats, **facts)

        done = transact(table, change, look=look)
        yield done.value, done.head.timeline


@dataclass(frozen=True, slots=True)
class Decision:
    """What is decided after a turn.

    Attributes
    ----------
    pending : Instant
        The inflight instant.
    content : bytes
        Content of its completed file.
    prepared : PreparedCommit or None
        The delta commit of the metadata table; None if there is none to complete.
    between : callable or None
        Called between the turn and the decision.
    """

    pending: Instant
    content: bytes
    prepared: PreparedCommit | None
    between: Callable[[], None] = nothing

    @property
    def is_compaction_next(self) -> bool:
        """Whether a compaction of the metadata table is due after the commit."""
        return self.prepared is not None and self.prepared.is_compaction_next


@dataclass(frozen=True, slots=True)
class Committed:
    """A change that was decided and completed here.

    Attributes
    ----------
    head : Head
        The state after which it took its turn.
    decision : Decision
    completed_at : InstantTime
        Completion time.
    """

    head: Head
    decision: Decision
    completed_at: InstantTime


def commit_change(
    table: OpenTable,
    change: Callable[[Head], Answer[Decision | None]],
    require_held: LockCheck,
    *,
    own: InstantTime,
) -> Committed | None:
    """Take the next turn for a change, decide it, and complete it.

    Parameters
    ----------
    table : OpenTable
    change : callable
        See the module; it settles with None if another process completed the instant.
    require_held : callable
        Raises if the lock of the table is lost.
    own : InstantTime
        The instant of the change, which is on the timeline.

    Raises
    ------
    CommitConflictError
        If another process rolled the instant back, or as the change raises it.
    CommitOutcomeUnknownError
        If storage failed while the instant was decided or completed.
    """
    done = transact(table, change, own=own)
    if done.value is None:
        return None
    done.value.between()
    return Committed(done.head, done.value, publish(done.head, done.value, require_held))


def publish(now: Head, decision: Decision, require_held: LockCheck) -> InstantTime:
    """Decide and complete an instant that has taken its turn; return its completion time."""
    pending = decision.pending
    storage, at = now.table.storage, pending.requested_at
    completed_at = now.table.config.layout.completion_time(at, now.next_instant())
    require_held()
    metadata_commit = None if decision.prepared is None else decision.prepared.content
    action = pending.action.completes_as
    publication = Publication(completed_at, action, decision.content, metadata_commit)
    outcome = claim_commit(storage, at, publication)
    # Several processes may execute the plan of a table service. A write has one process: a commit
    # that it did not win belongs to another action with this timestamp.
    is_of_another = pending.action in WRITES and not outcome.won
    if outcome.publication is None or is_of_another:
        raise CommitConflictError(at, "another writer rolled it back; run it again")
    finish(now.table, at, pending.action, outcome)
    with suppress(StorageError):  # The next write deletes leftover markers.
        delete_markers(storage, at)
    return outcome.publication.completed_at
