"""Log blocks of records: decoding their content to Arrow columns, and encoding columns.

An Avro block has a count and then records, each after its size; the schema is in the header of the
block. In an HFile block the records are the values of the keys. A Parquet block is a whole Parquet
file, read and written like a base file. All give columns of the block's own schema, including meta
columns. The caller casts them to the table's schema (``cast_table``) and merges the records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import FormatError, InputError
from bucketlake.format.avro.cursor import RECORD_PADDING_BYTES, Cursor, padded_records
from bucketlake.format.avro.read_columns import Make, read_column
from bucketlake.format.avro.tree import AvroNode, avro_tree
from bucketlake.format.avro.write_columns import join, joined_bytes, write_column
from bucketlake.format.base_file import BaseFileReader, EncodedBaseFile, encode_base_file
from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.hfile.writer import encode_hfile
from bucketlake.format.log_block import (
    BlockKind,
    HeaderKey,
    LogBlock,
    encode_block,
    encode_checked_block,
)
from bucketlake.model.arrays import Ints
from bucketlake.model.cast import cast_table
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import without_meta

AVRO_CONTENT_VERSION = 3

_HFILE_KEY = "key"  # The field whose value is stored as the key of a cell.
_CHUNK_RECORDS = 16_384  # The positions of this many records fit into the processor's cache.
_CHUNK_BYTES = 2**28
_INT = struct.Struct(">i")
_SIZE = struct.Struct(">I")  # Unsigned, so that each record starts after the previous record.
_TWO_INTS = struct.Struct(">ii")


def decode_data_block(block: LogBlock, columns: Sequence[str] | None = None) -> pa.Table:
    """Decode the records of a block.

    Parameters
    ----------
    block : LogBlock
        A block of Avro, Parquet or HFile data, or of change data.
    columns : sequence of str, optional
        Columns, including meta columns, in the wanted order. Columns that the block lacks have
        Arrow's null type; ``cast_table`` fills them. None: all columns in the block's order.

    Returns
    -------
    pyarrow.Table
        Records in the block's order, in stored types, with the nullability of the block's schema.
        A partial block has only the updated columns, see :attr:`LogBlock.is_partial`.

    Raises
    ------
    FormatError
        If the content does not fit the block's schema; the error names file and byte.
    UnsupportedFeatureError
        If a column has a type that a table cannot hold; the error names the column.

    Notes
    -----
    Avro records are read column by column. Skipping an unwanted column costs about half as much as
    reading it; in a Parquet block it is not read at all. Items of arrays and maps are located in a
    loop, which takes about a microsecond per item.
    """
    decode = _DECODERS[block.kind]
    return decode(block, columns)


def encode_avro_block(
    table: pa.Table,
    schema_json: str,
    *,
    instant: InstantTime,
    kind: BlockKind = BlockKind.AVRO_DATA,
) -> bytes:
    """Encode records as an Avro block, or as a block of change data.

    Parameters
    ----------
    table : pyarrow.Table
        Records, including meta columns, with the columns of the schema in any order.
    schema_json : str
        Avro JSON schema of the records, which is stored in the block.
    instant : InstantTime
        The instant that writes the block.
    kind : BlockKind
        ``AVRO_DATA`` or ``CDC_DATA``.

    Raises
    ------
    InputError
        If the schema lacks a column, or a column has a value that its type cannot hold.
    """
    schema, tree = _tree_to_write(schema_json)
    records = cast_table(table, schema, where="log block").combine_chunks()
    content: list[bytes | pa.Buffer] = [_TWO_INTS.pack(AVRO_CONTENT_VERSION, table.num_rows)]
    for batch in records.to_batches(max_chunksize=_rows_at_once(records)):
        content.append(_encode_records(tree, batch))
    return encode_checked_block(kind, _headers(schema_json, instant), *content)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedParquetBlock:
    """A Parquet block, and the Parquet file that is its content."""

    block: bytes
    content: EncodedBaseFile


def encode_parquet_block(
    table: pa.Table, schema_json: str, *, instant: InstantTime
) -> EncodedParquetBlock:
    """Encode records as a Parquet block; see :func:`encode_avro_block`.

    Warns
    -----
    NullElementWarning
        If a column has a null element in an array; the warning names the column.
    """
    schema, _ = _tree_to_write(schema_json)
    content = encode_base_file([table], without_meta(schema))
    headers = _headers(schema_json, instant)
    return EncodedParquetBlock(encode_block(BlockKind.PARQUET_DATA, headers, content.data), content)


@lru_cache(maxsize=16)  # All blocks of a write have one schema.
def _tree_to_write(schema_json: str) -> tuple[pa.Schema, AvroNode]:
    schema, tree = avro_tree(schema_json, "log block")
    _require_understood(schema, tree, schema.names)
    return schema, tree


def _require_understood(schema: pa.Schema, tree: AvroNode, names: Sequence[str]) -> None:
    """Raise UnsupportedFeatureError if the type of one of some columns is not supported."""
    for name, node in zip(schema.names, tree.children, strict=True):
        if node.refused and name in names:
            raise node.refused


def encode_hfile_block(
    keys: pa.Array,
    values: pa.Array,
    schema_json: str,
    *,
    instant: InstantTime,
    created_at_ms: int,
) -> bytes:
    """Encode entries of the metadata table as an HFile block; see :func:`encode_hfile`.

    Parameters
    ----------
    keys, values : pyarrow.Array
        Keys in ascending order of their bytes, and their values.
    schema_json : str
        Avro JSON schema of the values; the block and the HFile in it store it.
    instant : InstantTime
        The instant that writes the block.
    created_at_ms : int
        That instant, in milliseconds since 1970-01-01 UTC.
    """
    content = encode_hfile(keys, values, schema_json, created_at_ms=created_at_ms)
    return encode_block(BlockKind.HFILE_DATA, _headers(schema_json, instant), content)


def open_hfile_block(block: LogBlock) -> HFileReader:
    """Open the HFile in a block, for lookups of keys."""
    assert block.kind is BlockKind.HFILE_DATA, "an HFile block"
    return HFileReader.of_bytes(block.content, block.path, offset_bytes=block.content_offset_bytes)


def _headers(schema_json: str, instant: InstantTime) -> dict[HeaderKey, str]:
    return {HeaderKey.INSTANT_TIME: str(instant), HeaderKey.SCHEMA: schema_json}


def _rows_at_once(table: pa.Table) -> int:
    row_bytes = table.nbytes // max(table.num_rows, 1) + 1
    return max(1, min(_CHUNK_RECORDS, _CHUNK_BYTES // int(row_bytes)))


def _encode_records(tree: AvroNode, batch: pa.RecordBatch) -> pa.Buffer:
    columns = zip(tree.children, batch.columns, strict=True)
    records = join([part for node, column in columns for part in write_column(node, column)])
    sizes = pc.binary_length(records).to_numpy().astype(">i4")
    prefixes = pa.Array.from_buffers(pa.binary(4), len(sizes), [None, pa.py_buffer(sizes)])
    return joined_bytes([prefixes.cast(pa.binary()), records])


@dataclass(frozen=True, slots=True, eq=False)
class _Records:
    """The bytes of some records, padded for a cursor."""

    data: bytes
    start: Ints
    end: Ints
    content_offset_bytes: int | None  # Position of the data; None if they were compressed.


def _decode_avro(block: LogBlock, columns: Sequence[str] | None) -> pa.Table:
    block.require_whole()
    return _read_records(block, _avro_records(block), columns)


def _decode_hfile(block: LogBlock, columns: Sequence[str] | None) -> pa.Table:
    batches = list(open_hfile_block(block).batches())
    parts = (_Records(*padded_records(batch.values), None) for batch in batches)
    table = _read_records(block, parts, columns)
    place = table.schema.get_field_index(_HFILE_KEY)
    if place < 0 or table.schema.field(place).type != pa.string():
        return table
    # Hudi's writer empties a field with this name, because its value is the key of the cell.
    try:
        stored = pa.chunked_array([batch.keys for batch in batches], pa.binary())
        keys = stored.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise block.malformed("keys in UTF-8", str(error)) from error
    values = table.column(place)
    restored = pc.if_else(pc.equal(values, ""), keys, values)
    return table.set_column(place, table.schema.field(place), restored)


def _read_records(
    block: LogBlock, parts: Iterable[_Records], columns: Sequence[str] | None
) -> pa.Table:
    """Read the wanted columns of records, part by part."""
    schema, tree = _schema_of(block)
    wanted = schema.names if columns is None else columns
    _require_understood(schema, tree, wanted)
    selected = _selected(schema, wanted)
    held = [schema.get_field_index(name) for name in wanted]
    batches = []
    for records in parts:
        makes = _read_columns(block, tree, records)
        arrays = [makes[i]() if i >= 0 else pa.nulls(len(records.end)) for i in held]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=selected))
    return pa.Table.from_batches(batches, selected)


def _read_columns(block: LogBlock, tree: AvroNode, records: _Records) -> list[Make]:
    first = records.content_offset_bytes

    def refuse(expected: str, found: str, offset: int) -> FormatError:
        return block.malformed(expected, found, 0 if first is None else first + offset)

    cursor = Cursor(records.data, records.start, records.end, refuse)
    makes = [read_column(node, cursor) for node in tree.children]
    cursor.require(cursor.position == records.end, "the end of a record", "more bytes")
    return makes


def _selected(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    held = set(schema.names)
    return pa.schema([schema.field(n) if n in held else (n, pa.null()) for n in names])


def _schema_of(block: LogBlock) -> tuple[pa.Schema, AvroNode]:
    text = block.headers.get(HeaderKey.SCHEMA)
    where = f"{block.path} at byte {block.offset_bytes}"
    if text is None:
        raise FormatError(block.path, "header SCHEMA", "none", block.offset_bytes)
    return avro_tree(text, where)


def _avro_records(block: LogBlock) -> Iterator[_Records]:
    """Split the records of a block into parts that are read together."""
    first, ends = _record_ends(block)
    while len(ends):
        count = int(np.searchsorted(ends, first + _CHUNK_BYTES))
        end, ends = np.split(ends, [max(1, min(count, _CHUNK_RECORDS))])
        last = int(end[-1])
        data = bytes(block.content[first:last]) + bytes(RECORD_PADDING_BYTES)
        start = np.concatenate([[first], end[:-1]]) + _SIZE.size
        yield _Records(data, start - first, end - first, first)
        first = last


def _record_ends(block: LogBlock) -> tuple[int, Ints]:
    """Return the start of the first record and the end of each record, from their sizes."""
    content, size, unpack = block.content, len(block.content), _SIZE.unpack_from
    first, count = _records_start(block)
    ends: list[int] = []
    at = first
    try:
        for _ in range(size // _SIZE.size if count is None else count):
            if at >= size:
                break
            at += _SIZE.size + unpack(content, at)[0]
            ends.append(at)
    except struct.error:
        at = size + 1  # Too few bytes for a size.
    if at != size or len(ends) != (len(ends) if count is None else count):
        whole = [first, *(end for end in ends if end <= size)]
        found = f"{len(whole) - 1} whole records and {size - whole[-1]} more bytes"
        expected = "records" if count is None else f"{count} records"
        raise block.malformed(f"{expected} to the end of the block", found, whole[-1])
    return first, np.array(ends, np.int64)


def _records_start(block: LogBlock) -> tuple[int, int | None]:
    """Return where records start, and their number; None: the block does not store it."""
    content = block.content
    if len(content) < _INT.size:
        raise block.malformed("a content version", f"{len(content)} bytes")
    (version,) = _INT.unpack_from(content)
    if version == 1:
        return _INT.size, None
    if version not in (2, AVRO_CONTENT_VERSION):
        raise block.malformed(f"content version 1 to {AVRO_CONTENT_VERSION}", version)
    if len(content) < _TWO_INTS.size:
        raise block.malformed("a count of records", "the end of the block", _INT.size)
    _, count = _TWO_INTS.unpack_from(content)
    if not 0 <= count <= len(content) // _INT.size:
        raise block.malformed("a count of records", count, _INT.size)
    return _TWO_INTS.size, count


def _decode_parquet(block: LogBlock, columns: Sequence[str] | None) -> pa.Table:
    schema, tree = _schema_of(block)
    selected = _selected(schema, schema.names if columns is None else columns)
    _require_understood(schema, tree, selected.names)
    try:
        with BaseFileReader.of_bytes(block.content, block.path) as reader:
            table = reader.read(selected.names)
        return cast_table(table, selected, where=block.path)
    except FormatError as error:
        raise block.malformed("a Parquet file", error.found) from error
    except InputError as error:
        raise block.malformed("a Parquet file of the block's schema", str(error)) from error


_DECODERS: dict[BlockKind, Callable[[LogBlock, Sequence[str] | None], pa.Table]] = {
    BlockKind.AVRO_DATA: _decode_avro,
    BlockKind.CDC_DATA: _decode_avro,  # Change data are records with their own schema.
    BlockKind.PARQUET_DATA: _decode_parquet,
    BlockKind.HFILE_DATA: _decode_hfile,
}
