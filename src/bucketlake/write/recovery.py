"""Recovery from failed writes: what every write does first with what dead ones left behind.

A pending write whose heartbeat lives is left alone. Of the others, one whose outcome is ``commit``
is finished, since its driver may have died between winning the outcome and publishing; the rest is
rolled back once this writer has won ``rollback`` for it. Files are found by their markers. Markers
of an instant that is no longer on the timeline belong to tasks that wrote after a rollback; their
files go too. A restore or rollback that has begun, ours or Hudi's, is carried on by its plan
before anything else; one that has not is withdrawn.

A live writer that is taken for dead fails at its commit and publishes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from bucketlake.config.layout import MARKER_FOLDER
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import archived_completion_times
from bucketlake.timeline.clock import InstantClock
from bucketlake.timeline.heartbeat import EXPIRES_AFTER_MS, delete_heartbeat, is_alive
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.locks import NO_LOCK, Check, TableLock
from bucketlake.timeline.markers import delete_markers
from bucketlake.timeline.outcome import (
    claim_rollback,
    delete_outcome,
    is_rolled_back,
    outcome_path,
)
from bucketlake.timeline.transitions import instant_path, remove_pending
from bucketlake.write.commit import PendingWrite, of_another
from bucketlake.write.completion import complete_instant
from bucketlake.write.conflict import UNDOING
from bucketlake.write.pending_actions import withdraw_plan
from bucketlake.write.timeline_restore import carry_out_restore
from bucketlake.write.timeline_rollback import carry_on_rollback, delete_files, take_back

_LOOK_SECONDS = 0.02
_TASKS_END_MS = 5 * EXPIRES_AFTER_MS  # After a rollback; who sleeps for longer is the doctor's.


def settle_failed_writes(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    clock: InstantClock,
    lock: TableLock = NO_LOCK,
) -> Timeline:
    """Finish or roll back every pending write, and sweep up after late tasks.

    Parameters
    ----------
    storage, config, timeline
        The table, and its timeline as just loaded.
    clock : InstantClock
        Source of new times.
    lock : TableLock
        Held while something is settled; not asked for where nothing has failed.

    Returns
    -------
    Timeline
        The one handed in where nothing was pending, else as it is afterwards.
    """
    restores = _restores(storage, timeline, clock)
    if not restores:  # One may undo what is pending of another program.
        _require_harmless(timeline, storage)
    left = (_rollbacks, _failed, _withdrawn)
    if restores or any(one(storage, timeline, clock) for one in left):
        with lock.held(storage) as require_held, of_another():
            timeline = _settle_all(storage, config, clock, require_held)
    _sweep(storage, config, clock)
    return timeline


def end_undoing(
    storage: Storage, config: TableConfig, timeline: Timeline, clock: InstantClock
) -> bool:
    """End the rollbacks and restores of a timeline, or wait for one; False where there is none."""
    if not any(one.action in UNDOING for one in timeline.pending()):
        return False
    settle_failed_writes(storage, config, timeline, clock)
    time.sleep(_LOOK_SECONDS)  # One may be of a process that lives.
    return True


def _settle_all(
    storage: Storage, config: TableConfig, clock: InstantClock, require_held: Check
) -> Timeline:
    for restore in _restores(storage, load_timeline(storage, config), clock):
        has_begun = restore.state is State.INFLIGHT or not withdraw_plan(
            storage, config, restore.requested_at, restore.action
        )
        require_held()
        if has_begun:
            carry_out_restore(storage, config, clock, restore.requested_at)
    timeline = load_timeline(storage, config)
    _require_harmless(timeline, storage)
    for rollback in _rollbacks(storage, timeline, clock):
        require_held()
        carry_on_rollback(storage, config, clock, rollback)
    timeline = load_timeline(storage, config)  # What they undid looked pending, or committed.
    for instant in _failed(storage, timeline, clock):
        require_held()
        _settle(storage, config, instant.requested_at, instant.action)
    for instant in _withdrawn(storage, timeline, clock):
        require_held()
        take_back(storage, config, instant.requested_at, instant.action)
    return load_timeline(storage, config)


def _restores(storage: Storage, timeline: Timeline, clock: InstantClock) -> list[Instant]:
    """Return the restores that have begun, whoever is at work on them, and those left behind."""
    left = _dead(storage, timeline, clock, {Action.RESTORE})
    restores = (one for one in timeline.pending() if one.action is Action.RESTORE)
    return [one for one in restores if one.state is State.INFLIGHT or one in left]


def _rollbacks(storage: Storage, timeline: Timeline, clock: InstantClock) -> list[Instant]:
    return _dead(storage, timeline, clock, {Action.ROLLBACK})


def _failed(storage: Storage, timeline: Timeline, clock: InstantClock) -> list[Instant]:
    return _dead(storage, timeline, clock, WRITES)


def _withdrawn(storage: Storage, timeline: Timeline, clock: InstantClock) -> list[Instant]:
    """Return the compactions that somebody began whose plan was taken back meanwhile."""
    begun = (
        one
        for one in _dead(storage, timeline, clock, {Action.COMPACTION})
        if one.state is State.INFLIGHT
    )
    return [one for one in begun if is_rolled_back(storage, one.requested_at, one.action)]


def _dead(
    storage: Storage, timeline: Timeline, clock: InstantClock, actions: Collection[Action]
) -> list[Instant]:
    return [
        one
        for one in timeline.pending()
        if one.action in actions and not is_alive(storage, one.requested_at, clock.now_ms)
    ]


def _settle(storage: Storage, config: TableConfig, instant: InstantTime, action: Action) -> None:
    """Finish or roll back one pending write."""
    outcome = claim_rollback(storage, instant)
    if outcome.publication is not None:
        inflight = Instant(instant, action, State.INFLIGHT)
        complete_instant(storage, config, inflight, outcome.publication)
        if storage.stat(instant_path(config, inflight)) is None:
            # Another action was committed at this time, and whoever drew it, too, died.
            remove_pending(storage, config, instant, action)
        delete_markers(storage, instant)
        delete_heartbeat(storage, instant)
    # A writer that knows no outcomes may have completed it while this one decided.
    elif load_timeline(storage, config).find_completed(instant) is None:
        if instant in archived_completion_times(storage, config, since=instant, until=instant):
            delete_outcome(storage, instant)  # It was committed and archived while this one slept.
        else:
            take_back(storage, config, instant, action)


def roll_back_own(write: PendingWrite) -> None:
    """Roll back a write of this process that failed, unless its commit was decided already."""
    _settle(write.storage, write.config, write.instant, write.action)


def _sweep(storage: Storage, config: TableConfig, clock: InstantClock) -> None:
    """Delete files and markers of writes that were rolled back, once their tasks are at an end.

    A task that was asleep since before the rollback may put its file after that, and die.
    """
    instants = [InstantTime(f.rpartition("/")[2]) for f in storage.list_folders(MARKER_FOLDER)]
    if not instants:
        return
    # Listed after the markers: a live write is on the timeline before it has any.
    timeline = load_timeline(storage, config)
    pending = {i.requested_at for i in timeline.pending()}
    completed = {i.requested_at for i in timeline.completed()}
    for instant in instants:
        if instant in completed:
            delete_markers(storage, instant)
        elif instant not in pending:
            decided = storage.stat(outcome_path(instant))
            if decided is not None and clock.now_ms() - decided.modified_at_ms < _TASKS_END_MS:
                continue
            if _was_rolled_back(storage, config, timeline, instant):
                delete_files(storage, instant)
                delete_markers(storage, instant)


def _was_rolled_back(
    storage: Storage, config: TableConfig, timeline: Timeline, instant: InstantTime
) -> bool:
    if is_rolled_back(storage, instant):
        return True
    # Hudi knows no outcomes: what it rolled back is neither on the timeline nor in the archive.
    # Of what is older than the timeline nothing is certain, and it is left alone.
    return (
        timeline.start is not None
        and instant > timeline.start
        and instant not in archived_completion_times(storage, config, since=instant, until=instant)
    )


def _require_harmless(timeline: Timeline, storage: Storage) -> None:
    # After a commit of ours Hudi could not go on with it, nor write ever again.
    for instant in timeline.pending_clusterings():
        raise UnsupportedFeatureError(
            "writing while a clustering of another program is pending "
            f"(instant {instant.requested_at})",
            storage.root,
            "let Hudi finish it first",
        )
