"""The steps of an instant: requested, inflight, completed, or removed again.

Every file appears whole or not at all, and only one caller creates it. The order of the steps,
the lock and the check for conflicts are the writer's; that a write is committed *or* rolled back
is decided in ``timeline/outcome.py`` before a completed file is published here. Files are written
in timeline layout 2, the only one that bucketlake writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import (
    AlreadyExistsError,
    CommitConflictError,
    StorageError,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import commits_archived_after, find_archived
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.outcome import Publication, is_rolled_back, read_outcome

_LAYOUT_VERSION = 2
_PUBLISH_ATTEMPTS = 2


def create_requested(
    storage: Storage,
    config: TableConfig,
    instant: InstantTime,
    action: Action,
    plan: bytes = b"",
) -> Timeline:
    """Put an instant on the timeline; its time is then taken.

    Returns
    -------
    Timeline
        The timeline as it was listed after that.

    Raises
    ------
    AlreadyExistsError
        If the time is taken, by whatever action: draw another one. A plan, which may wait for
        years, takes no time either of a write that was rolled back, and could never be completed.
        Nor does a write take one before the timeline, or before a commit that was archived
        meanwhile: readers who do not know of it would take it for one that was committed.
    """
    requested = Instant(instant, action, State.REQUESTED)
    path = instant_path(config, requested)
    storage.put_if_absent(path, plan)
    timeline = load_timeline(storage, config)
    others = timeline.instants
    if any(one.requested_at == instant and one.action is not action for one in others):
        storage.delete(path)
        raise AlreadyExistsError(path, "put on the timeline", "another action has this time")
    if action.writes_data and _is_late(storage, config, instant, others):
        storage.delete(path)
        raise AlreadyExistsError(path, "put on the timeline", "the timeline has moved on meanwhile")
    if plan and read_outcome(storage, instant, action) is not None:
        storage.delete(path)
        raise AlreadyExistsError(path, "put on the timeline", "a write of this time was ended")
    return timeline


def _is_late(
    storage: Storage, config: TableConfig, instant: InstantTime, others: Sequence[Instant]
) -> bool:
    """Tell whether the active timeline, or the archive, has left a write's time behind.

    Of an archival that has not seen the write the writer sees the manifest here, or the later
    commits gone; one that has seen it leaves later commits where they are.
    """
    writes = [o.requested_at for o in others if o.action.writes_data and o.requested_at != instant]
    if instant < min(writes, default=instant):
        return True
    # No archival goes without leaving a later commit, so mostly there is nothing to ask for.
    return instant < max(writes, default=instant) and bool(
        commits_archived_after(storage, config.history_folder, instant)
    )


def to_inflight(
    storage: Storage,
    config: TableConfig,
    instant: InstantTime,
    action: Action,
    content: bytes = b"",
) -> Instant:
    """Mark an instant, which the caller requested, as being worked on.

    One that was rolled back meanwhile cannot be committed all the same (``timeline/outcome.py``).
    """
    inflight = Instant(instant, action, State.INFLIGHT)
    # Whoever made the requested file works on it alone: what is there is an own put, whose answer
    # was lost, and which the client repeated.
    with suppress(AlreadyExistsError):
        storage.put_if_absent(instant_path(config, inflight), content)
    return inflight


def publish_completed(
    storage: Storage, config: TableConfig, pending: Instant, publication: Publication
) -> Instant:
    """Put the completed file of an instant; ``write/completion.py`` alone calls this.

    Parameters
    ----------
    storage : Storage
    config : TableConfig
    pending : Instant
        The instant as it was begun, whose action for a table service differs from the completed
        one.
    publication : Publication
        Name and content of the completed file.

    Raises
    ------
    CommitConflictError
        If the inflight file is gone: another writer took the instant back.
    StorageError
        If storage fails twice, and does not tell whether the file was published.
    """
    at = pending.requested_at
    completed = Instant(at, publication.action, State.COMPLETED, publication.completed_at)
    inflight = Instant(at, pending.action, State.INFLIGHT)
    for attempt in range(1, _PUBLISH_ATTEMPTS + 1):
        try:
            _put_completed(storage, config, inflight, completed, publication.metadata)
            break
        except StorageError:
            if attempt == _PUBLISH_ATTEMPTS:
                raise
    return completed


def require_pending(storage: Storage, inflight: str, instant: InstantTime) -> None:
    """Refuse the work of a task whose instant has no inflight file any more.

    Raises
    ------
    CommitConflictError
        If it was rolled back, or committed and archived.
    """
    if storage.stat(inflight) is None:
        raise CommitConflictError(
            instant, "was ended while a task still wrote; nothing of the task is kept"
        )


def remove_pending(
    storage: Storage, config: TableConfig, instant: InstantTime, action: Action
) -> None:
    """Take a pending instant off the timeline, after its files and markers are gone.

    The inflight file goes last: until then a crash leaves a write that is known to have begun, and
    that the next rollback finishes.
    """
    for state in (State.REQUESTED, State.INFLIGHT):
        storage.delete(instant_path(config, Instant(instant, action, state)))


def instant_path(config: TableConfig, instant: Instant) -> str:
    """Return where an instant's file lies, relative to the table."""
    assert config.layout_version == _LAYOUT_VERSION, config.layout_version
    return f"{config.timeline_folder}/{instant.to_file_name(_LAYOUT_VERSION)}"


def _put_completed(
    storage: Storage,
    config: TableConfig,
    inflight: Instant,
    completed: Instant,
    metadata: bytes,
) -> None:
    """Put the completed file unless it is there, over an inflight file that still is."""
    path = instant_path(config, completed)
    inflight_path = instant_path(config, inflight)
    if storage.stat(inflight_path) is None:
        if storage.stat(path) is not None:
            return
        if _is_archived(storage, config, completed):
            return  # It was published and archived while this one slept.
        if completed.action is Action.SAVEPOINT:
            who = "another process deleted this savepoint; make it again"
        else:
            who = "another writer rolled this write back; write the batch again"
        raise CommitConflictError(completed.requested_at, f"{inflight_path} is gone: {who}")
    is_own = True
    try:
        storage.put_if_absent(path, metadata)
    except AlreadyExistsError:
        is_own = False  # Of another process, that found the same outcome.
    if storage.stat(inflight_path) is None and (
        # A timeline that began with it would miss all that came after it; but what another one
        # published in time goes with its archival, which takes the oldest ones first.
        (is_own and _is_archived(storage, config, completed))
        # Its files are gone; who undid it has looked for the last time.
        or is_rolled_back(storage, completed.requested_at, completed.action)
    ):
        storage.delete(path)


def _is_archived(storage: Storage, config: TableConfig, completed: Instant) -> bool:
    at = completed.requested_at
    found = find_archived(storage, config.history_folder, at, completed.action.value)
    return found is not None and found.completed_at == completed.completed_at
