"""Values from texts: what a text means in a column of a type.

All readers of texts follow these rules: cells of CSV, and strings of JSON. A text means a value of
the column's type exactly, or it is an error; only a fraction in a floating column is rounded. A
time says its zone in a column of instants (``timestamp``), and none in a column without zone
(``timestamp_ntz``), so that no reader shifts it.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.model.arrays import spans_of
from bucketlake.model.column_type import is_number_type, type_name

# ---- Bytes as base64 text, and back: how CSV and JSON hold a binary column, as Spark writes JSON -

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BAD = 255
_SIXES = np.full(256, _BAD, np.uint8)
_SIXES[np.frombuffer(_LETTERS, np.uint8)] = np.arange(64)
_PAD = ord("=")
_SIXES[_PAD] = 0


def base64_of(values: pa.Array) -> pa.StringArray:
    r"""Return bytes as base64.

    Examples
    --------
    >>> base64_of(pa.array([b"\x00\xff", None])).to_pylist()
    ['AP8=', None]
    """
    held = values.to_pylist()
    return pa.array([v if v is None else base64.b64encode(v).decode() for v in held], pa.string())


def bytes_of(texts: pa.StringArray) -> pa.BinaryArray:
    r"""Return the bytes of base64 texts; raise ArrowInvalid for a text that is none.

    Examples
    --------
    >>> bytes_of(pa.array(["AP8=", None, ""])).to_pylist()
    [b'\x00\xff', None, b'']
    """
    octets, offsets = spans_of(texts.fill_null(""))
    letters = octets[offsets[0] : offsets[-1]]
    sizes = np.diff(offsets)
    sixes = _SIXES[letters]
    if (sizes % 4).any() or (sixes == _BAD).any():
        raise pa.ArrowInvalid("a text that is no base64")
    fours = sixes.reshape(-1, 4).astype(np.uint32)
    words = (fours << np.array([18, 12, 6, 0], np.uint32)).sum(axis=1, dtype=np.uint32)
    threes = words.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:]
    is_pad = (letters == _PAD).reshape(-1, 4)
    pads = is_pad.sum(axis=1)
    lasts = (offsets[1:] - offsets[0])[sizes > 0] // 4 - 1
    is_inside = is_pad[:, :2].any() or (is_pad[:, 2] > is_pad[:, 3]).any()
    if is_inside or pads.sum() != pads[lasts].sum():  # Padding ends a text.
        raise pa.ArrowInvalid("a text that is no base64")
    lengths = sizes // 4 * 3
    lengths[sizes > 0] -= pads[lasts]
    kept = threes[np.arange(3) < 3 - pads[:, None]]
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(kept)]
    found = pa.Array.from_buffers(pa.binary(), len(texts), buffers)
    return pc.if_else(texts.is_valid(), found, None) if texts.null_count else found


_ZONE = r"[T ].*(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d"
_DAY = r"^\d{4}-\d\d-\d\d$"
_WHOLE = r"^[+-]?\d+$"
_PLAIN_WHOLE = r"^-?(?:0|[1-9]\d*)$"  # Without zeros in front, which a number would lose.
_PLAIN_NUMBER = (
    r"^[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$|^[+-]?(?i:nan|inf(?:inity)?)$"
)
_INFINITE = r"^[+-]?(?i:inf(?:inity)?)$"
_FAR_DAY = r"^-?\d{4,6}-\d\d-\d\d$"  # Python and Arrow have no texts of years beyond 9999.
_FAR_TIME = r"^-?\d{4,6}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
EXACT_BELOW = {pa.float32(): 2.0**24, pa.float64(): 2.0**53}
"""Below it, floating types hold every whole number."""

_NULL_WORDS = frozenset(
    {"null", "none", "nan", "na", "n/a", "nil", "\\n", "-", "?", "<na>", "(null)"}
)
_COMMA = re.compile(r"^[+-]?(?:\d+|\d{1,3}(?:[. ]\d{3})+),\d+$")
_NUMBER = re.compile(r"^[+-]?\d+(?:\.(\d*))?$")


@dataclass(frozen=True, slots=True)
class TextForm:
    """How texts are written.

    Attributes
    ----------
    decimal : str
        The decimal point.
    time_zone : str or None
        Zone of the times without a zone, where texts and column differ; None if that is an error.
    """

    decimal: str = "."
    time_zone: str | None = None


PLAIN = TextForm()
"""Numbers with a point; times as their column."""


def values_of_texts(texts: pa.StringArray, to: pa.DataType, form: TextForm = PLAIN) -> pa.Array:
    """Return the values that texts mean; raise ArrowException if one means none.

    Examples
    --------
    >>> values_of_texts(pa.array(["1", "2.0", None]), pa.int64()).to_pylist()
    [1, 2, None]
    >>> values_of_texts(pa.array(["1,5"]), pa.float64(), TextForm(decimal=",")).to_pylist()
    [1.5]
    """
    if pa.types.is_string(to):
        return texts
    if pa.types.is_null(to):
        if texts.null_count < len(texts):
            raise pa.ArrowInvalid("a column without type has a value")
        return pa.nulls(len(texts))
    try:
        return _values(texts, to, form)
    except pa.ArrowInvalid:
        bare = pc.utf8_trim_whitespace(texts)
        return _values(pc.replace_substring_regex(bare, r"^\+(\d)", r"\1"), to, form)


def _values(texts: pa.StringArray, to: pa.DataType, form: TextForm) -> pa.Array:
    if is_number_type(to) and form.decimal != ".":
        if pc.any(pc.match_substring(texts, ".")).as_py():
            raise pa.ArrowInvalid("a point in a number with another decimal mark")
        texts = pc.replace_substring(texts, form.decimal, ".")
    if pa.types.is_integer(to):
        return _integers(texts, to)
    if pa.types.is_floating(to):
        return _floats(texts, to)
    if pa.types.is_timestamp(to):
        return _times(texts, to, form.time_zone)
    if pa.types.is_date(to):
        return _days(texts, to)
    return bytes_of(texts) if pa.types.is_binary(to) else pc.cast(texts, to)


def _integers(texts: pa.StringArray, to: pa.DataType) -> pa.Array:
    if pc.any(pc.match_substring(texts, "0x", ignore_case=True)).as_py():
        raise pa.ArrowInvalid("a number with another base than ten")
    try:
        return pc.cast(texts, to)
    except pa.ArrowInvalid:  # 7.0 and 1e3 are whole, too.
        return pc.cast(pc.cast(texts, pa.decimal128(38, 10)), to)


def _floats(texts: pa.StringArray, to: pa.DataType) -> pa.Array:
    values = pc.cast(texts, to)
    if not has_inexact(values):
        return values
    large = pc.greater_equal(pc.abs(values), EXACT_BELOW[to])
    texts = texts.filter(large)
    infinite = texts.filter(pc.is_inf(values.filter(large)))
    if not pc.all(pc.match_substring_regex(infinite, _INFINITE), min_count=0).as_py():
        raise pa.ArrowInvalid("a number is too large")
    is_whole = pc.match_substring_regex(texts, _WHOLE)
    pairs = zip(texts.filter(is_whole), values.filter(large).filter(is_whole), strict=True)
    if any(int(text.as_py()) != int(value.as_py()) for text, value in pairs):
        raise pa.ArrowInvalid("a whole number would be rounded")
    return values


def has_inexact(values: pa.Array) -> bool:
    """Return whether floats are so large that not every whole number is one of them.

    The arguments of these kernels are arrays alone: for others PyArrow imports pandas.
    """
    most = pc.max(pc.abs(values)).as_py()  # NaN counts only if there is nothing else.
    return most is not None and most >= EXACT_BELOW[values.type]


def _days(texts: pa.StringArray, to: pa.DataType) -> pa.Array:
    try:
        return pc.cast(texts, to)
    except pa.ArrowInvalid:
        days = _far(texts, _FAR_DAY, "D")
        return pc.cast(pc.cast(days, pa.int32()), to)


def _times(texts: pa.StringArray, to: pa.DataType, zone: str | None) -> pa.Array:
    if zone is None:
        return _own_times(texts, to)
    zoned = pc.match_substring_regex(texts, _ZONE)
    with_zone = _own_times(pc.if_else(zoned, texts, None), pa.timestamp("us", "UTC"))
    without = _own_times(pc.if_else(zoned, None, texts), pa.timestamp("us"))
    if to.tz is None:
        local = pc.local_timestamp(pc.cast(with_zone, pa.timestamp("us", zone)))
        return pc.cast(pc.coalesce(local, without), to)
    instants = pc.cast(pc.assume_timezone(without, zone), pa.timestamp("us", "UTC"))
    return pc.cast(pc.coalesce(with_zone, instants), to)


def _own_times(texts: pa.StringArray, to: pa.DataType) -> pa.Array:
    """Return times of which all have a zone if the type has one, or none of them."""
    try:
        return pc.cast(texts, to)
    except pa.ArrowInvalid:
        try:  # 7 to 9 digits of a second, which may be zeros.
            return pc.cast(pc.cast(texts, pa.timestamp("ns", to.tz)), to)
        except pa.ArrowInvalid:
            form = _FAR_TIME + ("$" if to.tz is None else "Z$")
            return pc.cast(_far(texts, form, "us"), pa.timestamp("us")).cast(to)


def _far(texts: pa.StringArray, form: str, unit: str) -> pa.Array:
    """Return days or microseconds since 1970, of any year."""
    if not pc.all(pc.match_substring_regex(texts, form)).as_py():
        raise pa.ArrowInvalid("no time")
    plain = pc.fill_null(pc.utf8_rtrim(texts, "Z"), "1970-01-01").to_pylist()
    try:
        numbers = np.array(plain, f"datetime64[{unit}]").astype(np.int64)
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
    return pc.if_else(texts.is_valid(), pa.array(numbers), None)


def type_of_texts(
    texts: pa.StringArray, form: TextForm = PLAIN, *, times_only: bool = False
) -> pa.DataType:
    """Return the type of a new column that holds texts: the narrowest that means them all.

    A number with zeros in front is a text, since it would lose them. ``times_only`` is for strings
    of JSON, whose numbers and booleans are not strings.

    Examples
    --------
    >>> type_of_texts(pa.array(["1", None, "20"]))
    DataType(int64)
    >>> type_of_texts(pa.array(["007"]))
    DataType(string)
    >>> type_of_texts(pa.array(["2026-11-02T08:00:00+02:00"]))
    TimestampType(timestamp[us, tz=UTC])
    """
    if texts.null_count == len(texts):
        return pa.null()
    numbers = pc.replace_substring(texts, form.decimal, ".")
    for pattern, subject, kinds in (
        (r"^(?i:true|false)$", texts, (pa.bool_(),)),
        (_PLAIN_WHOLE, texts, (pa.int64(), None)),
        (_PLAIN_NUMBER, numbers, (pa.float64(),)),
        (_DAY, texts, (pa.date32(),)),
        (_TIME, texts, (pa.timestamp("us"), pa.timestamp("us", "UTC"))),
    ):
        if times_only and pattern not in (_DAY, _TIME):
            continue
        if not pc.all(pc.match_substring_regex(subject, pattern)).as_py():
            continue
        for kind in kinds:
            if kind is None:
                longest = max(pc.drop_null(texts).to_pylist(), key=len)
                raise pa.ArrowInvalid(f"{longest} does not fit a bigint")
            try:
                values_of_texts(texts, kind, TextForm(form.decimal))
            except pa.ArrowInvalid:
                continue
            return kind
    return pa.string()


def why_no_value(text: str, to: pa.DataType, form: TextForm = PLAIN) -> tuple[str, str]:
    """Return why a text is no value of a type, and what to do; for messages."""
    shown = repr(text if len(text) <= 80 else f"{text[:79]}…")
    problem = f"{shown} is no {type_name(to)}"
    next_step = (
        "correct the values; or, if the table does not have the column, name its type: "
        "bl.files(..., schema=...)"
    )
    bare = text.strip()
    if pa.types.is_nested(to):
        next_step = "write these rows as Parquet or JSON lines"
        return f"a text cannot hold {type_name(to)}", next_step
    if pa.types.is_timestamp(to) and re.search(_TIME, text):
        zoned = re.search(_ZONE, text) is not None
        if form.time_zone is None and zoned != (to.tz is not None):
            return _wrong_zone(shown, to, zoned=zoned)
        if form.time_zone is not None and to.tz is not None and not zoned:
            problem = f"there is no time {shown} in {form.time_zone}, or there are two"
            return problem, "add the zone to the text, as in 2026-11-02T08:00:00Z"
    if bare.lower() in _NULL_WORDS:
        next_step = (
            f"if it means null, say so: bl.files(..., null_values=['', {text!r}]) "
            f"(--null-value '' --null-value {text!r})"
        )
    elif _COMMA.match(bare):
        next_step = (
            "if the comma is the decimal point, say so: bl.files(..., decimal=',') (--decimal ,)"
        )
    elif pa.types.is_decimal(to) and _NUMBER.match(bare):
        problem += f", which has {to.precision} digits, {to.scale} of them after the point"
        next_step = (
            "round the values, or widen the table's column: name the wider type in "
            "bl.files(..., schema=...), and give merge_schema='widen_types'"
        )
    return problem, next_step


def _wrong_zone(shown: str, to: pa.DataType, *, zoned: bool) -> tuple[str, str]:
    if zoned:
        problem = f"{shown} has a time zone, and {type_name(to)} has none"
        how = "remove the zone from the texts"
    else:
        problem = f"{shown} does not have a time zone, and {type_name(to)} is an instant"
        how = "add the zone to the texts, as in 2026-11-02T08:00:00Z"
    return problem, (
        f"{how}, or name the zone of the times without one: bl.files(..., time_zone='UTC') "
        "(--time-zone UTC)"
    )
