"""Values of change messages as columns of a table: decimals in base64, times, bits, structs.

A :class:`Field` says how a message writes the values of a column (``raw``), and which type the
column has (``stored``). :func:`converted` turns one into the other, all values of a column at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.avro.cursor import DECIMAL_BYTES_MAX, decimals_at, padded_records
from bucketlake.model.arrays import mask_of, one_array
from bucketlake.model.column_type import TIMESTAMP_NTZ
from bucketlake.model.text_values import bytes_of

_INFINITY = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}
"""The microseconds that Debezium sends for the infinite timestamps of Postgres."""

_ISO = re.compile(
    r"([+-]?\d{4,})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?"
    r"(Z|[+-]\d\d(?::?\d\d)?)?"
)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?Z?")


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a message.

    Attributes
    ----------
    name : str
        Its name.
    raw : pa.DataType
        The type in which a message is read.
    stored : pa.DataType
        The type of the column.
    kind : str
        The rule of conversion, see ``_RULES``; empty for a cast.
    parts : tuple of Field
        The element of an array, the value of a map, the fields of a struct.
    scale : int
        Digits after the point, of the kind ``long``.
    """

    name: str
    raw: pa.DataType
    stored: pa.DataType
    kind: str = ""
    parts: tuple[Field, ...] = ()
    scale: int = 0

    @classmethod
    def list_of(cls, name: str, element: Field) -> Field:
        """Return an array of elements."""
        stored = pa.list_(pa.field("element", element.stored))
        return cls(name, pa.list_(element.raw), stored, "list", (element,))

    @classmethod
    def map_of(cls, name: str, value: Field) -> Field:
        """Return a map of texts to values."""
        stored = pa.map_(pa.string(), pa.field("value", value.stored))
        return cls(name, pa.map_(pa.string(), value.raw), stored, "map", (value,))

    @classmethod
    def struct_of(cls, name: str, parts: tuple[Field, ...]) -> Field:
        """Return a struct of fields."""
        raw = pa.struct([(part.name, part.raw) for part in parts])
        stored = pa.struct([(part.name, part.stored) for part in parts])
        return cls(name, raw, stored, "struct", parts)


def converted(values: pa.Array, field: Field) -> pa.Array:
    """Return the values of a column in its stored type; raises ValueError for one that has none."""
    if not field.kind:
        return values if values.type == field.stored else values.cast(field.stored)
    return _RULES[field.kind](values, field)


def bytes_of_base64(texts: pa.Array) -> pa.Array:
    """Decode texts in base64, all at once; messages of Avro have bytes."""
    return bytes_of(texts) if pa.types.is_string(texts.type) else texts.cast(pa.binary())


def decimals_of_bytes(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return decimals of big-endian numbers in two's complement."""
    data, starts, ends = padded_records(values.fill_null(b""))
    sizes = ends - starts
    if (sizes > DECIMAL_BYTES_MAX).any():
        raise ValueError(f"a number that does not fit {kind}")
    wide = pa.decimal128(38, kind.scale)
    found = decimals_at(np.frombuffer(data, np.uint8), starts, sizes, wide)
    return pc.if_else(values.is_valid(), found, None).cast(kind)


def _big_decimals(values: pa.Array, field: Field) -> pa.Array:
    """Return decimals that no column of decimals holds, as texts; few tables have them."""
    numbers = bytes_of_base64(values).to_pylist()
    return pa.array([None if n is None else _long(n, field.scale) for n in numbers], pa.string())


def _long(data: bytes, scale: int) -> str:
    number = int.from_bytes(data, "big", signed=True)
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale > 0 else digits + "0" * -scale
    return f"-{text}" if number < 0 else text


def _variable(values: pa.Array, _field: Field) -> pa.Array:
    """Return decimals that have a scale of their own, as texts: the scales of a column are few."""
    scales = values.field("scale")
    numbers = bytes_of_base64(values.field("value"))
    valid = values.is_valid()
    texts = pa.nulls(len(values), pa.string())
    for scale in pc.unique(scales.filter(valid)).to_pylist():
        own = pc.fill_null(pc.and_(valid, pc.equal(scales, scale)), False)
        texts = pc.replace_with_mask(texts, own, _texts_of_numbers(numbers.filter(own), scale))
    return texts


def _texts_of_numbers(numbers: pa.Array, scale: int) -> pa.Array:
    if scale < 0 or pc.max(pc.binary_length(numbers)).as_py() > 15:
        return pa.array([_long(number, scale) for number in numbers.to_pylist()], pa.string())
    whole = decimals_of_bytes(numbers, pa.decimal128(38, 0))
    digits = pc.utf8_lpad(pc.abs(whole).cast(pa.string()), scale + 1, "0")
    if scale:
        head, tail = (pc.utf8_slice_codeunits(digits, *at) for at in ((0, -scale), (-scale, None)))
        digits = pc.binary_join_element_wise(head, tail, ".")
    minus = pc.if_else(pc.less(whole, pa.scalar(Decimal(0), whole.type)), "-", "")
    return pc.binary_join_element_wise(minus, digits, "")


def _decimals(values: pa.Array, field: Field) -> pa.Array:
    return decimals_of_bytes(bytes_of_base64(values), field.stored)


def _decimal_texts(values: pa.Array, field: Field) -> pa.Array:
    """Return decimals of a declared scale: doubles, texts with a point, else in base64."""
    texts, kind = values.cast(pa.string()), field.stored
    if not pa.types.is_string(values.type):
        return texts.cast(kind)
    number = r"^[+-]?[0-9]+\.[0-9]+$" if kind.scale else r"^[+-]?[0-9]+$"
    plain = pc.match_substring_regex(texts, number)
    if not kind.scale and not pc.all(pc.fill_null(plain, True)).as_py():
        plain = pa.array(np.zeros(len(texts), np.bool_), mask=mask_of(texts.is_null()))
    coded = decimals_of_bytes(bytes_of_base64(pc.if_else(plain, None, texts)), kind)
    return pc.coalesce(pc.if_else(plain, texts, None).cast(kind), coded)


def _integers(values: pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = values.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers


def _scaled(values: pa.Array, kind: str, factor: int) -> npt.NDArray[np.int64]:
    """Return numbers of another unit in microseconds; the limits of 64 bits stand for infinity."""
    numbers = _integers(values)
    if kind == "ns":
        return numbers // 1000
    bound = (2**63 - 1) // factor
    return np.clip(numbers, -bound, bound) * factor


_FACTORS = {"ms": 1000, "us": 1, "ns": 1, "s": 1_000_000}


def _numbers(values: pa.Array, field: Field) -> pa.Array:
    unit = field.kind.partition(" ")[2]
    whole = pa.array(_scaled(values, unit, _FACTORS[unit]), mask=mask_of(values.is_null()))
    return whole if field.stored == pa.int64() else whole.cast(TIMESTAMP_NTZ).cast(field.stored)


def _times_of_day(values: pa.Array, _field: Field) -> pa.Array:
    def micros(text: str) -> int:
        found = _TIME.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no time of day")
        hours, minutes, seconds, rest = found.groups()
        whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)
        return whole * 1_000_000 + int((rest or "0").ljust(6, "0")[:6])

    texts = pc.utf8_rtrim(values, "Z")
    usual = r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$"
    return _parsed(texts, usual, pa.time64("us"), pa.int64(), micros)


def _dates(values: pa.Array, _field: Field) -> pa.Array:
    usual = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
    return _parsed(
        pc.utf8_rtrim(values, "Z"), usual, pa.date32(), pa.date32(), lambda t: _micros(t) // _DAY
    )


def _instants(values: pa.Array, field: Field) -> pa.Array:
    usual = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
    texts = pc.utf8_rtrim(values, "Z")
    return _parsed(texts, usual, TIMESTAMP_NTZ, field.stored, _micros)


def _parsed(
    texts: pa.Array, usual: str, by: pa.DataType, to: pa.DataType, other: Callable[[str], int]
) -> pa.Array:
    """Parse texts of the usual form by Arrow, the few others one by one."""
    odd = pc.invert(pc.fill_null(pc.match_substring_regex(texts, usual), True))
    numbers = texts if not pc.any(odd).as_py() else pc.if_else(odd, None, texts)
    numbers = numbers.cast(by)
    width = pa.int32() if to == pa.date32() else pa.int64()
    numbers = numbers.view(width) if numbers.type.bit_width == width.bit_width else numbers
    if pc.any(odd).as_py():
        rest = pa.array([other(text) for text in texts.filter(odd).to_pylist()], width)
        numbers = pc.replace_with_mask(numbers, odd, rest)
    return numbers if to == width else numbers.view(to)


_DAY = 86_400_000_000


def _micros(text: str) -> int:
    """Return the microseconds since 1970 of a text that Arrow does not parse."""
    if text in _INFINITY:
        return _INFINITY[text]
    found = _ISO.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no date or time")
    year, month, day, *clock = found.groups()
    hours, minutes, seconds, rest, zone = clock
    cycles, place = divmod(int(year), 400)
    in_cycle = np.datetime64(f"{place + 2000:04}-{month}-{day}", "D").astype(np.int64)
    days = int(in_cycle) + (cycles - 5) * 146_097
    whole = (int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        shift = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        whole -= -shift if zone[0] == "-" else shift
    micros = days * _DAY + whole * 1_000_000 + int((rest or "0").ljust(6, "0")[:6])
    return max(-(2**63), min(2**63 - 1, micros))


def _days(values: pa.Array, _field: Field) -> pa.Array:
    return values.cast(pa.int32()).cast(pa.date32())


def _lists(values: pa.Array, field: Field) -> pa.Array:
    inner = converted(one_array(values.flatten()), field.parts[0])
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    mask = values.is_null() if values.null_count else None
    return pa.ListArray.from_arrays(offsets, inner, type=field.stored, mask=mask)


def _maps(values: pa.Array, field: Field) -> pa.Array:
    rows = values.to_pylist()  # Only JSON objects of free names are maps: hstore in the mode map.
    raw = pa.array([v for row in rows if row for _, v in row], field.parts[0].raw)
    inner = iter(converted(raw, field.parts[0]).to_pylist())
    held = [None if row is None else [(k, next(inner)) for k, _ in row] for row in rows]
    return pa.array(held, field.stored)


def _structs(values: pa.Array, field: Field) -> pa.Array:
    columns = [converted(values.field(part.name), part) for part in field.parts]
    fields = [pa.field(part.name, part.stored) for part in field.parts]
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


_RULES: dict[str, Callable[[pa.Array, Field], pa.Array]] = {
    "bytes": lambda values, _: bytes_of_base64(values),
    "decimal": _decimals,
    "decimal text": _decimal_texts,
    "long": _big_decimals,
    "variable": _variable,
    "days": _days,
    "iso date": _dates,
    "iso time": _times_of_day,
    "instant": _instants,
    "list": _lists,
    "map": _maps,
    "struct": _structs,
    **{f"unit {unit}": _numbers for unit in _FACTORS},
}
