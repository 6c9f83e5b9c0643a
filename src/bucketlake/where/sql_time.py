"""Dates and times in SQL text: the forms that every Spark version reads in the same way.

Spark accepts more forms (``2024-1-1``, ``2024``, region names after a time); these are not
supported.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo


class NotUnderstood(Exception):  # noqa: N818 - caught in this room, never an error of the user.
    """The meaning of a part of the SQL does not follow from its text alone; has the reason."""


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d{2}-\d{2})"
    r"(?:[ T](\d{2}:\d{2}:\d{2})(?:\.(\d{1,6}))?(?: ?(Z|UTC|[+-]\d{2}:\d{2}))?)?",
    re.ASCII,
)
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})", re.ASCII)
_OFFSET_MAX = timedelta(hours=18)


def parse_date(text: str) -> date:
    """Return a date in the form ``yyyy-MM-dd``."""
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise NotUnderstood(f"the date {text!r}; write it as yyyy-MM-dd")


def parse_local_timestamp(text: str) -> datetime:
    """Return a local time in the form ``yyyy-MM-dd[ HH:mm:ss[.ffffff]]``."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None or match[4]:
        raise NotUnderstood(f"the local time {text!r}; write it as yyyy-MM-dd HH:mm:ss")
    return _local_time(match)


def parse_timestamp(text: str, time_zone: str | None) -> datetime:
    """Return a point in time in UTC; a text without a zone is in the session's zone."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise NotUnderstood(f"the timestamp {text!r}; write it as yyyy-MM-dd HH:mm:ssZ")
    zone = _zone(match[4] or time_zone)
    if zone is None:
        raise NotUnderstood(f"the timestamp {text!r} has no time zone; append Z or +hh:mm")
    try:
        # In a gap of local time, Python and Java both use the offset before the gap.
        return _local_time(match).replace(tzinfo=zone).astimezone(UTC)
    except OverflowError:
        raise NotUnderstood(f"the timestamp {text!r}") from None


def _local_time(match: re.Match[str]) -> datetime:
    day, clock, fraction = match[1], match[2] or "00:00:00", match[3] or ""
    try:
        return datetime.fromisoformat(f"{day}T{clock}.{fraction:0<6}")
    except ValueError:
        raise NotUnderstood(f"the time {match[0]!r}, which does not exist") from None


def _zone(name: str | None) -> tzinfo | None:
    if name is None or name in ("Z", "UTC"):
        return UTC if name else None
    offset = _OFFSET.fullmatch(name)
    if offset:
        sign, hours, minutes = offset.groups()
        distance = timedelta(hours=int(hours), minutes=int(minutes))
        in_range = int(minutes) < 60 and distance <= _OFFSET_MAX
        return timezone(-distance if sign == "-" else distance) if in_range else None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None
