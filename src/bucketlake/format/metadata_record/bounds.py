"""Bounds of Arrow columns as wrapped values with a value type, and back.

Index version V2 stores a bound in a wrapper of a plain type. The value type says what it means: a
date is an int, a timestamp a long, a decimal its unscaled value as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import FormatError, InputError
from bucketlake.format.avro.cursor import Cursor, padded_records
from bucketlake.format.avro.read_columns import decimals, with_nulls_between
from bucketlake.format.avro.tree import AvroNode, Wire
from bucketlake.format.avro.wrappers import BRANCHES
from bucketlake.format.avro.write_columns import write_column
from bucketlake.format.metadata_record.record_schema import VALUE_TYPE, ColumnStats, WrappedValues
from bucketlake.model.arrays import Ints
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ, type_name


class ValueType(IntEnum):
    """How to read a bound, by its number on storage."""

    WRAPPED = 0  # Index version V1: the wrapper alone says how.
    NULL = 1
    BOOLEAN = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    BYTES = 8
    FIXED = 9
    DECIMAL = 10
    UUID = 11
    DATE = 12
    TIME_MILLIS = 13
    TIME_MICROS = 14
    TIMESTAMP_MILLIS = 15
    TIMESTAMP_MICROS = 16
    TIMESTAMP_NANOS = 17
    LOCAL_TIMESTAMP_MILLIS = 18
    LOCAL_TIMESTAMP_MICROS = 19
    LOCAL_TIMESTAMP_NANOS = 20


_TYPES: dict[pa.DataType, tuple[ValueType, pa.DataType]] = {  # Value type, type in the wrapper.
    pa.bool_(): (ValueType.BOOLEAN, pa.bool_()),
    pa.int32(): (ValueType.INT, pa.int32()),
    pa.int64(): (ValueType.LONG, pa.int64()),
    pa.float32(): (ValueType.FLOAT, pa.float32()),
    pa.float64(): (ValueType.DOUBLE, pa.float64()),
    pa.string(): (ValueType.STRING, pa.string()),
    pa.binary(): (ValueType.BYTES, pa.binary()),
    pa.date32(): (ValueType.DATE, pa.int32()),
    TIMESTAMP: (ValueType.TIMESTAMP_MICROS, pa.int64()),
    TIMESTAMP_NTZ: (ValueType.LOCAL_TIMESTAMP_MICROS, pa.int64()),
}
_MICROS = {  # Multiplier and divisor from the unit of a value type to microseconds.
    ValueType.TIMESTAMP_MILLIS: (1000, 1),
    ValueType.TIMESTAMP_MICROS: (1, 1),
    ValueType.TIMESTAMP_NANOS: (1, 1000),
    ValueType.LOCAL_TIMESTAMP_MILLIS: (1000, 1),
    ValueType.LOCAL_TIMESTAMP_MICROS: (1, 1),
    ValueType.LOCAL_TIMESTAMP_NANOS: (1, 1000),
}
_DECIMAL = pa.decimal128(30, 15)  # The only wrapper of decimals.
_WHOLE_DIGITS = _DECIMAL.precision - _DECIMAL.scale


@dataclass(frozen=True, slots=True)
class StoredType:
    """The value type of a column, as records store it."""

    value_type: int  # A ``ValueType``, or what a later version of Hudi has.
    info: str | None = None  # Precision and scale of a decimal.

    @classmethod
    def of_column(cls, data_type: pa.DataType) -> StoredType:
        """Return the value type of a column.

        Raises
        ------
        InputError
            If statistics cannot hold the type, for example a list.

        Examples
        --------
        >>> StoredType.of_column(pa.decimal128(18, 4))
        StoredType(value_type=<ValueType.DECIMAL: 10>, info='18,4')
        """
        if pa.types.is_decimal128(data_type):
            return cls(ValueType.DECIMAL, f"{data_type.precision},{data_type.scale}")
        if data_type not in _TYPES:
            problem = f"a column of type {type_name(data_type)} has no bounds"
            raise InputError("column statistics", problem, "index columns of scalar types")
        return cls(_TYPES[data_type][0])

    @property
    def arrow(self) -> pa.DataType | None:
        """Type of the columns that have this value type; None if a table has no such columns."""
        if self.value_type == ValueType.DECIMAL:
            return _decimal_type(self.info)
        return _ARROW_TYPES.get(self.value_type)

    @property
    def branch(self) -> int:
        """Branch of the wrapper in which bounds of such a column are stored."""
        return _branch_of(self)

    def widens_to(self, wider: StoredType) -> bool:
        """Return whether bounds of this value type can be read as bounds of another one."""
        held, into = self.arrow, wider.arrow
        if self == wider or held is None or into is None:
            return self == wider
        if pa.types.is_decimal128(held) and pa.types.is_decimal128(into):
            digits = into.precision - into.scale >= held.precision - held.scale
            return bool(digits and into.scale >= held.scale)
        return into in _WIDER.get(held, ())


@lru_cache(maxsize=1024)
def _branch_of(stored_as: StoredType) -> int:
    arrow = stored_as.arrow
    assert arrow is not None, stored_as
    return BRANCHES[_wrapped_type(arrow)]


def stored_types(value_types: pa.Array) -> tuple[Ints, list[StoredType]]:
    """Return the distinct value types of records, and the place of each record's among them.

    In index version V1 records have none; this is ``ValueType.WRAPPED``.
    """
    ordinals = pc.if_else(value_types.is_valid(), value_types.field("ordinal"), ValueType.WRAPPED)
    infos = pc.fill_null(value_types.field("info"), "")
    texts = pc.binary_join_element_wise(ordinals.cast(pa.string()), infos, ",").dictionary_encode()
    parts = (text.partition(",") for text in texts.dictionary.to_pylist())
    found = [StoredType(int(ordinal), info or None) for ordinal, _, info in parts]
    places: Ints = texts.indices.to_numpy().astype(np.int64)
    return places, found


def has_bounds(data_type: pa.DataType, *, has_value_types: bool = True) -> bool:
    """Return whether statistics can hold bounds of a column type; without value types, fewer."""
    if has_value_types:
        return data_type in _TYPES or pa.types.is_decimal128(data_type)
    if pa.types.is_decimal128(data_type):
        whole_digits = data_type.precision - data_type.scale
        return bool(data_type.scale <= _DECIMAL.scale and whole_digits <= _WHOLE_DIGITS)
    return data_type in _TYPES and data_type != TIMESTAMP_NTZ


def wrap_bounds(values: pa.Array) -> WrappedValues:
    """Wrap the bounds of one column, in Arrow's type of the column; a null has no bound."""
    inner = _wrapped_type(values.type)
    if pa.types.is_decimal128(values.type):
        # The shortest big-endian form of the unscaled value, without the size before it.
        _, stored = write_column(AvroNode(Wire.BYTES, values.type), values.drop_null())
    else:
        stored = values.drop_null().cast(inner)
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    return WrappedValues.gather(len(values), [(BRANCHES[inner], rows, stored)])


def _wrapped_type(data_type: pa.DataType) -> pa.DataType:
    return pa.binary() if pa.types.is_decimal128(data_type) else _TYPES[data_type][1]


def unwrap_bounds(
    wrapped: WrappedValues,
    value_types: pa.Array,
    data_type: pa.DataType,
    path: str,
    *,
    is_minimum: bool,
) -> pa.Array:
    """Return the bounds of one column in Arrow's type of the column.

    Parameters
    ----------
    wrapped : WrappedValues
        Bounds of the column in several files.
    value_types : pyarrow.Array of struct
        Their value types, see :class:`ColumnStats`.
    data_type : pyarrow.DataType
        Type of the column.
    path : str
        The file, for messages.
    is_minimum : bool
        Whether values that this type cannot hold exactly are rounded down, or up.

    Returns
    -------
    pyarrow.Array
        Of type ``data_type``. Null if there is no bound, or if the bound cannot be read as this
        type: statistics of an earlier type of the column, or times of index version V1, whose
        unit is not stored. A null bound excludes nothing.
    """
    places, types = stored_types(value_types)
    bounds = pa.nulls(wrapped.count, data_type)
    for rows, stored in wrapped.parts.values():
        for place in np.unique(places[rows]).tolist():
            is_here = places[rows] == place
            part = stored.filter(pa.array(is_here))
            read = read_bounds(part, types[place], data_type, path, is_minimum=is_minimum)
            if read is not None:
                bounds = pc.coalesce(with_nulls_between(read, rows[is_here], wrapped.count), bounds)
    return bounds


def without_value_types(stats: ColumnStats) -> ColumnStats:
    """Return statistics as in index version V1, where the wrapper alone tells the type of a bound.

    Bounds of types that have no wrapper are left out.
    """
    places, types = stored_types(stats.value_types)
    minima, maxima = (_in_own_wrappers(w, places, types) for w in (stats.minima, stats.maxima))
    no_types = pa.nulls(len(stats), VALUE_TYPE)
    return replace(stats, minima=minima, maxima=maxima, value_types=no_types)


def _in_own_wrappers(
    wrapped: WrappedValues, places: Ints, types: Sequence[StoredType]
) -> WrappedValues:
    pieces = []
    for branch, (rows, stored) in wrapped.parts.items():
        for place in np.unique(places[rows]).tolist():
            is_here = places[rows] == place
            own = _own_wrapper(stored.filter(pa.array(is_here)), types[place], branch)
            if own is not None:
                pieces.append((own[0], rows[is_here], own[1]))
    return WrappedValues.gather(wrapped.count, pieces)


def _own_wrapper(
    stored: pa.Array, stored_as: StoredType, branch: int
) -> tuple[int, pa.Array] | None:
    """Return the branch and the values of a wrapper that tells the type; None if there is none."""
    held = stored_as.arrow
    if held is None or not has_bounds(held, has_value_types=False):
        return None
    if pa.types.is_decimal128(held):
        held = _DECIMAL
    elif held != pa.date32():
        return branch, stored  # Also timestamps, whose wrapper is that of a long.
    values = read_bounds(stored, stored_as, held, "statistics", is_minimum=True)
    return None if values is None else (BRANCHES[held], values)


def read_bounds(
    stored: pa.Array, stored_as: StoredType, data_type: pa.DataType, path: str, *, is_minimum: bool
) -> pa.Array | None:
    """Return bounds of one value type in a type of columns; None if they cannot be read as such.

    Parameters
    ----------
    stored : pyarrow.Array
        The values in their wrappers, without nulls.
    stored_as : StoredType
        Their value type.
    data_type, path, is_minimum
        See :func:`unwrap_bounds`.
    """
    value_type = stored_as.value_type
    if value_type in _MICROS and stored.type == pa.int64():
        if not pa.types.is_timestamp(data_type):
            return None
        factor, divisor = _MICROS[ValueType(value_type)]
        micros = stored.to_numpy() * factor
        micros = micros // divisor if is_minimum else -(-micros // divisor)
        return pa.array(micros).cast(data_type)
    if value_type == ValueType.DECIMAL and stored.type == pa.binary():
        stored = _decimals(stored, stored_as.info, path)
    elif value_type == ValueType.DATE and stored.type == pa.int32():
        stored = stored.cast(pa.date32())
    elif value_type not in _PLAIN:
        return None
    return _cast_bounds(stored, data_type, is_minimum=is_minimum)


def _cast_bounds(stored: pa.Array, data_type: pa.DataType, *, is_minimum: bool) -> pa.Array | None:
    is_decimal = pa.types.is_decimal128(stored.type) and pa.types.is_decimal128(data_type)
    if not (is_decimal or stored.type == data_type or data_type in _WIDER.get(stored.type, ())):
        return None
    if stored.type == pa.int64() and data_type == pa.float64():
        return pa.array(_as_doubles(stored.to_numpy(), is_minimum=is_minimum))
    try:
        cast = stored.cast(data_type)
    except pa.ArrowInvalid:
        return None
    if stored.type == pa.float32() and data_type == pa.float64():
        # Readers give a float the double with its shortest digits (``model/cast.py``).
        shortest = stored.cast(pa.string()).cast(data_type)
        outwards = pc.min_element_wise if is_minimum else pc.max_element_wise
        return pc.if_else(pc.is_nan(cast), cast, outwards(cast, shortest))
    return cast


def _as_doubles(values: npt.NDArray[np.int64], *, is_minimum: bool) -> npt.NDArray[np.float64]:
    """Return integers as doubles; a large one becomes the next double outwards."""
    doubles = values.astype(np.float64)
    outwards = np.nextafter(doubles, -np.inf if is_minimum else np.inf)
    return np.where(np.abs(doubles) < _EXACT_DOUBLE_MAX, doubles, outwards)


_EXACT_DOUBLE_MAX = 2.0**53
_PLAIN = frozenset(
    {
        *(ValueType.WRAPPED, ValueType.BOOLEAN, ValueType.INT, ValueType.LONG, ValueType.FLOAT),
        *(ValueType.DOUBLE, ValueType.STRING, ValueType.BYTES, ValueType.UUID),
    }
)
_WIDER = {  # Of the types of columns, those to which a table widens them.
    pa.int32(): (pa.int64(), pa.float64()),
    pa.int64(): (pa.float64(),),
    pa.float32(): (pa.float64(),),
}
_ARROW_TYPES = {int(value_type): data_type for data_type, (value_type, _) in _TYPES.items()}


def _decimals(stored: pa.Array, info: str | None, path: str) -> pa.Array:
    data_type = _decimal_type(info)
    if data_type is None:
        raise FormatError(path, "precision and scale of a decimal", repr(info))
    data, starts, ends = padded_records(stored)

    def refuse(expected: str, found: str, _offset: int) -> FormatError:
        return FormatError(path, f"{expected}, as a bound of a column", found)

    return decimals(Cursor(data, starts, ends, refuse), starts, ends - starts, data_type)


def _decimal_type(info: str | None) -> pa.DataType | None:
    precision, _, scale = (info or "").partition(",")
    try:
        return pa.decimal128(int(precision), int(scale))
    except (ValueError, pa.ArrowInvalid):
        return None
