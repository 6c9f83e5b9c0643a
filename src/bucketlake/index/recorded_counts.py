"""Recorded bucket numbers: the count that each partition really got (RFC-89, draft).

Rules say what a partition should have; the record says what it has. A partition that was written
keeps its count when its rule changes without a rescale, and two writers that count one partition
differently find each other here before they commit. Each version lists all partitions; a commit
that meets a new one, or gives one another count, writes the next. Hudi 1.2.0 knows no such record,
so a rescale of Hudi's, whose rules are newer than the entry, outweighs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

from bucketlake.config.layout import EXTENSION_FOLDER
from bucketlake.errors import FormatError, ObjectNotFoundError
from bucketlake.index.hashing_config import HashingConfig
from bucketlake.index.partition import PartitionBucket
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action
from bucketlake.timeline.markers import mark_instant
from bucketlake.timeline.outcome import is_committed

RECORD_FOLDER = f"{EXTENSION_FOLDER}/partition_counts"
VERSIONS_KEPT = 10

_SUFFIX = ".json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class RecordedCount:
    """The bucket count of a partition, and the commit that gave it.

    Attributes
    ----------
    count : int
        Buckets that the partition has.
    instant : InstantTime
        The commit.
    """

    count: int
    instant: InstantTime


def record_path(instant: InstantTime) -> str:
    """Return where the version of a commit lies, relative to the table."""
    return f"{RECORD_FOLDER}/{instant}{_SUFFIX}"


def recorded_counts(storage: Storage, timeline: Timeline) -> dict[str, RecordedCount]:
    """Return the entries that are committed on the timeline, by partition path."""
    counts = _committing(storage, timeline)
    entries = _entries(storage, timeline)
    return {path: held for path, held in entries.items() if counts(held.instant)}


def _committing(storage: Storage, timeline: Timeline) -> Callable[[InstantTime], bool]:
    """Return what tells whether an instant is committed, with one request for an old one."""
    return cache(partial(is_committed, storage, timeline))


def _entries(storage: Storage, timeline: Timeline) -> dict[str, RecordedCount]:
    """Return the entries by partition path; old ones may be of commits that were rolled back.

    The cost is one listing, and one version, which grows with the table's partitions.
    """
    versions = _versions(storage)
    completed = sorted(
        (version for version in versions if timeline.is_completed(version)),
        key=lambda version: timeline.completion_time(version) or version,
    )
    newest = next((one for one in completed[::-1] if is_committed(storage, timeline, one)), None)
    if newest is None and (timeline.until is None or not versions):
        return {}
    # Of a time before the versions that are kept, the oldest one knows most.
    entries = _read(storage, newest or versions[0])
    return {path: held for path, held in entries.items() if timeline.is_completed(held.instant)}


def with_recorded(
    index: PartitionBucket, config: HashingConfig, storage: Storage, timeline: Timeline
) -> PartitionBucket:
    """Return the index with the partitions whose recorded count beats the rules of ``config``."""
    counts = _committing(storage, timeline)
    return index.with_recorded(
        {
            path: held.count
            for path, held in _entries(storage, timeline).items()
            # Asked last, and of few.
            if held.instant >= config.instant
            and held.count != index.count_of(path)
            and counts(held.instant)
        }
    )


def record_counts(
    storage: Storage, timeline: Timeline, instant: InstantTime, counts: Mapping[str, int]
) -> None:
    """Write a version with the counts of the partitions that a commit wrote, if it tells news.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    timeline : Timeline
        The newest timeline.
    instant : InstantTime
        The commit; the version counts once it is completed.
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
    partitions = {path: [one.count, one.instant] for path, one in sorted((held | news).items())}
    data = json.dumps({"version": _VERSION, "partitions": partitions}, ensure_ascii=False)
    mark_instant(storage, instant)
    storage.put(record_path(instant), data.encode())
    for old in _dispensable(_versions(storage), timeline):
        storage.delete(record_path(old))


def forget_counts(storage: Storage, instants: Callable[[InstantTime], bool]) -> None:
    """Drop the versions of some instants, which another program rolled back."""
    for version in _versions(storage):
        if instants(version):
            storage.delete(record_path(version))


def _dispensable(versions: list[InstantTime], timeline: Timeline) -> list[InstantTime]:
    """Return the versions that go: a savepoint keeps the newest of its time, to be restored to."""
    savepoints = [one.requested_at for one in timeline.instants if one.action is Action.SAVEPOINT]
    held = {max((v for v in versions if v <= one), default=None) for one in savepoints}
    return [version for version in versions[:-VERSIONS_KEPT] if version not in held]


def _versions(storage: Storage) -> list[InstantTime]:
    """Return the instants of all versions, oldest first."""
    names = (o.path.rpartition("/")[2] for o in storage.list(RECORD_FOLDER, recursive=False))
    return sorted(InstantTime(n.removesuffix(_SUFFIX)) for n in names if n.endswith(_SUFFIX))


def _read(storage: Storage, instant: InstantTime) -> dict[str, RecordedCount]:
    path = record_path(instant)
    with suppress(ObjectNotFoundError):  # Dropped since the listing, as one of too many.
        data = storage.read(path)
        try:
            held = json.loads(data)
            if held["version"] != _VERSION:
                raise ValueError(f"version {held['version']}")
            return {
                partition: RecordedCount(int(count), InstantTime(at))
                for partition, (count, at) in held["partitions"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            expected = f"recorded bucket counts of version {_VERSION} as JSON"
            raise FormatError(path, expected, f"{data[:80]!r} ({error!r})") from None
    return {}
