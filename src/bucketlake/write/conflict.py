"""Conflicts between a write and what was committed since it was planned.

Two writes are in conflict where they touched one bucket (RFC-29): ``index/conflict_keys.py`` says
what a commit touched. A rescale, and whatever else
overwrites partitions, takes out buckets, too, that had no file when it was planned; for it any
other commit to one of its partitions is one (RFC-89).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import CommitConflictError, ObjectNotFoundError
from bucketlake.index.conflict_keys import ConflictKeys, describe_key, written_keys
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import (
    archived_commit,
    archived_completion_times,
    read_archive,
)
from bucketlake.timeline.instant import Action

_ATTEMPTS = 4
_Result = TypeVar("_Result")

UNDOING = frozenset({Action.ROLLBACK, Action.RESTORE})
"""Actions that make an old version of files the newest again."""

Commits = Sequence[tuple[InstantTime, CommitMetadata]]
"""Commits, each with its requested time."""


def retried(write: Callable[[], _Result]) -> _Result:
    """Run a write, and again on the table as it then is where another one came in between.

    A file that is gone may have been rolled back, or cleaned, while the write read it.

    Raises
    ------
    CommitConflictError, ObjectNotFoundError
        If the last of four attempts met another write, or no file, too.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(CommitConflictError, ObjectNotFoundError):
            return write()
    return write()


def commits_since(
    storage: Storage, config: TableConfig, pinned: Timeline, newest: Timeline
) -> Commits:
    """Return what was committed between two looks at a timeline, also what was archived since."""
    known = {instant.requested_at for instant in pinned.completed_commits()}
    since = [one for one in newest.completed_commits() if one.requested_at not in known]
    found = [(one.requested_at, commit) for one, commit in newest.read_commits(storage, since)]
    if newest.start != pinned.start:
        known.update(instant for instant, _ in found)
        # Not older ones: what was archived at the first look, was completed at it.
        for entry in read_archive(storage, config, since=pinned.start or "", until=newest.start):
            commit = archived_commit(entry)
            if commit is not None and entry.requested_at not in known:
                found.append((entry.requested_at, commit))
    return found


def require_kept(
    storage: Storage,
    config: TableConfig,
    instant: InstantTime,
    pinned: Timeline,
    newest: Timeline,
) -> None:
    """Refuse a write if a commit that it was planned on was rolled back meanwhile."""
    gone = rolled_back(storage, config, pinned, newest)
    if gone:
        raise CommitConflictError(
            instant, f"instant {min(gone)} was rolled back meanwhile; retry the write"
        )


def rolled_back(
    storage: Storage, config: TableConfig, pinned: Timeline, newest: Timeline
) -> set[InstantTime]:
    """Return the commits that went between two looks at a timeline, but those in the archive."""
    held = {one.requested_at for one in newest.completed_commits()}
    gone = {one.requested_at for one in pinned.completed_commits()} - held
    if gone:
        gone -= archived_completion_times(storage, config, since=min(gone), until=max(gone)).keys()
    return gone


def require_no_undoing(instant: InstantTime, newest: Timeline) -> None:
    """Refuse a write while a rollback or restore, which may undo what it builds on, is pending."""
    for one in newest.pending():
        if one.action in UNDOING:
            raise CommitConflictError(
                instant, f"{one.action.value} {one.requested_at} is under way; retry the write"
            )


def require_no_restore(newest: Timeline) -> None:
    """Refuse a commit while the table is restored to an earlier one."""
    for one in newest.pending():
        if one.action is Action.RESTORE:
            raise CommitConflictError(one.requested_at, "this restore is under way; retry")


def require_no_conflict(
    instant: InstantTime,
    touched: ConflictKeys,
    since: Commits,
    *,
    cleaned: bool = False,
) -> None:
    """Refuse a write if another commit has one of its conflict keys.

    A compaction changes no row; but where the table was `cleaned` after it, a write that was
    planned before may have missed the file group.
    """
    for other, commit in since:
        if commit.compacted and not cleaned:
            continue
        common = touched & written_keys(commit)
        if common:
            raise CommitConflictError(
                instant,
                f"instant {other} changed {describe_key(min(common))} meanwhile; retry the write",
            )


def require_untouched_partitions(
    instant: InstantTime,
    partitions: Iterable[str],
    since: Commits,
) -> None:
    """Refuse to overwrite partitions into which something was written meanwhile."""
    own = set(partitions)
    for other, commit in since:
        common = own & commit.partitions
        if common and not commit.compacted:
            raise CommitConflictError(
                instant, f"instant {other} changed partition {min(common)!r} meanwhile; retry it"
            )
