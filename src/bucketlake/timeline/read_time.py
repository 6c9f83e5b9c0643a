"""The times of a read: ``as_of``, ``since`` and ``until``, in the forms in which callers have them.

A time without a zone is a time of the timeline's clock, because instants are shown on that clock.
Instants have milliseconds, so smaller fractions are cut off.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, tzinfo
from typing import TypeAlias

from bucketlake.config.table_config import TimelineTimezone
from bucketlake.errors import ConfigError, TimelineError
from bucketlake.model.file_name import InstantTime
from bucketlake.model.result import WriteResult
from bucketlake.timeline.instant import Instant, State, instant_to_datetime, is_initial

ReadTime: TypeAlias = str | date | WriteResult | Instant
"""A time as callers give it; a ``datetime`` is a ``date``, too."""

_FORMS = (
    "give a time as yyyyMMddHHmmss[SSS], yyyy-MM-dd or yyyy-MM-dd HH:mm:ss[.SSS], also with T and "
    "a zone, a datetime or a date, the result of a write, or an entry of table.timeline() "
    "(bucketlake timeline)"
)
_PENDING = (
    "this instant is not completed; give an entry of table.timeline() (bucketlake timeline) that "
    "is, or a time"
)
_NOTHING = "this write committed nothing; give the result of an earlier write, or a time"
_FROM_THE_START = re.compile("0+", re.ASCII)  # As jobs of Hudi begin an incremental query.
_TEXT = re.compile(
    r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?P<zone>Z|[+-]\d\d:\d\d)?)?", re.ASCII
)


def read_time(
    given: ReadTime, argument: str = "as_of", timezone: TimelineTimezone = "UTC"
) -> InstantTime:
    """Return a time of a read as the digits of an instant.

    Parameters
    ----------
    given : str, datetime, date, WriteResult or Instant
        The time; a date is its first moment. A write or an instant means its commit: the requested
        time for ``as_of``, which counts by it, else the completion time. An instant of before an
        upgrade has only its requested time.
    argument : str
        Name of the caller's parameter, for the error.
    timezone : str
        The zone of the timeline.

    Raises
    ------
    ConfigError
        If the value has none of the allowed forms, or is no time.

    Examples
    --------
    >>> read_time("000", "since")
    '00000000000000000'
    >>> read_time("2024-01-02 03:04:05"), read_time("2024-01-02T03:04:05.678+01:00")
    ('20240102030405000', '20240102020405678')
    """
    if isinstance(given, WriteResult):
        of_commit = given.instant if argument == "as_of" else given.completed_at
        if of_commit is None:
            raise ConfigError(argument, given, _NOTHING)
        return of_commit
    if isinstance(given, Instant):
        if given.state is not State.COMPLETED:
            raise ConfigError(argument, given.requested_at, _PENDING)
        ends_at = None if argument == "as_of" else given.completed_at
        return ends_at or given.requested_at
    try:
        if isinstance(given, datetime):
            return _digits(given, timezone)
        if isinstance(given, date):
            return _digits(datetime(given.year, given.month, given.day), timezone)
        if isinstance(given, str):
            if argument == "since" and _FROM_THE_START.fullmatch(given):
                return InstantTime("0" * 17)
            return _of_text(given, timezone)
    except (ValueError, OverflowError, OSError, TimelineError) as error:
        # A time near the first or the last year may have no equivalent in the zone.
        raise ConfigError(argument, given, _FORMS) from error
    raise ConfigError(argument, given, _FORMS)


def _of_text(text: str, timezone: TimelineTimezone) -> InstantTime:
    if _TEXT.fullmatch(text):
        return _digits(datetime.fromisoformat(text), timezone)
    if not re.fullmatch("[0-9]{14}|[0-9]{17}", text):
        raise ValueError(text)
    if not is_initial(text):
        instant_to_datetime(text)
    return InstantTime(text)


def _digits(at: datetime, timezone: TimelineTimezone) -> InstantTime:
    if at.tzinfo is not None:
        zone: tzinfo | None = UTC if timezone == "UTC" else None  # None: the zone of this process.
        at = at.astimezone(zone)
    return InstantTime(f"{at.year:04d}{at:%m%d%H%M%S}{at.microsecond // 1000:03d}")
