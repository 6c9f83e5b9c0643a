"""A small writer of HFiles, for tests of the reader: blocks as told, any codec, deep indexes."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence

Cell = tuple[bytes, bytes]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def delimited(number: int, data: bytes) -> bytes:
    """Write a field of bytes of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def cell(key: bytes, value: bytes) -> bytes:
    head = struct.pack(">IIH", len(key) + 12, len(value), len(key))
    return head + key + b"\0" + b"\x7f" + b"\xff" * 7 + b"\x04" + value + b"\0"


def block(magic: bytes, payload: bytes, *, compressed: bool) -> bytes:
    stored = gzip.compress(payload, mtime=0) if compressed else payload
    checksum = bytes(4 * -(-(33 + len(stored)) // 16384))
    sizes = (len(stored) + len(checksum), len(payload), -1, 0, 16384, 33 + len(stored))
    return struct.pack(">8siiqBii", magic, *sizes) + stored + checksum


def hvint(value: int) -> bytes:
    if value <= 127:
        return bytes([value])
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([256 - 112 - len(data)]) + data


def inner_block(magic: bytes, entries: Sequence[tuple[int, int, bytes]], compressed: bool) -> bytes:
    """Write a block of the index below the root: places, then offsets, sizes and keys."""
    starts, data = [0], b""
    for offset, size, key in entries:
        data += struct.pack(">qi", offset, size) + key
        starts.append(len(data))
    payload = struct.pack(f">i{len(starts)}i", len(entries), *starts) + data
    return block(magic, payload, compressed=compressed)


def encode_hfile(
    blocks: Sequence[Sequence[Cell]],
    *,
    compressed: bool = False,
    entry_count: int | None = None,
    trailer: dict[int, int] | None = None,
    version: int = 3,
    index_levels: int = 1,
    index_keys: Sequence[bytes] | None = None,
    schema_json: str = "{}",
) -> bytes:
    """Write an HFile of some blocks; ``trailer`` overrides its fields."""
    data, entries = b"", []
    first_keys = [cells[0][0] for cells in blocks] if index_keys is None else index_keys
    for cells, key in zip(blocks, first_keys, strict=True):
        payload = b"".join(cell(*each) for each in cells)
        written = block(b"DATABLK*", payload, compressed=compressed)
        first = struct.pack(">H", len(key)) + key
        entries.append((len(data), len(written), first))
        data += written
    for level in range(1, index_levels):  # Two entries in each block of an index below the root.
        magic = b"IDXLEAF2" if level == 1 else b"IDXINTE2"
        above = []
        for at in range(0, len(entries), 2):
            written = inner_block(magic, entries[at : at + 2], compressed)
            above.append((len(data), len(written), entries[at][2]))
            data += written
        entries = above
    index = b"".join(struct.pack(">qi", *e[:2]) + hvint(len(e[2])) + e[2] for e in entries)
    index_at = len(data)
    data += block(b"IDXROOT2", index, compressed=compressed)
    info_at = len(data)
    pair = delimited(1, b"schema") + delimited(2, schema_json.encode())
    message = delimited(1, pair)
    info = b"PBUF" + varint(len(message)) + message
    data += block(b"FILEINF2", info, compressed=compressed)
    count = sum(len(cells) for cells in blocks) if entry_count is None else entry_count
    fields = {1: info_at, 2: index_at, 5: len(entries), 6: 0, 7: count, 8: index_levels}
    fields |= {12: 1 if compressed else 2} | (trailer or {})
    told = b"".join(varint(number << 3) + varint(value) for number, value in fields.items())
    told += delimited(11, b"Comparator")
    end = b'TRABLK"$' + varint(len(told)) + told
    return data + end.ljust(4092, b"\0") + struct.pack(">i", version)
