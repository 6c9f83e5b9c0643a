"""The index of an HFile: the first key of each block, and which blocks a lookup has to read.

Keys are sorted by their bytes, except that Hudi's writer sorts them as Java does, by UTF-16 units.
The orders differ between characters from U+E000 to U+FFFF and characters beyond U+FFFF. Where a
lookup or the index has such characters, the blocks of both orders are read.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from bucketlake.format.hfile.framing import Place, decode_size

_ENTRY = struct.Struct(">qi")  # Offset and size of a block.
_INT = struct.Struct(">i")
_ROW_SIZE = struct.Struct(">h")
_ONE_BYTE_MAX = 127

# Moves the characters from U+E000 to U+FFFF behind the others, so that bytes compare like UTF-16.
_LEAD_BYTES = (0xEE, 0xEF)
_AS_JAVA = bytes.maketrans(bytes(_LEAD_BYTES), b"\xf5\xf6")


class IndexEntry(NamedTuple):  # A tuple, since a lookup makes thousands.
    """One block: a data block, or a block of the index one level below."""

    first_key: (
        bytes  # In files of HBase perhaps shorter, but above the last key of the block before.
    )
    offset: int
    size_bytes: int


def decode_root_index(payload: bytes, count: int, at: int, place: Place) -> list[IndexEntry]:
    """Decode the root index, whose block is at position ``at``.

    Raises
    ------
    FormatError
        If the payload does not hold this number of entries.
    """
    entries, position, size = [], 0, len(payload)
    for _ in range(count):
        start = position + _ENTRY.size
        if start >= size:
            raise place.malformed("an entry of the index", "its end", at)
        offset, size_bytes = _ENTRY.unpack_from(payload, position)
        key_size, start = payload[start], start + 1
        if key_size > _ONE_BYTE_MAX:  # Few keys are that long, and there may be many entries.
            key_size, start = decode_size(payload, start - 1)
        position = start + key_size
        if key_size < 0 or position > size:
            raise place.malformed("a key of the index", "a size beyond it", at)
        entries.append(IndexEntry(_row(payload, start, position, at, place), offset, size_bytes))
    if position != size:
        raise place.malformed("the end of the index", f"{size} bytes", at)
    return entries


def decode_inner_index(payload: bytes, at: int, place: Place) -> list[IndexEntry]:
    """Decode a block of the index below the root; only HBase writes such blocks.

    The payload has a count, the starts of the entries and their end, then the entries.
    """
    count = _INT.unpack_from(payload)[0] if len(payload) >= _INT.size else -1
    first = _INT.size * (count + 2)
    if count < 0 or first > len(payload):
        raise place.malformed("a count of entries of the index", count, at)
    starts = struct.unpack_from(f">{count + 1}i", payload, _INT.size)
    entries = []
    for start, end in pairwise(starts):
        if not 0 <= start <= end - _ENTRY.size or first + end > len(payload):
            raise place.malformed("an entry of the index", f"from {start} to {end}", at)
        offset, size_bytes = _ENTRY.unpack_from(payload, first + start)
        row = _row(payload, first + start + _ENTRY.size, first + end, at, place)
        entries.append(IndexEntry(row, offset, size_bytes))
    return entries


def require_order(entries: Sequence[IndexEntry], limit: int, at: int, place: Place) -> None:
    """Raise FormatError unless blocks follow each other without overlap up to ``limit``."""
    end = 0
    for entry in entries:
        if entry.offset < end:
            raise place.malformed("blocks in order", f"{entry.offset} before {end}", at)
        if entry.size_bytes <= 0 or entry.offset + entry.size_bytes > limit:
            raise place.malformed("a whole block", f"{entry.size_bytes} bytes", entry.offset)
        end = entry.offset + entry.size_bytes


def blocks_of_keys(entries: Sequence[IndexEntry], keys: Sequence[bytes]) -> list[IndexEntry]:
    """Return the blocks that can hold some keys.

    Parameters
    ----------
    entries : sequence of IndexEntry
        The index, in order of the file.
    keys : sequence of bytes
        Ascending by bytes.
    """
    first_keys = [entry.first_key for entry in entries]
    numbers = set(_holding_keys(first_keys, keys))
    if may_differ_in_java(first_keys) or may_differ_in_java(keys):
        in_java = sorted(key.translate(_AS_JAVA) for key in keys)
        numbers |= set(_holding_keys([key.translate(_AS_JAVA) for key in first_keys], in_java))
    return [entries[number] for number in sorted(numbers)]


def may_differ_in_java(keys: Iterable[bytes]) -> bool:
    """Return whether Hudi's writer may have sorted keys differently, because of these keys."""
    joined = b"".join(keys)
    return any(byte in joined for byte in _LEAD_BYTES)


def _holding_keys(first_keys: list[bytes], keys: Sequence[bytes]) -> Iterable[int]:
    if len(keys) < len(first_keys):
        numbers = {bisect_right(first_keys, key) - 1 for key in keys}
        return numbers - {-1}
    # Few blocks, many keys: look up where each block starts among the keys.
    cuts = [*(bisect_left(keys, first_key) for first_key in first_keys), len(keys)]
    return (number for number in range(len(first_keys)) if cuts[number] < cuts[number + 1])


def _row(payload: bytes, start: int, end: int, at: int, place: Place) -> bytes:
    """Return the row of a key in the index: its size and its bytes, then perhaps more."""
    begin = start + _ROW_SIZE.size
    size = _ROW_SIZE.unpack_from(payload, start)[0] if begin <= end else -1
    if not 0 <= size <= end - begin:
        raise place.malformed("a key of the index", f"a row of {size} bytes", at)
    return payload[begin : begin + size]
