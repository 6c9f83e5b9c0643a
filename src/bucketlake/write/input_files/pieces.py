"""Pieces of files: what one task reads, and where a text is cut.

JSON lines are cut at line breaks. A line break of CSV may stand in quotes, so a large file is cut
only if its quotes say where rows begin: tasks count the quotes of each part, and the driver adds
the counts up. CSV with a quote inside a value without quotes is not cut, and neither are arrays of
JSON objects and compressed texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.write.input_files.csv_text import CSV_BLOCK_BYTES
from bucketlake.write.input_files.files import InputFile, open_text
from bucketlake.write.input_files.json_objects import objects_in
from bucketlake.write.input_files.reading import BYTE_ORDER_MARK, FileFormat, Reading

LINE_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """What a task reads of a file.

    Attributes
    ----------
    file : InputFile
        The file.
    number : int
        Number of the piece among all, in order of the files and of their rows.
    row_groups : tuple of int
        Of Parquet; empty for text.
    start, end : int
        Range of bytes of text: the rows that begin in it.
    in_quotes : bool
        Whether the range begins inside a quoted value.
    is_array : bool
        Whether it is an array of JSON objects.
    skipped : int
        Lines of CSV before the rows of the file.
    names : tuple of str
        Columns that the file has, by their names in the table.
    size_bytes : int
        About how much is read.
    footer : pyarrow.parquet.FileMetaData or None
        The footer of Parquet, if the piece is read in this process.
    """

    file: InputFile
    number: int = 0
    row_groups: tuple[int, ...] = ()
    start: int = 0
    end: int = 0
    in_quotes: bool = False
    is_array: bool = False
    skipped: int = 0
    names: tuple[str, ...] = ()
    size_bytes: int = 0
    footer: pq.FileMetaData | None = None

    @property
    def is_cut(self) -> bool:
        """Whether it is a part of a text."""
        return self.end - self.start < self.file.stored.size_bytes

    @property
    def is_csv(self) -> bool:
        """Whether it is CSV."""
        return self.file.file_format is FileFormat.CSV

    @property
    def lines_before_rows(self) -> int:
        """Lines of CSV before the rows of the piece."""
        return 0 if self.start else self.skipped

    def before(self) -> Piece:
        """Return the part of the file before the piece."""
        return replace(self, start=0, end=self.start, in_quotes=False)


def open_piece(piece: Piece) -> pa.NativeFile:
    """Open the text of the rows that begin in the range of a piece."""
    return pa.BufferReader(_cut(piece)) if piece.is_cut else open_text(piece.file)


def _cut(piece: Piece) -> bytes:
    file, stored = piece.file, piece.file.stored
    begin = max(piece.start - 1, 0)  # A row begins at `start` if the byte before it ends one.
    data = file.storage.read_range(stored.path, begin, piece.end - begin)
    if piece.start:
        inside = piece.in_quotes ^ (piece.is_csv and data.startswith(b'"'))
        first, _ = _row_end(data, inside, piece.is_csv)
        if first in (-1, len(data)):  # No row begins in the range.
            return b""
        data = data[first:]
    inside = piece.is_csv and data.count(b'"') % 2 == 1
    parts, at = [data], piece.end
    while at < stored.size_bytes and (inside or not parts[-1].endswith(b"\n")):
        more = file.storage.read_range(stored.path, at, min(1 << 20, stored.size_bytes - at))
        end, inside = _row_end(more, inside, piece.is_csv)
        parts.append(more if end < 0 else more[:end])
        at += len(more)
        if end >= 0:
            break
    return b"".join(parts)


def _row_end(data: bytes, inside: bool, is_csv: bool) -> tuple[int, bool]:
    """Return where the row that holds the first byte ends, or -1, and whether quotes are open."""
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        inside ^= is_csv and bool(data.count(b'"', at, end) % 2)
        if not inside:
            return end + 1, False
        at = end + 1
    return -1, inside ^ (is_csv and bool(data.count(b'"', at) % 2))


def blocks_of_lines(source: pa.NativeFile) -> Iterator[bytes]:
    """Yield the text of a file in blocks of whole lines."""
    parts: list[bytes] = []
    size = 0
    while data := source.read(CSV_BLOCK_BYTES):
        end = data.rfind(b"\n") + 1
        if end:
            yield b"".join([*parts, data[:end]])
            parts, size = [data[end:]], len(data) - end
        else:
            parts.append(data)
            size += len(data)
        if size > LINE_BYTES_MAX:
            raise pa.ArrowInvalid(f"a line is longer than {LINE_BYTES_MAX >> 20} MiB")
    if size:
        yield b"".join(parts)


@dataclass(frozen=True, slots=True)
class Quotes:
    """The quotes of a part of CSV.

    Attributes
    ----------
    piece : int
        Number of the piece.
    is_odd : bool
        Whether their number is odd, so that the part ends inside quotes if it begins outside.
    is_clear : tuple of (bool, bool)
        Whether each quote begins or ends a value, or is doubled in one, if the part begins outside
        of quotes, and inside.
    """

    piece: int
    is_odd: bool
    is_clear: tuple[bool, bool]


def count_quotes(separator: str, piece: Piece) -> Iterator[Quotes]:
    """Count the quotes of a piece of CSV."""
    stored = piece.file.stored
    begin, end = max(piece.start - 1, 0), min(piece.end + 1, stored.size_bytes)
    data = piece.file.storage.read_range(stored.path, begin, end - begin)
    own = slice(piece.start - begin, piece.end - begin)
    count, clear = _quotes_in(np.frombuffer(data, np.uint8), own, separator)
    yield Quotes(piece.number, bool(count % 2), clear)


def _quotes_in(data: Any, own: slice, separator: str) -> tuple[int, tuple[bool, bool]]:
    at = np.flatnonzero(data[own] == ord('"')) + own.start
    ends_value = np.zeros(256, np.bool_)
    ends_value[[ord(mark) for mark in f'{separator}\r\n"']] = True
    starts = ends_value[data[at - 1]] | (at == 0)
    if len(at) and at[0] == 3 and data[:3].tobytes() == BYTE_ORDER_MARK:
        starts[0] = True
    ends = (at + 1 == len(data)) | ends_value[data[np.minimum(at + 1, len(data) - 1)]]
    even, odd = slice(0, None, 2), slice(1, None, 2)
    outside = bool(starts[even].all() and ends[odd].all())
    inside = bool(ends[even].all() and starts[odd].all())
    return len(at), (outside, inside)


def cut_pieces(pieces: Sequence[Piece], counted: Sequence[Quotes]) -> tuple[Piece, ...]:
    """Return the pieces of a file of CSV with what their quotes say, or one piece for all."""
    inside, cut = False, []
    for piece, quotes in zip(pieces, counted, strict=True):
        if not quotes.is_clear[inside]:
            size = piece.file.stored.size_bytes
            return (replace(pieces[0], end=size, size_bytes=size),)
        cut.append(replace(piece, in_quotes=inside))
        inside ^= quotes.is_odd
    return tuple(cut)


def find_names(
    names: Sequence[str], reading: Reading, piece: Piece
) -> Iterator[tuple[str, frozenset[str]]]:
    """Find names that objects of JSON lines may have for the first time late in a file.

    Parameters
    ----------
    names : sequence of str
        The names in the table.
    reading : Reading
        Other names in the files.
    piece : Piece
        A part of a file.

    Yields
    ------
    tuple of str and frozenset of str
        The file, and the names.
    """
    found: set[str] = set()
    left = {*names}.difference(piece.names)
    with open_piece(piece) as source:
        for block in blocks_of_lines(source):
            found |= {n for n in left if _has_name(block, reading.file_name(n))}
            left -= found
            if not left:
                break
    yield piece.file.shown, frozenset(found)


def _has_name(block: bytes, name: str) -> bool:
    """Return whether an object has a name, and not only an object or a text inside of it."""
    mark = json.dumps(name, ensure_ascii=False).encode()
    at = block.find(mark)
    while at >= 0:
        start, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
        end = len(block) if end < 0 else end
        try:
            if any(name in found for found in objects_in(block[start:end].decode())):
                return True
        except (pa.ArrowInvalid, UnicodeDecodeError):  # The reader will say what is wrong.
            return False
        at = block.find(mark, end)
    return False
