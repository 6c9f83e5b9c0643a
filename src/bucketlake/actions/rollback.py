"""Rollback of an instant by a plan on the timeline, in Hudi's form.

The plan is on the timeline before anything is undone, and every step can be repeated. So if a
rollback dies, the next writer of bucketlake or Hudi continues it; bucketlake also continues
rollbacks of Hudi. The caller decides which instants may be rolled back
(``services/undo/rollback_commits.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bucketlake.actions.completion import finish
from bucketlake.actions.metadata_upkeep import prepare_undoing, record_deletion, take_back_metadata
from bucketlake.actions.pending import decide_plan, withdraw_plan
from bucketlake.actions.progress import counted_progress
from bucketlake.actions.transact import Ready, transact
from bucketlake.errors import ObjectNotFoundError, UnsupportedFeatureError
from bucketlake.format.log_block import encode_rollback_block, read_log_blocks
from bucketlake.format.rollback_metadata import RollbackPlan, decode_rollback_plan, encode_rollback
from bucketlake.index.state import undo_state
from bucketlake.model.file_name import InstantTime, LogFileName
from bucketlake.slices.file_system_view import list_files
from bucketlake.storage.base import Storage, at_once
from bucketlake.timeline.active import Timeline, load_timeline, planned_paths, written_files
from bucketlake.timeline.archive_writer import keep_active
from bucketlake.timeline.heartbeat import delete_heartbeat
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import claim_rollback, forbid_commit, is_rolled_back
from bucketlake.timeline.transitions import instant_path, remove_pending, to_inflight

_UNDONE = (*WRITES, Action.COMPACTION, Action.CLUSTERING)
_OF_CLUSTERINGS = (Action.REPLACE_COMMIT, Action.CLUSTERING)
_SERVICES_OF = {Action.COMMIT: (Action.COMPACTION,), Action.REPLACE_COMMIT: (Action.CLUSTERING,)}


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
    timeline = load_timeline(table)
    is_completed = timeline.find_completed(plan.instant) is not None
    if action is None or (action not in WRITES and is_completed):
        if timeline.find(plan.instant) is not None:
            feature = f"rolling back a {plan.action}"
            next_step = "let Hudi finish it: its next write does"
            raise UnsupportedFeatureError(feature, plan.instant, next_step)
        action = Action.COMMIT  # A restore undid it, and died before it deleted this plan.

    def metadata(duration_ms: int) -> bytes:
        return encode_rollback(
            plan, table.storage.root, started_at=instant, duration_ms=duration_ms
        )

    metadata_commit = prepare_undoing(table, timeline, instant, [plan])
    outcome = decide_plan(table, instant, Action.ROLLBACK, metadata, metadata_commit)
    if outcome.publication is None:
        withdraw_plan(table, instant, Action.ROLLBACK)
        return False
    to_inflight(table, instant, Action.ROLLBACK)
    undo(table, plan, action)
    finish(table, instant, Action.ROLLBACK, outcome)
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
    table: OpenTable, instant: InstantTime, files: Iterable[str] = (), logs: Iterable[str] = ()
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
    log_progress = counted_progress(f"rollback of {instant}", len(paths), "files")
    at_once(storage, storage.delete, paths, log_progress)
    undo_state(storage, instant)


def _reopen(table: OpenTable, instant: InstantTime, action: Action) -> None:
    """Make a completed commit pending again."""
    completed = load_timeline(table).find_completed(instant)
    if completed is not None:
        to_inflight(table, instant, action)
        table.storage.delete(instant_path(table.config, completed))


# ---- Log files of timeline layout 1 that a rollback of a failed write must not delete ------------
#
# There the name of a log file has the instant of its slice. So a file that a marker names may be in
# the plan of a compaction, which reads the log files that it finds: without the file, nobody could
# execute the plan. The rollback replaces such a file by a block that cancels those of the write.
# Hudi's own rollback always adds such a block, and leaves the file.
#
# On storage that can append, Hudi adds the blocks of several writes to one file. bucketlake does
# not roll such a write back.


def cancel_blocks(table: OpenTable, instant: InstantTime, paths: Iterable[str]) -> Collection[str]:
    """Cancel the blocks of a failed write in log files that must stay; return these files.

    Parameters
    ----------
    table : OpenTable
    instant : InstantTime
        The failed write.
    paths : iterable of str
        Files that its markers name.

    Raises
    ------
    UnsupportedFeatureError
        If a file has blocks of the write, and of a completed commit.
    """
    names = {path: LogFileName.from_file_name(path.rpartition("/")[2]) for path in paths}
    logs = {path: name for path, name in names.items() if name is not None}
    if not logs:
        return ()
    storage, timeline = table.storage, load_timeline(table)
    foreign = [path for path, name in logs.items() if name.writer != instant]
    kept = _of_commits(storage, timeline, instant, foreign)
    planned = planned_paths(storage, timeline)
    block = encode_rollback_block(instant, target=instant)
    for path in planned.intersection(logs) - kept:
        if storage.stat(path) is not None:
            storage.put(path, block)
        kept.add(path)
    return kept


def _of_commits(
    storage: Storage, timeline: Timeline, instant: InstantTime, paths: Collection[str]
) -> set[str]:
    """Return the files that completed commits wrote, too."""
    found: set[str] = set()
    if not paths:
        return found
    for _, written in written_files(storage, timeline):
        for files in written.values():
            found |= files.keys() & set(paths)
    for path in found:
        if any(block.instant == instant for block in read_log_blocks(storage, path)):
            raise UnsupportedFeatureError(
                f"rolling back instant {instant}, which appended to a log file of another commit",
                f"{storage.root}/{path}",
                "let Hudi roll it back: its next write does",
            )
    return found


# ---- Withdrawing a resize: a pending clustering that must not complete any more ------------------
#
# The outcome comes first: it forbids the completion. Then a turn in the order of commits: writes
# that took a turn before are decided by then, with all of their copies (``actions/log_copies.py``);
# writes that take one later find the outcome and make no copies. So the files that are listed after
# the turn are all there will be. Files, rings and the plan go together; every step can be repeated.


def withdraw_resize(table: OpenTable, instant: InstantTime) -> bool:
    """Withdraw a pending resize; return False if it is decided to be completed."""
    if not claim_rollback(table.storage, instant).is_rollback:
        return False
    timeline = transact(table, lambda _: Ready(instant, None), own=instant).head.timeline
    partitions = partitions_of_plan(table.storage, timeline, instant)
    files = [f.path for f in list_files(table.storage, partitions) if f.name.instant == instant]
    undo_state(table.storage, instant, partitions)
    take_back_metadata(table, instant)
    # Commits of writes made the copies, so that the metadata table lists them. Recorded first: a
    # repetition does not find files that are deleted already.
    record_deletion(table, timeline, files)
    delete_files(table, instant, files)
    remove_pending(table, instant, Action.CLUSTERING)
    delete_heartbeat(table.storage, instant)
    return True
