"""Plans of rollbacks, restores and cleans: put on the timeline, begun, decided.

Each plan is there before anything is done, and every step can be done twice. So one that died is
carried on by whoever comes next, of bucketlake or Hudi. What undoes commits depends on more than
its plan tells, and only who planned it may begin it: before that it is withdrawn, and the outcome
object of its instant says which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import AlreadyExistsError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.clock import InstantClock
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import Action, Instant, State, instant_to_ms
from bucketlake.timeline.outcome import Outcome, OutcomeKind, claim_commit, claim_rollback
from bucketlake.timeline.transitions import create_requested, instant_path, remove_pending


def put_plan(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    clock: InstantClock,
    action: Action,
    content: bytes,
) -> InstantTime:
    """Put a plan on the timeline that anyone may begin; return its instant."""
    while True:
        instant = clock.next_instant(timeline)
        with suppress(AlreadyExistsError):  # Another writer took this millisecond.
            create_requested(storage, config, instant, action, content)
            return instant
        timeline = load_timeline(storage, config)


@contextmanager
def begin_instant(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    clock: InstantClock,
    action: Action,
    content: bytes = b"",
) -> Iterator[tuple[InstantTime, Timeline]]:
    """Put a plan, or a write, on the timeline, and keep it alive while the body runs.

    Yields
    ------
    InstantTime
        The instant that it got.
    Timeline
        The timeline as it was listed after the instant was put.
    """
    while True:
        instant = clock.next_instant(timeline)
        with ExitStack() as stack:
            try:
                stack.enter_context(beating(storage, instant))
                timeline = create_requested(storage, config, instant, action, content)
            except AlreadyExistsError:  # Another writer took this millisecond, or was quicker.
                timeline = load_timeline(storage, config)
                continue
            yield instant, timeline
            return


def withdraw_plan(
    storage: Storage, config: TableConfig, instant: InstantTime, action: Action
) -> bool:
    """Take a plan off the timeline; False where somebody has decided to carry it out."""
    if claim_rollback(storage, instant, action).kind is OutcomeKind.COMMIT:
        return False
    remove_pending(storage, config, instant, action)
    return True


def put_inflight(
    storage: Storage, config: TableConfig, instant: InstantTime, action: Action
) -> None:
    """Mark an instant as being worked on, perhaps by several at once."""
    with suppress(AlreadyExistsError):
        storage.put_if_absent(instant_path(config, Instant(instant, action, State.INFLIGHT)), b"")


def decide_plan(
    storage: Storage,
    config: TableConfig,
    clock: InstantClock,
    instant: InstantTime,
    action: Action,
    metadata: Callable[[int], bytes],
) -> Outcome:
    """Decide that a plan is completed, and with what; return the outcome that won.

    ``metadata`` is asked with the milliseconds since the plan.
    """
    completed_at = clock.next_instant(load_timeline(storage, config))
    zone = config.timeline_timezone
    duration_ms = max(0, instant_to_ms(completed_at, zone) - instant_to_ms(instant, zone))
    return claim_commit(storage, instant, completed_at, action, metadata(duration_ms))
