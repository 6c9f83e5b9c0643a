"""Carrying out the plans of cleans: deleting the files that a plan names, and completing the clean.

bucketlake or Hudi executes a plan; executing it several times deletes the same files. Each file is
checked again before, because a rollback may have made an old version the newest one. Which files a
clean plans is in ``services/cleaning.py``.

A clean whose process died after it wrote its log files of the metadata table would defer each
compaction of the metadata table, which has to know whether they count. So a commit that compacts
ends such cleans before.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from bucketlake.actions.completion import finish
from bucketlake.actions.metadata_upkeep import prepare_deletion
from bucketlake.actions.pending import decide_plan
from bucketlake.actions.progress import counted_progress
from bucketlake.actions.recovery import end_undoing
from bucketlake.actions.transact import AGAIN, Answer, Ready, transact
from bucketlake.actions.turns import finishing_another
from bucketlake.errors import CommitOutcomeUnknownError, StorageError
from bucketlake.format.clean_metadata import CleanPlan, decode_clean_plan, encode_clean
from bucketlake.format.rollback_metadata import decode_savepoint
from bucketlake.index.state import forget_replaced_state
from bucketlake.metadata.metadata_table import inner_table
from bucketlake.model.file_name import InstantTime, file_path
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.storage.base import Storage, at_once
from bucketlake.timeline.active import Timeline, load_timeline, planned_paths
from bucketlake.timeline.commit_order import Head
from bucketlake.timeline.instant import Action, Instant, State, instant_to_ms
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import read_outcome
from bucketlake.timeline.transitions import instant_path, to_inflight

_DEAD_AFTER_MS: Final = 60_000
"""Age of a clean from which on it is taken for dead if it has log files and no outcome.

A living clean decides a moment after it wrote its log files. If it lives after all, two processes
carry out one plan, which is harmless.
"""


def end_dead_cleans(table: OpenTable) -> None:
    """End the cleans that wrote log files of the metadata table and were never completed.

    A clean that is decided is completed. An old one that is not decided is carried out again.

    Raises
    ------
    StorageError
        If storage failed.
    """
    inner = inner_table(table)
    with_logs = {i.requested_at for i in load_timeline(inner).instants}
    # Loaded last: a clean is pending in the data table until it is completed in the other.
    for pending in load_timeline(table).pending_cleans():
        instant = pending.requested_at
        if instant not in with_logs:
            continue
        outcome = read_outcome(table.storage, instant, Action.CLEAN)
        age_ms = table.clock.now_ms() - instant_to_ms(instant, table.config.timeline_timezone)
        with finishing_another():
            is_finished = finish(table, instant, Action.CLEAN, outcome)
            if not is_finished and outcome is None and age_ms > _DEAD_AFTER_MS:
                carry_out_clean(table, instant)


def carry_out_clean(table: OpenTable, instant: InstantTime) -> InstantTime:
    """Delete the files of a plan that nobody needs, and complete the clean.

    Raises
    ------
    CommitOutcomeUnknownError
        If storage failed; the next clean continues this one.
    """
    try:
        requested = instant_path(table.config, Instant(instant, Action.CLEAN, State.REQUESTED))
        content = table.storage.read(requested)
        plan = decode_clean_plan(content, requested)
        # Hudi 0.15 goes on with the plan that it finds here.
        to_inflight(table, instant, Action.CLEAN, content)
        with table.lock.held(table.storage) as require_held:
            timeline, needed = _needed(table, instant, plan)
            deleted = _without(plan, needed)
            require_held()
        paths = list(deleted.paths)
        log_progress = counted_progress(f"clean {instant}", len(paths), "files")
        at_once(table.storage, table.storage.delete, paths, log_progress)
        _forget_replaced(table.storage, timeline, plan)

        def metadata(duration_ms: int) -> bytes:
            return encode_clean(deleted, started_at=instant, duration_ms=duration_ms)

        # In timeline layout 1, a compaction of Hudi would make new slices meanwhile of what this
        # writes to the metadata table.
        is_locked = table.config.layout.logs_name_slices
        with table.lock.held(table.storage) if is_locked else nullcontext():
            metadata_commit = prepare_deletion(table, timeline, instant, deleted.files)
            outcome = decide_plan(table, instant, Action.CLEAN, metadata, metadata_commit)
            is_finished = finish(table, instant, Action.CLEAN, outcome)
            assert is_finished, outcome
    except StorageError as error:
        raise CommitOutcomeUnknownError(
            instant, f"storage failed during this clean ({error}); the next clean continues it"
        ) from error
    return instant


def needed_files(snapshot: Snapshot) -> set[str]:
    """Return the paths of the files that savepoints hold, or pending plans read.

    So do pending savepoints. The plans are those of compactions and clusterings.
    """
    storage, timeline = snapshot.storage, snapshot.timeline
    held = planned_paths(storage, timeline)
    for savepoint in timeline.savepoints():
        if savepoint.state is State.COMPLETED:
            path = timeline.path_of(savepoint)
            files = decode_savepoint(storage.read(path), path)
            held |= {file_path(partition, name) for partition in files for name in files[partition]}
        else:
            then = replace(snapshot, timeline=timeline.as_of(savepoint.requested_at))
            held |= {path for kept in then.all_slices() for path in kept.paths}
    return held


def _needed(table: OpenTable, instant: InstantTime, plan: CleanPlan) -> tuple[Timeline, set[str]]:
    """Return the timeline, and the paths in the partitions of a plan that are still needed.

    The clean takes a turn in the order of commits. A later turn, for example of a rollback, finds
    the plan on the timeline and treats its files as deleted.
    """

    def look(now: Head) -> Answer[set[str]]:
        if end_undoing(table, now.timeline):
            return AGAIN
        snapshot = load_snapshot(table, now.timeline, lists_storage=True)
        slices = snapshot.partition_slices(plan.files)
        live = {path for file_slice in slices for path in file_slice.paths}
        return Ready(instant, live | needed_files(snapshot))

    done = transact(table, look, own=instant)
    return done.head.timeline, done.value


def _forget_replaced(storage: Storage, timeline: Timeline, plan: CleanPlan) -> None:
    """Delete the index state of the file groups that were replaced, unless a savepoint needs it."""
    newest = max((commit.requested_at for commit in timeline.completed_commits()), default=None)
    asked_for = plan.earliest or newest  # A clean by versions leaves no earlier state to readers.
    if asked_for is None:
        return
    earliest = min([asked_for, *(found.requested_at for found in timeline.savepoints())])
    replaced = timeline.replaced_file_groups(storage)
    partitions = {
        path for (path, _), at in replaced.items() if path in plan.files and at < earliest
    }
    forget_replaced_state(storage, timeline, partitions, earliest)


def _without(plan: CleanPlan, needed: set[str]) -> CleanPlan:
    files: Mapping[str, tuple[str, ...]] = {
        partition: tuple(name for name in names if file_path(partition, name) not in needed)
        for partition, names in plan.files.items()
    }
    return replace(plan, files=files)
