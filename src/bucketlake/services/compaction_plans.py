"""Plans of compactions in timeline layout 1, where the names of log files have their slices.

A compaction reads the log files of its plan, and nobody reads the old slice afterwards. So each
commit must be in the plan, or must add to the new slice. As for a resize, the plan is on the
timeline before it takes a turn in the order of commits: a commit of an earlier turn is completed,
and the plan gets its log files; a commit of a later turn finds the plan
(``write/slice_instants.py``).

Writes may add to the new slice as soon as they see the plan. So a plan that a commit has followed
is not withdrawn, and keeps its file groups. Whoever executes a plan takes this turn first: its
planner may have died before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bucketlake.actions.recovery import end_undoing
from bucketlake.actions.turns import head
from bucketlake.errors import TimelineError
from bucketlake.format.compaction_plan import encode_compaction_plan
from bucketlake.model.file_name import InstantTime, log_instant
from bucketlake.model.file_slice import FileSlice
from bucketlake.read.file_system_view import list_files
from bucketlake.read.snapshot import load_snapshot
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.transitions import create_requested, instant_path, remove_pending


def pending_compaction(timeline: Timeline, instant: InstantTime) -> Instant:
    """Return a pending compaction; raise TimelineError if it is none, or none any more."""
    for pending in timeline.pending_compactions():
        if pending.requested_at == instant:
            return pending
    raise TimelineError(instant, "is not a pending compaction, or is no longer pending")


def put_plan(table: OpenTable, instant: InstantTime, slices: Sequence[FileSlice]) -> bool:
    """Put a plan on the timeline; return False if it needs a later time.

    Only a write that was on the timeline before can commit without a look at the plan. Its time
    must be earlier than that of the compaction, which includes it and counts from its own time on.

    Raises
    ------
    AlreadyExistsError
        If the time cannot be used; choose another time.
    """
    content = encode_compaction_plan(slices)
    newest = create_requested(table, instant, Action.COMPACTION, content)
    writes = (pending for pending in newest.pending() if pending.action in WRITES)
    if all(write.requested_at < instant for write in writes):
        return True
    remove_pending(table, instant, Action.COMPACTION)
    while True:  # After a turn, no commit follows the plan any more.
        now = head(table)
        commits = now.timeline.completed_commits()
        if _is_followed(table, now.timeline, instant):
            requested = Instant(instant, Action.COMPACTION, State.REQUESTED)
            table.storage.put(instant_path(table.config, requested), content)
            return True
        if now.take(commits[-1].requested_at):
            return False


def _is_followed(table: OpenTable, timeline: Timeline, compaction: InstantTime) -> bool:
    """Return whether a commit added to the slices that a compaction will make."""
    commits = timeline.read_commits(table.storage, timeline.completed_commits())
    return any(log_instant(stat.path) == compaction for _, done in commits for stat in done.stats)


def settle_plan(table: OpenTable, instant: InstantTime) -> None:
    """Take a turn for a plan on the timeline, which then names all commits of earlier turns.

    Raises
    ------
    TimelineError
        If the compaction is not pending any more.
    """
    if not table.config.layout.logs_name_slices:
        return
    with table.lock.held(table.storage):
        while not _is_settled(table, instant):
            pass


def _is_settled(table: OpenTable, instant: InstantTime) -> bool:
    """Complete a plan as of the last turn, and take the next one; return False to look again."""
    now = head(table, own=instant)
    if end_undoing(table, now.timeline):
        return False
    if now.timeline.find_completed(instant) is not None:
        return True  # Another process was faster.
    pending = pending_compaction(now.timeline, instant)
    planned = now.timeline.read_compaction_plan(table.storage, pending)
    whole = _with_all_logs(table, now.timeline, instant, planned)
    if whole != planned:
        path = instant_path(table.config, replace(pending, state=State.REQUESTED))
        table.storage.put(path, encode_compaction_plan(whole))
    return now.take(instant)


def _with_all_logs(
    table: OpenTable, timeline: Timeline, instant: InstantTime, planned: Sequence[FileSlice]
) -> list[FileSlice]:
    """Return the slices of a plan with the log files of completed commits that it lacks.

    Log files that a rollback deleted are left out.
    """
    partitions = sorted({held.partition_path for held in planned})
    listed = {file.path: file for file in list_files(table.storage, partitions)}
    live = {
        (held.partition_path, held.file_id): held
        for held in load_snapshot(table, timeline).partition_slices(partitions)
    }
    whole = []
    for held in planned:
        found = live.get((held.partition_path, held.file_id))
        there = {file.path: file for file in held.log_files if file.path in listed}
        known = {file.path for file in held.log_files}
        if found is not None:
            there |= {file.path: file for file in found.log_files if file.name.instant < instant}
        if there.keys() != known:
            logs = tuple(sorted(there.values(), key=lambda file: file.order))
            held = replace(held, log_files=logs)
        whole.append(held)
    return whole
