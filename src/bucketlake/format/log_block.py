"""Log blocks: the frames of which a log file consists, with nothing before, between or after them.

A block says which instant wrote it and what its content is. What the content means is left to
:mod:`bucketlake.format.log_data` and :mod:`bucketlake.format.log_deletes`, and which blocks count
to the reader of a file slice. Hudi's own readers skip what they cannot parse, and lose records so
without a word; a committed log file that is damaged is an error here.

::

    magic | size int64 | log format version int32 | kind int32 | headers | content size int64
          | content | footers | block size int64

Integers are big-endian; ``size`` counts what follows it. Headers and footers are a count, and for
each a key and a text with its length, all int32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NoReturn

import pyarrow as pa

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.object_file import open_object
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Buffer, Storage

MAGIC = b"#HUDI#"
LOG_FORMAT_VERSION = 1

_START = struct.Struct(">6sq")  # Magic, and the size of what follows.
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_NO_FOOTERS = _INT.pack(0)


class BlockKind(IntEnum):
    """What a block holds, by its number on storage."""

    COMMAND = 0
    DELETE = 1
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(IntEnum):
    """What a header tells, by its number on storage."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


_KINDS = frozenset(map(int, BlockKind))
_HEADER_KEYS = frozenset(map(int, HeaderKey))


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block of a log file."""

    path: str
    offset_bytes: int  # Of its magic, in the file.
    kind: BlockKind
    headers: Mapping[HeaderKey, str]
    content: memoryview  # Of the file's own memory where it is mapped.
    content_offset_bytes: int  # Of the content, in the file.

    @property
    def instant(self) -> InstantTime:
        """The instant that wrote the block."""
        return InstantTime(self.headers[HeaderKey.INSTANT_TIME])

    @property
    def is_partial(self) -> bool:
        """Whether records hold the updated columns alone, beside the meta columns."""
        return self.headers.get(HeaderKey.IS_PARTIAL, "").lower() == "true"

    def malformed(self, expected: str, found: object, offset_bytes: int = 0) -> FormatError:
        """Make the error that the content is not as it should be at an offset in it."""
        return FormatError(
            self.path, expected, str(found), self.content_offset_bytes + offset_bytes
        )


def read_log_blocks(
    storage: Storage, path: str, size_bytes: int | None = None
) -> Iterator[LogBlock]:
    """Read the blocks of a log file, in order.

    Parameters
    ----------
    storage : Storage
        Where the file lies. Local files are mapped, small remote ones read whole, of others a block
        is one request.
    path : str
        The file, relative to the table.
    size_bytes : int, optional
        Its size, where a listing told it.

    Yields
    ------
    LogBlock
        Memory holds one at a time, unless the caller keeps them.

    Raises
    ------
    ObjectNotFoundError
        If there is no such file.
    FormatError
        Naming the file and the byte, if a block is cut off or damaged, or the file is empty.
    UnsupportedFeatureError
        If a block is of another log format version, or of a kind or with a header not known here.
    """
    with open_object(storage, path, size_bytes) as source:
        size_bytes = source.size()
        offset, start = 0, source.read_buffer(min(_START.size, size_bytes))
        while offset < size_bytes:
            length = _block_size(memoryview(start), path, offset, size_bytes - offset)
            # The start of the next block comes along: one request a block.
            rest = source.read_buffer(min(length, size_bytes - offset - _START.size))
            body = memoryview(rest)[: length - _START.size]
            yield _Parser(path, offset, body).block()
            start = rest.slice(length - _START.size)
            offset += length


def _block_size(start: memoryview, path: str, offset: int, left: int) -> int:
    """Return the size of a whole block, of which ``left`` bytes or fewer are in the file."""
    if len(start) < _START.size:
        raise FormatError(path, "a log block", f"{len(start)} bytes before the end", offset)
    magic, size = _START.unpack(start)
    if magic != MAGIC:
        raise FormatError(path, f"a log block with magic {MAGIC!r}", repr(magic), offset)
    if not 0 <= size <= left - _START.size:
        found = f"a block of {size} bytes, of which {left - _START.size} are in the file"
        raise FormatError(path, "a whole log block", found, offset + len(MAGIC))
    return int(size) + _START.size


class _Parser:
    """Reads one block, whose bytes are there as far as its size says."""

    def __init__(self, path: str, offset_bytes: int, body: memoryview) -> None:
        self._path, self._offset, self._body = path, offset_bytes, body
        self._at = 0

    def block(self) -> LogBlock:
        version = self._number(_INT, "log format version")
        kind_number = self._number(_INT, "kind of block")
        if version != LOG_FORMAT_VERSION:
            raise self._unsupported(f"log format version {version}", "compact the table with Hudi")
        if kind_number not in _KINDS:
            raise self._unsupported(f"a log block of kind {kind_number}", "read it with Hudi")
        headers = self._headers()
        content_offset = self._offset + _START.size + self._at + _LONG.size
        content = self._bytes(self._number(_LONG, "content size"), "content")
        if self._number(_INT, "count of footers") != 0:
            self._refuse("no footers", "some", back=_INT.size)
        at_end = self._at
        pointer = self._number(_LONG, "block size")
        if pointer != at_end + _START.size:
            found = f"{pointer} (of the file, or of another block's remains)"
            self._refuse(f"the block's size {at_end + _START.size}", found, back=_LONG.size)
        if self._at != len(self._body):
            self._refuse("the end of the block", f"{len(self._body) - self._at} more bytes")
        kind = BlockKind(kind_number)
        return LogBlock(self._path, self._offset, kind, headers, content, content_offset)

    def _headers(self) -> dict[HeaderKey, str]:
        count = self._number(_INT, "count of headers")
        if not 0 < count <= len(HeaderKey):
            self._refuse(f"1 to {len(HeaderKey)} headers", count, back=_INT.size)
        headers: dict[HeaderKey, str] = {}
        for _ in range(count):
            number = self._number(_INT, "key of a header")
            if number not in _HEADER_KEYS:
                raise self._unsupported(f"header {number} of a log block", "read it with Hudi")
            if number in headers:
                self._refuse("each header once", HeaderKey(number).name, back=_INT.size)
            headers[HeaderKey(number)] = self._text(HeaderKey(number).name)
        if not headers.get(HeaderKey.INSTANT_TIME):
            self._refuse("header INSTANT_TIME", ", ".join(key.name for key in headers))
        return headers

    def _text(self, name: str) -> str:
        value = self._bytes(self._number(_INT, f"size of header {name}"), f"header {name}")
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError as error:
            self._refuse(f"header {name} in UTF-8", str(error), back=len(value))

    def _number(self, layout: struct.Struct, name: str) -> int:
        return int(layout.unpack(self._bytes(layout.size, name))[0])

    def _bytes(self, size: int, name: str) -> memoryview:
        left = len(self._body) - self._at
        if not 0 <= size <= left:
            self._refuse(name, f"a size of {size} where the block has {left} bytes left")
        self._at += size
        return self._body[self._at - size : self._at]

    def _refuse(self, expected: str, found: object, *, back: int = 0) -> NoReturn:
        at = self._offset + _START.size + self._at - back
        raise FormatError(self._path, expected, str(found), at)

    def _unsupported(self, feature: str, next_step: str) -> UnsupportedFeatureError:
        where = f"{self._path} at byte {self._offset}"
        return UnsupportedFeatureError(feature, where, next_step)


def encode_block(kind: BlockKind, headers: Mapping[HeaderKey, str], *content: Buffer) -> bytes:
    """Write a block; a log file is one or more of them back to back.

    Parameters
    ----------
    kind : BlockKind
        What the content is.
    headers : mapping
        What the block tells of itself, the instant that writes it first of all.
    *content : bytes-like
        The content, in one piece or several.

    Returns
    -------
    bytes
        The same for the same block: headers stand in order of their keys.
    """
    assert headers.get(HeaderKey.INSTANT_TIME), "a block names the instant that writes it"
    views = [pa.py_buffer(piece) for piece in content]
    content_size = sum(view.size for view in views)
    head = b"".join(
        [
            _INT.pack(LOG_FORMAT_VERSION),
            _INT.pack(kind),
            _encode_headers(headers),
            _LONG.pack(content_size),
        ]
    )
    end = _START.size + len(head) + content_size + len(_NO_FOOTERS)
    start = _START.pack(MAGIC, end + _LONG.size - _START.size)
    return b"".join([start, head, *views, _NO_FOOTERS, _LONG.pack(end)])


def _encode_headers(headers: Mapping[HeaderKey, str]) -> bytes:
    parts = [_INT.pack(len(headers))]
    for key in sorted(headers):
        value = headers[key].encode()
        parts += [_INT.pack(key), _INT.pack(len(value)), value]
    return b"".join(parts)
