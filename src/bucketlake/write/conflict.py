"""Conflicts between a write and what was committed since it was planned.

Two writes are in conflict where they touched one bucket (RFC-29). A rescale takes out whole
partitions, also buckets that had no file when it was planned; for it any other commit to one of its
partitions is one (RFC-89).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from bucketlake.errors import CommitConflictError
from bucketlake.index.simple import bucket_id_of_file_id
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

_ATTEMPTS = 4
_Result = TypeVar("_Result")

Buckets = set[tuple[str, int]]
"""Partition paths and bucket ids."""


def retried(write: Callable[[], _Result]) -> _Result:
    """Run a write, and again on the table as it then is where another one came in between.

    Raises
    ------
    CommitConflictError
        If the last of four attempts met another write, too.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(CommitConflictError):
            return write()
    return write()


def commits_since(
    storage: Storage, pinned: Timeline, newest: Timeline
) -> list[tuple[InstantTime, CommitMetadata]]:
    """Return what was committed between two looks at a timeline."""
    known = {instant.requested_at for instant in pinned.completed_commits()}
    return [
        (instant.requested_at, newest.read_commit(storage, instant))
        for instant in newest.completed_commits()
        if instant.requested_at not in known
    ]


def require_kept(instant: InstantTime, pinned: Timeline, newest: Timeline) -> None:
    """Refuse a write if a commit that it was planned on was rolled back meanwhile."""
    held = {one.requested_at for one in newest.completed_commits()}
    for one in pinned.completed_commits():
        is_archived = newest.start is not None and one.requested_at < newest.start
        if one.requested_at not in held and not is_archived:
            raise CommitConflictError(
                instant, f"instant {one.requested_at} was rolled back meanwhile; retry the write"
            )


def touched_buckets(
    by_partition: Mapping[str, Sequence[WriteStat]], replaced: Mapping[str, Sequence[FileId]]
) -> Buckets:
    """Return the buckets that a write wrote or took out."""
    written = {
        (partition, bucket_id_of_file_id(stat.file_id))
        for partition, stats in by_partition.items()
        for stat in stats
    }
    return written | {
        (partition, bucket_id_of_file_id(file_id))
        for partition, file_ids in replaced.items()
        for file_id in file_ids
    }


def require_no_common_bucket(
    instant: InstantTime, touched: Buckets, since: Iterable[tuple[InstantTime, CommitMetadata]]
) -> None:
    """Refuse a write if a bucket of its was touched meanwhile; a compaction changes no row."""
    for other, commit in since:
        if commit.compacted:
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
    since: Iterable[tuple[InstantTime, CommitMetadata]],
) -> None:
    """Refuse a rescale if something was written into its partitions meanwhile."""
    own = set(partitions)
    for other, commit in since:
        common = own.intersection({*commit.write_stats, *commit.replaced_file_ids})
        if common:
            raise CommitConflictError(
                instant, f"instant {other} changed partition {min(common)!r} meanwhile; retry it"
            )
