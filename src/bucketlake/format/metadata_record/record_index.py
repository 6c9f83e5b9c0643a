"""Values of the record-level index: the file group of a key.

All keys of a file group that one commit inserted have the same value. So values are written and
read once each, as the dictionary of a column.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketlake.errors import FormatError
from bucketlake.format.avro.cursor import Cursor
from bucketlake.format.avro.read_columns import Make, read_column
from bucketlake.format.avro.tree import AvroNode, Wire
from bucketlake.format.avro.write_columns import join, write_column
from bucketlake.format.metadata_record.record_schema import (
    INT,
    LONG,
    NULLABLE,
    TEXT,
    RecordKind,
    read_payloads,
    record_frame,
)
from bucketlake.model.file_name import FileId

_AS_UUID, _AS_TEXT = 0, 1  # Encodings of the file id.
_NO_INDEX = -1
_INT_MAX = 2**31 - 1
_UUID_ID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-(0|[1-9]\d{0,9}))?")
_NODES = (TEXT, LONG, LONG, AvroNode(Wire.INT, pa.int32(), NULLABLE), TEXT, LONG, INT, LONG)


@dataclass(frozen=True, slots=True)
class IndexedLocation:
    """Where the record-level index places a key."""

    partition_path: str
    file_id: FileId
    instant_ms: int  # Milliseconds since 1970-01-01 UTC of the commit that inserted the key there.


@dataclass(frozen=True, slots=True, eq=False)
class IndexedLocations:
    """The locations of some entries.

    Parameters
    ----------
    indices : pyarrow.Int32Array
        For each entry, its position in ``locations``.
    locations : tuple of IndexedLocation
        The distinct values. Equal locations may be among them: compacted values differ in the name
        of their file.
    """

    indices: pa.Int32Array
    locations: tuple[IndexedLocation, ...]


def encode_locations(locations: Sequence[IndexedLocation]) -> pa.BinaryArray:
    """Encode locations; the result is the dictionary of a column of values.

    File ids that are a UUID, or a UUID and a number, are stored as numbers, other ids as text. Ids
    with a bucket number are UUIDs.

    Examples
    --------
    >>> file_id = FileId("00000003-27f7-4628-9878-d51db8cd0617-0")
    >>> encode_locations([IndexedLocation("p0", file_id, 1795216978661)])[0].as_py().hex()
    '0000000000000a000000020204703002d098baff6402d1e797f3c8b89587cf010200020002cacba9b4bf68000000'
    """
    parts = [_split(location.file_id) for location in locations]
    columns = (
        [location.partition_path for location in locations],
        [part.high_bits for part in parts],
        [part.low_bits for part in parts],
        [part.index for part in parts],
        [part.text for part in parts],
        [location.instant_ms for location in locations],
        [part.encoding for part in parts],
        [None] * len(parts),  # Hudi writes no position.
    )
    start, end = (pa.scalar(part) for part in record_frame(RecordKind.RECORD_INDEX))
    fields = [
        part
        for node, column in zip(_NODES, columns, strict=True)
        for part in write_column(node, pa.array(column, node.arrow))
    ]
    if not locations:
        return pa.array([], pa.binary())
    return join([start, *fields, end])


def decode_locations(values: pa.Array, path: str) -> IndexedLocations:
    """Decode values of the record-level index; each distinct value is decoded once.

    Parameters
    ----------
    values : pyarrow.Array of binary, or a dictionary of binary
        Values of an HFile.
    path : str
        The file, for messages.

    Raises
    ------
    FormatError
        If a value is malformed, or no location; the error names the file.
    """
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    makes: list[Make] = []

    def read(cursor: Cursor) -> None:
        makes.extend(read_column(node, cursor) for node in _NODES)

    read_payloads(encoded.dictionary, path, (RecordKind.RECORD_INDEX,), read)
    rows = zip(*(make().to_pylist() for make in makes), strict=True)
    locations = tuple(_location(row, path) for row in rows)
    return IndexedLocations(encoded.indices.cast(pa.int32()), locations)


@dataclass(frozen=True, slots=True)
class _FileIdParts:
    """A file id as the fields of a record."""

    high_bits: int
    low_bits: int
    index: int
    text: str
    encoding: int


def _split(file_id: str) -> _FileIdParts:
    match = _UUID_ID.fullmatch(file_id)
    if match is None or int(match[2] or 0) > _INT_MAX:
        return _FileIdParts(_NO_INDEX, _NO_INDEX, _NO_INDEX, file_id, _AS_TEXT)
    high, low = np.frombuffer(uuid.UUID(match[1]).bytes, ">i8").tolist()
    return _FileIdParts(high, low, _NO_INDEX if match[2] is None else int(match[2]), "", _AS_UUID)


def _location(row: tuple[object, ...], path: str) -> IndexedLocation:
    partition_path, high, low, index, text, instant_ms, encoding, _ = row
    if not isinstance(partition_path, str) or not isinstance(instant_ms, int):
        raise FormatError(path, "a partition path and an instant of a location", repr(row)[:80])
    if encoding == _AS_TEXT and isinstance(text, str) and text:
        return IndexedLocation(partition_path, FileId(text), instant_ms)
    is_uuid = isinstance(high, int) and isinstance(low, int) and isinstance(index, int)
    if encoding != _AS_UUID or not is_uuid:
        raise FormatError(path, "a file id as UUID or as text", repr(row)[:80])
    bits = np.array([high, low], ">i8").tobytes()
    suffix = "" if index == _NO_INDEX else f"-{index}"
    return IndexedLocation(partition_path, FileId(f"{uuid.UUID(bytes=bits)}{suffix}"), instant_ms)
