"""Reading Avro records as Arrow columns: a field of all records at once, not row by row.

Reading has two steps. The first step locates the values and checks that they are within their
records; it returns a function. The second step calls this function for the wanted columns, and the
function makes the column. Items of arrays and maps are located in a loop; then the values at these
positions are read together. The callers handle framing and schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.format.avro.cursor import DECIMAL_BYTES_MAX, Cursor, decimals_at
from bucketlake.format.avro.skipping import item_places, item_width, skip_all
from bucketlake.format.avro.tree import AvroNode, Wire
from bucketlake.model.arrays import Ints
from bucketlake.model.vector import bytes_type, is_vector, vectors_of_bytes

Make: TypeAlias = Callable[[], pa.Array]


def read_column(node: AvroNode, cursor: Cursor) -> Make:
    """Read one value of each record.

    Parameters
    ----------
    node : AvroNode
        The type of the value.
    cursor : Cursor
        Before the value in each record; it is moved after the value.

    Returns
    -------
    callable
        Makes the column, of type ``node.arrow``.

    Raises
    ------
    FormatError
        If a value does not fit its record or its type; raised here or by the callable.
    """
    union = node.union
    if union is None:
        return _READERS[node.wire](node, cursor)
    branches = cursor.numbers_below(union.branch_count, f"one of {union.branch_count} branches")
    rows = np.flatnonzero(branches == union.value_branch)
    if len(rows) == len(branches):
        return _READERS[node.wire](node, cursor)
    inner = cursor.at(cursor.position[rows], cursor.end[rows])
    make = _READERS[node.wire](node, inner)
    cursor.position[rows] = inner.position
    return lambda: with_nulls_between(make(), rows, len(branches))


def with_nulls_between(array: pa.Array, rows: Ints, count: int) -> pa.Array:
    """Return an array of ``count`` rows with values at the given rows and nulls at the others."""
    places, absent = np.zeros(count, np.int64), np.ones(count, np.bool_)
    places[rows], absent[rows] = np.arange(len(rows)), False
    return array.take(pa.array(places, mask=absent))


def _boolean(_node: AvroNode, cursor: Cursor) -> Make:
    starts = cursor.fixed(1)
    values = cursor.octets[starts]
    cursor.require(values <= 1, "a boolean, 0 or 1", "another byte", starts)
    return lambda: pa.array(values.astype(np.bool_))


def _int(node: AvroNode, cursor: Cursor) -> Make:
    values = cursor.ints()
    return lambda: _primitive(node.arrow, values.astype(np.int32))


def _long(node: AvroNode, cursor: Cursor) -> Make:
    before, values = cursor.position, cursor.longs()
    scaled = values * node.unit_micros
    fits = scaled // node.unit_micros == values
    cursor.require(fits, "a time in microseconds", "a later", before)
    return lambda: _primitive(node.arrow, scaled)


def _float(node: AvroNode, cursor: Cursor) -> Make:
    starts = cursor.fixed(4)
    return lambda: _primitive(node.arrow, cursor.words(starts).astype(np.uint32).view(np.float32))


def _double(node: AvroNode, cursor: Cursor) -> Make:
    starts = cursor.fixed(8)
    return lambda: _primitive(node.arrow, cursor.words(starts))


def _text(node: AvroNode, cursor: Cursor) -> Make:
    starts, sizes = cursor.sized()

    def make() -> pa.Array:
        try:
            return cursor.slices(starts, sizes).cast(node.arrow)
        except pa.ArrowInvalid as error:
            at = int(starts[0])
            raise cursor.refuse("texts in UTF-8 from here on", str(error), at) from error

    return make


def _bytes(node: AvroNode, cursor: Cursor) -> Make:
    starts, sizes = cursor.sized()
    if pa.types.is_decimal128(node.arrow):
        return lambda: decimals(cursor, starts, sizes, node.arrow)
    return lambda: cursor.slices(starts, sizes)


def _fixed(node: AvroNode, cursor: Cursor) -> Make:
    starts = cursor.fixed(node.size_bytes)
    sizes = np.full(len(starts), node.size_bytes)
    if pa.types.is_decimal128(node.arrow):
        return lambda: decimals(cursor, starts, sizes, node.arrow)
    if is_vector(node.arrow):
        return lambda: _vectors(node, cursor.slices(starts, sizes))
    return lambda: cursor.slices(starts, sizes)


def _vectors(node: AvroNode, values: pa.BinaryArray) -> pa.FixedSizeListArray:
    """Return the vectors of byte strings that lie one after the other, in the same buffer."""
    data = values.buffers()[2]
    fixed = pa.Array.from_buffers(bytes_type(node.arrow), len(values), [None, data])
    return vectors_of_bytes(fixed, node.arrow)


def _enum(node: AvroNode, cursor: Cursor) -> Make:
    indices = cursor.numbers_below(len(node.symbols), f"one of {len(node.symbols)} symbols")
    symbols = pa.array(node.symbols, pa.string())
    return lambda: symbols.take(pa.array(indices))


def _array(node: AvroNode, cursor: Cursor) -> Make:
    items, offsets = _items(node, cursor)
    make = read_column(node.children[0], items)
    return lambda: pa.ListArray.from_arrays(offsets, make(), type=node.arrow)


def _map(node: AvroNode, cursor: Cursor) -> Make:
    entries, offsets = _items(node, cursor)
    keys, values = (read_column(child, entries) for child in node.children)
    return lambda: pa.MapArray.from_arrays(offsets, keys(), values(), type=node.arrow)


def _items(node: AvroNode, cursor: Cursor) -> tuple[Cursor, pa.Array]:
    """Locate the items of each array or map; return a cursor before them, and Arrow's offsets."""
    skip, width = skip_all(node.children), item_width(node.children)
    places, counts, cursor.position = item_places(cursor, skip, width)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return cursor.at(places, np.repeat(cursor.end, counts)), pa.array(offsets)


def _record(node: AvroNode, cursor: Cursor) -> Make:
    makes = [read_column(child, cursor) for child in node.children]
    fields = list(node.arrow)
    return lambda: pa.StructArray.from_arrays([make() for make in makes], fields=fields)


def _primitive(data_type: pa.DataType, values: npt.NDArray[np.generic]) -> pa.Array:
    return pa.Array.from_buffers(data_type, len(values), [None, pa.py_buffer(values)])


def decimals(cursor: Cursor, starts: Ints, sizes: Ints, data_type: pa.DataType) -> pa.Array:
    """Return the decimals of big-endian integers; FormatError for those that the type lacks."""
    fits = (sizes > 0) & (sizes <= DECIMAL_BYTES_MAX)
    cursor.require(fits, f"a decimal of 1 to {DECIMAL_BYTES_MAX} bytes", "another size", starts)
    found = decimals_at(cursor.octets, starts, sizes, data_type)
    try:
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        raise cursor.refuse(f"values of {data_type}", str(error), int(starts[0])) from error
    return found


_READERS: Mapping[Wire, Callable[[AvroNode, Cursor], Make]] = {
    Wire.BOOLEAN: _boolean,
    Wire.INT: _int,
    Wire.LONG: _long,
    Wire.FLOAT: _float,
    Wire.DOUBLE: _double,
    Wire.STRING: _text,
    Wire.BYTES: _bytes,
    Wire.FIXED: _fixed,
    Wire.ENUM: _enum,
    Wire.ARRAY: _array,
    Wire.MAP: _map,
    Wire.RECORD: _record,
}
