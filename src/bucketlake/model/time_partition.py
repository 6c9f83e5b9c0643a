"""Times as partition values: converting numbers, timestamps, dates or text.

This follows Hudi's timestamp-based key generator, but raises an error in three cases where Hudi
guesses: an unknown time zone (Hudi uses UTC), a time outside of the years 1 to 9999, and a column
of timestamps with another unit than microseconds. ``model/time_pattern.py`` handles patterns. Whole
columns are converted; the offset of a zone is computed per span of time, not per value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError, InputError
from bucketlake.model.arrays import one_array
from bucketlake.model.keys import TimestampPartition
from bucketlake.model.time_pattern import (
    DAY_MS,
    HOUR_MS,
    INPUT_KEY,
    MINUTE_MS,
    SECOND_MS,
    Mask,
    ParsedTimes,
    Times,
    format_times,
    input_unit_ms,
    output_tokens,
    parse_times,
    says_offset,
)
from bucketlake.model.value_text import Column

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
    if _is_text(array.type):
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


def _is_text(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or data_type == pa.string_view()
    )


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
    elif unit is None or not _is_number(data_type):
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


def _is_number(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_floating(data_type)
        or pa.types.is_decimal(data_type)
        or pa.types.is_null(data_type)
    )


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
