"""HFiles: sorted keys with values, the format of Hudi's metadata table and its log blocks.

This reader supports HFile version 3 with one index level, uncompressed or gzip; Hudi 1.2 writes
nothing else. Other files raise ``UnsupportedFeatureError``. A file has data blocks, then an index
with the start of each block, then file info, then a trailer with the positions of these. The caller
interprets keys and values.

Hudi's own reader subtracts the checksum area of a block from the cells and can lose the last cells.
This reader uses the block's own size and compares the number of cells with the trailer.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.byte_slices import copy_slices
from bucketlake.storage.base import Buffer, flat_view

TRAILER_BYTES = 4096
HFILE_VERSION = 3

_TRAILER_MAGIC = b'TRABLK"$'
_INDEX_MAGIC = b"IDXROOT2"
_DATA_MAGIC = b"DATABLK*"
_INFO_MAGIC = b"FILEINF2"
_PROTOBUF_MAGIC = b"PBUF"

_HEADER = struct.Struct(">8siiqBii")  # Header of a block; see _Reader._block.
_CELL = struct.Struct(">IIH")  # Sizes of key part, value, and row key.
_CELL_SIZES_BYTES = 8
_KEY_SUFFIX_BYTES = 12  # Size of the row key, no column family, time, type.
_PUT = 4
_MVCC_BYTES = 1
_INDEX_ENTRY = struct.Struct(">qi")  # Offset and size of a block.
_VERSION_MASK = 0xFFFFFF  # The highest byte is the minor version.

_CODECS = {0: "LZO", 1: "GZ", 2: "NONE", 3: "SNAPPY", 4: "LZ4", 5: "BZIP2", 6: "ZSTD"}
_GZ, _NONE = 1, 2
_GZIP_WINDOW = 31  # zlib's number for a gzip member with the largest window.

# Fields of the trailer.
_INFO_OFFSET, _INDEX_OFFSET, _BLOCK_COUNT, _ENTRY_COUNT, _INDEX_LEVELS, _CODEC = 1, 2, 5, 7, 8, 12


@dataclass(frozen=True, slots=True, eq=False)
class HFile:
    """Content of an HFile.

    Parameters
    ----------
    keys, values : pyarrow.ChunkedArray of binary
        A chunk for each block, in the order of the file: sorted by bytes, except keys with
        characters beyond U+FFFF, which Hudi's writer sorts as Java does.
    info : mapping of str to bytes
        The file info, for example ``schema``.
    """

    keys: pa.ChunkedArray
    values: pa.ChunkedArray
    info: Mapping[str, bytes]


def decode_hfile(content: Buffer, path: str, *, offset_bytes: int = 0) -> HFile:
    """Decode a whole HFile.

    Parameters
    ----------
    content : bytes-like
        The HFile.
    path : str
        The file that is or contains the HFile, for messages.
    offset_bytes : int
        Start of the HFile in that file, for messages.

    Raises
    ------
    FormatError
        If the bytes are malformed; the error names file and byte.
    UnsupportedFeatureError
        If version, codec or number of index levels is not supported.

    Notes
    -----
    Checksums are not verified, because Hudi writes none.
    """
    return _Reader(flat_view(content), path, offset_bytes).read()


class _Reader:
    """Decodes one HFile."""

    def __init__(self, content: memoryview, path: str, offset_bytes: int) -> None:
        self._content, self._path, self._offset = content, path, offset_bytes

    def read(self) -> HFile:
        trailer = self._trailer()
        self._codec = int(trailer.get(_CODEC, _NONE))
        if self._codec not in (_GZ, _NONE):
            raise self._unsupported(f"compression {_CODECS.get(self._codec, self._codec)}")
        if trailer.get(_INDEX_LEVELS, 1) != 1:
            raise self._unsupported(f"an index of {trailer[_INDEX_LEVELS]} levels")
        info = self._info(trailer.get(_INFO_OFFSET, 0))
        blocks = [self._cells(at) for at in self._block_offsets(trailer)]
        keys, values = (pa.chunked_array([b[i] for b in blocks], pa.binary()) for i in (0, 1))
        if len(keys) != trailer.get(_ENTRY_COUNT, 0):
            raise self._malformed(f"{trailer.get(_ENTRY_COUNT, 0)} entries", len(keys), 0)
        return HFile(keys, values, info)

    def _trailer(self) -> dict[int, int]:
        start = len(self._content) - TRAILER_BYTES
        trailer = self._content[max(start, 0) :]
        if start < 0 or trailer[: len(_TRAILER_MAGIC)] != _TRAILER_MAGIC:
            raise self._malformed("an HFile's trailer", "other bytes", max(start, 0))
        version = int.from_bytes(trailer[-4:], "big") & _VERSION_MASK
        if version != HFILE_VERSION:
            raise self._unsupported(f"HFile version {version}")
        message = self._delimited(trailer, len(_TRAILER_MAGIC), start)
        found = self._fields(message, start)
        return {number: value for number, value in found if isinstance(value, int)}

    def _info(self, at: int) -> dict[str, bytes]:
        payload = memoryview(self._block(at, _INFO_MAGIC))
        if payload[: len(_PROTOBUF_MAGIC)] != _PROTOBUF_MAGIC:
            raise self._malformed("facts about the HFile", "other bytes", at)
        message = self._delimited(payload, len(_PROTOBUF_MAGIC), at)
        info = {}
        for number, pair in self._fields(message, at):
            if number == 1 and not isinstance(pair, int):
                entry = dict(self._fields(pair, at))
                name, value = entry.get(1, b""), entry.get(2, b"")
                if isinstance(name, int) or isinstance(value, int):
                    raise self._malformed("facts about the HFile as bytes", "numbers", at)
                info[str(name, "utf-8", "replace")] = bytes(value)
        return info

    def _block_offsets(self, trailer: dict[int, int]) -> Iterator[int]:
        index_at = trailer.get(_INDEX_OFFSET, 0)
        index, at, before = self._block(index_at, _INDEX_MAGIC), 0, -1
        for _ in range(trailer.get(_BLOCK_COUNT, 0)):
            if at + _INDEX_ENTRY.size >= len(index):
                raise self._malformed("an entry of the index", "its end", index_at)
            offset, _ = _INDEX_ENTRY.unpack_from(index, at)
            key_size, at = self._hvint(index, at + _INDEX_ENTRY.size, index_at)
            at += key_size
            if offset <= before:
                raise self._malformed("blocks in order", f"{offset} after {before}", index_at)
            before = offset
            yield offset
        if at != len(index):
            raise self._malformed("the end of the index", f"{len(index)} bytes", index_at)

    def _hvint(self, data: bytes, at: int, block_at: int) -> tuple[int, int]:
        """Read a size as a Hadoop integer: one byte, or a number of bytes and these bytes."""
        first = int.from_bytes(data[at : at + 1], "big", signed=True)
        count = -112 - first if -120 <= first < -112 else 0
        value = int.from_bytes(data[at + 1 : at + 1 + count], "big") if count else first
        if value < 0 or at + 1 + count + value > len(data):
            raise self._malformed("a key of the index", "a size beyond it", block_at)
        return value, at + 1 + count

    def _block(self, at: int, magic: bytes) -> bytes:
        """Read the payload of a block, uncompressed."""
        left = len(self._content) - TRAILER_BYTES - at
        if not at >= 0 or left < _HEADER.size:
            raise self._malformed(f"a block {magic!r}", "an offset outside the blocks", at)
        found, stored_bytes, size_bytes, _, _, _, end = _HEADER.unpack_from(self._content, at)
        if found != magic:
            raise self._malformed(f"a block {magic!r}", repr(found), at)
        if not _HEADER.size <= end <= stored_bytes + _HEADER.size <= left or size_bytes < 0:
            raise self._malformed("a whole block", "sizes beyond its end", at)
        payload = self._content[at + _HEADER.size : at + end]
        data = bytes(payload) if self._codec == _NONE else self._gunzip(payload, size_bytes, at)
        if len(data) != size_bytes:
            raise self._malformed(f"a block of {size_bytes} bytes", f"{len(data)} bytes", at)
        return data

    def _gunzip(self, payload: memoryview, size_bytes: int, at: int) -> bytes:
        inflate = zlib.decompressobj(_GZIP_WINDOW)
        try:
            data = inflate.decompress(payload, size_bytes + 1)  # One more byte detects excess data.
        except zlib.error as error:
            raise self._malformed("a gzip member", str(error), at) from error
        if not inflate.eof or inflate.unused_data:
            raise self._malformed(f"a gzip member of {size_bytes} bytes", "another", at)
        return data

    def _cells(self, at: int) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Read the keys and values of a data block."""
        data = self._block(at, _DATA_MAGIC)
        cells: list[tuple[int, int, int, int]] = []
        cell_at = 0
        try:
            while cell_at < len(data):
                sizes = _CELL.unpack_from(data, cell_at)
                cells.append((cell_at, *sizes))
                cell_at += _CELL_SIZES_BYTES + sizes[0] + sizes[1] + _MVCC_BYTES
        except struct.error:
            cell_at = len(data) + 1
        if cell_at != len(data):
            raise self._malformed("whole cells", "the end of the block", at)
        starts, key_sizes, value_sizes, row_sizes = np.array(cells, np.int64).reshape(-1, 4).T
        if (key_sizes != row_sizes + _KEY_SUFFIX_BYTES).any():
            raise self._unsupported(f"a cell with a column (block at {at})")
        octets, values_at = np.frombuffer(data, np.uint8), starts + _CELL_SIZES_BYTES + key_sizes
        if (
            octets[starts + _CELL.size + row_sizes].any()
            or (octets[values_at - 1] != _PUT).any()
            or octets[values_at + value_sizes].any()
        ):
            raise self._unsupported(f"a cell with a column, a version or a mark (block at {at})")
        keys = copy_slices(data, starts + _CELL.size, row_sizes)
        return keys, copy_slices(data, values_at, value_sizes)

    def _delimited(self, data: memoryview, at: int, block_at: int) -> memoryview:
        size, at = self._varint(data, at, block_at)
        if size > len(data) - at:
            raise self._malformed("a message", f"a size of {size} bytes", block_at)
        return data[at : at + size]

    def _fields(self, message: memoryview, at: int) -> Iterator[tuple[int, int | memoryview]]:
        """Yield the fields of a protobuf message: numbers, and bytes."""
        place = 0
        while place < len(message):
            tag, place = self._varint(message, place, at)
            if tag & 7 == 0:
                number, place = self._varint(message, place, at)
                yield tag >> 3, number
            elif tag & 7 == 2:
                piece = self._delimited(message, place, at)
                _, start = self._varint(message, place, at)
                place = start + len(piece)
                yield tag >> 3, piece
            else:
                raise self._malformed("a number or bytes", f"a field of type {tag & 7}", at)

    def _varint(self, data: memoryview, at: int, block_at: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if at >= len(data):
                break
            value |= (data[at] & 0x7F) << shift
            at += 1
            if data[at - 1] < 0x80:
                return value, at
        raise self._malformed("a number", "the end of the message", block_at)

    def _malformed(self, expected: str, found: object, at: int) -> FormatError:
        return FormatError(self._path, f"{expected} (HFile)", str(found), self._offset + at)

    def _unsupported(self, feature: str) -> UnsupportedFeatureError:
        where = f"{self._path}, HFile at byte {self._offset}"
        return UnsupportedFeatureError(feature, where, "read the table with Hudi")
