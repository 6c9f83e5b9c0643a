"""Bounds of Arrow columns as wrapped values with a value type, and back.

Index version V2 stores a bound in a wrapper of a plain type. The value type says what it means: a
date is an int, a timestamp a long, a decimal its unscaled value as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import FormatError, InputError
from bucketlake.format.avro.cursor import Cursor, padded_records
from bucketlake.format.avro.reading import read_column, spread
from bucketlake.format.avro.tree import AvroNode, Wire
from bucketlake.format.avro.wrappers import BRANCHES
from bucketlake.format.avro.writing import join, write_column
from bucketlake.format.metadata_record.column_stats import WrappedValues
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ, type_name


class ValueType(IntEnum):
    """How to read a bound, by its number on storage."""

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
_BYTES = AvroNode(Wire.BYTES, pa.binary())


@dataclass(frozen=True, slots=True)
class StoredType:
    """The value type of a column, as records store it."""

    value_type: ValueType
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


def has_bounds(data_type: pa.DataType) -> bool:
    """Return whether statistics can hold bounds of a column type."""
    return data_type in _TYPES or pa.types.is_decimal128(data_type)


def wrap_bounds(values: pa.Array) -> WrappedValues:
    """Wrap the bounds of one column, in Arrow's type of the column; a null has no bound."""
    if pa.types.is_decimal128(values.type):
        inner = pa.binary()
        # The shortest big-endian form of the unscaled value, without the size before it.
        _, stored = write_column(AvroNode(Wire.BYTES, values.type), values.drop_null())
    else:
        _, inner = _TYPES[values.type]
        stored = values.drop_null().cast(inner)
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    return WrappedValues(len(values), {BRANCHES[inner]: (rows, stored)} if len(rows) else {})


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
    ordinals = value_types.field("ordinal")
    infos = value_types.field("info")
    valid = value_types.is_valid()
    ordinals = pc.if_else(valid, ordinals, 0).to_numpy(zero_copy_only=False)
    bounds = pa.nulls(wrapped.count, data_type)
    for rows, stored in wrapped.parts.values():
        for ordinal in np.unique(ordinals[rows]).tolist():
            of_type = ordinals[rows] == ordinal
            chosen, part = rows[of_type], stored.filter(pa.array(of_type))
            for info in pc.unique(infos.take(pa.array(chosen))).to_pylist():
                found = infos.take(pa.array(chosen)).to_pylist()
                of_info = np.array([text == info for text in found])
                converted = _converted(
                    part.filter(pa.array(of_info)), ordinal, info, data_type, path, is_minimum
                )
                if converted is not None:
                    here = spread(converted, chosen[of_info], wrapped.count)
                    bounds = pc.coalesce(here, bounds)
    return bounds


def _converted(
    stored: pa.Array,
    ordinal: int,
    info: str | None,
    data_type: pa.DataType,
    path: str,
    is_minimum: bool,
) -> pa.Array | None:
    """Convert bounds of one value type; None if they cannot be read as the column's type."""
    if ordinal == ValueType.DECIMAL and stored.type == pa.binary():
        stored = _decimals(stored, info, path)
    elif ordinal in _MICROS and stored.type == pa.int64():
        if not pa.types.is_timestamp(data_type):
            return None
        factor, divisor = _MICROS[ValueType(ordinal)]
        micros = stored.to_numpy() * factor
        micros = micros // divisor if is_minimum else -(-micros // divisor)
        return pa.array(micros).cast(data_type)
    elif ordinal == ValueType.DATE and stored.type == pa.int32():
        stored = stored.cast(pa.date32())
    is_known = ordinal == 0 or ordinal in _PLAIN or pa.types.is_decimal128(stored.type)
    if not is_known or not _is_widening(stored.type, data_type):
        return None
    try:
        return stored.cast(data_type)
    except pa.ArrowInvalid:
        return None


_PLAIN = frozenset(
    {
        *(ValueType.BOOLEAN, ValueType.INT, ValueType.LONG, ValueType.FLOAT, ValueType.DOUBLE),
        *(ValueType.STRING, ValueType.BYTES, ValueType.UUID, ValueType.DATE),
    }
)
_WIDER = {
    pa.int32(): {pa.int64(), pa.float64()},
    pa.float32(): {pa.float64()},
}


def _is_widening(stored: pa.DataType, data_type: pa.DataType) -> bool:
    if pa.types.is_decimal128(stored) and pa.types.is_decimal128(data_type):
        return True
    return stored == data_type or data_type in _WIDER.get(stored, set())


def _decimals(stored: pa.Array, info: str | None, path: str) -> pa.Array:
    precision, _, scale = (info or "").partition(",")
    try:
        data_type = pa.decimal128(int(precision), int(scale))
    except (ValueError, pa.ArrowInvalid):
        raise FormatError(path, "precision and scale of a decimal", repr(info)) from None
    data, starts, ends = padded_records(join(write_column(_BYTES, stored)))

    def refuse(expected: str, found: str, _offset: int) -> FormatError:
        return FormatError(path, f"{expected}, as a bound of a column", found)

    cursor = Cursor(data, starts, ends, refuse)
    return read_column(AvroNode(Wire.BYTES, data_type), cursor)()
