"""Lists what happened to a table: the instants of its timeline, and what each commit wrote."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from bucketlake.errors import BucketLakeError, TimelineError
from bucketlake.model.result import Shown, ShownList
from bucketlake.storage.base import Storage, at_once
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Instant, State, instant_to_datetime


@dataclass(frozen=True, slots=True, eq=False)
class TimelineEntry(Shown, Instant):
    """An instant of the timeline, with what its commit wrote. It is equal to its instant.

    Attributes
    ----------
    operation : str or None
        Hudi's name of the operation: ``UPSERT``, ``DELETE`` … None if the instant is pending or no
        commit, or if its file cannot be read; then the numbers are None, too.
    written, deleted : int or None
        Records that the commit inserted or updated, and records that it deleted, as it says itself.
    files : int or None
        Base files and log files that it wrote.
    written_bytes : int or None
        Size of these files.
    partitions : int or None
        Partitions that it changed.
    seconds : float or None
        From request to completion; a table service may have been planned long before it ran. None
        if the instant is pending, and in tables that store no completion times.
    """

    operation: str | None = None
    written: int | None = None
    deleted: int | None = None
    files: int | None = None
    written_bytes: int | None = None
    partitions: int | None = None
    seconds: float | None = None

    def __eq__(self, other: object) -> bool:
        """Compare the instants alone: an instant has one commit."""
        if not isinstance(other, Instant):
            return NotImplemented
        return _identity(self) == _identity(other)

    __hash__ = Instant.__hash__


def list_history(storage: Storage, timeline: Timeline) -> ShownList[TimelineEntry]:
    """Return the instants of the active timeline, oldest first."""
    read = partial(_entry, storage, timeline)
    return ShownList(at_once(storage, read, timeline.instants))


def _entry(storage: Storage, timeline: Timeline, instant: Instant) -> TimelineEntry:
    held = TimelineEntry(
        instant.requested_at,
        instant.action,
        instant.state,
        instant.completed_at,
        seconds=_seconds(instant),
    )
    if instant.state is not State.COMPLETED or not instant.action.writes_data:
        return held
    try:
        commit = timeline.read_commit(storage, instant)
    except BucketLakeError:  # The list must show it all the same; the doctor says what is wrong.
        return held
    stats = commit.stats
    return replace(
        held,
        operation=commit.operation,
        written=sum(stat.insert_count + stat.update_count for stat in stats),
        deleted=sum(stat.delete_count for stat in stats),
        files=len(stats),
        written_bytes=sum(stat.file_size_bytes for stat in stats),
        partitions=len(commit.partitions),
    )


def _seconds(instant: Instant) -> float | None:
    begun_at, ended_at = instant.requested_at, instant.completed_at
    if ended_at is None or ended_at == begun_at:
        return None
    try:
        begun, ended = instant_to_datetime(begun_at), instant_to_datetime(ended_at)
    except TimelineError:  # A counter in place of a time.
        return None
    return (ended - begun).total_seconds()


def _identity(instant: Instant) -> tuple[object, ...]:
    return instant.requested_at, instant.action, instant.state, instant.completed_at
