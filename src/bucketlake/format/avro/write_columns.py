"""Writing Arrow columns as Avro records: byte strings for each value, joined by Arrow.

Each column becomes parts: an array with a byte string for each record, or one string for all
records. The bytes of a record are its parts in order. This is the inverse of
:mod:`bucketlake.format.avro.read_columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.format.avro.read_columns import with_nulls_between
from bucketlake.format.avro.tree import AvroNode, Wire
from bucketlake.model.arrays import map_entries, map_lengths
from bucketlake.model.vector import bytes_of_vectors, is_vector

ColumnPart: TypeAlias = pa.BinaryArray | pa.BinaryScalar  # A scalar stands for every record.

_VARINT_SHIFTS = np.arange(0, 70, 7, dtype=np.uint64)
_END_OF_ITEMS = b"\0"


def write_column(node: AvroNode, values: pa.Array) -> list[ColumnPart]:
    """Write one value of each record.

    Parameters
    ----------
    node : AvroNode
        The type of the values; nulls are allowed only in a union with null.
    values : pyarrow.Array
        Of type ``node.arrow``.

    Returns
    -------
    list of pyarrow.BinaryArray or scalar
        Parts of the values' bytes, from left to right.

    Raises
    ------
    InputError
        If the type cannot hold a value.
    """
    write, union = _WRITERS[node.wire], node.union
    if union is None:
        return write(node, values)
    if values.null_count == 0:
        return [pa.scalar(_branch(union.value_branch)), *write(node, values)]
    assert union.null_branch is not None, "a null where the writer schema has none"
    is_valid = values.is_valid()
    branches = [pa.scalar(_branch(branch)) for branch in (union.value_branch, union.null_branch)]
    present = join(write(node, values.drop_null()))
    rows = np.flatnonzero(is_valid.to_numpy(zero_copy_only=False))
    return [pc.if_else(is_valid, *branches), with_nulls_between(present, rows, len(values))]


def join(parts: list[ColumnPart]) -> pa.BinaryArray:
    """Join parts from left to right; a null adds nothing."""
    return pc.binary_join_element_wise(
        *parts, pa.scalar(b""), null_handling="replace", null_replacement=b""
    )


def joined_bytes(parts: list[ColumnPart]) -> pa.Buffer:
    """Join parts to records, and all records to one buffer."""
    records = join(parts)
    _, offsets, data = records.buffers()
    if data is None:
        return pa.py_buffer(b"")
    return data.slice(0, int(np.frombuffer(offsets, np.int32)[len(records)]))


def varints(values: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """Write integers in zigzag form, each with as few bytes as possible."""
    zigzag = (values.view(np.uint64) << np.uint64(1)) ^ (values >> 63).view(np.uint64)
    longest = max(1, -(-int(zigzag.max(initial=0)).bit_length() // 7))
    rest = zigzag[:, None] >> _VARINT_SHIFTS[:longest]
    is_used = rest != 0
    is_used[:, 0] = True
    is_last = np.ones_like(is_used)
    is_last[:, :-1] = ~is_used[:, 1:]
    digits = (rest & np.uint64(0x7F)).astype(np.uint8) | np.where(is_last, 0, 0x80).astype(np.uint8)
    return _binary(is_used.sum(axis=1), digits[is_used])


def _branch(number: int) -> bytes:
    return bytes([number * 2])


def _boolean(_node: AvroNode, values: pa.Array) -> list[ColumnPart]:
    return [_fixed_width(values.to_numpy(zero_copy_only=False).astype(np.uint8))]


def _integer(node: AvroNode, values: pa.Array) -> list[ColumnPart]:
    if node.unit_micros == 1:
        width = np.int32 if node.wire is Wire.INT else np.int64
        return [varints(_numbers(values, width).astype(np.int64))]
    micros = _numbers(values, np.int64)
    if (micros % node.unit_micros).any():
        problem = "a time has microseconds, but the writer schema has milliseconds"
        raise InputError("log block", problem, "round the times, or write microseconds")
    return [varints(micros // node.unit_micros)]


def _float(node: AvroNode, values: pa.Array) -> list[ColumnPart]:
    return [_fixed_width(_numbers(values, np.float32 if node.wire is Wire.FLOAT else np.float64))]


def _sized(node: AvroNode, values: pa.Array) -> list[ColumnPart]:
    if pa.types.is_decimal128(node.arrow):
        texts = _shortest_decimals(_big_endian(values))
    else:
        texts = values.cast(pa.binary())
    sizes = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    return [varints(sizes.astype(np.int64)), texts]


def _fixed(node: AvroNode, values: pa.Array) -> list[ColumnPart]:
    if pa.types.is_decimal128(node.arrow):
        return [_fixed_decimals(_big_endian(values), node.size_bytes)]
    if is_vector(node.arrow):
        return [bytes_of_vectors(values).cast(pa.binary())]
    if len(values) and set(pc.unique(pc.binary_length(values)).to_pylist()) != {node.size_bytes}:
        problem = f"a value does not have the {node.size_bytes} bytes of the writer schema"
        raise InputError("log block", problem, "pad or cut the values")
    return [values]


def _enum(node: AvroNode, values: pa.Array) -> list[ColumnPart]:
    indices = pc.index_in(values, pa.array(node.symbols, pa.string()))
    if indices.null_count:
        found = values.filter(indices.is_null())[0].as_py()
        problem = f"{found!r} is not among the symbols of the writer schema's enum"
        raise InputError("log block", problem, f"use one of {', '.join(node.symbols)}")
    return [varints(_numbers(indices, np.int32).astype(np.int64))]


def _array(node: AvroNode, values: pa.Array) -> list[ColumnPart]:
    (item,) = node.children
    return _items(pc.list_value_length(values), join(write_column(item, values.flatten())))


def _map(node: AvroNode, values: pa.Array) -> list[ColumnPart]:
    written = zip(node.children, map_entries(values), strict=True)
    entries = join([part for child, column in written for part in write_column(child, column)])
    return _items(map_lengths(values), entries)


def _items(lengths: pa.Array, items: pa.BinaryArray) -> list[ColumnPart]:
    """Write a block of items for each record with items, and an empty block after it."""
    counts = _numbers(lengths, np.int32).astype(np.int64)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    rows = np.flatnonzero(counts)
    sizes = with_nulls_between(varints(counts[rows]), rows, len(counts))
    return [
        sizes,
        pc.binary_join(pa.ListArray.from_arrays(offsets, items), b""),
        pa.scalar(_END_OF_ITEMS),
    ]


def _record(node: AvroNode, values: pa.Array) -> list[ColumnPart]:
    columns = zip(node.children, values.flatten(), strict=True)
    return [part for child, column in columns for part in write_column(child, column)]


def _numbers(values: pa.Array, dtype: type[np.generic]) -> npt.NDArray[np.int64]:
    """Return the values of an array without nulls as numbers of their width."""
    data = values.buffers()[1]
    if data is None:
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype)[values.offset : values.offset + len(values)]


def _big_endian(values: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of decimals as rows of sixteen, most significant byte first."""
    data = values.buffers()[1]
    rows = np.frombuffer(data if data is not None else b"", np.uint8).reshape(-1, 16)
    return rows[values.offset : values.offset + len(values), ::-1]


def _fixed_decimals(rows: npt.NDArray[np.uint8], size_bytes: int) -> pa.BinaryArray:
    sign = np.where(rows[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)
    padded = np.concatenate([np.repeat(sign, max(size_bytes - 16, 0), axis=1), rows], axis=1)
    kept, dropped = padded[:, -size_bytes:], padded[:, :-size_bytes]
    if (dropped != sign).any() or ((kept[:, :1] ^ sign) >= 0x80).any():
        problem = f"a decimal needs more than the {size_bytes} bytes of the writer schema"
        raise InputError("log block", problem, "widen the fixed type of the schema")
    return _fixed_width(np.ascontiguousarray(kept))


def _shortest_decimals(rows: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Remove leading bytes that only repeat the sign."""
    sign = np.where(rows[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)
    tells_sign = (rows[:, 1:] ^ sign) < 0x80  # The next byte has the same sign bit.
    is_spare = (rows[:, :-1] == sign) & tells_sign
    is_used = np.ones(rows.shape, np.bool_)
    is_used[:, :-1] = ~np.logical_and.accumulate(is_spare, axis=1)
    return _binary(is_used.sum(axis=1), rows[is_used])


def _fixed_width(values: npt.NDArray[np.generic]) -> pa.BinaryArray:
    """Return the rows of an array as byte strings."""
    size = values[:1].nbytes
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(size)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _binary(sizes: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


_WRITERS: Mapping[Wire, Callable[[AvroNode, pa.Array], list[ColumnPart]]] = {
    Wire.BOOLEAN: _boolean,
    Wire.INT: _integer,
    Wire.LONG: _integer,
    Wire.FLOAT: _float,
    Wire.DOUBLE: _float,
    Wire.STRING: _sized,
    Wire.BYTES: _sized,
    Wire.FIXED: _fixed,
    Wire.ENUM: _enum,
    Wire.ARRAY: _array,
    Wire.MAP: _map,
    Wire.RECORD: _record,
}
