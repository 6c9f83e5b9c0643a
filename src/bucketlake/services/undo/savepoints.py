"""Savepoints: commits whose files no clean deletes, so that the table can be restored to them.

A savepoint names the files that a query of its commit reads. It is pending on the timeline before
these files are listed, and it takes a turn in the order of commits. So it includes everything that
completed before its completion time, and a clean and a savepoint that run at the same time always
see each other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from bucketlake.actions.completion import complete_instant
from bucketlake.actions.pending import put_inflight
from bucketlake.actions.recovery import end_undoing, settle_failed_writes
from bucketlake.actions.turns import head
from bucketlake.config.support import check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import BucketLakeError, TimelineError
from bucketlake.format.savepoint_metadata import encode_savepoint
from bucketlake.model.file_name import InstantTime
from bucketlake.read.clean_guard import read_clean
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.undo.undoable_commits import why_absent
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_writer import keep_active
from bucketlake.timeline.clock import InstantClock, system_now_ms, table_clock
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.locks import NO_LOCK, Check, TableLock
from bucketlake.timeline.outcome import Publication
from bucketlake.timeline.transitions import instant_path


def make_savepoint(
    storage: Storage,
    config: TableConfig,
    instant: InstantTime | None = None,
    *,
    comment: str = "",
    lock: TableLock = NO_LOCK,
    now_ms: Callable[[], int] = system_now_ms,
) -> InstantTime:
    """Create a savepoint of a commit; return the commit's instant.

    Parameters
    ----------
    storage, config
        The table.
    instant : InstantTime, optional
        The commit; by default the newest.
    comment : str
        Purpose of the savepoint.
    lock : TableLock
        Held while its files are listed.
    now_ms : callable
        Milliseconds since 1970 UTC.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written.
    TimelineError
        If there is no such commit, or a clean has deleted files of it or will delete them.
    """
    check_writable(config, storage.root)
    clock = table_clock(storage.root, config.timeline_timezone, now_ms)
    timeline = settle_failed_writes(storage, config, load_timeline(storage, config), clock, lock)
    chosen = _commit(storage, config, timeline, instant).requested_at
    if any(i.requested_at == chosen for i in timeline.completed() if _is_savepoint(i)):
        return chosen
    put_inflight(storage, config, chosen, Action.SAVEPOINT)
    try:
        with lock.held(storage) as require_held:
            _complete(storage, config, clock, chosen, comment, require_held)
    except BucketLakeError:
        with suppress(BucketLakeError):  # Until completed or deleted, it holds files.
            _remove_inflight(storage, config, chosen)
        raise
    return chosen


def delete_savepoint(
    storage: Storage,
    config: TableConfig,
    instant: InstantTime,
    *,
    lock: TableLock = NO_LOCK,
    now_ms: Callable[[], int] = system_now_ms,
) -> None:
    """Delete a savepoint, so that a clean may delete its files.

    Raises
    ------
    TimelineError
        If there is no such savepoint.
    """
    check_writable(config, storage.root)
    clock = table_clock(storage.root, config.timeline_timezone, now_ms)
    timeline = settle_failed_writes(storage, config, load_timeline(storage, config), clock, lock)
    require_savepoint(timeline, instant, pending=True)
    for stored in list(storage.list(config.timeline_folder, recursive=False)):
        found = Instant.from_file_name(stored.path.rpartition("/")[2])
        if found is not None and (found.requested_at, found.action) == (instant, Action.SAVEPOINT):
            storage.delete(stored.path)


def require_savepoint(
    timeline: Timeline, instant: InstantTime, *, pending: bool = False
) -> Instant:
    """Return the savepoint of a commit; raise TimelineError if it has none."""
    found = [savepoint for savepoint in timeline.instants if _is_savepoint(savepoint)]
    for savepoint in found:
        if savepoint.requested_at == instant and (pending or savepoint.state is State.COMPLETED):
            return savepoint
    there = ", ".join(savepoint.requested_at for savepoint in found) or "there are none"
    raise TimelineError(
        instant,
        f"is not a savepoint (savepoints: {there}); create one with table.savepoint() "
        "(bucketlake savepoint)",
    )


def _complete(
    storage: Storage,
    config: TableConfig,
    clock: InstantClock,
    instant: InstantTime,
    comment: str,
    require_held: Check,
) -> None:
    # A restore undoes later commits of the active timeline, so none of them may be archived.
    if not keep_active(storage, config, instant):
        raise TimelineError(instant, "was archived meanwhile; use a later commit")
    while True:
        now = head(storage, config, clock)
        if end_undoing(storage, config, now.timeline, clock):
            continue
        files = _files(storage, config, now.timeline, instant)
        completed_at = now.next_instant()
        if now.take(completed_at):
            break
    metadata = encode_savepoint(files, at_ms=clock.now_ms(), comment=comment)
    require_held()
    inflight = Instant(instant, Action.SAVEPOINT, State.INFLIGHT)
    publication = Publication(completed_at, Action.SAVEPOINT, metadata)
    complete_instant(storage, config, inflight, publication)


def _files(
    storage: Storage, config: TableConfig, timeline: Timeline, instant: InstantTime
) -> dict[str, list[str]]:
    """Return the names of the files that a query of a commit reads, by partition path."""
    _commit(storage, config, timeline, instant)
    files: dict[str, list[str]] = {}
    doomed = {
        path: clean.requested_at
        for clean in timeline.pending_cleans()
        for path in read_clean(storage, timeline, clean).paths
    }
    then = load_snapshot(storage, config, timeline.as_of(instant), lists_storage=True)
    for file_slice in then.all_slices():
        for file in file_slice.files:
            if file.path in doomed:
                raise TimelineError(
                    instant,
                    f"the pending clean {doomed[file.path]} deletes {file.path}: complete it with "
                    "table.clean() (bucketlake clean --run), and use a later commit",
                )
            files.setdefault(file_slice.partition_path, []).append(file.name.to_file_name())
    return files


def _commit(
    storage: Storage, config: TableConfig, timeline: Timeline, instant: InstantTime | None
) -> Instant:
    commits = timeline.completed_commits()
    if instant is None and commits:
        return commits[-1]
    found = None if instant is None else timeline.find_completed(instant)
    if found is None:
        if instant is None:
            raise TimelineError("", "the table has no commit yet: write to it first")
        raise TimelineError(instant, why_absent(storage, config, timeline, instant))
    return found


def _remove_inflight(storage: Storage, config: TableConfig, instant: InstantTime) -> None:
    storage.delete(instant_path(config, Instant(instant, Action.SAVEPOINT, State.INFLIGHT)))


def _is_savepoint(instant: Instant) -> bool:
    return instant.action is Action.SAVEPOINT
