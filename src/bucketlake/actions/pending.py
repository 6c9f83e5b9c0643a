"""Plans of rollbacks, restores and cleans: putting them on the timeline, beginning, deciding.

A plan is on the timeline before anything is done, and every step can be repeated. So if its writer
dies, the next writer of bucketlake or Hudi continues it. Rollbacks and restores depend on more than
their plans, so only the writer of the plan may begin them; if that writer dies before, the plan is
withdrawn. The outcome object of the instant says whether a plan is executed or withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress

from bucketlake.actions.metadata_upkeep import take_back_metadata
from bucketlake.errors import AlreadyExistsError
from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.commit_order import Head, last_turn
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import Action, instant_to_ms
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import Outcome, Publication, claim_commit, claim_rollback
from bucketlake.timeline.transitions import create_requested, remove_pending


def put_plan(table: OpenTable, timeline: Timeline, action: Action, content: bytes) -> InstantTime:
    """Put a plan that any writer may begin on the timeline; return its instant.

    It is later than all turns: a build of the metadata table has its instant from a turn alone, and
    the metadata table has a commit for each clean and rollback.
    """
    while True:
        instant = Head(table, last_turn(table.storage), timeline).next_instant()
        with suppress(AlreadyExistsError):  # Another writer has this time.
            create_requested(table, instant, action, content)
            return instant
        timeline = load_timeline(table)


@contextmanager
def begin_instant(
    table: OpenTable,
    timeline: Timeline,
    action: Action,
    content: bytes = b"",
    appended: Collection[tuple[str, str]] = (),
) -> Iterator[tuple[InstantTime, Timeline]]:
    """Put a plan or a write on the timeline, and renew its heartbeat while the body runs.

    The heartbeat has the slots to which a write appends blindly.

    Yields
    ------
    InstantTime
        The new instant.
    Timeline
        The timeline, loaded after the instant was put.
    """
    while True:
        instant = table.clock.next_instant(timeline)
        with ExitStack() as stack:
            try:
                stack.enter_context(beating(table.storage, instant, appended=appended))
                timeline = create_requested(table, instant, action, content)
            except AlreadyExistsError:  # Another writer has this time, or was faster.
                timeline = load_timeline(table)
                continue
            yield instant, timeline
            return


def withdraw_plan(table: OpenTable, instant: InstantTime, action: Action) -> bool:
    """Withdraw a plan from the timeline; return False if another writer decided to execute it."""
    if not claim_rollback(table.storage, instant, action).is_rollback:
        return False
    take_back_metadata(table, instant)
    remove_pending(table, instant, action)
    return True


def decide_plan(
    table: OpenTable,
    instant: InstantTime,
    action: Action,
    metadata: Callable[[int], bytes],
    metadata_commit: bytes | None = None,
) -> Outcome:
    """Decide that a plan is completed, with its metadata; return the outcome that won.

    ``metadata`` is called with the milliseconds since the plan. ``metadata_commit`` is for the
    metadata table (``actions/metadata_upkeep.py``).
    """
    # A compaction of the metadata table takes a turn, and waits for earlier completions only.
    turn = None if metadata_commit is None else last_turn(table.storage)
    ended_at = Head(table, turn, load_timeline(table)).next_instant()
    zone = table.config.timeline_timezone
    duration_ms = max(0, instant_to_ms(ended_at, zone) - instant_to_ms(instant, zone))
    completed_at = table.config.layout.completion_time(instant, ended_at)
    publication = Publication(completed_at, action, metadata(duration_ms), metadata_commit)
    return claim_commit(table.storage, instant, publication)
