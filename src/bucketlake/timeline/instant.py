"""Instants: one action on the timeline, the names of its files, and the text of its times.

Names parse and print themselves for both timeline layouts: layout 2 (table version 8 on) puts the
completion time into the name of a completed file, layout 1 does not. Which files there are is
``timeline/active.py``'s business; new times come from ``timeline/clock.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from typing import Self

from bucketlake.config.table_config import TimelineTimezone
from bucketlake.errors import ConfigError, TimelineError
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
        """The action that the completed file bears: a finished compaction is a commit."""
        return _COMPLETES_AS.get(self, self)

    @property
    def writes_data(self) -> bool:
        """Whether data files may bear the instant's time."""
        return self.completes_as in _COMMITS


_COMPLETES_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}
_COMMITS = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})
WRITES = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})
"""Actions of pending instants that are writes, not table services."""

_ACTIONS = {action.value: action for action in Action}


class State(IntEnum):
    """How far an instant is; a later state outweighs the files of an earlier one."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2


_STATES = {None: State.COMPLETED, "requested": State.REQUESTED, "inflight": State.INFLIGHT}
_NAME = re.compile(
    r"(?P<requested>[0-9]+)(?:_(?P<completed>[0-9]+))?\.(?P<action>\w+)(?:\.(?P<state>\D+))?"
)


@dataclass(frozen=True, slots=True)
class Instant:
    """One action on the timeline, known by the time at which it was requested.

    Attributes
    ----------
    requested_at : InstantTime
        17 digits ``yyyyMMddHHmmssSSS`` in the timeline's zone.
    action : Action
        What it does: commit, replacecommit, clean, rollback …
    state : State
        Requested, inflight or completed.
    completed_at : InstantTime or None
        Completion time; None for pending ones, and in timeline layout 1.
    """

    requested_at: InstantTime
    action: Action
    state: State
    completed_at: InstantTime | None = None  # Only completed ones of layout 2 know it by name.

    @property
    def order(self) -> tuple[str, str, State]:
        """Sort key of the timeline: requested time, action as it completes, state."""
        return self.requested_at, self.action.completes_as.value, self.state

    @classmethod
    def from_file_name(cls, file_name: str) -> Self | None:
        """Parse a name without its folder; None where it is not an instant's.

        A name tells its layout itself: a completed file without completion time is of layout 1,
        or left over from before an upgrade to layout 2.

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
        if action_name == "inflight" and state_name is None:  # The one name without an action.
            action_name, state_name = Action.COMMIT.value, "inflight"
        action, state = _ACTIONS.get(action_name), _STATES.get(state_name)
        if action is None or state is None or not _may_be(action, state, match["completed"]):
            return None
        completed = match["completed"]
        return cls(
            InstantTime(match["requested"]),
            action,
            state,
            None if completed is None else InstantTime(completed),
        )

    def to_file_name(self, layout_version: int) -> str:
        """Print the name, without a folder, as the timeline layout wants it."""
        action = self.action
        if self.state is State.COMPLETED:
            with_time = layout_version > 1 and self.completed_at is not None
            stem = f"{self.requested_at}_{self.completed_at}" if with_time else self.requested_at
            return f"{stem}.{action.completes_as.value}"
        if action is Action.COMMIT and self.state is State.INFLIGHT:
            return f"{self.requested_at}.inflight"
        if action is Action.CLUSTERING and layout_version == 1:
            action = Action.REPLACE_COMMIT
        return f"{self.requested_at}.{action.value}.{self.state.name.lower()}"


def _may_be(action: Action, state: State, completed: str | None) -> bool:
    if state is State.COMPLETED:
        return action.completes_as is action
    return completed is None


_MILLISECONDS_DIGITS = 17
_SECONDS_DIGITS = 14
_AS_OF_FORMS = "a time as yyyyMMddHHmmss[SSS], yyyy-MM-dd or yyyy-MM-dd HH:mm:ss[.SSS]"
_AS_OF_TEXT = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{3}))?)?", re.ASCII)
_BEFORE_TIME = "0" * _SECONDS_DIGITS  # Instants from before any clock: bootstrap, first syncs.


def instant_from_ms(at_ms: int, timezone: TimelineTimezone) -> InstantTime:
    """Print a time as an instant's, in the zone that the table keeps its timeline in.

    Examples
    --------
    >>> instant_from_ms(1_700_000_000_123, "UTC")
    '20231114221320123'
    """
    seconds, milliseconds = divmod(at_ms, 1000)
    at = datetime.fromtimestamp(seconds, UTC if timezone == "UTC" else None)
    return InstantTime(f"{at:%Y%m%d%H%M%S}{milliseconds:03d}")


def instant_to_ms(instant: str, timezone: TimelineTimezone) -> int:
    """Return an instant's time in milliseconds since 1970 UTC; seconds alone mean their last one.

    Raises
    ------
    TimelineError
        If the digits are not a date, as those of bootstrap instants are not.
    """
    at = instant_to_datetime(instant)
    if timezone == "UTC":
        at = at.replace(tzinfo=UTC)
    return int(at.replace(microsecond=0).timestamp()) * 1000 + at.microsecond // 1000


def instant_to_datetime(instant: str) -> datetime:
    """Read an instant's digits as a date without a zone; TimelineError where they are none."""
    milliseconds = instant[_SECONDS_DIGITS:_MILLISECONDS_DIGITS] or "999"
    try:
        at = datetime.strptime(instant[:_SECONDS_DIGITS], "%Y%m%d%H%M%S")
        return at.replace(microsecond=int(milliseconds) * 1000)
    except ValueError as error:
        raise TimelineError(instant, f"its digits are not a date ({error})") from error


def shift_instant(instant: str, by: timedelta) -> InstantTime:
    """Return a time before or after an instant, by its digits: zones play no part in it."""
    at = instant_to_datetime(instant) + by
    return InstantTime(f"{at:%Y%m%d%H%M%S}{at.microsecond // 1000:03d}")


def parse_as_of(text: str, argument: str = "as_of") -> InstantTime:
    """Read the time of a time-travel query: an instant, or a date in the timeline's zone.

    Parameters
    ----------
    text : str
        The time.
    argument : str
        What the caller calls it, for the error.

    Raises
    ------
    ConfigError
        If the text has none of the forms, or names no date.

    Examples
    --------
    >>> parse_as_of("2024-01-02 03:04:05")
    '20240102030405000'
    """
    match = _AS_OF_TEXT.fullmatch(text)
    fields = [] if match is None else [part or "00" for part in match.groups()]
    digits = "".join(fields[:6]) + (match[7] or "000") if match else text
    if not re.fullmatch("[0-9]{14}|[0-9]{17}", digits):
        raise ConfigError(argument, text, f"it must be {_AS_OF_FORMS}")
    if not digits.startswith(_BEFORE_TIME):
        try:
            instant_to_datetime(digits)
        except TimelineError as error:
            raise ConfigError(argument, text, f"it must be {_AS_OF_FORMS}") from error
    return InstantTime(digits)
