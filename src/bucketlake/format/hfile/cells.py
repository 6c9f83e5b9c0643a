"""Cells, the entries of an HFile's data blocks, as Arrow columns.

A cell is ``key size | value size | row size | row | marks | value | mark``. The row is the key as
the caller knows it; the marks are constant in files of the metadata table. A cell starts where the
cell before ends, so cells are found one by one. Reading walks many stretches of blocks at once:
each step moves a position in every stretch. Then all keys and values are copied together.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import BucketLakeError
from bucketlake.format.byte_slices import copy_slices
from bucketlake.model.arrays import Ints, spans_of

RefuseBlock: TypeAlias = Callable[[str, bool, int], BucketLakeError]  # See decode_cells.

CELL_PADDING_BYTES = 16  # After the last cell, so that whole words can be read at every position.
CELL_FRAME_BYTES = 21  # Size of a cell without row and value.
ROW_BYTES_MAX = 2**15 - 1

_HEAD_BYTES = 10  # Sizes of key part, value, and row.
_HEAD = np.dtype([("key", ">u4"), ("value", ">u4"), ("row", ">u2")])
_SIZES = struct.Struct(">II")
_KEY_SIZES = struct.Struct(">I4xH")
_KEY_FRAME_BYTES = 12  # Size of the row, no column family, time, type.
_VALUE_FRAME_BYTES = _SIZES.size + 1  # The two sizes, and the mark after the value.
_PUT = 4
_MARKS = b"\0" + b"\x7f" + b"\xff" * 7 + bytes([_PUT])  # No family, the latest time, a put.
_END_MARK = b"\0"

_LANES_MIN = 24  # With fewer stretches a loop over cells is faster than steps of NumPy.
_STEPS = 64
_LANE_BYTES = 2**14
_SEARCHED_BYTES = 2**10  # A search of longer stretches begins slowly.
_GUESSED_ROW_BYTES_MAX = 256
_LOW_WORD = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def cell_sizes(key_sizes: Ints, values: pa.Array) -> Ints:
    """Return the size of each entry as a cell; values are binary, or a dictionary of binary."""
    sizes = key_sizes + CELL_FRAME_BYTES
    if pa.types.is_dictionary(values.type):
        distinct: Ints = lengths(values.dictionary)
        sizes += distinct[_indices(values)]
        return sizes
    return sizes + lengths(values)


def encode_cells(keys: pa.Array, values: pa.Array, row_sizes: Ints, sizes: Ints) -> memoryview:
    """Encode entries as cells, one after another.

    Parameters
    ----------
    keys : pyarrow.Array of binary
        Rows of at most ``ROW_BYTES_MAX`` bytes.
    values : pyarrow.Array of binary, or a dictionary of binary
        With a dictionary, each distinct value is framed once.
    row_sizes, sizes : ndarray of int64
        Sizes of the keys, and of the cells.
    """
    heads = np.empty(len(keys), _HEAD)
    heads["key"] = row_sizes + _KEY_FRAME_BYTES
    heads["value"] = sizes - row_sizes - CELL_FRAME_BYTES
    heads["row"] = row_sizes
    offsets = np.arange(0, _HEAD_BYTES * (len(keys) + 1), _HEAD_BYTES, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(heads)]
    head = pa.Array.from_buffers(pa.binary(), len(keys), buffers)
    marks, end, nothing = pa.scalar(_MARKS), pa.scalar(_END_MARK), pa.scalar(b"")
    if pa.types.is_dictionary(values.type):
        tails = pc.binary_join_element_wise(marks, values.dictionary, end, nothing)
        parts = [head, keys, tails[0] if len(tails) == 1 else tails.take(values.indices)]
    else:
        parts = [head, keys, marks, values, end]
    _, _, data = pc.binary_join_element_wise(*parts, nothing).buffers()
    return memoryview(b"" if data is None else data)[: int(sizes.sum())]


def decode_cells(
    data: bytearray, bounds: Ints, refuse: RefuseBlock
) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Decode the cells of several blocks.

    Parameters
    ----------
    data : bytearray
        Blocks one after another, and ``PADDING_BYTES`` or more after them. At most 2 GiB.
    bounds : ndarray of int64, shape (n_blocks + 1,)
        The start of each block, and the end of the last block.
    refuse : callable
        Returns the error of a block: what was expected or met, whether that is an unsupported
        feature (otherwise damage), and the number of the block.

    Returns
    -------
    (pyarrow.BinaryArray, pyarrow.BinaryArray)
        Keys and values, in order of the cells.
    """
    octets, words = np.frombuffer(data, np.uint8), _words_of(data)
    # The end of each cell proves a walk: it is the start of the next cell, or the last end.
    for walk_bounds in (_with_guesses(data, bounds), bounds):
        starts = _cell_starts(data, walk_bounds)
        key_sizes, value_sizes = _sizes_at(words, starts)
        ends = starts + key_sizes + value_sizes + _VALUE_FRAME_BYTES
        is_whole = ends == np.append(starts[1:], bounds[-1])[: len(ends)]
        if is_whole.all():
            break

    def require(holds: npt.NDArray[np.bool_], what: str, is_feature: bool) -> None:
        if not holds.all():
            at = starts[int(np.argmin(holds))]
            raise refuse(what, is_feature, int(np.searchsorted(bounds, at, side="right")) - 1)

    require(is_whole, "whole cells", False)
    row_sizes = octets[starts + 8].astype(np.int64) << 8 | octets[starts + 9]
    require(key_sizes == row_sizes + _KEY_FRAME_BYTES, "a cell with a column", True)
    rows_at = starts + _HEAD_BYTES
    values_at = ends - value_sizes - 1
    marks = octets[rows_at + row_sizes] | (octets[values_at - 1] ^ _PUT) | octets[ends - 1]
    require(marks == 0, "a cell with a column, a version or a mark", True)
    return copy_slices(data, rows_at, row_sizes), copy_slices(data, values_at, value_sizes)


def lengths(texts: pa.Array) -> Ints:
    """Return the sizes of byte strings, none of them null."""
    return np.diff(spans_of(texts)[1]).astype(np.int64)


def _indices(values: pa.DictionaryArray) -> npt.NDArray[np.integer]:
    indices: npt.NDArray[np.integer] = values.indices.to_numpy(zero_copy_only=False)
    return indices


def _words_of(data: bytearray) -> npt.NDArray[np.uint64]:
    """Return the eight bytes at every position, as a number each."""
    return np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))


def _sizes_at(words: npt.NDArray[np.uint64], starts: Ints) -> tuple[Ints, Ints]:
    """Return the sizes of key part and value of the cells at some positions."""
    heads = words[starts].byteswap()
    return (heads >> _HALF).view(np.int64), (heads & _LOW_WORD).view(np.int64)


def _cell_starts(data: bytearray, bounds: Ints) -> Ints:
    """Return the start of each cell; a cell may claim to reach beyond its block."""
    words = _words_of(data)
    lanes, at = np.arange(len(bounds) - 1), bounds[:-1].copy()
    walked: list[tuple[Ints, Ints]] = []  # Blocks, and a row for each step.
    is_open = at < bounds[1:]
    while np.count_nonzero(is_open) >= _LANES_MIN:
        lanes, at = lanes[is_open], at[is_open]
        end = bounds[lanes + 1]
        steps = np.empty((_STEPS, len(lanes)), np.int64)
        for step in steps:
            step[:] = at
            key_sizes, value_sizes = _sizes_at(words, at)
            at = np.minimum(at + key_sizes + value_sizes + _VALUE_FRAME_BYTES, end)
        walked.append((lanes, steps))
        is_open = at < end
    rest = [
        (lane, _starts_in(data, start, int(bounds[lane + 1])))
        for lane, start in zip(lanes[is_open].tolist(), at[is_open].tolist(), strict=True)
    ]
    if not walked:
        found = [np.array(starts, np.int64) for _, starts in rest]
        return np.concatenate([np.empty(0, np.int64), *found])
    return _in_order(walked, rest, bounds)


def _with_guesses(data: bytearray, bounds: Ints) -> Ints:
    """Add guessed starts of cells inside the blocks, so that there are many positions to move.

    A guess is wrong where a value looks like a cell. Then the walk does not prove itself.
    """
    found: list[int] = []
    likely = 0  # Keys of one file often have one size.
    for at, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        while at < end:
            found.append(at)
            after = at + _LANE_BYTES
            marks_at = data.find(_MARKS, after, min(after + _SEARCHED_BYTES, end))
            row_size = _row_size_before(data, marks_at, likely)
            if row_size < 0:
                break
            likely, at = row_size, marks_at - row_size - _HEAD_BYTES
    return np.array([*found, int(bounds[-1])], np.int64)


def _row_size_before(data: bytearray, marks_at: int, likely: int) -> int:
    """Return the size of a row that ends at a position; -1 if none of up to 256 bytes fits."""
    if marks_at < 0:
        return -1
    if _is_row(data, marks_at, likely):
        return likely
    sizes = range(_GUESSED_ROW_BYTES_MAX)
    return next((size for size in sizes if _is_row(data, marks_at, size)), -1)


def _is_row(data: bytearray, marks_at: int, size: int) -> bool:
    start = marks_at - size - _HEAD_BYTES
    if min(start, size) < 0:
        return False
    key_size, row_size = _KEY_SIZES.unpack_from(data, start)
    return bool(key_size == size + _KEY_FRAME_BYTES and row_size == size)


def _starts_in(data: bytearray, at: int, end: int) -> list[int]:
    starts, unpack = [], _SIZES.unpack_from
    while at < end:
        starts.append(at)
        key_size, value_size = unpack(data, at)
        at += key_size + value_size + _VALUE_FRAME_BYTES
    return starts


def _in_order(
    walked: list[tuple[Ints, Ints]], rest: list[tuple[int, list[int]]], bounds: Ints
) -> Ints:
    """Put the steps of all blocks into the order of the cells."""
    counts = np.zeros(len(bounds) - 1, np.int64)
    is_cell = [steps < bounds[lanes + 1] for lanes, steps in walked]
    for (lanes, _), cells in zip(walked, is_cell, strict=True):
        counts[lanes] += np.count_nonzero(cells, axis=0)
    walked_counts = counts.copy()
    for lane, starts in rest:
        counts[lane] += len(starts)
    first = np.cumsum(counts) - counts
    ordered = np.empty(int(counts.sum()), np.int64)
    for number, ((lanes, steps), cells) in enumerate(zip(walked, is_cell, strict=True)):
        places = first[lanes] + np.arange(number * _STEPS, (number + 1) * _STEPS)[:, None]
        if cells.all():
            ordered[places] = steps
        else:
            ordered[places[cells]] = steps[cells]
    for lane, starts in rest:
        at = first[lane] + walked_counts[lane]
        ordered[at : at + len(starts)] = starts
    return ordered
