"""Recovery from failed writes: every write first settles what dead writers left behind.

A pending write with a recent heartbeat is not changed. For other pending writes:

- If the outcome is ``commit``, the commit is finished: its driver died between winning the outcome
  and publishing.
- Otherwise the write is rolled back, after this writer has won the outcome ``rollback`` for it. Its
  files are found by their markers.

Markers of an instant that is no longer on the timeline come from tasks that wrote after a rollback;
their files are deleted too. A restore or rollback that has begun, of bucketlake or Hudi, is
continued before anything else. If it has not begun, its plan is withdrawn.

A living writer that is treated as dead fails at its commit and publishes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from bucketlake.actions.completion import finish
from bucketlake.actions.pending import withdraw_plan
from bucketlake.actions.restore import carry_out_restore
from bucketlake.actions.rollback import carry_on_rollback, delete_files, take_back, withdraw_resize
from bucketlake.actions.turns import finishing_another
from bucketlake.config.paths_of_table import MARKER_FOLDER
from bucketlake.config.support import check_writable
from bucketlake.errors import FormatError, ObjectNotFoundError, UnsupportedFeatureError
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.storage.base import Storage
from bucketlake.storage.waiting import pause
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import archived_completion_times
from bucketlake.timeline.heartbeat import EXPIRES_AFTER_MS, delete_heartbeat, is_alive
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.locks import LockCheck
from bucketlake.timeline.markers import delete_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.other_layout import require_one_timeline
from bucketlake.timeline.outcome import (
    claim_rollback,
    delete_outcome,
    is_rolled_back,
    outcome_path,
    read_outcome,
)
from bucketlake.timeline.transitions import instant_path, remove_pending

# Grace period after a rollback; files that appear later are found only by ``doctor()``.
_TASKS_END_MS = 5 * EXPIRES_AFTER_MS


def settle_failed_writes(table: OpenTable, timeline: Timeline) -> Timeline:
    """Finish or roll back every pending write of a dead writer; delete files of late tasks.

    Parameters
    ----------
    table, timeline
        The table, and its timeline, just loaded.

    Returns
    -------
    Timeline
        The given timeline if nothing was pending, else the timeline afterwards.
    """
    restores = _restores(table, timeline)
    if not restores:  # A restore may undo pending actions of another program.
        _require_harmless(timeline, table.storage)
    is_left = (
        restores
        or _dead(table, timeline, {Action.ROLLBACK, *WRITES})
        or _withdrawn(table, timeline)
        or _ended_resizes(table, timeline)
    )
    # A rollback would delete the files of a commit whose completed file lies elsewhere.
    if is_left or not table.config.layout.has_timeline_folder:
        require_one_timeline(table, timeline)
    if is_left:
        with table.lock.held(table.storage) as require_held, finishing_another():
            timeline = _settle_all(table, require_held)
    _sweep(table)
    return timeline


def writable_timeline(table: OpenTable, *, settles: bool = True) -> Timeline:
    """Return the timeline of a table to write, after :func:`settle_failed_writes`.

    Without ``settles`` nothing is changed, as a dry run needs it. Raise UnsupportedFeatureError if
    the table cannot be written.
    """
    check_writable(table.config, table.storage.root)
    timeline = load_timeline(table)
    return settle_failed_writes(table, timeline) if settles else timeline


def end_undoing(table: OpenTable, timeline: Timeline) -> bool:
    """Finish the rollbacks and restores of a timeline, or wait; return False if there are none."""
    if not timeline.is_undoing:
        return False
    settle_failed_writes(table.without_lock(), timeline)  # The caller holds it, or needs none.
    pause()  # A living process may be executing one of them.
    return True


def _settle_all(table: OpenTable, require_held: LockCheck) -> Timeline:
    for restore in _restores(table, load_timeline(table)):
        has_begun = restore.state is State.INFLIGHT or not withdraw_plan(
            table, restore.requested_at, restore.action
        )
        require_held()
        if has_begun:
            carry_out_restore(table, restore.requested_at)
    timeline = load_timeline(table)
    _require_harmless(timeline, table.storage)
    for rollback in _dead(table, timeline, {Action.ROLLBACK}):
        require_held()
        carry_on_rollback(table, rollback)
    timeline = load_timeline(table)  # Instants that they undid looked pending before.
    for instant in _dead(table, timeline, WRITES):
        require_held()
        settle(table, instant.requested_at, instant.action)
    for instant in _withdrawn(table, timeline):
        require_held()
        take_back(table, instant.requested_at, instant.action)
    for resize in _ended_resizes(table, timeline):
        require_held()
        if not withdraw_resize(table, resize.requested_at):  # It was decided before.
            outcome = read_outcome(table.storage, resize.requested_at)
            finish(table, resize.requested_at, resize.action, outcome)
    return load_timeline(table)


def _restores(table: OpenTable, timeline: Timeline) -> list[Instant]:
    """Return the restores that have begun, by any process, and those of dead writers."""
    left = _dead(table, timeline, {Action.RESTORE})
    restores = timeline.pending(Action.RESTORE)
    return [restore for restore in restores if restore.state is State.INFLIGHT or restore in left]


def _withdrawn(table: OpenTable, timeline: Timeline) -> list[Instant]:
    """Return the begun compactions that were withdrawn meanwhile."""
    return [
        compaction
        for compaction in _dead(table, timeline, {Action.COMPACTION})
        if compaction.state is State.INFLIGHT
        and is_rolled_back(table.storage, compaction.requested_at, compaction.action)
    ]


def _ended_resizes(table: OpenTable, timeline: Timeline) -> list[Instant]:
    """Return the resizes whose end is decided, and those that must not be pending together.

    Two processes that plan at once withdraw their plans, but both may die before. Writers cannot
    serve both plans, so one of them ends: not the one that a living process carries out.
    """
    pending = [i for i in timeline.pending_clusterings() if i.action is Action.CLUSTERING]
    if not pending:
        return []
    dead = {resize.requested_at for resize in _dead(table, timeline, {Action.CLUSTERING})}
    taken: set[tuple[str, FileId]] = set()
    ended = []
    for resize in sorted(pending, key=lambda i: (i.requested_at in dead, i.requested_at)):
        groups: set[tuple[str, FileId]] = set()
        with suppress(ObjectNotFoundError):  # A withdrawal deletes the plan before it ends.
            plan = timeline.read_clustering_plan(table.storage, resize)
            groups = {planned.group for planned in plan.slices}
        is_decided = read_outcome(table.storage, resize.requested_at) is not None
        if resize.requested_at in dead and (is_decided or taken & groups):
            ended.append(resize)
        if not is_decided:
            taken |= groups
    return ended


def _dead(table: OpenTable, timeline: Timeline, actions: Collection[Action]) -> list[Instant]:
    now_ms = table.clock.now_ms
    pending = timeline.pending(*actions)
    return [i for i in pending if not is_alive(table.storage, i.requested_at, now_ms)]


def settle(table: OpenTable, instant: InstantTime, action: Action) -> None:
    """Roll one pending write back, or finish it if its commit is already decided."""
    if finish(table, instant, action, claim_rollback(table.storage, instant)):
        inflight = Instant(instant, action, State.INFLIGHT)
        if table.storage.stat(instant_path(table.config, inflight)) is None:
            # Another action with this time was committed; the writer of this instant died.
            remove_pending(table, instant, action)
        delete_markers(table.storage, instant)
        delete_heartbeat(table.storage, instant)
    # A Hudi writer, which does not know outcomes, may have completed it meanwhile.
    elif load_timeline(table).find_completed(instant) is None:
        if instant in archived_completion_times(table, since=instant, until=instant):
            delete_outcome(table.storage, instant)  # It was committed and archived meanwhile.
        else:
            take_back(table, instant, action)


def _sweep(table: OpenTable) -> None:
    """Delete markers of completed writes; after a grace period, files of rolled-back ones too.

    A task that slept during the rollback may put its file after it and then die.
    """
    instants = [
        InstantTime(f.rpartition("/")[2]) for f in table.storage.list_folders(MARKER_FOLDER)
    ]
    if not instants:
        return
    # Loaded after the markers, because a live write is on the timeline before it has markers.
    timeline = load_timeline(table)
    pending = {i.requested_at for i in timeline.pending()}
    completed = {i.requested_at for i in timeline.completed()}
    young_ms = table.clock.now_ms() - _TASKS_END_MS
    for instant in instants:
        if instant in completed:
            delete_markers(table.storage, instant)
        elif instant not in pending:
            decided = table.storage.stat(outcome_path(instant))
            if decided is not None and decided.modified_at_ms > young_ms:
                continue
            if _was_rolled_back(table, timeline, instant):
                delete_files(table, instant)
                delete_markers(table.storage, instant)
            elif _is_archived(table, instant):
                delete_markers(table.storage, instant)


def _was_rolled_back(table: OpenTable, timeline: Timeline, instant: InstantTime) -> bool:
    if is_rolled_back(table.storage, instant):
        return True
    # Hudi writes no outcomes: an instant that it rolled back is in neither timeline.
    # For an instant older than the timeline this is uncertain, so it is left alone.
    return (
        timeline.start is not None and instant > timeline.start and not _is_archived(table, instant)
    )


def _is_archived(table: OpenTable, instant: InstantTime) -> bool:
    """Return whether an instant completed and left the active timeline."""
    return instant in archived_completion_times(table, since=instant, until=instant)


def _require_harmless(timeline: Timeline, storage: Storage) -> None:
    # After a commit of bucketlake, Hudi could not continue the clustering, nor write again. Writes
    # that serve a resize of hash rings are no hindrance to it.
    for instant in timeline.pending_clusterings():
        try:
            is_resize = timeline.read_clustering_plan(storage, instant).is_resize
        except ObjectNotFoundError:
            continue  # It was withdrawn since the listing.
        except FormatError:
            is_resize = False  # Nobody knows what it does.
        if not is_resize:
            raise UnsupportedFeatureError(
                "writing while a clustering of another program is pending "
                f"(instant {instant.requested_at})",
                storage.root,
                "let the job of Hudi that planned it finish, or end it in Hudi's SQL with "
                f"CALL rollback_to_instant(table => '…', instant_time => '{instant.requested_at}')",
            )
