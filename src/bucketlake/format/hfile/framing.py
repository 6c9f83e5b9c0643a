"""The frame of an HFile: blocks, the facts in its trailer, and its file info.

::

    data blocks | meta blocks | root index | index of meta blocks | file info | trailer, 4096 bytes

A block has a header of 33 bytes, a payload that is compressed with the file's codec, and room for
checksums, which Hudi leaves empty. Trailer and file info are protobuf messages. Numbers of fixed
width are big-endian. What blocks hold is read and written by the neighbouring modules.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from isal import isal_zlib

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.byte_slices import unpacked_bytes_max
from bucketlake.storage.base import Buffer

TRAILER_BYTES = 4096
HFILE_VERSION = 3

DATA_MAGIC = b"DATABLK*"
ROOT_INDEX_MAGIC = b"IDXROOT2"
INNER_INDEX_MAGIC = b"IDXINTE2"
LEAF_INDEX_MAGIC = b"IDXLEAF2"
INFO_MAGIC = b"FILEINF2"
_TRAILER_MAGIC = b'TRABLK"$'
_PROTOBUF_MAGIC = b"PBUF"

_HEADER = struct.Struct(">8siiqBii")  # See encode_block for the fields.
_BYTES_PER_CHECKSUM = 16_384
_CHECKSUM_BYTES = 4
_VERSION_MASK = 0xFFFFFF  # The highest byte is the minor version.
_VERSION = struct.Struct(">I")

_CODECS = {0: "LZO", 1: "GZ", 2: "NONE", 3: "SNAPPY", 4: "LZ4", 5: "BZIP2", 6: "ZSTD"}
GZ, NONE = 1, 2

_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_COMPARATOR_FIELD = 11
_TRAILER_FIELDS = {  # Numbers of the fields that are stored as they are.
    "info_offset": 1,
    "index_offset": 2,
    "cell_bytes": 3,
    "root_count": 5,
    "meta_count": 6,
    "entry_count": 7,
    "index_levels": 8,
}
_NO_BLOCK = 2**64 - 1  # The offset -1 of a file without data, as protobuf writes it.


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """The file that is or contains an HFile, for messages."""

    path: str
    offset_bytes: int = 0

    def malformed(self, expected: str, found: object, at: int) -> FormatError:
        """Return the error for malformed bytes at a position of the HFile."""
        return FormatError(self.path, f"{expected} (HFile)", str(found), self.offset_bytes + at)

    def unsupported(self, feature: str) -> UnsupportedFeatureError:
        """Return the error for a feature of HFiles that is not read."""
        where = f"{self.path}, HFile at byte {self.offset_bytes}"
        return UnsupportedFeatureError(feature, where, "read the table with Hudi")


@dataclass(frozen=True, slots=True)
class Trailer:
    """The facts at the end of an HFile."""

    info_offset: int
    index_offset: int
    root_count: int  # Entries of the root index; with one level, the number of data blocks.
    entry_count: int
    cell_bytes: int = 0
    meta_count: int = 0
    index_levels: int = 1
    last_block_offset: int | None = None  # None: the file has no data. The first block is at 0.
    codec: int = GZ


def frame_block(magic: bytes, payload: Buffer, *, previous_offset: int = -1) -> bytes:
    """Compress a payload and put it into a block.

    Parameters
    ----------
    magic : bytes
        Kind of the block.
    payload : bytes-like
        Content of the block.
    previous_offset : int
        What Hudi writes as the offset of the block before. Readers ignore it.
    """
    stored = gzip_member(payload)
    end = _HEADER.size + len(stored)
    checksums = bytes(_CHECKSUM_BYTES * -(-end // _BYTES_PER_CHECKSUM))
    no_checksum = 0
    header = _HEADER.pack(
        magic,
        len(stored) + len(checksums),
        len(payload),
        previous_offset,
        no_checksum,
        _BYTES_PER_CHECKSUM,
        end,
    )
    return b"".join([header, stored, checksums])


def decode_block(data: memoryview, at: int, magic: bytes, codec: int, place: BlockPlace) -> bytes:
    """Return the payload of the block at the start of ``data``, uncompressed.

    Parameters
    ----------
    data : memoryview
        The block, and any bytes after it.
    at : int
        Position of the block in the HFile, for messages.
    magic : bytes
        Expected kind of the block.
    codec : int
        Codec of the file, ``GZ`` or ``NONE``.
    place : Place
        The file, for messages.
    """
    if len(data) < _HEADER.size:
        raise place.malformed(f"a block {magic!r}", "an offset outside the blocks", at)
    found, stored_bytes, size_bytes, _, _, _, end = _HEADER.unpack_from(data)
    if found != magic:
        raise place.malformed(f"a block {magic!r}", repr(found), at)
    whole = stored_bytes + _HEADER.size
    if not _HEADER.size <= end <= whole <= len(data) or size_bytes < 0:
        raise place.malformed("a whole block", "sizes beyond its end", at)
    payload = data[_HEADER.size : end]
    if codec == NONE:
        if len(payload) != size_bytes:
            raise place.malformed(f"a block of {size_bytes} bytes", f"{len(payload)} bytes", at)
        return bytes(payload)
    if size_bytes > (most := unpacked_bytes_max(len(payload))):
        raise place.malformed(f"a block of at most {most} bytes", f"{size_bytes} bytes", at)
    try:
        return gunzip_member(payload, size_bytes)
    except ValueError as error:
        raise place.malformed(f"a gzip member of {size_bytes} bytes", str(error), at) from error


def block_bytes(data: memoryview) -> int:
    """Return the stored size of the block at the start of ``data``; 0 if that is no header."""
    if len(data) < _HEADER.size:
        return 0
    return max(int(_HEADER.unpack_from(data)[1]) + _HEADER.size, 0)


def moved_block(block: memoryview, previous_offset: int) -> tuple[int, tuple[Buffer, ...]]:
    """Return the uncompressed size of a whole block, and its pieces for another position."""
    magic, stored_bytes, size_bytes, _, *rest = _HEADER.unpack_from(block)
    header = _HEADER.pack(magic, stored_bytes, size_bytes, previous_offset, *rest)
    return size_bytes, (header, block[_HEADER.size :])


def encode_trailer(trailer: Trailer) -> bytes:
    """Encode the trailer, its 4096 bytes."""
    last = trailer.last_block_offset
    first = _NO_BLOCK if last is None else 0
    numbers = {number: getattr(trailer, name) for name, number in _TRAILER_FIELDS.items()}
    numbers |= {9: first, 10: _NO_BLOCK if last is None else last}
    fields = [varint(number << 3) + varint(value) for number, value in numbers.items()]
    fields += [_bytes_field(_COMPARATOR_FIELD, _COMPARATOR), varint(12 << 3), varint(GZ)]
    start = _TRAILER_MAGIC + _sized(b"".join(fields))
    return start.ljust(TRAILER_BYTES - _VERSION.size, b"\0") + _VERSION.pack(HFILE_VERSION)


def decode_trailer(data: memoryview, at: int, place: BlockPlace) -> Trailer:
    """Decode the trailer at position ``at`` of the HFile.

    Raises
    ------
    FormatError
        If it is no trailer.
    UnsupportedFeatureError
        If version or codec is not supported.
    """
    if data[: len(_TRAILER_MAGIC)] != _TRAILER_MAGIC or len(data) != TRAILER_BYTES:
        raise place.malformed("an HFile's trailer", "other bytes", at)
    version = _VERSION.unpack(data[-_VERSION.size :])[0] & _VERSION_MASK
    if version != HFILE_VERSION:
        raise place.unsupported(f"HFile version {version}")
    message, _ = _delimited(data, len(_TRAILER_MAGIC), at, place)
    found = _fields(message, at, place)
    numbers = {number: value for number, value in found if isinstance(value, int)}
    codec = numbers.get(12, NONE)
    if codec not in (GZ, NONE):
        raise place.unsupported(f"compression {_CODECS.get(codec, codec)}")
    last = numbers.get(10, _NO_BLOCK)
    facts = {name: numbers.get(number, 0) for name, number in _TRAILER_FIELDS.items()}
    facts["index_levels"] = numbers.get(_TRAILER_FIELDS["index_levels"], 1)
    return Trailer(**facts, last_block_offset=None if last == _NO_BLOCK else last, codec=codec)


def encode_info(info: Mapping[str, bytes]) -> bytes:
    """Encode the payload of the file info; entries are sorted by name."""
    pairs = [_info_pair(name, info[name]) for name in sorted(info)]
    return _PROTOBUF_MAGIC + _sized(b"".join(pairs))


@lru_cache(maxsize=64)  # Most are the same in all files of a write.
def _info_pair(name: str, value: bytes) -> bytes:
    return _bytes_field(1, _bytes_field(1, name.encode()) + _bytes_field(2, value))


def decode_info(payload: bytes, at: int, place: BlockPlace) -> dict[str, bytes]:
    """Decode the payload of the file info, whose block is at position ``at``."""
    view = memoryview(payload)
    if view[: len(_PROTOBUF_MAGIC)] != _PROTOBUF_MAGIC:
        raise place.malformed("facts about the HFile", "other bytes", at)
    message, _ = _delimited(view, len(_PROTOBUF_MAGIC), at, place)
    return dict(_pairs(_fields(message, at, place), at, place))


def encode_size(value: int) -> bytes:
    """Encode a size as a Hadoop integer: one byte, or the number of bytes and these bytes.

    >>> encode_size(20).hex(), encode_size(300).hex()
    ('14', '8e012c')
    """
    if value <= 127:
        return bytes([value])
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([256 - 112 - len(data)]) + data


def decode_size(data: bytes, at: int) -> tuple[int, int]:
    """Decode a Hadoop integer; return it and the position after it. A negative one is no size."""
    first = int.from_bytes(data[at : at + 1], "big", signed=True)
    count = -112 - first if -120 <= first < -112 else 0
    value = int.from_bytes(data[at + 1 : at + 1 + count], "big") if count else first
    return value, at + 1 + count


def _pairs(
    fields: Iterable[tuple[int, int | memoryview]], at: int, place: BlockPlace
) -> Iterator[tuple[str, bytes]]:
    for number, pair in fields:
        if number == 1 and not isinstance(pair, int):
            entry = dict(_fields(pair, at, place))
            name, value = entry.get(1, b""), entry.get(2, b"")
            if isinstance(name, int) or isinstance(value, int):
                raise place.malformed("facts about the HFile as bytes", "numbers", at)
            yield str(name, "utf-8", "replace"), bytes(value)


def _fields(
    message: memoryview, at: int, place: BlockPlace
) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the fields of a protobuf message: numbers, and bytes."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position, at, place)
        if tag & 7 == 0:
            number, position = _read_varint(message, position, at, place)
            yield tag >> 3, number
        elif tag & 7 == 2:
            piece, position = _delimited(message, position, at, place)
            yield tag >> 3, piece
        else:
            raise place.malformed("a number or bytes", f"a field of type {tag & 7}", at)


def _delimited(data: memoryview, start: int, at: int, place: BlockPlace) -> tuple[memoryview, int]:
    """Return a message after its size, and the position after it."""
    size, start = _read_varint(data, start, at, place)
    if size > len(data) - start:
        raise place.malformed("a message", f"a size of {size} bytes", at)
    return data[start : start + size], start + size


def _read_varint(data: memoryview, start: int, at: int, place: BlockPlace) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if start >= len(data):
            break
        value |= (data[start] & 0x7F) << shift
        start += 1
        if data[start - 1] < 0x80:
            return value, start
    raise place.malformed("a number", "the end of the message", at)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]


def varint(value: int) -> bytes:
    """Encode a number that is not negative, with seven bits a byte."""
    if value <= 0x7F:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def _bytes_field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + _sized(data)


# ---- Gzip members, the compressed form of an HFile's blocks --------------------------------------
#
# ISA-L packs ten times and unpacks three times as fast as zlib, see
# ``docs/decisions/0022-isal-for-hfiles.md``. The bytes differ from those of zlib, and every reader
# accepts them.

_Error = cast("type[Exception]", isal_zlib.error)  # The package's stubs call it an instance.

_LEVEL = 1  # Gives files of the size of zlib's level 6.

_GZIP_WINDOW = 31  # zlib's number for a gzip member with the largest window.


def gzip_member(data: Buffer) -> bytes:
    """Compress bytes; equal bytes give equal members."""
    deflate = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW)
    return b"".join([deflate.compress(data), deflate.flush()])


def gunzip_member(member: Buffer, size_bytes: int) -> bytes:
    """Decompress one member.

    Raises
    ------
    ValueError
        If the bytes are not exactly one member with ``size_bytes`` bytes; the error says why.
    """
    inflate = isal_zlib.decompressobj(_GZIP_WINDOW)
    try:
        data: bytes = inflate.decompress(member, size_bytes + 1)  # One more detects excess data.
    except _Error as error:
        raise ValueError(str(error)) from error
    if not inflate.eof or inflate.unused_data or len(data) != size_bytes:
        raise ValueError(f"a gzip member that does not end after {size_bytes} bytes")
    return data
