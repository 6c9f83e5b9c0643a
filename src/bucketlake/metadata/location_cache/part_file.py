"""Files of parts: arrays one after another, mapped into memory by all processes of a host.

A file is written under a temporary name and then renamed, so its name means that it is complete.
It is not flushed to the disk, and disks lose bits. So its header has the checksum of all arrays.
Each process verifies a file once; then it trusts the file as long as size and time are the same.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from bucketlake.hashing.texts import HASH_VERSION, PADDING_BYTES
from bucketlake.metadata.location_cache.part import SEVERAL_LENGTHS, WINDOW, Part

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
    arrays = [_little(array) for array in _arrays(part)]
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


def _arrays(part: Part) -> tuple[npt.NDArray[Any], ...]:
    return part.first, part.fingerprints, part.codes, part.offsets, part.data


def _little(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def _bytes(array: npt.NDArray[Any]) -> memoryview:
    return array.view(np.uint8).data
