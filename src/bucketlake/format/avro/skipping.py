"""Skipping Avro values to locate the items of arrays and maps.

The position of an item depends on the items before it, so this is the only loop over values. It
only looks at sizes; :mod:`bucketlake.format.avro.read_columns` reads and checks the values.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from bucketlake.format.avro.cursor import Cursor
from bucketlake.format.avro.tree import AvroNode, Wire
from bucketlake.model.arrays import Ints

Skip: TypeAlias = Callable[[bytes, int], int]  # From where a value starts to where it ends.

_WIDTHS = {Wire.BOOLEAN: 1, Wire.FLOAT: 4, Wire.DOUBLE: 8}
_VARINT_BITS_MAX = 63


class MalformedError(Exception):
    """There is no valid value; the caller knows the position."""


def item_places(cursor: Cursor, skip: Skip, width: int | None = None) -> tuple[Ints, Ints, Ints]:
    """Locate the items of an array or map in each record.

    Parameters
    ----------
    cursor : Cursor
        Before the array; not moved.
    skip : callable
        Skips an item.
    width : int, optional
        Size of every item in bytes; None if sizes differ.

    Returns
    -------
    places : ndarray of int64, shape (n_items,)
        Where items start, record after record.
    counts : ndarray of int64, shape (n_records,)
        Number of items of each record.
    ends : ndarray of int64, shape (n_records,)
        Where the arrays end.

    Raises
    ------
    FormatError
        If an array does not fit its record.
    """
    data = cursor.data
    places = array("q")
    counts, ends = np.empty_like(cursor.position), np.empty_like(cursor.position)
    for row, (start, end) in enumerate(
        zip(cursor.position.tolist(), cursor.end.tolist(), strict=True)
    ):
        before = len(places)
        try:
            ends[row] = _places_of(data, start, end, skip, width, places)
        except (IndexError, MalformedError) as error:
            raise cursor.refuse("items within their record", "other bytes", start) from error
        counts[row] = len(places) - before
    return np.array(places, np.int64), counts, ends


def _places_of(
    data: bytes, at: int, end: int, skip: Skip, width: int | None, places: array[int]
) -> int:
    """Add the positions of an array's items, block by block until an empty block."""
    while True:
        count, at = _long(data, at)
        if count < 0:
            count = -count
            at = _skip_long(data, at)  # The block's size in bytes, which is not needed.
        if count * (width or 1) > end - at:  # An item takes at least one byte.
            raise MalformedError
        if count == 0:
            return at
        if width is not None:
            places.extend(range(at, at + count * width, width))
            at += count * width
        else:
            for _ in range(count):
                places.append(at)
                at = skip(data, at)
        if at >= end:
            raise MalformedError


def item_width(children: tuple[AvroNode, ...]) -> int | None:
    """Return the size of an item; None if it depends on the value."""
    node, *others = children
    return None if others or node.union is not None else _width(node)


def _width(node: AvroNode) -> int | None:
    return node.size_bytes if node.wire is Wire.FIXED else _WIDTHS.get(node.wire)


def _long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if shift > _VARINT_BITS_MAX:
            raise MalformedError
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), at + 1


def _skip_long(data: bytes, at: int) -> int:
    while data[at] >= 0x80:
        at += 1
    return at + 1


def _skip_sized(data: bytes, at: int) -> int:
    size, at = _long(data, at)
    if size < 0:
        raise MalformedError
    return at + size


def _skip(node: AvroNode) -> Skip:
    value = _skip_value(node)
    union = node.union
    if union is None:
        return value
    value_branch, count = union.value_branch * 2, union.branch_count * 2  # As zigzag has them.

    def skip(data: bytes, at: int) -> int:
        branch = data[at]
        if branch >= count or branch & 1:
            raise MalformedError
        return value(data, at + 1) if branch == value_branch else at + 1

    return skip


def _skip_value(node: AvroNode) -> Skip:
    match node.wire:
        case Wire.STRING | Wire.BYTES:
            return _skip_sized
        case Wire.INT | Wire.LONG | Wire.ENUM:
            return _skip_long
        case Wire.RECORD:
            return skip_all(node.children)
        case Wire.ARRAY | Wire.MAP:
            return _skip_items(node)
        case _:
            width = _width(node)
            assert width is not None
            return lambda _data, at: at + width


def skip_all(nodes: tuple[AvroNode, ...]) -> Skip:
    """Return a function that skips consecutive values of several types."""
    skips = [_skip(node) for node in nodes]
    if len(skips) == 1:
        return skips[0]

    def skip(data: bytes, at: int) -> int:
        for skip_value in skips:
            at = skip_value(data, at)
        return at

    return skip


def _skip_items(node: AvroNode) -> Skip:
    item, width = skip_all(node.children), item_width(node.children)

    def skip(data: bytes, at: int) -> int:
        return _places_of(data, at, len(data), item, width, array("q"))

    return skip
