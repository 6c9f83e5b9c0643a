"""Columns of Arrow as arrays: one array of chunks, entries of maps, the order of small numbers.

Also null elements of arrays, which Hudi's writers do not expect.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import NullElementWarning
from bucketlake.model.column_type import is_list

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; a single chunk is not copied."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def spans_of(values: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """Return the bytes of texts or byte strings, and where each begins, and the last one ends.

    Nothing is copied, so other bytes may lie around those of the values. A null has any bounds.
    They have 32 bits, those of large types 64.

    >>> octets, bounds = spans_of(pa.array(["a", "bc"]))
    >>> bytes(octets), bounds.tolist()
    (b'abc', [0, 1, 3])
    """
    _, offsets, data = values.buffers()
    width = np.int64 if values.type in (pa.large_string(), pa.large_binary()) else np.int32
    if not len(values):  # It may have no buffers.
        return np.empty(0, np.uint8), np.zeros(1, width)
    bounds = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data or b"", np.uint8), bounds


def mask_of(flags: pa.Array | pa.ChunkedArray) -> Mask:
    """Return a column of booleans as a mask; a null is false."""
    return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False), np.bool_)


def gather(parts: Sequence[pa.Array | pa.ChunkedArray], indices: pa.Array) -> pa.Array:
    """Return values of several columns of one type, numbered one after the other.

    All values in their order are not copied again.
    """
    arrays = [one_array(part) for part in parts]
    if any(pa.types.is_dictionary(array.type) for array in arrays):
        arrays = [array.dictionary_encode() for array in arrays]
    whole = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    return whole if is_everything(indices.to_numpy(), len(whole)) else taken(whole, indices)


def taken(array: pa.Array, indices: pa.Array) -> pa.Array:
    """Return values of an array by their positions, of which none is null.

    Arrow copies lists value by value. Lists of numbers that all have one length, such as
    embeddings, are copied as lists of a fixed size: in a twentieth of the time.
    """
    length = _one_length(array)
    if not length or len(indices) * length > np.iinfo(np.int32).max:
        return array.take(indices)
    numbers = array.values.slice(array.offsets[0].as_py(), len(array) * length)
    held = pa.FixedSizeListArray.from_arrays(numbers, length).take(indices)
    offsets = pa.array(np.arange(len(held) + 1, dtype=np.int32) * length)
    values = held.values.slice(held.offset * length, len(held) * length)
    return pa.ListArray.from_arrays(offsets, values, type=array.type)


def _one_length(array: pa.Array) -> int:
    """Return the length of the lists of an array; 0 if they differ, or are no lists of numbers."""
    is_plain = pa.types.is_list(array.type) and pa.types.is_primitive(array.type.value_type)
    if not is_plain or not len(array) or array.null_count:
        return 0
    lengths = np.diff(array.offsets.to_numpy())
    return int(lengths[0]) if (lengths == lengths[0]).all() else 0


def gather_rows(
    parts: Sequence[pa.Table], names: Sequence[str], rows: npt.NDArray[np.int64]
) -> list[pa.Array]:
    """Return columns of rows of several tables, numbered one after the other.

    The first table has the columns; another one may lack them if no row of it is asked for. Of a
    large table, only the rows that are asked for are copied.
    """
    if len(parts) == 1:
        columns = [one_array(parts[0][name]) for name in names]
        if is_everything(rows, parts[0].num_rows):
            return columns
        indices = pa.array(rows)
        return [taken(column, indices) for column in columns]
    kept: list[pa.Table] = []
    first, count, source = 0, 0, np.empty(len(rows), np.int64)
    for part in parts:
        used = np.flatnonzero((rows >= first) & (rows < first + part.num_rows))
        own = rows[used] - first
        first += part.num_rows
        if len(used) == 0 and kept:
            continue
        held = part.select(names)
        if 2 * len(used) < part.num_rows:
            held, own = held.take(pa.array(own)), np.arange(len(own))
        source[used] = count + own
        count += held.num_rows
        kept.append(held)
    indices = pa.array(source)
    return [gather([part[name] for part in kept], indices) for name in names]


# ---- The entries of map arrays; Arrow's list functions do not accept maps ------------------------


def map_entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Return the keys and the values of all maps of an array, map by map.

    Entries outside a slice or of a null map are omitted, as ``flatten`` does for lists.

    Examples
    --------
    >>> maps = pa.array([[("a", 1)], None, [("b", 2)]], pa.map_(pa.string(), pa.int8()))
    >>> [entries.to_pylist() for entries in map_entries(maps.slice(1))]
    [['b'], [2]]
    """
    # Only entries of null maps are dropped, because Arrow cannot select from views of texts.
    hides = array.null_count and pc.any(pc.greater(_lengths(array).filter(array.is_null()), 0))
    maps = array.drop_null() if hides and hides.as_py() else array
    first, end = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    return maps.keys.slice(first, end - first), maps.items.slice(first, end - first)


def map_lengths(array: pa.MapArray) -> pa.Int32Array:
    """Count the entries of each map of an array; null for a null map."""
    return pc.if_else(array.is_valid(), _lengths(array), pa.scalar(None, pa.int32()))


def _lengths(array: pa.MapArray) -> pa.Int32Array:
    offsets = array.offsets
    return pc.subtract(offsets.slice(1), offsets.slice(0, len(array)))


# --------------------------------------------------------------------------------------------------
#
# The order that sorts small numbers (of slots, tasks, shards, cells), and whether it is needed.

_DIGIT_BITS = 16


def number_order(numbers: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Return the positions that sort numbers; equal numbers keep their order.

    NumPy sorts numbers of two bytes by their digits, in a tenth of the time of longer ones.

    Parameters
    ----------
    numbers : ndarray of integers, none of them negative

    Examples
    --------
    >>> number_order(np.array([70_000, 1, 70_000, 0])).tolist()
    [3, 1, 0, 2]
    """
    greatest = int(numbers.max(initial=0))
    if greatest >> (2 * _DIGIT_BITS):
        return np.argsort(numbers, kind="stable")
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    if greatest >> _DIGIT_BITS:
        upper = (numbers >> _DIGIT_BITS).astype(np.uint16)
        order = order[np.argsort(upper[order], kind="stable")]
    return order


def is_everything(positions: npt.NDArray[np.int64], count: int) -> bool:
    """Return whether positions are those of all rows, in their order.

    Examples
    --------
    >>> is_everything(np.array([0, 1]), 2), is_everything(np.array([1, 0]), 2)
    (True, False)
    """
    return len(positions) == count and bool((positions == np.arange(count)).all())


# ---- Null elements of arrays: allowed here, but a problem for a table that Hudi also writes ------
#
# By default Hudi 1.2.0 writes arrays in a layout that cannot hold null elements. It fails on a
# batch with a null element, and also when it rewrites a base file of bucketlake with one, until its
# writers set ``parquet.avro.write-old-list-structure=false``. bucketlake's layout can hold them, so
# such data are stored, with a :class:`NullElementWarning`.


def columns_with_null_elements(data: pa.Table | pa.RecordBatch) -> list[str]:
    """Return the columns with a null element in an array; nested columns by their path.

    Examples
    --------
    >>> columns_with_null_elements(pa.table({"a": [[1, None]], "b": [[1]], "c": [None]}))
    ['a']
    """
    paths = dict.fromkeys(
        path
        for name, column in zip(data.schema.names, data.columns, strict=True)
        if may_hold_arrays(column.type)
        for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])
        for path in _paths(chunk, name)
    )
    return list(paths)


def warn_of_null_elements(columns: Iterable[str], where: str) -> None:
    """Warn about columns with null elements, if there are any."""
    for column in columns:
        warnings.warn(
            f"{where}: an array in column {column} has a null element; to let Hudi's own writers "
            "rewrite it, set parquet.avro.write-old-list-structure=false for them",
            NullElementWarning,
            stacklevel=2,
        )


def may_hold_arrays(data_type: pa.DataType) -> bool:
    """Return whether values of a type are arrays, or hold arrays."""
    children = [data_type.field(i).type for i in range(data_type.num_fields)]
    return is_list(data_type) or any(may_hold_arrays(child) for child in children)


def _paths(array: pa.Array, path: str) -> Iterator[str]:
    if is_list(array.type):
        elements = array.flatten()
        if elements.null_count:
            yield path
        yield from _paths(elements, f"{path}[]")
    elif pa.types.is_map(array.type):
        yield from _paths(map_entries(array)[1], f"{path}{{}}")
    elif pa.types.is_struct(array.type):
        for field, child in zip(array.type, array.flatten(), strict=True):
            yield from _paths(child, f"{path}.{field.name}")
