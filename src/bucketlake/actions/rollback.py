"""Rollback of an instant by a plan on the timeline, in Hudi's form.

The plan is on the timeline before anything is undone, and every step can be repeated. So if a
rollback dies, the next writer of bucketlake or Hudi continues it; bucketlake also continues
rollbacks of Hudi. The caller decides which instants may be rolled back
(``services/undo/rollback_commits.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bucketlake.actions.completion import complete_instant
from bucketlake.actions.log_rollback import cancel_blocks
from bucketlake.actions.metadata_upkeep import prepare_undoing, take_back_metadata
from bucketlake.actions.pending import decide_plan, put_inflight, withdraw_plan
from bucketlake.actions.progress import counted
from bucketlake.errors import ObjectNotFoundError, UnsupportedFeatureError
from bucketlake.format.rollback_metadata import (
    RollbackPlan,
    decode_rollback_plan,
    encode_rollback,
)
from bucketlake.index.state import undo_state
from bucketlake.model.file_name import InstantTime, LogFileName
from bucketlake.read.file_system_view import list_files
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_writer import keep_active
from bucketlake.timeline.heartbeat import delete_heartbeat
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import forbid_commit, is_rolled_back
from bucketlake.timeline.transitions import instant_path, remove_pending

_UNDONE = (*WRITES, Action.COMPACTION, Action.CLUSTERING)
_OF_CLUSTERINGS = (Action.REPLACE_COMMIT, Action.CLUSTERING)
_SERVICES_OF = {
    Action.COMMIT: (Action.COMPACTION,),
    Action.REPLACE_COMMIT: (Action.CLUSTERING,),
}


def carry_on_rollback(table: OpenTable, pending: Instant) -> None:
    """Execute a rollback of a dead writer.

    A rollback of a completed commit that has not begun is withdrawn instead, because its writer may
    wake up. A rollback of an archived commit is withdrawn too.
    """
    # Checked first, because the plan of a withdrawn rollback may be deleted.
    if is_rolled_back(table.storage, pending.requested_at, Action.ROLLBACK):
        withdraw_plan(table, pending.requested_at, Action.ROLLBACK)
        return
    plan = read_rollback_plan(table, pending.requested_at)
    if pending.state is State.REQUESTED:
        found = load_timeline(table).find(plan.instant)
        if found is None:
            is_ended = not keep_active(table, plan.instant)
        else:
            is_ended = found.state is State.COMPLETED
        if is_ended and withdraw_plan(table, pending.requested_at, Action.ROLLBACK):
            return
    carry_out_rollback(table, pending.requested_at, plan)


def carry_out_rollback(table: OpenTable, instant: InstantTime, plan: RollbackPlan) -> bool:
    """Undo the instant of a pending rollback's plan, and complete the rollback.

    The commit becomes invisible before its files are deleted; its rules are deleted too (RFC-89).
    The caller has kept the commit out of the archive.

    Returns
    -------
    bool
        False if another writer treated this one as dead and withdrew the plan. The decision is made
        here before the work, which excludes a later withdrawal; so the completion time is also from
        before the work.

    Raises
    ------
    UnsupportedFeatureError
        If the plan undoes a table service other than a pending compaction.
    """
    action = next((action for action in _UNDONE if action.value == plan.action), None)
    if action is None or (action not in WRITES and _is_completed(table, plan)):
        if load_timeline(table).find(plan.instant) is not None:
            feature = f"rolling back a {plan.action}"
            next_step = "let Hudi finish it: its next write does"
            raise UnsupportedFeatureError(feature, plan.instant, next_step)
        action = Action.COMMIT  # A restore undid it, and died before it deleted this plan.

    def metadata(duration_ms: int) -> bytes:
        return encode_rollback(
            plan, table.storage.root, started_at=instant, duration_ms=duration_ms
        )

    timeline = load_timeline(table)
    metadata_commit = prepare_undoing(table, timeline, instant, [plan])
    outcome = decide_plan(table, instant, Action.ROLLBACK, metadata, metadata_commit)
    if outcome.publication is None:
        withdraw_plan(table, instant, Action.ROLLBACK)
        return False
    put_inflight(table, instant, Action.ROLLBACK)
    undo(table, plan, action)
    inflight = Instant(instant, Action.ROLLBACK, State.INFLIGHT)
    complete_instant(table, inflight, outcome.publication)
    return True


def read_rollback_plan(table: OpenTable, instant: InstantTime) -> RollbackPlan:
    """Return the plan of a rollback on the timeline."""
    requested = instant_path(table.config, Instant(instant, Action.ROLLBACK, State.REQUESTED))
    plan = decode_rollback_plan(table.storage.read(requested), requested)
    if plan.logs and not table.config.layout.logs_name_slices:
        raise UnsupportedFeatureError(
            "a rollback that cancels blocks of log files", requested, "let Hudi finish it"
        )
    return plan


def rollback_plan(storage: Storage, timeline: Timeline, instant: Instant) -> RollbackPlan:
    """Return the files of an instant: those that its metadata or its markers name.

    The copies that writes made for a resize have its instant in their names, and belong to it.
    """
    resized: Collection[str] = ()
    if instant.state is State.COMPLETED:
        commit = timeline.read_commit(storage, instant)
        paths = [path for stat in commit.stats for path in stat.file_sizes]
        if commit.resizes:
            resized = commit.partitions
    else:
        paths = [marker.data_path for marker in read_markers(storage, instant.requested_at)]
        if instant.action is Action.CLUSTERING:
            resized = partitions_of_plan(storage, timeline, instant.requested_at)
    paths += copies_for_resize(storage, instant.requested_at, resized)
    files: dict[str, list[str]] = {path: [] for path in sorted(resized)}  # Their rings go, too.
    for path in paths:
        partition, _, name = path.rpartition("/")
        files.setdefault(partition, []).append(name)
    by_partition = {partition: tuple(dict.fromkeys(names)) for partition, names in files.items()}
    return RollbackPlan(instant.requested_at, instant.action.value, by_partition)


def partitions_of_plan(storage: Storage, timeline: Timeline, instant: InstantTime) -> list[str]:
    """Return the partitions that a pending clustering names; none if its plan is gone."""
    pending = Instant(instant, Action.CLUSTERING, State.REQUESTED)
    try:
        plan = timeline.read_clustering_plan(storage, pending)
    except ObjectNotFoundError:
        return []
    return sorted({planned.partition_path for planned in plan.slices})


def copies_for_resize(
    storage: Storage, instant: InstantTime, partitions: Iterable[str]
) -> list[str]:
    """Return the log files that writes left for a resize: they have its instant in their names."""
    return [
        file.path
        for file in list_files(storage, sorted(partitions))
        if isinstance(file.name, LogFileName) and file.name.instant == instant
    ]


def undo(table: OpenTable, plan: RollbackPlan, action: Action) -> None:
    """Remove a commit from the timeline, then delete its files and leftovers.

    ``action`` is the action of its pending files.
    """
    forbid_commit(table.storage, plan.instant)
    _reopen(table, plan.instant, action)
    requested = Instant(plan.instant, Action.CLUSTERING, State.REQUESTED)
    if action in _OF_CLUSTERINGS and table.storage.stat(instant_path(table.config, requested)):
        # A clustering of Hudi brings rings, too, without a note.
        undo_state(table.storage, plan.instant, plan.files)
    take_back(table, plan.instant, action, plan.paths, plan.log_paths)
    # A slow helper may have published it again; from now on the helper notices the rollback.
    published = load_timeline(table).find_completed(plan.instant)
    if published is not None:
        table.storage.delete(instant_path(table.config, published))


def take_back(
    table: OpenTable,
    instant: InstantTime,
    action: Action,
    files: Iterable[str] = (),
    logs: Iterable[str] = (),
) -> None:
    """Delete the files, rules and counts of a pending write, then its instant.

    Its commit must be forbidden before. A task that writes a file later deletes it itself. What the
    write did to the metadata table goes first: while the instant is pending, readers ignore it.
    """
    take_back_metadata(table, instant)
    delete_files(table, instant, files, logs)
    # The instant may have been a table service; remove its plan too.
    for service in _SERVICES_OF.get(action, ()):
        remove_pending(table, instant, service)
    remove_pending(table, instant, action)
    delete_heartbeat(table.storage, instant)


def delete_files(
    table: OpenTable,
    instant: InstantTime,
    files: Iterable[str] = (),
    logs: Iterable[str] = (),
) -> None:
    """Delete given files of a write, files of its markers, and the rules and counts it saved.

    Log files of the write that a plan of Hudi names in timeline layout 1, in ``logs``, are those
    that its markers name.

    The markers stay for a later sweep: a task that slept may put its file after this, and die
    before it deletes the file.
    """
    storage = table.storage
    marked = [*logs, *(marker.data_path for marker in read_markers(storage, instant))]
    kept: Collection[str] = ()
    if table.config.layout.logs_name_slices:
        kept = cancel_blocks(table, instant, marked)
    paths = [path for path in dict.fromkeys([*files, *marked]) if path not in kept]
    log_progress = counted(f"rollback of {instant}", len(paths), "files")
    at_once(storage, storage.delete, paths, log_progress)
    undo_state(storage, instant)


def _is_completed(table: OpenTable, plan: RollbackPlan) -> bool:
    return load_timeline(table).find_completed(plan.instant) is not None


def _reopen(table: OpenTable, instant: InstantTime, action: Action) -> None:
    """Make a completed commit pending again."""
    completed = load_timeline(table).find_completed(instant)
    if completed is not None:
        put_inflight(table, instant, action)
        table.storage.delete(instant_path(table.config, completed))
