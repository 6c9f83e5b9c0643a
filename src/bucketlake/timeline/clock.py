"""The clock for instants: each new time is greater than all times seen before.

Times are digits in the time zone of the timeline and are compared as text. A new time is greater
than every time on the timeline and every time that this process has issued. The clock may stand
still or go back: two instants within a millisecond, an earlier writer with a fast clock, or the
repeated hour at the end of summer time on a ``LOCAL`` timeline. Then the next time is the greatest
time seen plus a millisecond. The writer itself handles locks and clocks of other hosts.

The zone of a ``LOCAL`` timeline is the zone of its writers, and this process may be in another
zone. Hudi issues times without reading the timeline. If we wrote an instant in a zone ahead of
Hudi's, then for hours Hudi's commits would be older than ours, and no reader would see them. So a
new time is never ahead of the zone in which the newest instant was written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from bucketlake.config.table_config import TimelineTimezone
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.location import place_of
from bucketlake.timeline.instant import (
    Instant,
    instant_from_ms,
    instant_to_ms,
    shift_instant,
)

_ZONE_STEP_MS = 15 * 60_000  # Zones differ from UTC by whole quarters of an hour.
_STORAGE_BEHIND_MS_MAX = 60_000  # How far storage's clock may be behind; it may keep only seconds.


def system_now_ms() -> int:
    """Return milliseconds since 1970 UTC from the clock of this host."""
    return time.time_ns() // 1_000_000


class SeenTimes(Protocol):
    """What a clock asks of a timeline; see :class:`~bucketlake.timeline.active.Timeline`."""

    @property
    def instants(self) -> Sequence[Instant]:
        """The instants, each in its latest state."""
        ...

    @property
    def newest_written_ms(self) -> int | None:
        """When storage wrote the instant that completed last."""
        ...

    def newest_time(self) -> InstantTime | None:
        """Return the greatest requested or completion time."""
        ...


class IssuedTimes:
    """The newest time that was issued; clocks stay ahead of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest = InstantTime("")

    def issue(self, wanted: InstantTime, seen: InstantTime) -> InstantTime:
        """Issue the wanted time, or the first time after all seen and issued times."""
        with self._lock:
            newest = max(seen, self._newest)
            self._newest = wanted if wanted > newest else _following(newest)
            return self._newest


_BY_TABLE: dict[tuple[str, TimelineTimezone], IssuedTimes] = {}


def issued_times(table_root: str, timezone: TimelineTimezone) -> IssuedTimes:
    """Return the times that this process issued for a table; all clocks of the table share them.

    Each table has its own, so that a timeline that is ahead of the clock affects no other table.
    """
    return _BY_TABLE.setdefault((place_of(table_root), timezone), IssuedTimes())


class InstantClock:
    """Issues the times of new instants and of completions.

    Parameters
    ----------
    timezone : {"UTC", "LOCAL"}
        Zone of the table's timeline.
    now_ms : callable
        Milliseconds since 1970 UTC.
    issued : IssuedTimes, optional
        Times that new times must exceed, besides the timeline: :func:`issued_times` for all times
        that this process issued for the table. None: only the times of this clock.
    """

    def __init__(
        self,
        timezone: TimelineTimezone,
        now_ms: Callable[[], int] = system_now_ms,
        issued: IssuedTimes | None = None,
    ) -> None:
        self._timezone = timezone
        self.now_ms = now_ms
        self._issued = issued or IssuedTimes()

    def next_instant(self, timeline: SeenTimes, after: InstantTime | None = None) -> InstantTime:
        """Return a time greater than every requested and completion time on the timeline.

        If ``after`` is given, the time is also greater than that instant, which may not be on the
        timeline yet. Two calls never return the same time, even in different threads; a later call
        returns a greater time.
        """
        now_ms = self.now_ms()
        wanted = instant_from_ms(now_ms, self._timezone)
        if self._timezone == "LOCAL":
            wanted = min(wanted, _in_zone_of_writers(now_ms, timeline, wanted))
        seen = max(timeline.newest_time() or InstantTime(""), after or InstantTime(""))
        return self._issued.issue(wanted, seen)


def _in_zone_of_writers(now_ms: int, timeline: SeenTimes, local: InstantTime) -> InstantTime:
    """Return the time in the zone of the newest instant's writer; local if both zones agree."""
    newest = max(
        (instant.completed_at for instant in timeline.instants if instant.completed_at),
        default=None,
    )
    written_ms = timeline.newest_written_ms
    if newest is None or written_ms is None:
        return local
    offset_ms = _offset_ms(newest, written_ms)
    if offset_ms == _offset_ms(instant_from_ms(written_ms, "LOCAL"), written_ms):
        return local  # The local zone also follows a change to summer time since then.
    return instant_from_ms(now_ms + offset_ms, "UTC")


def _offset_ms(instant: InstantTime, written_ms: int) -> int:
    """Return how far the zone of an instant is ahead of UTC, from the time of its file."""
    behind_ms = written_ms + _STORAGE_BEHIND_MS_MAX - instant_to_ms(instant, "UTC")
    return -(behind_ms // _ZONE_STEP_MS) * _ZONE_STEP_MS


def _following(instant: InstantTime) -> InstantTime:
    return shift_instant(instant, timedelta(milliseconds=1))


def table_clock(
    table_root: str, timezone: TimelineTimezone, now_ms: Callable[[], int] = system_now_ms
) -> InstantClock:
    """Return a clock for a table; it stays ahead of all times that this process issued for it."""
    return InstantClock(timezone, now_ms, issued_times(table_root, timezone))
