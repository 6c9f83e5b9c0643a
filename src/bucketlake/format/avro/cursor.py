"""A cursor over many Avro records at once: a position in each record, all before the same field.

The records of a block have one schema, so their n-th fields can be read together as a column. Each
method reads one primitive value of every record and moves all positions. This is ten times faster
than reading record by record. Every read is checked against the end of its record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import FormatError
from bucketlake.format.byte_slices import copy_slices
from bucketlake.model.arrays import Ints, spans_of

Uint64Array: TypeAlias = npt.NDArray[np.uint64]
Refuse: TypeAlias = Callable[[str, str, int], FormatError]  # Expected, found, offset in the bytes.

RECORD_PADDING_BYTES = 8  # After the last record: whole words can be read at every position.
DECIMAL_BYTES_MAX = 16
_MORE = np.uint64(0x8080808080808080)  # In each byte, the bit for "another byte follows".
_LEAST = np.uint64(0x7F7F7F7F7F7F7F7F)
_PACKING = (  # Closes the gaps between groups of 7 bits: low groups, high groups, the gap.
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)


def padded_records(values: pa.BinaryArray) -> tuple[bytes, Ints, Ints]:
    """Return the bytes of records, padded for a cursor, and where each record starts and ends."""
    octets, offsets = spans_of(values)
    bounds = offsets.astype(np.int64)
    return octets.tobytes() + bytes(RECORD_PADDING_BYTES), bounds[:-1], bounds[1:]


def decimals_at(
    octets: npt.NDArray[np.uint8], starts: Ints, sizes: Ints, data_type: pa.DataType
) -> pa.Array:
    """Return decimals, which Arrow has in 16 bytes, of big-endian numbers in two's complement.

    Parameters
    ----------
    octets : ndarray of uint8
        Bytes, of which one or more follow the last number.
    starts, sizes : ndarray of int64, shape (n_numbers,)
        First byte and size of each number, at most ``DECIMAL_BYTES_MAX``; without bytes it is 0.
    data_type : pyarrow.DataType
        The type of the result; that its digits suffice is not checked.
    """
    last = starts + sizes - 1
    is_negative = (octets[starts] >= 0x80) & (sizes > 0)
    sign = np.where(is_negative, 0xFF, 0).astype(np.uint8)
    unscaled = np.empty((len(starts), DECIMAL_BYTES_MAX), np.uint8)
    for place in range(DECIMAL_BYTES_MAX):
        digits = octets[np.maximum(last - place, 0)]
        unscaled[:, place] = np.where(place < sizes, digits, sign)
    return pa.Array.from_buffers(data_type, len(starts), [None, pa.py_buffer(unscaled)])


class Cursor:
    """Positions in records, moved by reading.

    Parameters
    ----------
    data : bytes
        Records, and ``PADDING_BYTES`` more. At most 2 GiB.
    position, end : ndarray of int64, shape (n_records,)
        The next byte of each record, and the first byte after the record; ascending.
    refuse : callable
        Returns the error for a position in ``data``.
    """

    def __init__(self, data: bytes, position: Ints, end: Ints, refuse: Refuse) -> None:
        self.data, self.position, self.end, self.refuse = data, position, end, refuse
        self.octets = np.frombuffer(data, np.uint8)
        shape = (len(data) - RECORD_PADDING_BYTES + 1,)
        self._words: Uint64Array = np.ndarray(shape, "<u8", data, strides=(1,))

    def at(self, position: Ints, end: Ints) -> Cursor:
        """Return a cursor at other positions of the same bytes."""
        return Cursor(self.data, position, end, self.refuse)

    def require(
        self, holds: npt.NDArray[np.bool_], expected: str, found: str, at: Ints | None = None
    ) -> None:
        """Raise an error for the first record for which ``holds`` is false."""
        if not holds.all():
            places = self.position if at is None else at
            raise self.refuse(expected, found, int(places[np.argmin(holds)]))

    def longs(self) -> Ints:
        """Read a variable-length integer of each record."""
        self._require_bytes(1)
        values = self.octets[self.position].astype(np.uint64)
        if values.size and values.max() >= 0x80:
            values = self._long_varints()
        else:
            self.position = self.position + 1
        return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)

    def ints(self) -> Ints:
        """Read a 32-bit integer of each record."""
        before, values = self.position, self.longs()
        fits = values == values.astype(np.int32)
        self.require(fits, "an int of 32 bits", "a larger number", before)
        return values

    def numbers_below(self, count: int, expected: str) -> Ints:
        """Read longs that number one of ``count`` things each."""
        before, values = self.position, self.longs()
        known = (values >= 0) & (values < count)
        self.require(known, expected, "another number", before)
        return values

    def fixed(self, size_bytes: int) -> Ints:
        """Skip values of a fixed size; return where they start."""
        self._require_bytes(size_bytes)
        starts, self.position = self.position, self.position + size_bytes
        return starts

    def sized(self) -> tuple[Ints, Ints]:
        """Skip values that follow their sizes; return where the values start, and the sizes."""
        before, sizes = self.position, self.longs()
        fits = (sizes >= 0) & (sizes <= self.end - self.position)
        self.require(fits, "a value within its record", "a size beyond it", before)
        starts, self.position = self.position, self.position + sizes
        return starts, sizes

    def words(self, starts: Ints) -> Uint64Array:
        """Return eight bytes at each position, as little-endian integers."""
        return self._words[starts]

    def slices(self, starts: Ints, sizes: Ints) -> pa.BinaryArray:
        """Copy the bytes at each position; slices are ascending and do not overlap."""
        return copy_slices(self.data, starts, sizes)

    def _require_bytes(self, count: int) -> None:
        fits = self.position <= self.end - count
        self.require(fits, f"{count} bytes of a value", "the end of the record")

    def _long_varints(self) -> Uint64Array:
        """Read integers of up to ten bytes, eight of them in one word."""
        words = self._words[self.position]
        stops = ~words & _MORE
        last = stops & (~stops + np.uint64(1))  # The lowest stop bit; 0 if the value is longer.
        values = words & (last | (last - np.uint64(1))) & _LEAST
        for low, high, gap in _PACKING:
            values = (values & low) | ((values & high) >> gap)
        # A power of two is exact as a float, and its exponent is the number of bits.
        lengths = (np.frexp(last.astype(np.float64))[1] // 8).astype(np.int64)
        longer = np.flatnonzero(last == 0)
        if len(longer):
            lengths[longer] = self._add_last_bytes(values, longer)
        fits = self.position + lengths <= self.end
        self.require(fits, "an integer within its record", "the end of the record")
        self.position = self.position + lengths
        return values

    def _add_last_bytes(self, values: Uint64Array, rows: Ints) -> Ints:
        """Add the ninth and tenth byte of long integers; return the lengths of these integers."""
        tail = self._words[np.minimum(self.position[rows] + 8, len(self._words) - 1)]
        ninth, tenth = tail & np.uint64(0xFF), (tail >> np.uint64(8)) & np.uint64(0xFF)
        has_tenth = ninth >= 0x80
        holds = np.ones(len(values), np.bool_)
        holds[rows] = ~has_tenth | (tenth <= 1)
        self.require(holds, "an integer of 64 bits", "a longer one")
        values[rows] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        values[rows] |= np.where(has_tenth, tenth, 0).astype(np.uint64) << np.uint64(63)
        return np.where(has_tenth, 10, 9).astype(np.int64)
