"""New times for instants: strictly greater than every time the timeline or this process has seen.

Times are digits in the timeline's zone and compared as text. Where the clock stands still or goes
back (two instants within a millisecond, a skewed writer before us, the repeated hour at the end of
summer time on a ``LOCAL`` timeline), the next time is the greatest one seen plus a millisecond.
Holding the table lock meanwhile, and waiting out the clocks of other hosts, is the writer's part.

The zone of a ``LOCAL`` timeline is that of its writers, and this process may live in another one.
Hudi gives out its times without a look at the timeline: after an instant of ours from a zone ahead
of it, hours of its commits would be older than ours, and no reader would see them. So no time is
ahead of the zone in which the newest instant was written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from bucketlake.config.table_config import TimelineTimezone
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.location import place_of
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import instant_from_ms, instant_to_ms, shift_instant

_ZONE_STEP_MS = 15 * 60_000  # Zones differ from UTC by whole quarters of an hour.
_STORAGE_BEHIND_MS_MAX = 60_000  # Its clock, or stores that keep whole seconds.


def system_now_ms() -> int:
    """Return milliseconds since 1970 UTC by the host's clock."""
    return time.time_ns() // 1_000_000


class IssuedTimes:
    """The newest time that was given out, for clocks to stay ahead of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest = InstantTime("")

    def issue(self, wanted: InstantTime, seen: InstantTime) -> InstantTime:
        """Give out the wanted time, or the first one after all that were seen and issued."""
        with self._lock:
            newest = max(seen, self._newest)
            self._newest = wanted if wanted > newest else _following(newest)
            return self._newest


_BY_TABLE: dict[tuple[str, TimelineTimezone], IssuedTimes] = {}


def issued_times(table_root: str, timezone: TimelineTimezone) -> IssuedTimes:
    """Return what this process has issued for a table, to hand to every clock of that table.

    Kept by table, so that one whose timeline runs ahead of the clock drags no other along.
    """
    return _BY_TABLE.setdefault((place_of(table_root), timezone), IssuedTimes())


class InstantClock:
    """Gives out the times of new instants and of completions.

    Parameters
    ----------
    timezone : {"UTC", "LOCAL"}
        Zone of the table's timeline.
    now_ms : callable
        Milliseconds since 1970 UTC.
    issued : IssuedTimes, optional
        What to stay ahead of besides the timeline: :func:`issued_times` for all that the process
        has issued for the table. None stands for this clock's own times.
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

    def next_instant(self, timeline: Timeline, after: InstantTime | None = None) -> InstantTime:
        """Return a time greater than every requested and completion time on the timeline.

        Greater than ``after``, too, where that is given: an instant that may not be there yet.

        No two calls return the same time, from whatever thread, and a later call returns the
        greater one.
        """
        now_ms = self.now_ms()
        wanted = instant_from_ms(now_ms, self._timezone)
        if self._timezone == "LOCAL":
            wanted = min(wanted, _in_zone_of_writers(now_ms, timeline, wanted))
        seen = max(timeline.newest_time() or InstantTime(""), after or InstantTime(""))
        return self._issued.issue(wanted, seen)


def _in_zone_of_writers(now_ms: int, timeline: Timeline, local: InstantTime) -> InstantTime:
    """Return the time in the zone of the newest instant's writer; local where that is ours."""
    newest = max((one.completed_at for one in timeline.instants if one.completed_at), default=None)
    written_ms = timeline.newest_written_ms
    if newest is None or written_ms is None:
        return local
    offset_ms = _offset_ms(newest, written_ms)
    if offset_ms == _offset_ms(instant_from_ms(written_ms, "LOCAL"), written_ms):
        return local  # Which knows of a change to summer time since.
    return instant_from_ms(now_ms + offset_ms, "UTC")


def _offset_ms(instant: InstantTime, written_ms: int) -> int:
    """Return how far an instant's zone is ahead of UTC; its file is written a little later."""
    behind_ms = written_ms + _STORAGE_BEHIND_MS_MAX - instant_to_ms(instant, "UTC")
    return -(behind_ms // _ZONE_STEP_MS) * _ZONE_STEP_MS


def _following(instant: InstantTime) -> InstantTime:
    return shift_instant(instant, timedelta(milliseconds=1))


def table_clock(
    table_root: str, timezone: TimelineTimezone, now_ms: Callable[[], int] = system_now_ms
) -> InstantClock:
    """Return a clock for a table that stays ahead of all that the process issued for it."""
    return InstantClock(timezone, now_ms, issued_times(table_root, timezone))
