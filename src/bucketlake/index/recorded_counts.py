"""Recorded counts: the bucket count with which each partition was written (RFC-89, draft).

Rules say which count a new partition gets; the record says which count a partition has. A written
partition keeps its count if its rule changes without a rescale. Two writers that use different
counts for one partition detect it here before they commit. Each version lists all partitions; a
commit with a new partition, or with another count of a partition, writes the next version. Hudi
1.2.0 has no such record. So the rules win over an entry that is older than them, as after a rescale
by Hudi.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

from bucketlake.config.paths_of_table import EXTENSION_FOLDER
from bucketlake.errors import ObjectNotFoundError
from bucketlake.format.json_fields import parse_checked, parsing, render_checked, require_version
from bucketlake.index.hashing_config import HashingConfig, instants_in
from bucketlake.index.partition import PartitionBucket
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.markers import mark_instant
from bucketlake.timeline.outcome import is_committed

RECORD_FOLDER = f"{EXTENSION_FOLDER}/partition_counts"
VERSIONS_KEPT = 10

_SUFFIX = ".json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class RecordedCount:
    """The bucket count of a partition, and the commit that set it.

    Attributes
    ----------
    count : int
        Bucket count of the partition.
    instant : InstantTime
        The commit.
    """

    count: int
    instant: InstantTime


def record_path(instant: InstantTime) -> str:
    """Return the path of a commit's version, relative to the table."""
    return f"{RECORD_FOLDER}/{instant}{_SUFFIX}"


def recorded_counts(storage: Storage, timeline: Timeline) -> dict[str, RecordedCount]:
    """Return the entries that are committed on the timeline, by partition path."""
    committed = _committing(storage, timeline)
    entries = _entries(storage, timeline)
    return {path: entry for path, entry in entries.items() if committed(entry.instant)}


def _committing(storage: Storage, timeline: Timeline) -> Callable[[InstantTime], bool]:
    """Return a function that tells whether an instant is committed; it caches its results."""
    return cache(partial(is_committed, storage, timeline))


def _entries(storage: Storage, timeline: Timeline) -> dict[str, RecordedCount]:
    """Return the entries by partition path; old entries may be of rolled-back commits.

    This costs one listing and reads one version, whose size grows with the table's partitions.
    """
    versions = _versions(storage)
    completed = sorted(
        (version for version in versions if timeline.is_completed(version)),
        key=lambda version: timeline.completion_time(version) or version,
    )
    newest = next(
        (version for version in completed[::-1] if is_committed(storage, timeline, version)), None
    )
    if newest is None and (timeline.until is None or not versions):
        return {}
    # For a time before all kept versions, the oldest kept version is the best source.
    entries = _read(storage, newest or versions[0])
    return {path: entry for path, entry in entries.items() if timeline.is_completed(entry.instant)}


def with_recorded(
    index: PartitionBucket, config: HashingConfig, storage: Storage, timeline: Timeline
) -> PartitionBucket:
    """Return the index with the recorded counts that win over the rules of ``config``."""
    committed = _committing(storage, timeline)
    return index.with_recorded(
        {
            path: entry.count
            for path, entry in _entries(storage, timeline).items()
            # ``committed`` may send a request, so it comes last, for few entries.
            if entry.instant >= config.instant
            and entry.count != index.count_of(path)
            and committed(entry.instant)
        }
    )


def record_counts(
    storage: Storage, timeline: Timeline, instant: InstantTime, counts: Mapping[str, int]
) -> None:
    """Write a version with the counts of a commit's partitions, if a count is new or changed.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    timeline : Timeline
        The newest timeline.
    instant : InstantTime
        The commit; the version is valid when the commit is completed.
    counts : mapping of str to int
        Bucket counts by partition path.
    """
    held = _entries(storage, timeline)
    news = {
        path: RecordedCount(count, instant)
        for path, count in counts.items()
        if path not in held or held[path].count != count
    }
    if not news:
        return
    entries = sorted((held | news).items())
    partitions = {path: [entry.count, entry.instant] for path, entry in entries}
    held_now = {"version": _VERSION, "partitions": partitions}
    data = render_checked(held_now, partial(json.dumps, ensure_ascii=False))
    mark_instant(storage, instant)
    storage.put(record_path(instant), data)
    for old in _dispensable(_versions(storage), timeline):
        storage.delete(record_path(old))


def _dispensable(versions: list[InstantTime], timeline: Timeline) -> list[InstantTime]:
    """Return the versions to delete: all but the newest ones and those that a restore needs."""
    savepoints = [savepoint.requested_at for savepoint in timeline.savepoints()]
    needed = {max((v for v in versions if v <= time), default=None) for time in savepoints}
    return [version for version in versions[:-VERSIONS_KEPT] if version not in needed]


def _versions(storage: Storage) -> list[InstantTime]:
    """Return the instants of all versions, oldest first."""
    return instants_in(storage, RECORD_FOLDER, _SUFFIX)


def _read(storage: Storage, instant: InstantTime) -> dict[str, RecordedCount]:
    path = record_path(instant)
    with suppress(ObjectNotFoundError):  # Another commit deleted the version after the listing.
        data = storage.read(path)
        with parsing(path, f"recorded bucket counts of version {_VERSION} as JSON", data):
            held = parse_checked(data, path)
            require_version(held["version"], _VERSION, "recorded bucket counts", path)
            return {
                partition: RecordedCount(int(count), InstantTime(at))
                for partition, (count, at) in held["partitions"].items()
            }
    return {}
