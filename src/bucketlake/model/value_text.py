"""The text of column values in record keys and partition paths.

A key is text, and all writers must agree on each character. So each column type has exactly Hudi's
spelling (mostly Java's). If Hudi's writers do not agree on the spelling of a value, it raises an
error: the record would get a second key and exist twice. Whole columns are converted.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.model.arrays import spans_of
from bucketlake.model.column_type import is_text_type

Column: TypeAlias = pa.Array | pa.ChunkedArray

_DATE_DAYS_MIN, _DATE_DAYS_MAX = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31.
_HEX_PAIRS = np.array([f"{byte:02x}".encode() for byte in range(256)], "S2").view(np.uint16)


def value_texts(values: Column, where: str) -> Column:
    """Return the values of a column as text, as Hudi writes it in keys and paths.

    Parameters
    ----------
    values : Array or ChunkedArray
        Values, in the table's stored type.
    where : str
        Name of the column, for messages.

    Returns
    -------
    Array or ChunkedArray of string
        Texts; null for a null value.

    Raises
    ------
    InputError
        If the type or a value cannot be part of a key.

    Notes
    -----
    A timestamp is written as microseconds since 1970. A decimal keeps its scale, with an exponent
    if Java's ``BigDecimal`` writes one. A binary value is written in hexadecimal.

    Examples
    --------
    >>> value_texts(pa.array([True, None]), "column x").to_pylist()
    ['true', None]
    >>> value_texts(pa.array([1.0, 2.5e10]), "column x").to_pylist()
    ['1.0', '2.5E10']
    """
    if isinstance(values, pa.ChunkedArray):
        chunks = [value_texts(chunk, where) for chunk in values.chunks]
        return pa.chunked_array(chunks, pa.string())
    if pa.types.is_dictionary(values.type):
        return value_texts(values.dictionary_decode(), where)
    data_type = values.type
    if pa.types.is_floating(data_type):
        return _floating_texts(values, where)
    if pa.types.is_date(data_type):
        return _date_texts(values, where)
    if pa.types.is_timestamp(data_type):
        return _timestamp_texts(values, where)
    if _is_binary(data_type):
        return _hex_texts(values)
    if pa.types.is_decimal(data_type):  # PyArrow 17 writes 0.E-18.
        return pc.replace_substring(values.cast(pa.string()), ".E", "E")
    if _is_spelled_by_arrow(data_type):
        return values.cast(pa.string())
    raise InputError(
        where,
        f"a value of type {data_type} cannot be part of a record key or partition path",
        "use a column of strings, numbers, dates or timestamps",
    )


def _is_spelled_by_arrow(data_type: pa.DataType) -> bool:
    return bool(
        is_text_type(data_type)
        or pa.types.is_integer(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_null(data_type)
    )


def _is_binary(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
        or data_type == pa.binary_view()
    )


def _floating_texts(values: pa.Array, where: str) -> pa.Array:
    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    unsure = _depends_on_java(numbers)
    if unsure.any():
        raise InputError(
            where,
            f"the number {numbers[unsure][0]!s} cannot be part of a key: versions of Java write it "
            "differently",
            "make the column a decimal, an integer or a string",
        )
    return floating_text(values)


def _depends_on_java(numbers: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
    """Return which numbers have more digits in Java before version 19 than in newer versions.

    See JDK-4511638. With such a number, the key would depend on the machine. Measured on Java 17:
    among a million random numbers and all powers of two there were no others.
    """
    limits, size = np.finfo(numbers.dtype), np.abs(numbers)
    is_inexact = np.isfinite(numbers) & (size >= 2.0 ** (limits.nmant + 1))
    is_subnormal = (size > 0) & (size < limits.smallest_normal)
    is_small_power_of_two = (np.frexp(size)[0] == 0.5) & (size < 2.0**-20)
    return np.asarray(is_inexact | is_subnormal | is_small_power_of_two)


def _date_texts(values: pa.Array, where: str) -> pa.Array:
    dates = values.cast(pa.date32())
    limits = pc.min_max(dates.view(pa.int32()))
    low, high = limits["min"].as_py(), limits["max"].as_py()
    if low is not None and (low < _DATE_DAYS_MIN or high > _DATE_DAYS_MAX):
        wrong = low if low < _DATE_DAYS_MIN else high
        raise InputError(
            where,
            f"the date {wrong} days from 1970-01-01 is outside of the years 1 to 9999",
            "correct the dates",
        )
    return dates.cast(pa.string())


def _timestamp_texts(values: pa.Array, where: str) -> pa.Array:
    try:
        micros = values.cast(pa.timestamp("us", values.type.tz))
    except pa.ArrowInvalid as error:
        raise InputError(
            where,
            f"a timestamp cannot be stored in whole microseconds ({error})",
            "round the column to microseconds",
        ) from None
    return micros.view(pa.int64()).cast(pa.string())


def _hex_texts(values: pa.Array) -> pa.Array:
    if not pa.types.is_large_binary(values.type):
        values = values.cast(pa.large_binary())
    if len(values) == 0:
        return pa.array([], pa.string())
    octets, offsets = spans_of(values)
    pairs = _HEX_PAIRS[octets[offsets[0] : offsets[-1]]]
    buffers = [None, pa.py_buffer((offsets - offsets[0]) * 2), pa.py_buffer(pairs)]
    texts = pa.Array.from_buffers(pa.large_string(), len(values), buffers)
    return pc.if_else(values.is_valid(), texts, None).cast(pa.string())


# ---- Floating-point numbers as text, as Java writes them -----------------------------------------
#
# Hudi can change a column of numbers to strings, and then reads numbers of older files as Java's
# text: ``1.0E10``, not ``1e+10``. bucketlake does not change columns like this, but reads such
# tables.

_PLAIN_EXPONENTS = range(-3, 7)  # Java writes magnitudes in [0.001, 10,000,000) without exponent.

_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "0": "0.0", "-0": "-0.0"}


def floating_text(array: pa.Array) -> pa.StringArray:
    """Return floats or doubles as text of Java's ``toString``, with the fewest digits.

    Notes
    -----
    Texts are made in a loop over distinct numbers, because this is needed only for old files of few
    tables.

    Examples
    --------
    >>> floating_text(pa.array([1e10, 0.1, float("nan")])).to_pylist()
    ['1.0E10', '0.1', 'NaN']
    """
    encoded = pc.cast(array, pa.string()).dictionary_encode()
    texts = pa.array([_java_text(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _java_text(shortest: str) -> str:
    if shortest in _SPECIAL:
        return _SPECIAL[shortest]
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int), shortest
    written = "".join(map(str, digits))
    power = len(digits) - 1 + exponent  # The power of ten of the first digit.
    minus = "-" if sign else ""
    if power not in _PLAIN_EXPONENTS:
        return f"{minus}{written[0]}.{written[1:] or '0'}E{power}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{written}"
    return f"{minus}{written[: power + 1].ljust(power + 1, '0')}.{written[power + 1 :] or '0'}"
