"""Withdrawing a resize: a pending clustering that must not complete any more.

The outcome comes first: it forbids the completion. Then a turn in the order of commits: writes that
took a turn before are decided by then, with all of their copies (``actions/log_copies.py``); writes
that take one later find the outcome and make no copies. So the files that are listed after the turn
are all there will be. Files, rings and the plan go together; every step can be repeated.
"""

from __future__ import annotations

from bucketlake.actions.metadata_upkeep import record_deletion, take_back_metadata
from bucketlake.actions.rollback import delete_files, partitions_of_plan
from bucketlake.actions.turns import head
from bucketlake.index.state import undo_state
from bucketlake.model.file_name import InstantTime
from bucketlake.read.file_system_view import list_files
from bucketlake.timeline.heartbeat import delete_heartbeat
from bucketlake.timeline.instant import Action
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import OutcomeKind, claim_rollback
from bucketlake.timeline.transitions import remove_pending


def withdraw_resize(table: OpenTable, instant: InstantTime) -> bool:
    """Withdraw a pending resize; return False if it is decided to be completed."""
    if claim_rollback(table.storage, instant).kind is OutcomeKind.COMMIT:
        return False
    while True:
        now = head(table, own=instant)
        if now.take(instant):
            break
    partitions = partitions_of_plan(table.storage, now.timeline, instant)
    files = [f.path for f in list_files(table.storage, partitions) if f.name.instant == instant]
    undo_state(table.storage, instant, partitions)
    take_back_metadata(table, instant)
    # Commits of writes made the copies, so that the metadata table lists them. Recorded first: a
    # repetition does not find files that are deleted already.
    record_deletion(table, now.timeline, files)
    delete_files(table, instant, files)
    remove_pending(table, instant, Action.CLUSTERING)
    delete_heartbeat(table.storage, instant)
    return True
