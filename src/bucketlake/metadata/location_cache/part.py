"""Parts of the location cache: keys of an index shard and a code for each, as arrays.

Keys are in order of the cells of their hashes. A cell is a range of the hash's upper half; a
directory has the first row of each cell. The lower half is the fingerprint of a key. A lookup
compares eight fingerprints of the cell at once, and then the bytes of the keys whose fingerprints
are equal. So the answer is exact, however many keys have equal hashes.

An entry takes memory for its fingerprint, its code and its share of the directory. The key bytes
are only read where a fingerprint is equal, so they stay on disk or in the page cache.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal import isal_zlib

from bucketlake.hashing.index_key import Bytes, Positions
from bucketlake.hashing.texts import HASH_VERSION, PADDING_BYTES, TextHashes, Texts, same_texts

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


# ---- Files of parts ------------------------------------------------------------------------------
#
# A file is written under a temporary name and then renamed, so its name means that it is complete.
# It is not flushed to the disk, and disks lose bits. So its header has the checksum of all arrays.
# Each process verifies a file once; then it trusts the file as long as size and time are the same.

_MAGIC = b"BLPART\x01" + bytes([HASH_VERSION])
# Magic, keys, cells, bytes of a code, of an offset, of all keys, key length, checksum of arrays.
_HEADER = struct.Struct("<8sQQIIQqI")
_CHECKSUM = struct.Struct("<I")  # Of the header.
_ALIGNMENT = 64

_verified: set[tuple[str, int, int, int]] = set()  # Files that this process verified.


class DamagedFileError(Exception):
    """A file of the cache is damaged, cut, or of another version; it has to be made again."""


def write_part(part: Part, path: Path) -> None:
    """Write a part to a file, which appears completely or not at all.

    Raises
    ------
    OSError
        If the disk is full, or the folder was deleted.
    """
    arrays: list[npt.NDArray[Any]] = [
        np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        for array in (part.first, part.fingerprints, part.codes, part.offsets, part.data)
    ]
    checksum = 0
    for array in arrays:
        checksum = isal_zlib.crc32(_bytes(array), checksum)
    sizes = (part.codes.itemsize, part.offsets.itemsize, len(part.data) - PADDING_BYTES)
    cells = len(part.first) - 1
    header = _HEADER.pack(_MAGIC, len(part), cells, *sizes, part.key_length, checksum)
    header += _CHECKSUM.pack(zlib.crc32(header))
    write_whole(path, [header, *(_bytes(array) for array in arrays)])


def write_whole(path: Path, pieces: Iterable[bytes | memoryview]) -> int:
    """Write a file of aligned pieces under a temporary name and rename it; return its size."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with temporary.open("xb") as file:
            for piece in pieces:
                file.write(bytes(-file.tell() % _ALIGNMENT))
                file.write(piece)
            size = file.tell()
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    return size


def open_part(path: Path) -> Part:
    """Map the part of a file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    DamagedFileError
        If the file is damaged.
    """
    status = path.stat()
    identity = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
    try:
        data = np.memmap(path, np.uint8, "r").view(np.ndarray)
    except ValueError as error:  # An empty file.
        raise DamagedFileError(f"{path}: {error}") from error
    head_size = _HEADER.size + _CHECKSUM.size
    header = data[:head_size].tobytes()
    if len(header) < head_size or header[:8] != _MAGIC:
        raise DamagedFileError(f"{path}: no part of this version")
    if zlib.crc32(header[: _HEADER.size]) != _CHECKSUM.unpack_from(header, _HEADER.size)[0]:
        raise DamagedFileError(f"{path}: damaged header")
    _, count, cells, code_size, offset_size, size, length, checksum = _HEADER.unpack_from(header)
    offset_count = count + 1 if length == SEVERAL_LENGTHS else 0
    shapes = (
        ("<u4", cells + 1),
        ("<u4", count + WINDOW),
        (f"<u{code_size}", count),
        (f"<u{offset_size}", offset_count),
        ("u1", size + PADDING_BYTES),
    )
    arrays: list[npt.NDArray[Any]] = []
    at = head_size
    for kind, shape in shapes:
        at += -at % _ALIGNMENT
        size_bytes = np.dtype(kind).itemsize * shape
        if at + size_bytes > len(data):
            raise DamagedFileError(f"{path}: {len(data)} bytes, cut before {at + size_bytes}")
        arrays.append(data[at : at + size_bytes].view(kind))
        at += size_bytes
    if identity not in _verified:
        found = 0
        for array in arrays:
            found = isal_zlib.crc32(_bytes(array), found)
        if found != checksum or at != len(data):
            raise DamagedFileError(f"{path}: the checksum is wrong")
        _verified.add(identity)
    first, fingerprints, codes, offsets, keys = arrays
    return Part(first, fingerprints, codes, offsets, keys, length)


def _bytes(array: npt.NDArray[Any]) -> memoryview:
    return array.view(np.uint8).data
