"""Log blocks: a log file is a sequence of blocks, with nothing before, between or after them.

A block has the instant that wrote it and the kind of its content.
:mod:`bucketlake.format.log_data` and :mod:`bucketlake.format.log_deletes` decode the content. The
reader of a file slice decides which blocks are valid. Hudi's readers skip blocks that they cannot
parse and silently lose records; here a damaged log file raises ``FormatError``.

::

    magic | size int64 | log format version int32 | kind int32 | headers | content size int64
          | content | footers | block size int64

Integers are big-endian. ``size`` is the number of bytes after it. Headers and footers are a count,
then for each entry a key, the length of its text (all int32) and the text.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NoReturn

import pyarrow as pa
from isal import isal_zlib

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.object_file import open_object
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Buffer, Storage

MAGIC = b"#HUDI#"
LOG_FORMAT_VERSION = 1
ROLLBACK_COMMAND = "0"  # The only type of a command.

_START = struct.Struct(">6sq")  # Magic, and the size of the rest.
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_NO_FOOTERS = _INT.pack(0)


class BlockKind(IntEnum):
    """The kind of a block's content, by its number on storage."""

    COMMAND = 0
    DELETE = 1
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(IntEnum):
    """The keys of headers, by their numbers on storage."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


CHECKSUM_HEADER: Final = "bucketlake.checksum"
"""Property of the Avro schema in a header: the checksum of the block."""

_CHECKSUM_AT_END = re.compile(rf',"{re.escape(CHECKSUM_HEADER)}":"([0-9a-f]{{8}})"\}}$')
_KINDS = frozenset(map(int, BlockKind))
_HEADER_KEYS = frozenset(map(int, HeaderKey))


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block of a log file."""

    path: str
    offset_bytes: int  # Position of its magic in the file.
    kind: BlockKind
    headers: Mapping[HeaderKey, str]
    content: memoryview  # If the file is mapped, a view of it.
    content_offset_bytes: int  # Position of the content in the file.
    checksum: str | None = None  # Of the block, if its writer stored one.

    def require_whole(self) -> None:
        """Raise FormatError if the block does not have its checksum; it may have none."""
        if self.checksum is None:
            return
        found = _checksum(self.kind, self.headers, self.content)
        if found != self.checksum:
            raise FormatError(
                self.path,
                f"a block with checksum {self.checksum}",
                f"one with {found}: it is damaged",
                self.offset_bytes,
            )

    @property
    def instant(self) -> InstantTime:
        """The instant that wrote the block."""
        return InstantTime(self.headers[HeaderKey.INSTANT_TIME])

    @property
    def is_partial(self) -> bool:
        """Whether records only hold updated columns and meta columns."""
        return self.headers.get(HeaderKey.IS_PARTIAL, "").lower() == "true"

    def malformed(self, expected: str, found: object, offset_bytes: int = 0) -> FormatError:
        """Return the error for malformed content at an offset."""
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
        Storage of the file. Local files are mapped, small remote files are read whole, other files
        with one request per block.
    path : str
        Path of the file, relative to the table.
    size_bytes : int, optional
        File size, if known from a listing.

    Yields
    ------
    LogBlock
        Memory holds one block at a time, unless the caller keeps them.

    Raises
    ------
    ObjectNotFoundError
        If there is no such file.
    FormatError
        If a block is truncated or damaged, or the file is empty; the error names file and byte.
    UnsupportedFeatureError
        If a block has another log format version, or an unknown kind or header.
    """
    with open_object(storage, path, size_bytes) as source:
        yield from _blocks_in(source, path)


def log_blocks_of(content: Buffer, path: str, *, of_archive: bool = False) -> Iterator[LogBlock]:
    """Yield the blocks of a log file from its bytes.

    Parameters
    ----------
    content : bytes-like
        The whole file.
    path : str
        Name of the file, for messages.
    of_archive : bool
        Whether it is a file of an archive, whose blocks do not name the instant that wrote them.
    """
    return _blocks_in(pa.BufferReader(content), path, of_archive)


def _blocks_in(source: pa.NativeFile, path: str, of_archive: bool = False) -> Iterator[LogBlock]:
    size_bytes = source.size()
    offset, start = 0, source.read_buffer(min(_START.size, size_bytes))
    while offset < size_bytes:
        length = _block_size(memoryview(start), path, offset, size_bytes - offset)
        # The read includes the start of the next block, so there is one request per block.
        rest = source.read_buffer(min(length, size_bytes - offset - _START.size))
        body = memoryview(rest)[: length - _START.size]
        yield _Parser(path, offset, body, of_archive).block()
        start = rest.slice(length - _START.size)
        offset += length


def _block_size(start: memoryview, path: str, offset: int, left: int) -> int:
    """Return the size of a block; raise FormatError if the file has fewer than that many bytes."""
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
    """Decodes a block whose bytes are complete according to its size."""

    def __init__(self, path: str, offset_bytes: int, body: memoryview, of_archive: bool) -> None:
        self._path, self._offset, self._body = path, offset_bytes, body
        self._of_archive = of_archive
        self._at = 0

    def block(self) -> LogBlock:
        version = self._number(_INT, "log format version")
        kind_number = self._number(_INT, "kind of block")
        if version != LOG_FORMAT_VERSION:
            newer = version > LOG_FORMAT_VERSION
            step = "use a newer bucketlake" if newer else "compact the table with Hudi"
            raise self._unsupported(f"log format version {version}", step)
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
        kind, checksum = BlockKind(kind_number), None
        if HeaderKey.SCHEMA in headers:
            headers[HeaderKey.SCHEMA], checksum = _without_checksum(headers[HeaderKey.SCHEMA])
        return LogBlock(self._path, self._offset, kind, headers, content, content_offset, checksum)

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
        if not headers.get(HeaderKey.INSTANT_TIME) and not self._of_archive:
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
    """Encode a block; a log file is one or more blocks.

    Parameters
    ----------
    kind : BlockKind
        Kind of the content.
    headers : mapping
        Headers. The instant that writes the block is required, but a block of an archive has
        nothing but its schema.
    *content : bytes-like
        The content, in one or several pieces.

    Returns
    -------
    bytes
        The bytes. Equal blocks give equal bytes, because headers are sorted by key.
    """
    is_of_archive = headers.keys() == {HeaderKey.SCHEMA}
    assert is_of_archive or headers.get(HeaderKey.INSTANT_TIME), "a block names its instant"
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


def encode_checked_block(
    kind: BlockKind, headers: Mapping[HeaderKey, str], *content: Buffer
) -> bytes:
    """Encode a block with a checksum, if its headers have a schema; see :func:`encode_block`.

    The format has no checksums, and only Parquet files and HFiles have their own. The checksum is a
    property of the schema in the header, which readers of Avro schemas ignore.
    """
    if HeaderKey.SCHEMA in headers:
        schema = headers[HeaderKey.SCHEMA]
        assert schema.endswith("}"), "the schema of a record is a JSON object"
        checked = f'{schema[:-1]},"{CHECKSUM_HEADER}":"{_checksum(kind, headers, *content)}"}}'
        headers = {**headers, HeaderKey.SCHEMA: checked}
    return encode_block(kind, headers, *content)


def encode_rollback_block(instant: InstantTime, *, target: InstantTime) -> bytes:
    """Encode a command that cancels the blocks of another instant in the same slice."""
    headers = {
        HeaderKey.INSTANT_TIME: str(instant),
        HeaderKey.TARGET_INSTANT_TIME: str(target),
        HeaderKey.COMMAND_BLOCK_TYPE: ROLLBACK_COMMAND,
    }
    return encode_block(BlockKind.COMMAND, headers)


def _encode_headers(headers: Mapping[HeaderKey, str]) -> bytes:
    parts = [_INT.pack(len(headers))]
    for key in sorted(headers):
        value = headers[key].encode()
        parts += [_INT.pack(key), _INT.pack(len(value)), value]
    return b"".join(parts)


def _without_checksum(schema: str) -> tuple[str, str | None]:
    found = _CHECKSUM_AT_END.search(schema)
    return (schema, None) if found is None else (f"{schema[: found.start()]}}}", found[1])


def _checksum(kind: BlockKind, headers: Mapping[HeaderKey, str], *content: Buffer) -> str:
    """Return the CRC-32 of kind, headers and content; the schema is without its checksum."""
    value = isal_zlib.crc32(_INT.pack(kind) + _encode_headers(headers))
    for piece in content:
        value = isal_zlib.crc32(piece, value)
    return f"{value:08x}"
