"""Rollback of an instant by a plan on the timeline, in Hudi's form.

The plan is there before anything is undone, and every step can be done twice. So a rollback that
died is carried on by the next writer, of bucketlake or Hudi, and so is one that Hudi left behind.
Which instants may be rolled back is the caller's decision (``services/rollback_service.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.format.rollback_metadata import (
    RollbackPlan,
    decode_rollback_plan,
    encode_rollback,
)
from bucketlake.index.state import undo_state
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_writer import keep_active
from bucketlake.timeline.clock import InstantClock
from bucketlake.timeline.heartbeat import delete_heartbeat
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.outcome import forbid_commit, is_rolled_back
from bucketlake.timeline.transitions import instant_path, remove_pending
from bucketlake.write.completion import complete_instant
from bucketlake.write.pending_actions import decide_plan, put_inflight, withdraw_plan
from bucketlake.write.progress import counted

_UNDONE = (*WRITES, Action.COMPACTION)


def carry_on_rollback(
    storage: Storage, config: TableConfig, clock: InstantClock, pending: Instant
) -> None:
    """Carry out a rollback that somebody left behind.

    One of a completed commit that was not begun is withdrawn instead: whoever planned it may yet
    wake up. So is one of a commit that was archived.
    """
    # Looked up first: of one that was withdrawn the plan may be gone.
    if is_rolled_back(storage, pending.requested_at, Action.ROLLBACK):
        withdraw_plan(storage, config, pending.requested_at, Action.ROLLBACK)
        return
    plan = read_rollback_plan(storage, config, pending.requested_at)
    if pending.state is State.REQUESTED:
        found = load_timeline(storage, config).find(plan.instant)
        if found is None:
            is_ended = not keep_active(storage, config, plan.instant)
        else:
            is_ended = found.state is State.COMPLETED
        if is_ended and withdraw_plan(storage, config, pending.requested_at, Action.ROLLBACK):
            return
    carry_out_rollback(storage, config, clock, pending.requested_at, plan)


def carry_out_rollback(
    storage: Storage,
    config: TableConfig,
    clock: InstantClock,
    instant: InstantTime,
    plan: RollbackPlan,
) -> bool:
    """Undo what the plan of a pending rollback names, and complete the rollback.

    Readers stop seeing the commit before its files go, and its rules go with it (RFC-89). It has to
    be kept out of the archive first.

    Returns
    -------
    bool
        False where another writer, who took this one for dead, has withdrawn the plan. What is
        decided here first excludes that, so the completion time is of before the work.

    Raises
    ------
    UnsupportedFeatureError
        If the plan undoes a table service other than a compaction that is pending.
    """
    action = next((one for one in _UNDONE if one.value == plan.action), None)
    if action is None or (action is Action.COMPACTION and _is_completed(storage, config, plan)):
        if load_timeline(storage, config).find(plan.instant) is not None:
            feature = f"rolling back a {plan.action}"
            next_step = "let Hudi finish it: its next write does"
            raise UnsupportedFeatureError(feature, plan.instant, next_step)
        action = Action.COMMIT  # A restore undid it, and died before this plan went.

    def metadata(duration_ms: int) -> bytes:
        return encode_rollback(plan, storage.root, started_at=instant, duration_ms=duration_ms)

    outcome = decide_plan(storage, config, clock, instant, Action.ROLLBACK, metadata)
    if outcome.publication is None:
        withdraw_plan(storage, config, instant, Action.ROLLBACK)
        return False
    put_inflight(storage, config, instant, Action.ROLLBACK)
    undo(storage, config, plan, action)
    inflight = Instant(instant, Action.ROLLBACK, State.INFLIGHT)
    complete_instant(storage, config, inflight, outcome.publication)
    return True


def read_rollback_plan(storage: Storage, config: TableConfig, instant: InstantTime) -> RollbackPlan:
    """Return the plan of a rollback that is on the timeline."""
    requested = instant_path(config, Instant(instant, Action.ROLLBACK, State.REQUESTED))
    return decode_rollback_plan(storage.read(requested), requested)


def rollback_plan(storage: Storage, timeline: Timeline, instant: Instant) -> RollbackPlan:
    """Return what goes with an instant: the files that its metadata names, or its markers."""
    if instant.state is State.COMPLETED:
        paths = [stat.path for stat in timeline.read_commit(storage, instant).stats]
    else:
        paths = [marker.data_path for marker in read_markers(storage, instant.requested_at)]
    files: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        partition, _, name = path.rpartition("/")
        files[partition].append(name)
    by_partition = {partition: tuple(names) for partition, names in files.items()}
    return RollbackPlan(instant.requested_at, instant.action.value, by_partition)


def undo(storage: Storage, config: TableConfig, plan: RollbackPlan, action: Action) -> None:
    """Take a commit off the timeline, then its files and whatever is left of it.

    ``action`` is that of its pending files.
    """
    forbid_commit(storage, plan.instant)
    _reopen(storage, config, plan.instant, action)
    take_back(storage, config, plan.instant, action, plan.paths)
    # A helper that slept may have published it once more; from now on it notices.
    published = load_timeline(storage, config).find_completed(plan.instant)
    if published is not None:
        storage.delete(instant_path(config, published))


def take_back(
    storage: Storage,
    config: TableConfig,
    instant: InstantTime,
    action: Action,
    files: Iterable[str] = (),
) -> None:
    """Delete what a pending write left: its files, rules and counts; itself at last.

    It must be forbidden to be committed. A task that writes a file later takes it away itself.
    """
    delete_files(storage, instant, files)
    if action is Action.COMMIT:  # Of a compaction perhaps, and its plan would look pending again.
        remove_pending(storage, config, instant, Action.COMPACTION)
    remove_pending(storage, config, instant, action)
    delete_heartbeat(storage, instant)


def delete_files(storage: Storage, instant: InstantTime, files: Iterable[str] = ()) -> None:
    """Delete some files of a write, those that its markers name, and the rules and counts it saved.

    The markers stay, for a later sweep: a task that slept puts its file after this, and may die
    before it takes it away.
    """
    marked = (marker.data_path for marker in read_markers(storage, instant))
    paths = dict.fromkeys([*files, *marked])
    told = counted(f"rollback of {instant}", len(paths), "files")
    at_once(storage, storage.delete, paths, told)
    undo_state(storage, instant)


def _is_completed(storage: Storage, config: TableConfig, plan: RollbackPlan) -> bool:
    return load_timeline(storage, config).find_completed(plan.instant) is not None


def _reopen(storage: Storage, config: TableConfig, instant: InstantTime, action: Action) -> None:
    """Turn a completed commit into a pending one again."""
    completed = load_timeline(storage, config).find_completed(instant)
    if completed is not None:
        put_inflight(storage, config, instant, action)
        storage.delete(instant_path(config, completed))
