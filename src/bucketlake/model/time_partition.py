"""Times as partition values: converting numbers, timestamps, dates or text.

This follows Hudi's timestamp-based key generator, but raises an error in three cases where Hudi
guesses: an unknown time zone (Hudi uses UTC), a time outside of the years 1 to 9999, and a column
of timestamps with another unit than microseconds. Whole columns are converted; the offset of a zone
is computed per span of time, not per value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError, InputError
from bucketlake.model.arrays import Mask, one_array
from bucketlake.model.column_type import is_number_type, is_text_type
from bucketlake.model.keys import TimestampPartition
from bucketlake.model.value_text import Column

# ---- Patterns of dates and times with Joda's letters, if they mean the same on every machine -----
#
# Patterns such as ``yyyy/MM/dd/HH`` format local times as partition values, and parse them. Letters
# whose text depends on the language or clock of a machine (``MMM``, ``EEE``, ``a``, ``z``, a year
# with two digits in input) raise an error, because two writers would disagree. Times are
# milliseconds since 1970 in local time.

Times = npt.NDArray[np.int64]

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


OUTPUT_KEY = "hoodie.keygen.timebased.output.dateformat"
INPUT_KEY = "hoodie.keygen.timebased.input.dateformat"

_TOKEN = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<other>[^A-Za-z'])")


@dataclass(frozen=True, slots=True)
class _Token:
    """Repetitions of a letter, or literal text."""

    text: str
    is_literal: bool

    @property
    def letter(self) -> str:
        return "" if self.is_literal else self.text[0]


_OUTPUT: dict[str, tuple[Callable[[datetime], int], int]] = {
    # Letter -> its number, and the milliseconds for which the number does not change.
    "y": (lambda t: t.year, DAY_MS),
    "Y": (lambda t: t.year, DAY_MS),
    "x": (lambda t: t.isocalendar().year, DAY_MS),
    "M": (lambda t: t.month, DAY_MS),
    "w": (lambda t: t.isocalendar().week, DAY_MS),
    "d": (lambda t: t.day, DAY_MS),
    "D": (lambda t: t.timetuple().tm_yday, DAY_MS),
    "e": (lambda t: t.isoweekday(), DAY_MS),
    "H": (lambda t: t.hour, HOUR_MS),
    "k": (lambda t: t.hour or 24, HOUR_MS),
    "K": (lambda t: t.hour % 12, HOUR_MS),
    "h": (lambda t: t.hour % 12 or 12, HOUR_MS),
    "m": (lambda t: t.minute, MINUTE_MS),
    "s": (lambda t: t.second, SECOND_MS),
    "S": (lambda t: t.microsecond // 1000, 1),
}
_INPUT_DIGITS_MAX = {"y": 4, "Y": 4, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2, "S": 9}
_DEFAULTS = {"y": 1970, "M": 1, "d": 1, "H": 0, "m": 0, "s": 0}
_OFFSET = "Z"


def format_times(pattern: str, local_ms: Times) -> pa.DictionaryArray:
    """Format local times with a pattern.

    Parameters
    ----------
    pattern : str
        Joda's letters and literal text.
    local_ms : ndarray of int64
        Milliseconds since 1970 in local time, in the years 1 to 9999.

    Returns
    -------
    DictionaryArray of string
        The texts. Each text is made once for all times with this text.

    Raises
    ------
    ConfigError
        If the pattern has an unsupported letter.

    Examples
    --------
    >>> format_times("yyyy/MM/dd", np.array([0, DAY_MS])).to_pylist()
    ['1970/01/01', '1970/01/02']
    """
    tokens = output_tokens(pattern)
    unit_ms = unit_of(tokens)
    encoded = pa.array(local_ms // unit_ms * unit_ms).dictionary_encode()
    times = [_EPOCH + timedelta(milliseconds=ms) for ms in encoded.dictionary.to_pylist()]
    texts = pa.array(["".join(_write(token, t) for token in tokens) for t in times], pa.string())
    return pa.DictionaryArray.from_arrays(encoded.indices, texts)


def output_tokens(pattern: str) -> list[_Token]:
    """Parse an output pattern; raise ConfigError for an unsupported letter."""
    tokens = _tokens(pattern, OUTPUT_KEY)
    for token in tokens:
        if token.letter and (token.letter not in _OUTPUT or _is_month_name(token)):
            raise ConfigError(
                OUTPUT_KEY,
                pattern,
                f"{token.text!r} is not supported; use digits: {' '.join(_OUTPUT)}, and M or MM",
            )
    return tokens


def unit_of(tokens: list[_Token]) -> int:
    """Return the milliseconds for which a pattern's text does not change."""
    return min((_OUTPUT[token.letter][1] for token in tokens if token.letter), default=DAY_MS)


@dataclass(frozen=True, slots=True)
class ParsedTimes:
    """Times parsed from text.

    Attributes
    ----------
    local_ms : ndarray of int64
        Milliseconds since 1970 in the local time of the text.
    offset_ms : ndarray of int64
        The offset from UTC, if the text has one.
    has_offset, is_valid : ndarray of bool
        Whether the text has an offset, and whether the pattern matches and the time exists.
    """

    local_ms: Times
    offset_ms: Times
    has_offset: Mask
    is_valid: Mask


def parse_times(pattern: str, texts: pa.Array) -> ParsedTimes:
    """Parse local times with a pattern.

    Raises
    ------
    ConfigError
        If the pattern has an unsupported letter, or no year.

    Examples
    --------
    >>> parse_times("yyyy-MM-dd HH", pa.array(["1970-01-02 01", "1970-02-30 00"])).is_valid
    array([ True, False])
    """
    found = pc.extract_regex(texts, _input_regex(pattern))
    is_valid = found.is_valid().to_numpy(zero_copy_only=False)
    fields = {field.name: pc.struct_field(found, field.name) for field in found.type}
    numbers = {
        name: _numbers(fields[name], default)
        for name, default in _DEFAULTS.items()
        if name in fields
    }
    local_ms, exists = _local_ms(numbers, len(texts))
    if "S" in fields:
        digits = pc.utf8_slice_codeunits(pc.utf8_rpad(fields["S"].fill_null(""), 3, "0"), 0, 3)
        local_ms += _numbers(digits, 0)
    has_offset = np.zeros(len(texts), np.bool_)
    offset_ms = np.zeros(len(texts), np.int64)
    if _OFFSET in fields:
        has_offset = is_valid.copy()
        offset_ms = _parsed_offsets(fields[_OFFSET])
    return ParsedTimes(local_ms, offset_ms, has_offset, is_valid & exists)


def input_unit_ms(pattern: str) -> int:
    """Return the milliseconds for which an input pattern's text does not change."""
    letters = "".join(token.letter for token in _tokens(pattern, INPUT_KEY))
    return min((_OUTPUT[letter][1] for letter in letters if letter in _OUTPUT), default=DAY_MS)


def says_offset(pattern: str) -> bool:
    """Return whether an input pattern has an offset from UTC."""
    return any(token.letter == _OFFSET for token in _tokens(pattern, INPUT_KEY))


def _tokens(pattern: str, key: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None:
            raise ConfigError(key, pattern, "a quote is not closed")
        at = match.end()
        if match["letters"]:
            tokens.append(_Token(match["letters"], is_literal=False))
        elif match["other"]:
            tokens.append(_Token(match["other"], is_literal=True))
        else:  # Two quotes are a quote, also within quoted text.
            quoted = match["quoted"].replace("''", "'") or "'"
            tokens.append(_Token(quoted, is_literal=True))
    return tokens


def _is_month_name(token: _Token) -> bool:
    return token.letter == "M" and len(token.text) > 2


def _write(token: _Token, time: datetime) -> str:
    if token.is_literal:
        return token.text
    width = len(token.text)
    number = _OUTPUT[token.letter][0](time)
    if token.letter == "S":
        return f"{number:03d}".ljust(width, "0")[:width]
    if token.letter in "yYx" and width == 2:
        number %= 100
    return f"{number:0{width}d}"


@cache
def _input_regex(pattern: str) -> str:
    tokens = _tokens(pattern, INPUT_KEY)
    letters = [token.letter.replace("Y", "y") for token in tokens]
    for token, letter in zip(tokens, letters, strict=True):
        two_digit_year = letter == "y" and len(token.text) == 2  # Its century depends on the clock.
        repeated = letter != "" and letters.count(letter) > 1
        if (
            letter not in ("", _OFFSET, *_INPUT_DIGITS_MAX)
            or two_digit_year
            or repeated
            or _is_month_name(token)
        ):
            raise ConfigError(
                INPUT_KEY,
                pattern,
                f"{token.text!r} is not supported; use yyyy M d H m s S and Z, each once",
            )
    if "y" not in letters:
        raise ConfigError(INPUT_KEY, pattern, "add the year, yyyy")
    return "^" + "".join(map(_field_regex, tokens, letters, [*letters[1:], ""])) + "$"


def _field_regex(token: _Token, letter: str, next_letter: str) -> str:
    if token.is_literal:
        return re.escape(token.text)
    if letter == _OFFSET:
        return r"(?P<Z>Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
    # Adjacent numbers can be separated only if their numbers of digits are known.
    width = str(len(token.text)) if next_letter in _INPUT_DIGITS_MAX else "1,"
    if width == "1,":
        width += str(len(token.text) if letter == "S" else _INPUT_DIGITS_MAX[letter])
    return f"(?P<{letter}>[0-9]{{{width}}})"


def _numbers(texts: pa.Array, default: int) -> Times:
    numbers: Times = (
        pc.if_else(pc.equal(texts, ""), None, texts)
        .cast(pa.int64())
        .fill_null(default)
        .to_numpy(zero_copy_only=False)
    )
    return numbers


def _local_ms(fields: dict[str, Times], count: int) -> tuple[Times, Mask]:
    """Return milliseconds since 1970, and whether the date and time exist."""
    year, month, day, hour, minute, second = (
        fields.get(name, np.full(count, default)) for name, default in _DEFAULTS.items()
    )
    exists = (year >= 1) & (month >= 1) & (month <= 12) & (hour <= 23)
    exists &= (minute <= 59) & (second <= 59)
    months = np.where(exists, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    first_day = months.astype("datetime64[D]").astype(np.int64)
    next_month = (months + 1).astype("datetime64[D]").astype(np.int64)
    exists &= (day >= 1) & (day <= next_month - first_day)
    seconds = (hour * 60 + minute) * 60 + second
    return (first_day + day - 1) * DAY_MS + seconds * SECOND_MS, exists


def _parsed_offsets(texts: pa.Array) -> Times:
    parts = pc.extract_regex(texts, r"^(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]*)$")
    hours = _numbers(pc.struct_field(parts, "hours"), 0)
    minutes = _numbers(pc.struct_field(parts, "minutes"), 0)
    is_west = pc.equal(pc.struct_field(parts, "sign"), "-").fill_null(False)
    sign = np.where(is_west.to_numpy(zero_copy_only=False), -1, 1)
    return np.asarray(sign * (hours * HOUR_MS + minutes * MINUTE_MS))


# ---- Times as partition values: converting numbers, timestamps, dates or text --------------------

_TYPE_KEY = "hoodie.keygen.timebased.timestamp.type"
_UNIT_KEY = "hoodie.keygen.timebased.timestamp.scalar.time.unit"
_ZONE_KEY = "hoodie.keygen.timebased.timezone"

_MICROSECONDS, _DAYS = "MICROSECONDS", "DAYS"
_TYPES = {  # The unit of a number, by timestamp type.
    "UNIX_TIMESTAMP": "SECONDS",
    "EPOCHMILLISECONDS": "MILLISECONDS",
    "EPOCHMICROSECONDS": _MICROSECONDS,
    "SCALAR": None,
    "MIXED": None,
    "DATE_STRING": None,
}
_UNITS = {  # Milliseconds per unit; if negative, units per millisecond.
    "NANOSECONDS": -1_000_000,
    _MICROSECONDS: -1_000,
    "MILLISECONDS": 1,
    "SECONDS": SECOND_MS,
    "MINUTES": MINUTE_MS,
    "HOURS": HOUR_MS,
    _DAYS: DAY_MS,
}
_TIME_MIN_MS, _TIME_END_MS = -62_135_596_800_000, 253_402_300_800_000  # Years 1 to 9999.
_MISSING = 1  # Hudi treats a missing value as 1, in the unit of the column.
_SPANS_MS = (6 * HOUR_MS, 15 * MINUTE_MS, 1)  # In none of these, an offset changes twice.
_EPOCH = datetime(1970, 1, 1)


def check_timestamp_partition(setting: TimestampPartition) -> None:
    """Raise ConfigError for a setting that bucketlake does not support.

    Raises
    ------
    ConfigError
        If the type, unit, a zone or a letter of a pattern is not supported.
    """
    _unit_of(setting)
    output_tokens(setting.output_format)
    for pattern in setting.input_formats:
        parse_times(pattern, pa.array([], pa.string()))
    for zone in (setting.input_timezone, setting.output_timezone):
        _zone(zone or "UTC")


def time_texts(values: Column, setting: TimestampPartition, where: str) -> pa.DictionaryArray:
    """Convert the times of a column to partition values.

    Parameters
    ----------
    values : Array or ChunkedArray
        Numbers, timestamps, dates, or text.
    setting : TimestampPartition
        Content of the column, and the pattern.
    where : str
        Name of the column, for messages.

    Returns
    -------
    DictionaryArray of string
        The texts, never null: a missing value is treated as 1970-01-01, as in Hudi.

    Raises
    ------
    ConfigError
        If the setting is not supported, or does not fit the column's type.
    InputError
        If a value is not a time of the years 1 to 9999.

    Examples
    --------
    >>> setting = TimestampPartition("UNIX_TIMESTAMP", "yyyy/MM/dd")
    >>> time_texts(pa.array([1_700_000_000, None]), setting, "column ts").to_pylist()
    ['2023/11/14', '1970/01/01']
    """
    array = one_array(values)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    unit = _unit_of(setting)
    if is_text_type(array.type):
        local_ms = _local_times_of_text(array.cast(pa.string()), setting, where)
    else:
        utc_ms = _times_of_numbers(_counts(array, unit, setting, where), unit, where)
        local_ms = _to_local(utc_ms, _zone(setting.output_timezone or "UTC"))
    _require_known_years(local_ms, array, where)
    return format_times(setting.output_format, local_ms)


def _unit_of(setting: TimestampPartition) -> str | None:
    """Return the unit of numbers in the column; None if only text is supported."""
    timestamp_type, unit = setting.timestamp_type.upper(), setting.scalar_unit.upper()
    if timestamp_type not in _TYPES:
        raise ConfigError(_TYPE_KEY, setting.timestamp_type, f"use one of {', '.join(_TYPES)}")
    if unit not in _UNITS:
        raise ConfigError(_UNIT_KEY, setting.scalar_unit, f"use one of {', '.join(_UNITS)}")
    if timestamp_type == "DATE_STRING":
        return None
    return _TYPES[timestamp_type] or unit


def _counts(
    array: pa.Array, unit: str | None, setting: TimestampPartition, where: str
) -> npt.NDArray[np.int64]:
    """Return a column as integers of its unit; 1 for a missing value."""
    data_type = array.type
    if pa.types.is_timestamp(data_type):
        _require_unit(unit, _MICROSECONDS, data_type, setting, where)
        array = array.cast(pa.timestamp("us", data_type.tz), safe=False).view(pa.int64())
    elif pa.types.is_date(data_type):
        _require_unit(unit, _DAYS, data_type, setting, where)
        array = array.cast(pa.date32()).view(pa.int32())
    elif unit is None or not (is_number_type(data_type) or pa.types.is_null(data_type)):
        raise ConfigError(
            _TYPE_KEY, setting.timestamp_type, f"{where} is of type {data_type}, which does not fit"
        )
    try:
        if not pa.types.is_integer(array.type) and not pa.types.is_null(array.type):
            array = pc.trunc(array)
        counts: npt.NDArray[np.int64] = array.cast(pa.int64()).fill_null(_MISSING).to_numpy()
    except pa.ArrowInvalid as error:
        raise InputError(where, f"a value is not a time ({error})", "correct the values") from None
    return counts


def _require_unit(
    unit: str | None, needed: str, data_type: pa.DataType, setting: TimestampPartition, where: str
) -> None:
    if unit != needed:
        allowed = "EPOCHMICROSECONDS" if needed == _MICROSECONDS else f"SCALAR with unit {needed}"
        raise ConfigError(
            _TYPE_KEY,
            setting.timestamp_type,
            f"{where} has type {data_type}, which Hudi treats as a number of {needed.lower()}; "
            f"use {allowed}",
        )


def _times_of_numbers(counts: npt.NDArray[np.int64], unit: str | None, where: str) -> Times:
    assert unit is not None, "a column of numbers has a unit"
    factor = _UNITS[unit]
    if factor < 0:
        return _truncate(counts, -factor)
    limit = _TIME_END_MS // factor
    wrong = np.flatnonzero((counts < -limit) | (counts > limit))
    if len(wrong):
        raise _unknown_year(str(counts[wrong[0]]), where)
    return counts * factor


def _truncate(counts: npt.NDArray[np.int64], divisor: int) -> Times:
    # Java's division rounds towards zero, so that -1 microsecond is in 1970.
    return np.where(counts < 0, -(-counts // divisor), counts // divisor)


def _require_known_years(local_ms: Times, array: pa.Array, where: str) -> None:
    wrong = np.flatnonzero((local_ms < _TIME_MIN_MS) | (local_ms >= _TIME_END_MS))
    if len(wrong):
        raise _unknown_year(str(array[int(wrong[0])].as_py()), where)


def _unknown_year(value: str, where: str) -> InputError:
    return InputError(
        where,
        f"{value} is no time of the years 1 to 9999",
        f"correct the value, or the unit that {_TYPE_KEY} gives the column",
    )


def _local_times_of_text(texts: pa.Array, setting: TimestampPartition, where: str) -> Times:
    """Return local times in the zone of the partition values."""
    encoded = texts.dictionary_encode(null_encoding="encode")
    times = _parse(encoded.dictionary, setting, where)
    local_ms = times.local_ms
    zone_out = setting.output_timezone or setting.input_timezone
    if zone_out is not None:  # Without any zone, Hudi uses the zone of the text.
        offset_ms = times.offset_ms.copy()
        plain = ~times.has_offset
        zone_in = _zone(setting.input_timezone or "UTC")
        offset_ms[plain] = _offsets_at_local(local_ms[plain], zone_in, where)
        local_ms = _to_local(local_ms - offset_ms, _zone(zone_out))
    rows: npt.NDArray[np.int32] = encoded.indices.to_numpy()
    return local_ms[rows]


def _parse(texts: pa.Array, setting: TimestampPartition, where: str) -> ParsedTimes:
    """Parse each text with the first pattern that matches."""
    if not setting.input_formats:
        raise ConfigError(INPUT_KEY, "", f"{where} holds text; give the pattern of it")
    times = _missing_times(setting, len(texts))
    is_open = texts.is_valid().to_numpy(zero_copy_only=False)
    for pattern in setting.input_formats:
        parsed = parse_times(pattern, texts)
        times = _overlay(times, parsed, is_open & parsed.is_valid)
        is_open &= ~parsed.is_valid
    if is_open.any():
        patterns = ", ".join(map(repr, setting.input_formats))
        raise InputError(
            where,
            f"{texts[int(np.argmax(is_open))].as_py()!r} is not a time of the form {patterns}",
            f"correct the value, or add its form to {INPUT_KEY}",
        )
    return times


def _missing_times(setting: TimestampPartition, count: int) -> ParsedTimes:
    """Return Hudi's time for a missing value: it formats 1 with the pattern and parses it."""
    pattern = setting.input_formats[0]
    zone = _zone(setting.input_timezone or setting.output_timezone or "UTC")
    offset_ms = int(_to_local(np.array([_MISSING]), zone)[0]) - _MISSING
    unit_ms = input_unit_ms(pattern)
    local_ms = (_MISSING + offset_ms) // unit_ms * unit_ms
    return ParsedTimes(
        np.full(count, local_ms),
        np.full(count, offset_ms),
        np.full(count, says_offset(pattern)),
        np.ones(count, np.bool_),
    )


def _overlay(below: ParsedTimes, above: ParsedTimes, chosen: Mask) -> ParsedTimes:
    return ParsedTimes(
        np.where(chosen, above.local_ms, below.local_ms),
        np.where(chosen, above.offset_ms, below.offset_ms),
        np.where(chosen, above.has_offset, below.has_offset),
        below.is_valid | chosen,
    )


@cache
def _zone(name: str) -> tzinfo:
    """Return a zone by its name in the tz database, or as Java writes offsets: ``GMT+8:00``."""
    if name in ("UTC", "GMT"):
        return UTC
    offset = re.fullmatch(r"GMT([+-])([0-9]{1,2})(?::?([0-9]{2}))?", name)
    try:
        if offset is not None:
            hours, minutes = int(offset[2]), int(offset[3] or 0)
            return timezone(
                (1 if offset[1] == "+" else -1) * timedelta(hours=hours, minutes=minutes)
            )
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # No such zone, no valid name, or a folder of zones.
        raise ConfigError(
            _ZONE_KEY, name, "use a name of the tz database, as Europe/Berlin, or GMT+8:00"
        ) from None


def _to_local(utc_ms: Times, zone: tzinfo) -> Times:
    def offset(time: datetime) -> int | None:
        return _ms(time.replace(tzinfo=UTC).astimezone(zone).utcoffset())

    return utc_ms if zone is UTC else utc_ms + _offsets(utc_ms, offset)


def _offsets_at_local(local_ms: Times, zone: tzinfo, where: str) -> Times:
    """Return a zone's offsets at local times; if there are two, the first, as in Joda."""

    def offset(time: datetime) -> int | None:
        found = time.replace(tzinfo=zone).utcoffset()
        assert found is not None, zone
        back = (time - found).replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
        return _ms(found) if back == time else None

    if zone is UTC:
        return np.zeros(len(local_ms), np.int64)
    try:
        return _offsets(local_ms, offset)
    except _NoSuchTimeError as error:
        raise InputError(
            where, f"the local time {error} does not exist in {zone}", "correct the value"
        ) from None


class _NoSuchTimeError(Exception):
    """A local time does not exist because clocks were set forward."""


def _offsets(times_ms: Times, offset_of: Callable[[datetime], int | None]) -> Times:
    """Return the offsets at times, computed once per span of time in which they do not change."""
    offsets = np.zeros(len(times_ms), np.int64)
    rows = np.arange(len(times_ms))
    for span_ms in _SPANS_MS:
        spans = pa.array(times_ms[rows] // span_ms).dictionary_encode()
        of_span = np.zeros(len(spans.dictionary), np.int64)
        is_mixed = np.zeros(len(spans.dictionary), np.bool_)
        for i, span in enumerate(spans.dictionary.to_pylist()):
            first = offset_of(_datetime(span * span_ms))
            last = offset_of(_datetime((span + 1) * span_ms - 1))
            is_mixed[i] = first is None or first != last
            of_span[i] = first or 0
        indices: npt.NDArray[np.int32] = spans.indices.to_numpy()
        offsets[rows] = of_span[indices]
        rows = rows[is_mixed[indices]]
    if len(rows):
        raise _NoSuchTimeError(_datetime(int(times_ms[rows[0]])))
    return offsets


def _datetime(time_ms: int) -> datetime:
    # A day's distance from the ends keeps the arithmetic of zones within the years of datetime.
    within = min(max(time_ms, _TIME_MIN_MS + 2 * DAY_MS), _TIME_END_MS - 2 * DAY_MS)
    return _EPOCH + timedelta(milliseconds=within)


def _ms(offset: timedelta | None) -> int:
    assert offset is not None, "a time with a zone has an offset"
    return offset // timedelta(milliseconds=1)
