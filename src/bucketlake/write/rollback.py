"""Rollback of an instant by a plan on the timeline, in Hudi's form.

The plan is there before anything is undone, and every step can be done twice. So a rollback that
died is carried on by the next writer, of bucketlake or Hudi, and so is one that Hudi left behind.
Which instants may be rolled back is the caller's decision (``services/rollback.py``).
"""

from __future__ import annotations

from contextlib import suppress

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import AlreadyExistsError, UnsupportedFeatureError
from bucketlake.format.rollback_metadata import (
    RollbackPlan,
    decode_rollback_plan,
    encode_rollback,
    encode_rollback_plan,
)
from bucketlake.index.hashing_config import config_path
from bucketlake.index.recorded_counts import record_path
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.clock import InstantClock
from bucketlake.timeline.heartbeat import delete_heartbeat
from bucketlake.timeline.instant import WRITES, Action, Instant, State, instant_to_ms
from bucketlake.timeline.markers import delete_markers
from bucketlake.timeline.outcome import claim_commit, forbid_commit
from bucketlake.timeline.transitions import (
    complete,
    create_requested,
    instant_path,
    remove_pending,
)


def begin_rollback(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    clock: InstantClock,
    plan: RollbackPlan,
) -> InstantTime:
    """Put a plan on the timeline; return the instant of the rollback."""
    content = encode_rollback_plan(plan, storage.root)
    while True:
        instant = clock.next_instant(timeline)
        with suppress(AlreadyExistsError):  # Another writer took this millisecond.
            create_requested(storage, config, instant, Action.ROLLBACK, content)
            return instant


def carry_out_rollback(
    storage: Storage, config: TableConfig, clock: InstantClock, instant: InstantTime
) -> None:
    """Undo what the plan of a pending rollback names, and complete the rollback.

    Readers stop seeing the commit before its files go, and its rules go with it (RFC-89).

    Raises
    ------
    UnsupportedFeatureError
        If the plan undoes a table service.
    """
    requested = instant_path(config, Instant(instant, Action.ROLLBACK, State.REQUESTED))
    plan = decode_rollback_plan(storage.read(requested), requested)
    action = next((one for one in WRITES if one.value == plan.action), None)
    if action is None:
        raise UnsupportedFeatureError(
            f"rolling back a {plan.action}", requested, "let Hudi finish it: its next write does"
        )
    _put_empty(storage, config, Instant(instant, Action.ROLLBACK, State.INFLIGHT))
    forbid_commit(storage, plan.instant)
    _reopen(storage, config, Instant(plan.instant, action, State.INFLIGHT))
    take_back(storage, config, plan.instant, action, plan.paths)
    _complete(storage, config, clock, instant, plan)


def take_back(
    storage: Storage, config: TableConfig, instant: InstantTime, action: Action, files: list[str]
) -> None:
    """Delete what a pending write left: its files, rules, counts and markers; itself at last."""
    for path in files:
        storage.delete(path)
    if action is Action.REPLACE_COMMIT:
        # Of a rescale (RFC-89). Once its instant is gone, a version that stayed would count.
        storage.delete(config_path(instant))
    storage.delete(record_path(instant))
    delete_markers(storage, instant)
    remove_pending(storage, config, instant, action)
    delete_heartbeat(storage, instant)


def _reopen(storage: Storage, config: TableConfig, inflight: Instant) -> None:
    """Turn a completed commit into a pending one again."""
    timeline = load_timeline(storage, config)
    completed = timeline.find_completed(inflight.requested_at)
    if completed is not None:
        _put_empty(storage, config, inflight)
        storage.delete(instant_path(config, completed))


def _put_empty(storage: Storage, config: TableConfig, instant: Instant) -> None:
    with suppress(AlreadyExistsError):
        storage.put_if_absent(instant_path(config, instant), b"")


def _complete(
    storage: Storage,
    config: TableConfig,
    clock: InstantClock,
    instant: InstantTime,
    plan: RollbackPlan,
) -> None:
    completed_at = clock.next_instant(load_timeline(storage, config))
    zone = config.timeline_timezone
    duration_ms = instant_to_ms(completed_at, zone) - instant_to_ms(instant, zone)
    metadata = encode_rollback(
        plan, storage.root, started_at=instant, duration_ms=max(0, duration_ms)
    )
    outcome = claim_commit(storage, instant, completed_at, Action.ROLLBACK, metadata)
    complete(storage, config, instant, Action.ROLLBACK, outcome)
