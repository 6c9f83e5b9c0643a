"""The index of an HFile: the first key of each block, and which blocks a lookup has to read.

Keys are sorted by their bytes, except that Hudi's writer sorts them as Java does, by UTF-16 units.
The orders differ between characters from U+E000 to U+FFFF and characters beyond U+FFFF. Where a
lookup or the index has such characters, the blocks of both orders are read.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bucketlake.format.hfile.framing import Place, decode_size

_ENTRY = struct.Struct(">qi")  # Offset and size of a block.
_INT = struct.Struct(">i")
_ROW_SIZE = struct.Struct(">h")

# Moves the characters from U+E000 to U+FFFF behind the others, so that bytes compare like UTF-16.
_LEAD_BYTES = (0xEE, 0xEF)
_AS_JAVA = bytes.maketrans(bytes(_LEAD_BYTES), b"\xf5\xf6")


@dataclass(frozen=True, slots=True)
class IndexEntry:
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
    entries, position = [], 0
    for _ in range(count):
        if position + _ENTRY.size >= len(payload):
            raise place.malformed("an entry of the index", "its end", at)
        offset, size_bytes = _ENTRY.unpack_from(payload, position)
        key_size, position = decode_size(payload, position + _ENTRY.size)
        key = payload[position : position + key_size] if key_size >= 0 else b""
        if key_size < 0 or len(key) != key_size:
            raise place.malformed("a key of the index", "a size beyond it", at)
        entries.append(IndexEntry(_row(key, at, place), offset, size_bytes))
        position += key_size
    if position != len(payload):
        raise place.malformed("the end of the index", f"{len(payload)} bytes", at)
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
        key = payload[first + start + _ENTRY.size : first + end]
        entries.append(IndexEntry(_row(key, at, place), offset, size_bytes))
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
    return _selected(entries, keys, _holding_keys)


def blocks_of_prefixes(
    entries: Sequence[IndexEntry], prefixes: Sequence[bytes]
) -> list[IndexEntry]:
    """Return the blocks that can hold keys with one of some prefixes."""
    return _selected(entries, prefixes, _holding_prefixes)


def _selected(
    entries: Sequence[IndexEntry],
    keys: Sequence[bytes],
    holding: Callable[[list[bytes], Sequence[bytes]], Iterable[int]],
) -> list[IndexEntry]:
    first_keys = [entry.first_key for entry in entries]
    numbers = set(holding(first_keys, keys))
    if any(byte in key for key in first_keys for byte in _LEAD_BYTES) or any(
        byte in key for key in keys for byte in _LEAD_BYTES
    ):
        in_java = sorted(key.translate(_AS_JAVA) for key in keys)
        numbers |= set(holding([key.translate(_AS_JAVA) for key in first_keys], in_java))
    return [entries[number] for number in sorted(numbers)]


def _holding_keys(first_keys: list[bytes], keys: Sequence[bytes]) -> Iterable[int]:
    if len(keys) < len(first_keys):
        numbers = {bisect_right(first_keys, key) - 1 for key in keys}
        return numbers - {-1}
    # Few blocks, many keys: look up where each block starts among the keys.
    cuts = [*(bisect_left(keys, first_key) for first_key in first_keys), len(keys)]
    return (number for number in range(len(first_keys)) if cuts[number] < cuts[number + 1])


def _holding_prefixes(first_keys: list[bytes], prefixes: Sequence[bytes]) -> Iterable[int]:
    for prefix in prefixes:
        begin = max(bisect_left(first_keys, prefix) - 1, 0)
        end = begin
        while end < len(first_keys) and (end == begin or first_keys[end].startswith(prefix)):
            yield end
            end += 1


def _row(key: bytes, at: int, place: Place) -> bytes:
    """Return the row of a key in the index: its size and its bytes, then perhaps more."""
    size = _ROW_SIZE.unpack_from(key)[0] if len(key) >= _ROW_SIZE.size else -1
    row = key[_ROW_SIZE.size : _ROW_SIZE.size + max(size, 0)]
    if len(row) != size:
        raise place.malformed("a key of the index", f"a row of {size} bytes", at)
    return row
