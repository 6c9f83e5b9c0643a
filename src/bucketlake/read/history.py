"""Lists what happened to a table: the instants of its timeline, and what each commit wrote."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bucketlake.errors import BucketLakeError
from bucketlake.model.shown import Shown, ShownList
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Instant, State


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
    """

    operation: str | None = None
    written: int | None = None
    deleted: int | None = None
    files: int | None = None

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
    held = (instant.requested_at, instant.action, instant.state, instant.completed_at)
    if instant.state is not State.COMPLETED or not instant.action.writes_data:
        return TimelineEntry(*held)
    try:
        commit = timeline.read_commit(storage, instant)
    except BucketLakeError:  # The list must show it all the same; the doctor says what is wrong.
        return TimelineEntry(*held)
    stats = commit.stats
    return TimelineEntry(
        *held,
        operation=commit.operation,
        written=sum(stat.insert_count + stat.update_count for stat in stats),
        deleted=sum(stat.delete_count for stat in stats),
        files=len(stats),
    )


def _identity(instant: Instant) -> tuple[object, ...]:
    return instant.requested_at, instant.action, instant.state, instant.completed_at
