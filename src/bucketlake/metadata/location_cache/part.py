"""Parts of the location cache: keys of an index shard and a code for each, as arrays.

Keys are in order of the cells of their hashes. A cell is a range of the hash's upper half; a
directory has the first row of each cell. The lower half is the fingerprint of a key. A lookup
compares eight fingerprints of the cell at once, and then the bytes of the keys whose fingerprints
are equal. So the answer is exact, however many keys have equal hashes.

An entry takes memory for its fingerprint, its code and its share of the directory. The key bytes
are only read where a fingerprint is equal, so they stay on disk or in the page cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hashing.java_hash import Bytes, Positions
from bucketlake.hashing.texts import TextHashes, Texts, same_texts

Offsets: TypeAlias = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
Codes: TypeAlias = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

REMOVED = np.uint32(2**32 - 1)
"""The code of a key whose entry was removed; in 16 bits, all of them are set as well."""

SEVERAL_LENGTHS = -1

ABSENT = -1
"""The row of a key that a part does not have."""

WINDOW = 8  # Fingerprints that are compared at once.
_WINDOW_BITS = 3
_NARROW_REMOVED = np.uint16(2**16 - 1)
_HALF = np.uint64(32)
_PLACE_BITS = np.uint64(48)  # The upper 16 bits of a hash.


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Keys with their codes; the arrays may be mapped from a file.

    Attributes
    ----------
    first : ndarray of uint32, shape (n_cells + 1,)
        The first row of each cell, and the number of keys.
    fingerprints : ndarray of uint32, shape (n_keys + 8,)
        Lower halves of the hashes; the last eight belong to no key.
    codes : ndarray of uint16 or uint32, shape (n_keys,)
        A number for each key.
    offsets : ndarray of uint32 or uint64, shape (n_keys + 1,)
        Where each key begins in ``data``. Empty if all keys have the same length.
    data : ndarray of uint8
        Bytes of the keys and the padding of :class:`Texts`.
    key_length : int
        The length of all keys, or ``SEVERAL_LENGTHS``.
    """

    first: npt.NDArray[np.uint32]
    fingerprints: npt.NDArray[np.uint32]
    codes: Codes
    offsets: Offsets
    data: Bytes
    key_length: int

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def resident_bytes(self) -> int:
        """Size of the arrays that every lookup reads."""
        return self.first.nbytes + self.fingerprints.nbytes + self.codes.nbytes

    @property
    def size_bytes(self) -> int:
        """Size of all arrays."""
        return self.resident_bytes + self.offsets.nbytes + self.data.nbytes

    def keys_at(self, rows: Positions) -> Texts:
        """Return the keys of some rows."""
        if self.key_length != SEVERAL_LENGTHS:
            return Texts(self.data, rows * self.key_length, self.key_length)
        starts = self.offsets.take(rows).astype(np.int64)
        return Texts(self.data, starts, self.offsets.take(rows + 1).astype(np.int64) - starts)

    def key_column(self) -> pa.LargeStringArray:
        """Return all keys, by row; the column uses the memory of the part."""
        if self.key_length == SEVERAL_LENGTHS:
            offsets = self.offsets.astype(np.int64)
        else:
            offsets = np.arange(len(self) + 1) * self.key_length
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_string(), len(self), buffers)


def wide_codes(codes: Codes) -> npt.NDArray[np.uint32]:
    """Return codes in 32 bits."""
    wide = codes.astype(np.uint32)
    if codes.dtype.itemsize == _NARROW_REMOVED.itemsize:
        wide[codes == _NARROW_REMOVED] = REMOVED
    return wide


def narrow_codes(codes: npt.NDArray[np.uint32]) -> Codes:
    """Return codes in 16 bits if they fit; undoes :func:`wide_codes`."""
    is_code = codes != REMOVED
    if codes.max(initial=0, where=is_code) >= _NARROW_REMOVED:
        return codes
    return codes.astype(np.uint16)  # All bits of a removal are set, also of the lower 16.


def lookup_order(hashes: TextHashes) -> Positions:
    """Return an order of keys in which lookups read neighbouring entries one after another."""
    return np.argsort((hashes >> _PLACE_BITS).astype(np.uint16), kind="stable")


def find_rows(part: Part, keys: Texts, hashes: TextHashes) -> Positions:
    """Return the row of each key in a part; ``ABSENT`` for a key that the part does not have.

    Parameters
    ----------
    part : Part
        The part.
    keys : Texts
        Keys, for speed in :func:`lookup_order`.
    hashes : ndarray of uint64, shape (n_keys,)
        Hashes of the keys.
    """
    found = np.full(len(keys), ABSENT, np.int64)
    if len(part) == 0:
        return found
    windows = np.ndarray((len(part) + 1,), "V32", part.fingerprints, strides=(4,))
    for rows, block in keys.blocks():
        cells = cells_of(hashes[rows], len(part.first) - 1)
        begins = part.first.take(cells).astype(np.int64)
        ends = part.first.take(cells + 1).astype(np.int64)
        sought = hashes[rows].astype(np.uint32)
        open_rows = np.flatnonzero(begins < ends)
        while len(open_rows):
            at = begins[open_rows]
            near = windows[at].view("<u4").reshape(-1, WINDOW)
            hits = np.flatnonzero(near == sought[open_rows, np.newaxis])
            asking = open_rows[hits >> _WINDOW_BITS]
            places = begins[asking] + (hits & (WINDOW - 1))
            # A hit behind the end of the cell is another key, or no key.
            inside = places < ends[asking]
            if not inside.all():
                asking, places = asking[inside], places[inside]
            same = same_texts(block.take(asking), part.keys_at(places))
            found[rows.start + asking[same]] = places[same]
            open_rows = open_rows[ends[open_rows] - at > WINDOW]
            begins[open_rows] += WINDOW
    return found


def cells_of(hashes: TextHashes, cell_count: int) -> Positions:
    """Return the cell of each hash, ascending with the hash."""
    cells: Positions = (((hashes >> _HALF) * np.uint64(cell_count)) >> _HALF).astype(np.int64)
    return cells
