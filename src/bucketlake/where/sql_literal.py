"""Literals of Spark SQL: the values of strings, numbers, casts, dates and times.

If the value depends on Spark's version or settings, this raises :class:`NotUnderstood`. Of dates
and times only the forms are known that every Spark version reads in the same way; Spark accepts
more (``2024-1-1``, ``2024``, region names after a time).
:mod:`.comparable` decides which columns a literal can be compared with.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from typing import TypeAlias
from zoneinfo import ZoneInfo

LiteralValue: TypeAlias = bool | int | Decimal | float | str | date | datetime | None
"""A value that a column is compared with; None is NULL. Times with a zone are in UTC."""

DECIMAL_DIGITS_MAX = 38


class NotUnderstood(Exception):  # noqa: N818 - caught in this room, never an error of the user.
    """The meaning of a part of the SQL does not follow from its text alone; has the reason."""


class LiteralKind(Enum):
    """The type of a literal in Spark."""

    NULL = "NULL"
    BOOLEAN = "a boolean"
    INTEGER = "an integer"
    DECIMAL = "a decimal"
    FLOAT = "a 32-bit float"
    DOUBLE = "a double"
    STRING = "a string"
    DATE = "a date"
    TIMESTAMP = "a timestamp"
    LOCAL_TIMESTAMP = "a timestamp without time zone"


@dataclass(frozen=True, slots=True)
class SqlLiteral:
    """A literal as written: its kind, and its value as the nearest Python value."""

    kind: LiteralKind
    value: LiteralValue

    def negated(self) -> SqlLiteral:
        """Return the negated literal."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | Decimal | float):
            raise NotUnderstood(f"a minus before {self.kind.value}")
        # The minus of Decimal would round to the context's precision.
        if isinstance(self.value, Decimal):
            return SqlLiteral(self.kind, self.value.copy_negate())
        return SqlLiteral(self.kind, -self.value)


_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([01][0-7]{2})|(.))", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
INTEGER_TEXT = re.compile(r"-?(?:0|[1-9][0-9]{0,37})")
_NUMBER = re.compile(r"(?=.{1,80}$)(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
DOUBLE_TEXT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?|NaN|-?Infinity")

_INTEGER_CASTS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_TIMESTAMP_CASTS = frozenset({"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"})


def decode_string(raw: str) -> str | None:
    r"""Return the text of a quoted string as Spark reads it; None if Spark versions differ.

    A doubled quote is such a case: Spark 3 reads two strings, Spark 4 an escaped quote.

    Examples
    --------
    >>> decode_string(r"'it\'s \u0041'")
    "it's A"
    >>> decode_string("'it''s'") is None
    True
    """
    if not _STRING.fullmatch(raw):
        return None
    text = _ESCAPE.sub(_unescape, raw[1:-1])
    try:
        # A pair of surrogate escapes is one character; a lone one has no UTF-8.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None


def _unescape(match: re.Match[str]) -> str:
    short, long, octal, other = match.groups()
    if other is not None:
        # `\%` and `\_` keep their backslash, for LIKE.
        return f"\\{other}" if other in "%_" else _ESCAPED.get(other, other)
    code = int(octal, 8) if octal else int(short or long, 16)
    # Not in Unicode: return a lone surrogate, so that the whole string is rejected.
    return chr(code) if code <= 0x10FFFF else "\ud800"


def number_literal(text: str) -> SqlLiteral:
    """Return the literal of a number: an integer, a decimal, or with an exponent a double."""
    if "e" in text.lower():
        value = float(text)
        if math.isfinite(value):
            return SqlLiteral(LiteralKind.DOUBLE, value)
    if not _NUMBER.fullmatch(text):
        raise NotUnderstood(f"the number {text}")
    if "." in text:
        return SqlLiteral(LiteralKind.DECIMAL, Decimal(text))
    return SqlLiteral(LiteralKind.INTEGER, int(text))


def cast_literal(
    literal: SqlLiteral, type_name: str, type_arguments: Sequence[int], time_zone: str | None
) -> SqlLiteral:
    """Return a literal cast to a type, if the cast keeps its value exactly.

    ``DATE '…'`` and ``5L`` are casts too. ``type_name`` is the parser's name of the type.
    """
    cast: SqlLiteral | None = None
    if type_name in _INTEGER_CASTS:
        cast = _cast_to_integer(literal, _INTEGER_CASTS[type_name])
    elif type_name == "DECIMAL" and len(type_arguments) == 2:
        cast = _cast_to_decimal(literal, type_arguments[0], type_arguments[1])
    elif type_name in ("DOUBLE", "FLOAT"):
        cast = _cast_to_float(literal, LiteralKind[type_name])
    elif type_name == "TEXT" and literal.kind in (LiteralKind.STRING, LiteralKind.INTEGER):
        cast = SqlLiteral(LiteralKind.STRING, str(literal.value))
    elif type_name == "BOOLEAN" and literal.kind is LiteralKind.BOOLEAN:
        cast = literal
    elif isinstance(literal.value, str):
        cast = _cast_to_time(literal.value, type_name, time_zone)
    if cast is None:
        raise NotUnderstood(f"a cast of {literal.kind.value} to {type_name}")
    return cast


def _cast_to_integer(literal: SqlLiteral, bits: int) -> SqlLiteral | None:
    value = literal.value
    if literal.kind is LiteralKind.STRING and INTEGER_TEXT.fullmatch(str(value)):
        value = int(str(value))
    if isinstance(value, bool) or not isinstance(value, int) or not fits_bits(value, bits):
        return None
    return SqlLiteral(LiteralKind.INTEGER, value)


def _cast_to_decimal(literal: SqlLiteral, precision: int, scale: int) -> SqlLiteral | None:
    value = literal.value
    if literal.kind is LiteralKind.STRING and _NUMBER.fullmatch(str(value).removeprefix("-")):
        value = Decimal(str(value))
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    digits, fraction = count_digits(Decimal(value))
    fits = digits <= precision - scale and fraction <= scale <= precision <= DECIMAL_DIGITS_MAX
    return SqlLiteral(LiteralKind.DECIMAL, Decimal(value)) if fits else None


def _cast_to_float(literal: SqlLiteral, kind: LiteralKind) -> SqlLiteral | None:
    value = literal.value
    if literal.kind is LiteralKind.STRING and DOUBLE_TEXT.fullmatch(str(value)):
        value = float(str(value))
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float):
        return None
    number = float(value)
    if kind is LiteralKind.FLOAT and not is_float32(number):
        # Java rounds the decimal text directly to 32 bits, Python first to 64 bits.
        raise NotUnderstood(f"{number} as a 32-bit float")
    return SqlLiteral(kind, number)


def _cast_to_time(text: str, type_name: str, time_zone: str | None) -> SqlLiteral | None:
    if type_name == "DATE":
        return SqlLiteral(LiteralKind.DATE, parse_date(text))
    if type_name == "TIMESTAMPNTZ":
        return SqlLiteral(LiteralKind.LOCAL_TIMESTAMP, parse_local_timestamp(text))
    if type_name in _TIMESTAMP_CASTS:
        return SqlLiteral(LiteralKind.TIMESTAMP, parse_timestamp(text, time_zone))
    return None


def fits_bits(value: int, bits: int) -> bool:
    """Return whether a signed integer with a number of bits can hold a value."""
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def is_float32(value: float) -> bool:
    """Return whether a 32-bit float can hold a value exactly."""
    if not math.isfinite(value):
        return True
    try:
        (rounded,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return False
    return bool(rounded == value)


def count_digits(value: Decimal) -> tuple[int, int]:
    """Return the digits before and after the point, as written."""
    sign_digits_exponent = value.as_tuple()
    exponent = sign_digits_exponent.exponent
    assert isinstance(exponent, int)
    return max(len(sign_digits_exponent.digits) + exponent, 0), max(-exponent, 0)


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
