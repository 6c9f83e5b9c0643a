"""Instants: one action on the timeline, the names of its files, and the text of its times.

Names are parsed and printed for both timeline layouts. In layout 2 (since table version 8) the name
of a completed file contains the completion time, in layout 1 it does not. ``timeline/active.py``
lists the files; ``timeline/clock.py`` issues new times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from functools import cached_property
from typing import Self

from bucketlake.config.table_config import TimelineTimezone
from bucketlake.config.table_version import LAYOUT_2, TimelineLayout
from bucketlake.errors import TimelineError
from bucketlake.model.file_name import InstantTime


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
