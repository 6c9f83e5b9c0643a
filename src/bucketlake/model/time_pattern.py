"""Patterns of dates and times with Joda's letters, if they mean the same on every machine.

Patterns such as ``yyyy/MM/dd/HH`` format local times as partition values, and parse them. Letters
whose text depends on the language or clock of a machine (``MMM``, ``EEE``, ``a``, ``z``, a year
with two digits in input) raise an error, because two writers would disagree. Times are milliseconds
since 1970 in local time; ``model/time_partition.py`` handles zones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_EPOCH = datetime(1970, 1, 1)

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
        for name, default in (("y", 1970), ("M", 1), ("d", 1), ("H", 0), ("m", 0), ("s", 0))
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
        offset_ms = _offsets(fields[_OFFSET])
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
        fields.get(name, np.full(count, default))
        for name, default in (("y", 1970), ("M", 1), ("d", 1), ("H", 0), ("m", 0), ("s", 0))
    )
    exists = (year >= 1) & (month >= 1) & (month <= 12) & (hour <= 23)
    exists &= (minute <= 59) & (second <= 59)
    months = np.where(exists, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    first_day = months.astype("datetime64[D]").astype(np.int64)
    next_month = (months + 1).astype("datetime64[D]").astype(np.int64)
    exists &= (day >= 1) & (day <= next_month - first_day)
    seconds = (hour * 60 + minute) * 60 + second
    return (first_day + day - 1) * DAY_MS + seconds * SECOND_MS, exists


def _offsets(texts: pa.Array) -> Times:
    parts = pc.extract_regex(texts, r"^(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]*)$")
    hours = _numbers(pc.struct_field(parts, "hours"), 0)
    minutes = _numbers(pc.struct_field(parts, "minutes"), 0)
    is_west = pc.equal(pc.struct_field(parts, "sign"), "-").fill_null(False)
    sign = np.where(is_west.to_numpy(zero_copy_only=False), -1, 1)
    offsets: Times = sign * (hours * HOUR_MS + minutes * MINUTE_MS)
    return offsets
