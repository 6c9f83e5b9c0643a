"""Checksums of a Parquet file: of each column chunk and of the footer.

Parquet's own checksums cover the data of pages alone. A flipped bit in the header of a page or in
the footer can give other values, or rename a column. bucketlake therefore writes one more key-value
into the footer: CRC-32 of each column chunk, row group by row group, and last that of the footer
itself, in which it then stands as zeros. Other readers ignore the key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.format.checksum import DIGITS, crc
from bucketlake.model.by_schema import by_schema

CHECKSUMS: Final = "bucketlake.checksums"
"""Footer key: the checksums, each with eight hexadecimal digits."""

_TAIL_BYTES = 8  # Length of the footer, and Parquet's last four bytes.
_TAIL_BYTES_READ = 64 * 1024  # Most footers are smaller.


@by_schema
def blank_checksums(schema: pa.Schema, row_groups: int) -> str:
    """Return the value that is written first: zeros, as many as the checksums have digits."""
    leaves = sum(_leaf_count(field.type) for field in schema)
    return "0" * DIGITS * (leaves * row_groups + 1)


def fill_checksums(data: memoryview, footer: pq.FileMetaData) -> None:
    """Replace the zeros of :func:`blank_checksums` in a file by its checksums.

    Parameters
    ----------
    data : memoryview
        The whole file, which is changed.
    footer : pyarrow.parquet.FileMetaData
        The places of its column chunks.
    """
    start, end = _footer_range(data)
    tail = bytes(data[start:end])
    key = tail.index(CHECKSUMS.encode()) + len(CHECKSUMS)
    chunks = [
        crc(data[place : place + length])
        for group in range(footer.num_row_groups)
        for place, length in _chunk_ranges(footer, group)
    ]
    blank = b"0" * DIGITS * (len(chunks) + 1)
    at = start + tail.index(blank, key)
    data[at : at + DIGITS * len(chunks)] = b"".join(b"%08x" % chunk for chunk in chunks)
    at += DIGITS * len(chunks)
    data[at : at + DIGITS] = b"%08x" % crc(data[start:end])


class CheckedFooter:
    """The footer of a Parquet file, compared with its checksum, and the checksums of its chunks.

    Parameters
    ----------
    source : pyarrow.NativeFile
        The file.

    Raises
    ------
    ValueError
        If the footer is not what was written.
    pyarrow.ArrowException
        If it is no footer.

    Attributes
    ----------
    metadata : pyarrow.parquet.FileMetaData
        The footer.
    has_checksums : bool
        Whether the file has them; files of other writers have none.
    """

    def __init__(self, source: pa.NativeFile) -> None:
        size = source.size()
        tail = _read(source, max(size - _TAIL_BYTES_READ, 0), min(size, _TAIL_BYTES_READ))
        needed = int.from_bytes(tail[-_TAIL_BYTES:-4], "little") + _TAIL_BYTES
        if len(tail) < needed <= size:
            tail = _read(source, size - needed, needed)
        self.metadata = pq.read_metadata(pa.BufferReader(tail))
        told: bytes = (self.metadata.metadata or {}).get(CHECKSUMS.encode(), b"")
        self.has_checksums = bool(told)
        self._source = source
        self._names: list[str] = []
        if told:
            footer = bytearray(tail[len(tail) - needed : -_TAIL_BYTES])
            at = footer.rindex(told) + len(told) - DIGITS
            footer[at : at + DIGITS] = b"0" * DIGITS
            if b"%08x" % crc(footer) != told[-DIGITS:]:
                raise ValueError("the footer does not have its checksum; the file is damaged")
            count = self.metadata.num_columns
            self._told = [told[i : i + DIGITS] for i in range(0, len(told) - DIGITS, DIGITS)]
            if len(self._told) != count * self.metadata.num_row_groups:
                raise ValueError("the footer has another number of checksums than columns")
            columns = (self.metadata.schema.column(i).path for i in range(count))
            self._names = [path.split(".", 1)[0] for path in columns]

    def check_chunks(self, group: int, columns: Collection[str]) -> None:
        """Compare the chunks of some columns in a row group with their checksums.

        Raises
        ------
        ValueError
            If a chunk is not what was written; the error names the column.
        """
        wanted = {*columns}
        first = group * len(self._names)
        ranges = _chunk_ranges(self.metadata, group)
        for leaf, name in enumerate(self._names):
            if name not in wanted:
                continue
            if b"%08x" % crc(_read(self._source, *ranges[leaf])) != self._told[first + leaf]:
                raise ValueError(
                    f"column {name} of row group {group} does not have its checksum; the file is "
                    "damaged"
                )


def _leaf_count(data_type: pa.DataType) -> int:
    if pa.types.is_dictionary(data_type) or data_type.num_fields == 0:
        return 1
    return sum(_leaf_count(data_type.field(i).type) for i in range(data_type.num_fields))


def _footer_range(data: memoryview) -> tuple[int, int]:
    end = len(data) - _TAIL_BYTES
    return end - int.from_bytes(data[end : end + 4], "little"), end


def _chunk_ranges(footer: pq.FileMetaData, group: int) -> list[tuple[int, int]]:
    held = footer.row_group(group)
    ranges = []
    for i in range(held.num_columns):
        column = held.column(i)
        start = column.data_page_offset
        if column.dictionary_page_offset:
            start = min(start, column.dictionary_page_offset)
        ranges.append((start, column.total_compressed_size))
    return ranges


def _read(source: pa.NativeFile, start: int, length: int) -> memoryview:
    source.seek(start)
    return memoryview(source.read_buffer(length)).cast("B")
