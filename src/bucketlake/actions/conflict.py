"""Conflicts between a write and what was committed since it was planned.

Two writes are in conflict if they touched the same bucket (RFC-29); ``index/conflict_keys.py``
returns what a commit touched. A rescale or another overwrite of partitions also replaces buckets
that had no file when it was planned. So it is in conflict with every other commit to one of its
partitions (RFC-89).

Most conflicts are seen earlier: the markers of a living write name the file groups that it has
begun (Hudi: early conflict detection), so a write waits for it before it begins
(:func:`wait_for_writers`). Without that both writes would run, and the second one again.

Writes that append blindly (``write/stages.py``) run at once. They depend on nothing that other
appends change, but readers put log files in the order of requested times. So such a write waits
before its turn for those that began before it (:func:`wait_for_earlier`), and is only in conflict
with commits that were requested after it, or did more than append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from bucketlake.actions.progress import LOGGER
from bucketlake.errors import CommitConflictError, ObjectNotFoundError
from bucketlake.flow.call import count
from bucketlake.format.metadata_record.file_ids import MetadataFileId
from bucketlake.index.conflict_keys import (
    ConflictKey,
    ConflictKeys,
    describe_key,
    key_of_group,
    key_of_shard,
    written_keys,
)
from bucketlake.index.stored_setting import is_conversion
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.base import Storage
from bucketlake.storage.waiting import looks, until
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import (
    archived_commit,
    archived_completion_times,
    read_archive,
)
from bucketlake.timeline.heartbeat import appended_by, is_alive, is_of_this_thread
from bucketlake.timeline.instant import IN_TURN, UNDOING, Action, InstantClock
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import read_outcome

WAIT_SECONDS_MAX = 600.0
_ATTEMPTS = 4
_Result = TypeVar("_Result")

Commits = Sequence[tuple[InstantTime, CommitMetadata]]
"""Commits, each with its requested time."""


class ReplanError(CommitConflictError):
    """The write is to be planned again, and this attempt does not count as failed.

    It has waited for another write, so the table has changed; or it has noted what no plan knew.
    """

    def __init__(self, instant: InstantTime, problem: str, waited_seconds: float = 0.0) -> None:
        super().__init__(instant, problem)
        self.args = instant, problem, waited_seconds  # What a pickle makes the error of.
        self.waited_seconds = waited_seconds


def retried(write: Callable[[], _Result]) -> _Result:
    """Run a write; after a conflict with another writer, run it again on the changed table.

    A missing file may have been deleted by a rollback or a clean while the write read it. Attempts
    that only waited are not counted, but how long they waited: another writer that commits small
    batches one after another can be first several times.

    Raises
    ------
    CommitConflictError, ObjectNotFoundError
        If the last of four attempts fails too, or attempts have waited for ten minutes. A conflict
        says how often the write was tried.
    """
    attempts, failed, waited = 0, 0, 0.0
    while True:
        attempts += 1
        try:
            return write()
        except (CommitConflictError, ObjectNotFoundError) as error:
            count("conflicts")
            if isinstance(error, ReplanError):
                waited += error.waited_seconds
            else:
                failed += 1
            if failed == _ATTEMPTS or waited >= WAIT_SECONDS_MAX:
                if isinstance(error, CommitConflictError):
                    error.attempts = attempts
                raise


def commits_since(table: OpenTable, pinned: Timeline, newest: Timeline) -> Commits:
    """Return the commits of ``newest`` that ``pinned`` lacks, also those archived since."""
    known = {instant.requested_at for instant in pinned.completed_commits()}
    since = [found for found in newest.completed_commits() if found.requested_at not in known]
    commits = [
        (made.requested_at, commit) for made, commit in newest.read_commits(table.storage, since)
    ]
    if newest.start != pinned.start:
        known.update(instant for instant, _ in commits)
        # Older entries are not needed: what was archived before, was completed before.
        for entry in read_archive(table, since=pinned.start or "", until=newest.start):
            commit = archived_commit(entry)
            if commit is not None and entry.requested_at not in known:
                commits.append((entry.requested_at, commit))
    return commits


def require_kept(
    table: OpenTable, instant: InstantTime, pinned: Timeline, newest: Timeline
) -> None:
    """Raise CommitConflictError if a commit that the write was planned on was rolled back."""
    missing = rolled_back(table, pinned, newest)
    if missing:
        raise CommitConflictError(
            instant, f"instant {min(missing)} was rolled back meanwhile; retry the write"
        )


def rolled_back(table: OpenTable, pinned: Timeline, newest: Timeline) -> set[InstantTime]:
    """Return the commits of ``pinned`` that are neither in ``newest`` nor in the archive."""
    held = {instant.requested_at for instant in newest.completed_commits()}
    missing = {instant.requested_at for instant in pinned.completed_commits()} - held
    if missing:
        first, last = min(missing), max(missing)
        missing -= archived_completion_times(table, since=first, until=last).keys()
    return missing


def require_not_converted(instant: InstantTime, since: Commits) -> None:
    """Raise CommitConflictError if another commit put the table under another kind of index.

    What the write wrote is where the earlier kind has it, and its conflict keys are not those of
    writes under the new kind.
    """
    for other, commit in since:
        if is_conversion(commit):
            raise CommitConflictError(
                instant, f"instant {other} converted the table to another index; retry the write"
            )


def require_no_undoing(instant: InstantTime, newest: Timeline) -> None:
    """Raise CommitConflictError if a rollback or restore is pending."""
    for pending in newest.pending(*UNDOING):
        raise CommitConflictError(
            instant, f"{pending.action.value} {pending.requested_at} is under way; retry the write"
        )


def require_not_in_savepoint(instant: InstantTime, newest: Timeline) -> None:
    """Raise CommitConflictError if a savepoint would include a commit without its files.

    That is so if commits count in the order of their requested times, and the write began before
    the commit of the savepoint.
    """
    if newest.layout.has_completion_times:
        return
    for savepoint in newest.savepoints():
        if savepoint.requested_at > instant:
            raise CommitConflictError(
                instant,
                f"savepoint {savepoint.requested_at} of a later commit was made meanwhile; retry "
                "the write",
            )


def require_no_restore(newest: Timeline) -> None:
    """Raise CommitConflictError if a restore is pending."""
    for restore in newest.pending(Action.RESTORE):
        raise CommitConflictError(restore.requested_at, "this restore is under way; retry")


def require_no_conflict(
    instant: InstantTime,
    touched: ConflictKeys,
    since: Commits,
    *,
    cleaned: bool = False,
    appends: bool = False,
    group_key: Callable[[str, FileId], ConflictKey] = key_of_group,
) -> None:
    """Raise CommitConflictError if another commit has one of the write's conflict keys.

    A compaction changes no row and is skipped, unless the table was `cleaned` after it: then a
    write that was planned before may have missed the file group. A write that `appends` blindly
    has seen it, and follows log files of commits that were requested before it. ``group_key`` is
    the rule of the table's layout.
    """
    for other, commit in since:
        if commit.compacted and (appends or not cleaned):
            continue
        is_before = appends and other < instant
        common = touched & written_keys(commit, group_key, leaves_appended=is_before)
        if common:
            raise CommitConflictError(
                instant,
                f"instant {other} changed {describe_key(min(common))} meanwhile; retry the write",
            )


def require_untouched_partitions(
    instant: InstantTime, partitions: Iterable[str], since: Commits
) -> None:
    """Raise CommitConflictError if another commit wrote to one of the partitions."""
    own = set(partitions)
    for other, commit in since:
        common = own & commit.partitions
        if common and not commit.compacted:
            raise CommitConflictError(
                instant, f"instant {other} changed partition {min(common)!r} meanwhile; retry it"
            )


def wait_for_writers(
    storage: Storage,
    timeline: Timeline,
    clock: InstantClock,
    wanted: ConflictKeys,
    *,
    appends: bool = False,
    group_key: Callable[[str, FileId], ConflictKey] = key_of_group,
    metadata: Storage | None = None,
) -> None:
    """Wait for the end of another write to the same buckets; return at once if there is none.

    Parameters
    ----------
    storage, timeline
        The table, and the timeline that the write pinned.
    clock : InstantClock
        Decides whether a heartbeat is recent.
    wanted : set of ConflictKey
        Slots to write.
    appends : bool
        Whether the write appends blindly, so that it does not wait for others that do.
    group_key : callable
        The conflict key of a file group (``Layout.conflict_key_of_group``).
    metadata : Storage, optional
        The metadata table, if shards of its record-level index are among the wanted keys.

    Raises
    ------
    ReplanError
        After the other write has ended, because the table has changed.
    """
    for pending in timeline.pending(*IN_TURN):
        instant = pending.requested_at
        if is_of_this_thread(instant):
            continue
        begun = {group_key(path, file_id) for path, file_id in _marked(storage, instant)}
        if metadata is not None:
            begun |= _begun_shards(metadata, instant)
        common = wanted & begun
        if common and appends:
            common -= appended_by(storage, instant)
        if common and is_alive(storage, instant, clock.now_ms):
            what = describe_key(min(common))
            LOGGER.info("waiting for %s, which writes %s", instant, what)
            waiting = looks(WAIT_SECONDS_MAX)
            ended = (s for s in waiting if not is_alive(storage, instant, clock.now_ms))
            waited = next(ended, WAIT_SECONDS_MAX)
            raise ReplanError(instant, f"wrote {what} at the same time; retry", waited)


def wait_for_earlier(table: OpenTable, instant: InstantTime, appended: ConflictKeys) -> None:
    """Wait until writes that append to the same slots, and were requested before, are decided.

    If this write committed first, they would be written again. So it does not wait for one that
    another write has overtaken already.

    Parameters
    ----------
    table : OpenTable
    instant : InstantTime
        The write.
    appended : set of ConflictKey
        The slots to which it appends blindly; if there are none, it waits for nobody.
    """
    if not appended:
        return
    # When this write began, one with an earlier time may not have been on the timeline yet.
    for pending in load_timeline(table).pending(Action.DELTA_COMMIT):
        at = pending.requested_at
        if at >= instant or is_of_this_thread(at):
            continue
        other = appended_by(table.storage, at)
        if appended & other and not _is_overtaken(table, at, other):
            LOGGER.info("waiting for %s, which began before", at)
            until(partial(_has_ended, table, at), WAIT_SECONDS_MAX)


def _has_ended(table: OpenTable, instant: InstantTime) -> bool:
    is_decided = read_outcome(table.storage, instant) is not None
    return is_decided or not is_alive(table.storage, instant, table.clock.now_ms)


def _is_overtaken(table: OpenTable, instant: InstantTime, appended: ConflictKeys) -> bool:
    """Return whether a commit to one of the slots was requested after a pending write."""
    newest = load_timeline(table)
    later = [found for found in newest.completed_commits() if found.requested_at > instant]
    commits = newest.read_commits(table.storage, later)
    return any(appended & written_keys(commit) for _, commit in commits if not commit.compacted)


def _begun_shards(metadata: Storage, instant: InstantTime) -> set[ConflictKey]:
    """Return the keys of the shards of the index for which a write has markers."""
    found = (MetadataFileId.from_file_id(file_id) for _, file_id in _marked(metadata, instant))
    return {key_of_shard(facts.data_partition, facts.shard) for facts in found if facts is not None}


def _marked(storage: Storage, instant: InstantTime) -> Iterator[tuple[str, FileId]]:
    """Yield partition path and file id of the file groups for which a write has markers."""
    for marker in read_markers(storage, instant):
        base = BaseFileName.from_file_name(marker.file_name)
        name = base or LogFileName.from_file_name(marker.file_name)
        if name is not None:
            yield marker.partition_path, name.file_id
