"""Conflicts between a write and what was committed since it was planned.

Two writes are in conflict where they touched one bucket (RFC-29). A rescale, and whatever else
overwrites partitions, takes out buckets, too, that had no file when it was planned; for it any
other commit to one of its partitions is one (RFC-89).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import TypeVar

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import (
    CommitConflictError,
    FormatError,
    IndexStateError,
    ObjectNotFoundError,
)
from bucketlake.index.simple import bucket_id_of_file_id
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.write_stat import CommitMetadata, WriteStat
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

Buckets = AbstractSet[tuple[str, int]]
"""Partition paths and bucket ids."""

_LOOKED_AT = "bucketlake.looked_at"
"""Key of extra metadata: a JSON object, by partition path, of the ids of buckets."""

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


def touched_buckets(
    by_partition: Mapping[str, Sequence[WriteStat]], replaced: Mapping[str, Sequence[FileId]]
) -> Buckets:
    """Return the buckets that a write wrote or took out."""
    touched = {
        (partition, bucket_id_of_file_id(stat.file_id))
        for partition, stats in by_partition.items()
        for stat in stats
    }
    for partition, file_ids in replaced.items():
        for file_id in file_ids:
            # One that names no bucket goes with its partition, to which any commit is a conflict.
            with suppress(IndexStateError):
                touched.add((partition, bucket_id_of_file_id(file_id)))
    return touched


def looked_at_metadata(buckets: Buckets) -> dict[str, str]:
    """Return what a commit says of buckets that it looked in, found nothing in, and left alone.

    A delete of keys that are not there means that they are not there after it, whatever is rolled
    back before it.
    """
    by_partition: dict[str, list[int]] = {}
    for partition, bucket_id in sorted(buckets):
        by_partition.setdefault(partition, []).append(bucket_id)
    return {_LOOKED_AT: json.dumps(by_partition)} if by_partition else {}


def looked_at(commit: CommitMetadata, where: str) -> Buckets:
    """Return the buckets that a commit says it looked in.

    Raises
    ------
    FormatError
        If that cannot be read; `where` names the commit.
    """
    text = commit.extra.get(_LOOKED_AT, "{}")
    try:
        return {
            (str(partition), int(bucket_id))
            for partition, bucket_ids in json.loads(text).items()
            for bucket_id in bucket_ids
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise FormatError(where, f"bucket ids by partition in {_LOOKED_AT}", text[:80]) from error


def require_no_common_bucket(
    instant: InstantTime,
    touched: Buckets,
    since: Commits,
    *,
    cleaned: bool = False,
) -> None:
    """Refuse a write if a bucket of its was touched meanwhile.

    A compaction changes no row; but where the table was `cleaned` after it, a write that was
    planned before may have missed the file group.
    """
    for other, commit in since:
        if commit.compacted and not cleaned:
            continue
        common = touched & touched_buckets(commit.write_stats, commit.replaced_file_ids)
        if common:
            partition, bucket_id = min(common)
            raise CommitConflictError(
                instant,
                f"instant {other} changed bucket {bucket_id} of partition {partition!r} meanwhile; "
                "retry the write",
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
