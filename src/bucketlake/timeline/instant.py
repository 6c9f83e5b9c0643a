"""Instants: one action on the timeline, the names of its files, and the text of its times.

Names are parsed and printed for both timeline layouts. In layout 2 (since table version 8) the name
of a completed file contains the completion time, in layout 1 it does not. ``timeline/active.py``
lists the files. A clock issues new times.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Self

from bucketlake.config.table_config import TimelineTimezone
from bucketlake.config.table_version import LAYOUT_2, TimelineLayout
from bucketlake.errors import TimelineError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.location import place_of

if TYPE_CHECKING:
    from bucketlake.timeline.active import Timeline


class Action(Enum):
    """What an instant does; the value is its spelling in file names."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    CLUSTERING = "clustering"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"
    SCHEMA_COMMIT = "schemacommit"

    @property
    def completes_as(self) -> Action:
        """The action in the name of the completed file: a completed compaction is a commit."""
        return _COMPLETES_AS.get(self, self)

    @cached_property  # A timeline asks it of each instant.
    def writes_data(self) -> bool:
        """Whether names of data files may contain the instant's time."""
        return self.completes_as in WRITES


_COMPLETES_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}
WRITES = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})
"""Actions as which writes and table services of data complete; pending ones are writes."""

IN_TURN = WRITES | {Action.CLUSTERING}
"""Pending actions that are decided only after a turn in the order of commits."""

UNDOING = frozenset({Action.ROLLBACK, Action.RESTORE})
"""Actions after which an old version of a file group is the newest again."""

_ACTIONS = {action.value: action for action in Action}


class State(IntEnum):
    """The state of an instant; if there are files of several states, the latest state counts."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2


_STATES = {None: State.COMPLETED, "requested": State.REQUESTED, "inflight": State.INFLIGHT}
_NAME = re.compile(
    r"(?P<requested>[0-9]+)(?:_(?P<completed>[0-9]+))?\.(?P<action>\w+)(?:\.(?P<state>\D+))?"
)


@dataclass(frozen=True, slots=True)
class Instant:
    """One action on the timeline, identified by the time at which it was requested.

    Attributes
    ----------
    requested_at : InstantTime
        17 digits ``yyyyMMddHHmmssSSS`` in the timeline's zone.
    action : Action
        What it does: commit, replacecommit, clean, rollback …
    state : State
        Requested, inflight or completed.
    completed_at : InstantTime or None
        Completion time; None for pending ones, and for those of before an upgrade to layout 2. In
        layout 1 it is the requested time.
    """

    requested_at: InstantTime
    action: Action
    state: State
    completed_at: InstantTime | None = None

    @property
    def order(self) -> tuple[str, str, State]:
        """Sort key of the timeline: requested time, action as it completes, state."""
        return self.requested_at, self.action.completes_as.value, self.state

    def facts(self) -> dict[str, object]:
        """Return action, state and times, ready to be shown."""
        return {
            "instant": self.requested_at,
            "action": self.action.value,
            "state": self.state.name.lower(),
            "completed_at": self.completed_at,
        }

    @classmethod
    def from_file_name(cls, file_name: str, layout: TimelineLayout = LAYOUT_2) -> Self | None:
        """Parse a file name without its folder; None if it is not the name of an instant.

        Under layout 2, a completed file without completion time was written before an upgrade.

        Examples
        --------
        >>> Instant.from_file_name("20240102030405678.inflight").action
        <Action.COMMIT: 'commit'>
        >>> Instant.from_file_name("hoodie.properties") is None
        True
        """
        match = _NAME.fullmatch(file_name)
        if match is None:
            return None
        action_name, state_name = match["action"], match["state"]
        if action_name == "inflight" and state_name is None:  # The only name without an action.
            action_name, state_name = Action.COMMIT.value, "inflight"
        action, state = _ACTIONS.get(action_name), _STATES.get(state_name)
        if action is None or state is None or not _may_be(action, state, match["completed"]):
            return None
        completed = match["completed"]
        if state is State.COMPLETED and not layout.has_completion_times:
            completed = match["requested"]
        return cls(
            InstantTime(match["requested"]),
            action,
            state,
            None if completed is None else InstantTime(completed),
        )

    def to_file_name(self, layout: TimelineLayout) -> str:
        """Return the file name, without a folder, for a timeline layout."""
        action = self.action
        if self.state is State.COMPLETED:
            with_time = layout.has_completion_times and self.completed_at is not None
            stem = f"{self.requested_at}_{self.completed_at}" if with_time else self.requested_at
            return f"{stem}.{action.completes_as.value}"
        if action is Action.COMMIT and self.state is State.INFLIGHT:
            return f"{self.requested_at}.inflight"
        if action is Action.CLUSTERING and not layout.names_clusterings:
            action = Action.REPLACE_COMMIT
        return f"{self.requested_at}.{action.value}.{self.state.name.lower()}"


def _may_be(action: Action, state: State, completed: str | None) -> bool:
    if state is State.COMPLETED:
        return action.completes_as is action
    return completed is None


_MILLISECONDS_DIGITS = 17
_SECONDS_DIGITS = 14
_BEFORE_TIME = "0" * _SECONDS_DIGITS


def is_initial(instant: str) -> bool:
    """Return whether the digits of an instant are a counter and no time.

    Bootstraps and the first syncs of tools have such instants, and builds of a metadata table.
    """
    return instant.startswith(_BEFORE_TIME)


def instant_from_ms(at_ms: int, timezone: TimelineTimezone) -> InstantTime:
    """Return a time as the digits of an instant, in the time zone of the timeline.

    Examples
    --------
    >>> instant_from_ms(1_700_000_000_123, "UTC")
    '20231114221320123'
    """
    seconds, milliseconds = divmod(at_ms, 1000)
    at = datetime.fromtimestamp(seconds, UTC if timezone == "UTC" else None)
    return InstantTime(f"{at:%Y%m%d%H%M%S}{milliseconds:03d}")


def instant_to_ms(instant: str, timezone: TimelineTimezone) -> int:
    """Return an instant's time in milliseconds since 1970 UTC.

    An instant without milliseconds means the last millisecond of its second.

    Raises
    ------
    TimelineError
        If the digits are not a date, for example those of bootstrap instants.
    """
    at = instant_to_datetime(instant)
    if timezone == "UTC":
        at = at.replace(tzinfo=UTC)
    return int(at.replace(microsecond=0).timestamp()) * 1000 + at.microsecond // 1000


def instant_to_datetime(instant: str) -> datetime:
    """Return an instant's digits as a date without a zone; raise TimelineError if it is no date."""
    milliseconds = instant[_SECONDS_DIGITS:_MILLISECONDS_DIGITS] or "999"
    try:
        at = datetime.strptime(instant[:_SECONDS_DIGITS], "%Y%m%d%H%M%S")
        return at.replace(microsecond=int(milliseconds) * 1000)
    except ValueError as error:
        raise TimelineError(instant, f"its digits are not a date ({error})") from error


def shift_instant(instant: str, by: timedelta) -> InstantTime:
    """Return a time before or after an instant, computed from its digits without a time zone."""
    at = instant_to_datetime(instant) + by
    return InstantTime(f"{at:%Y%m%d%H%M%S}{at.microsecond // 1000:03d}")


# ---- The clock for instants: each new time is greater than all times seen before -----------------
#
# Times are digits in the time zone of the timeline and are compared as text. A new time is greater
# than every time on the timeline and every time that this process has issued. The clock may stand
# still or go back: two instants within a millisecond, an earlier writer with a fast clock, or the
# repeated hour at the end of summer time on a ``LOCAL`` timeline. Then the next time is the
# greatest time seen plus a millisecond. The writer itself handles locks and clocks of other hosts.
#
# The zone of a ``LOCAL`` timeline is the zone of its writers, and this process may be in another
# zone. Hudi issues times without reading the timeline. If we wrote an instant in a zone ahead of
# Hudi's, then for hours Hudi's commits would be older than ours, and no reader would see them. So a
# new time is never ahead of the zone in which the newest instant was written.

_TICK = timedelta(milliseconds=1)
AHEAD_MS_MAX = 60_000
"""How far instants may be ahead of a clock: the clocks of hosts differ by seconds."""

_ZONE_STEP_MS = 15 * 60_000  # Zones differ from UTC by whole quarters of an hour.
_STORAGE_BEHIND_MS_MAX = 60_000  # How far storage's clock may be behind; it may keep only seconds.


def system_now_ms() -> int:
    """Return milliseconds since 1970 UTC from the clock of this host."""
    return time.time_ns() // 1_000_000


class IssuedTimes:
    """The newest time that was issued; clocks stay ahead of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest = InstantTime("")

    def issue(self, wanted: InstantTime, seen: InstantTime) -> InstantTime:
        """Issue the wanted time, or the first time after all seen and issued times."""
        with self._lock:
            newest = max(seen, self._newest)
            self._newest = wanted if wanted > newest else shift_instant(newest, _TICK)
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

    def next_instant(self, timeline: Timeline, after: InstantTime | None = None) -> InstantTime:
        """Return a time greater than every requested and completion time on the timeline.

        If ``after`` is given, the time is also greater than that instant, which may not be on the
        timeline yet. Two calls never return the same time, even in different threads; a later call
        returns a greater time.
        """
        seen = max(timeline.newest_time() or InstantTime(""), after or InstantTime(""))
        return self._issued.issue(self.now(timeline), seen)

    def now(self, timeline: Timeline) -> InstantTime:
        """Return the time of this clock, in the zone of the timeline's writers if that is behind.

        The timeline may hold greater times; see :meth:`future_of`.
        """
        now_ms = self.now_ms()
        local = instant_from_ms(now_ms, self._timezone)
        if self._timezone == "UTC":
            return local
        return min(local, _in_zone_of_writers(now_ms, timeline, local))

    def future_of(self, timeline: Timeline) -> list[InstantTime]:
        """Return the instants with a time that is more than a minute ahead of this clock.

        The clock of a writer was ahead or still is, or on a ``LOCAL`` timeline its zone is ahead of
        this process's. Later instants follow the greatest time, so they are in the future, too,
        until this clock passes it.
        """
        limit = instant_from_ms(self.now_ms() + AHEAD_MS_MAX, self._timezone)
        return [
            found.requested_at
            for found in timeline.instants
            if max(found.requested_at, found.completed_at or "") > limit
        ]


def told_future(instants: Sequence[InstantTime]) -> str:
    """Return a sentence that names instants in the future; there is at least one.

    Examples
    --------
    >>> told_future([InstantTime("20990102030405678")])
    'instant 20990102030405678 is in the future: the clock or zone of a writer is or was ahead'
    """
    many = len(instants) > 1
    named = f"{len(instants)} instants, from {instants[0]} to {instants[-1]}, are"
    return (
        f"{named if many else f'instant {instants[0]} is'} in the future: the clock or zone of a "
        "writer is or was ahead"
    )


def _in_zone_of_writers(now_ms: int, timeline: Timeline, local: InstantTime) -> InstantTime:
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


def table_clock(
    table_root: str, timezone: TimelineTimezone, now_ms: Callable[[], int] = system_now_ms
) -> InstantClock:
    """Return a clock for a table; it stays ahead of all times that this process issued for it."""
    return InstantClock(timezone, now_ms, issued_times(table_root, timezone))
