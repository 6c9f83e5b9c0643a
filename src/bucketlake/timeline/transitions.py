"""The steps of an instant: requested, inflight, completed, or removed again.

A file appears complete or not at all, and only one caller creates it. The writer is responsible for
the order of the steps, the lock and the conflict check. ``timeline/outcome.py`` decides between
commit and rollback before a completed file is published here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import (
    AlreadyExistsError,
    CommitConflictError,
    StorageError,
)
from bucketlake.flow.call import note
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import commits_archived_after, find_archived
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import Publication, is_rolled_back, read_outcome


def create_requested(
    table: OpenTable,
    instant: InstantTime,
    action: Action,
    plan: bytes = b"",
) -> Timeline:
    """Put an instant on the timeline; no other action can then use its time.

    Returns
    -------
    Timeline
        The timeline as it was listed after that.

    Raises
    ------
    AlreadyExistsError
        If the time cannot be used; choose another time. There are three cases. Another action has
        the time. Or the action is a plan, and a write with this time was rolled back: the plan
        could never complete. Or the action is a write, and its time is before the active timeline
        or before a commit that was archived meanwhile: readers would treat it as committed. Or it
        is before a completed commit in a layout without completion times: who read that commit
        would miss the write.
    """
    requested = Instant(instant, action, State.REQUESTED)
    path = instant_path(table.config, requested)
    table.storage.put_if_absent(path, plan)
    timeline = load_timeline(table)
    others = timeline.instants
    if any(other.requested_at == instant and other.action is not action for other in others):
        table.storage.delete(path)
        raise AlreadyExistsError(path, "put on the timeline", "another action has this time")
    if action.writes_data and _is_late(table, instant, others):
        table.storage.delete(path)
        raise AlreadyExistsError(path, "put on the timeline", "the time is too old by now")
    if plan and read_outcome(table.storage, instant, action) is not None:
        table.storage.delete(path)
        raise AlreadyExistsError(path, "put on the timeline", "a write with this time has ended")
    note(lambda call: call.instants.append(instant))
    return timeline


def _is_late(table: OpenTable, instant: InstantTime, others: Sequence[Instant]) -> bool:
    """Return whether a write's time is older than the active timeline or an archived commit.

    An archival that saw the write leaves later commits on the active timeline. If the archival did
    not see the write, this function sees its manifest, or sees that later commits are gone.
    """
    writes = [o.requested_at for o in others if o.action.writes_data and o.requested_at != instant]
    if instant < min(writes, default=instant):
        return True
    if not table.config.layout.has_completion_times and any(
        o.action.writes_data and o.state is State.COMPLETED and o.requested_at > instant
        for o in others
    ):
        return True
    # An archival always leaves a later commit, so usually the archive need not be read.
    return instant < max(writes, default=instant) and bool(
        commits_archived_after(table.storage, table.config.history_folder, instant)
    )


def to_inflight(
    table: OpenTable,
    instant: InstantTime,
    action: Action,
    content: bytes = b"",
) -> Instant:
    """Mark an instant as inflight; several processes that carry out one plan may do so at once.

    If it was rolled back meanwhile, it still cannot be committed (``timeline/outcome.py``).
    """
    inflight = Instant(instant, action, State.INFLIGHT)
    # Only its writer creates the inflight file of a write. If it exists, the client repeated the
    # put after a lost response.
    with suppress(AlreadyExistsError):
        table.storage.put_if_absent(instant_path(table.config, inflight), content)
    return inflight


def put_pending(table: OpenTable, instant: InstantTime, action: Action, plan: bytes = b"") -> None:
    """Put an instant on the timeline as inflight, also again; the caller knows its time is free."""
    requested = instant_path(table.config, Instant(instant, action, State.REQUESTED))
    with suppress(AlreadyExistsError):
        table.storage.put_if_absent(requested, plan)
    to_inflight(table, instant, action)


def publish_completed(
    table: OpenTable, pending: Instant, publication: Publication, *, outcomes: Storage | None = None
) -> Instant:
    """Put the completed file of an instant.

    For instants of a data table, only ``actions/completion.py`` calls this.

    Parameters
    ----------
    table : OpenTable
    pending : Instant
        The pending instant; for a table service its action differs from the completed instant's.
    publication : Publication
        Name and content of the completed file.
    outcomes : Storage, optional
        The storage with the outcome of the instant; by default ``storage``. Actions of a data table
        are decided there, and also complete on its metadata table.

    Raises
    ------
    CommitConflictError
        If the inflight file is gone: another writer rolled the instant back.
    StorageError
        If storage fails twice and does not tell whether the file was published.
    """
    at = pending.requested_at
    completed = Instant(at, publication.action, State.COMPLETED, publication.completed_at)
    inflight = Instant(at, pending.action, State.INFLIGHT)
    storage, metadata = outcomes or table.storage, publication.metadata
    put = partial(_put_completed, table, inflight, completed, metadata, storage)
    try:
        put()
    except StorageError:
        put()  # Once more; the first error is the context of the second.
    return completed


def require_pending(storage: Storage, inflight: str, instant: InstantTime) -> None:
    """Raise an error if the instant of a task has no inflight file any more.

    Raises
    ------
    CommitConflictError
        If the instant was rolled back, or committed and archived.
    """
    if storage.stat(inflight) is None:
        raise CommitConflictError(
            instant, "ended while a task still wrote; nothing of the task is kept"
        )


def remove_pending(table: OpenTable, instant: InstantTime, action: Action) -> None:
    """Remove a pending instant from the timeline, after its files and markers are deleted.

    The inflight file is deleted last: after an earlier crash, the next rollback still sees that the
    write had begun, and finishes the deletion.
    """
    for state in (State.REQUESTED, State.INFLIGHT):
        table.storage.delete(instant_path(table.config, Instant(instant, action, state)))


def instant_path(config: TableConfig, instant: Instant) -> str:
    """Return the path of an instant's file, relative to the table."""
    return f"{config.timeline_folder}/{instant.to_file_name(config.layout)}"


def _put_completed(
    table: OpenTable, inflight: Instant, completed: Instant, metadata: bytes, outcomes: Storage
) -> None:
    """Put the completed file if it does not exist and the inflight file still does."""
    path = instant_path(table.config, completed)
    inflight_path = instant_path(table.config, inflight)
    if table.storage.stat(inflight_path) is None:
        if table.storage.stat(path) is not None:
            return
        if _is_archived(table, completed):
            return  # It was published and archived while this writer slept.
        if completed.action is Action.SAVEPOINT:
            who = "another process deleted this savepoint; make it again"
        else:
            who = "another writer rolled this write back; write the batch again"
        raise CommitConflictError(completed.requested_at, f"{inflight_path} is gone: {who}")
    is_own = True
    try:
        table.storage.put_if_absent(path, metadata)
    except AlreadyExistsError:
        is_own = False  # Another process found the same outcome and published it.
    if table.storage.stat(inflight_path) is None and (
        # The commit is already archived. A timeline that began with it would lack later commits.
        # If another process published the file, the archival deletes it.
        (is_own and _is_archived(table, completed))
        # The commit was rolled back, and its files are deleted.
        or is_rolled_back(outcomes, completed.requested_at, completed.action)
    ):
        table.storage.delete(path)


def _is_archived(table: OpenTable, completed: Instant) -> bool:
    at = completed.requested_at
    found = find_archived(table.storage, table.config.history_folder, at, completed.action.value)
    return found is not None and found.completed_at == completed.completed_at
