"""The schema of the metadata table's records, and what all records have in common.

A record has five meta fields, an empty key, its kind, and payload fields, of which one is present.
The key is that of the HFile's cell. The meta fields are null; compacted files have their names.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config.paths_of_table import require_data_place
from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.avro.bounded_schema import parse_avro_schema
from bucketlake.format.avro.cursor import Cursor, padded_records
from bucketlake.format.avro.read_columns import Make, read_column, with_nulls_between
from bucketlake.format.avro.timeline_records import avro_schema_of
from bucketlake.format.avro.tree import AvroNode, UnionNode, Wire
from bucketlake.format.avro.wrappers import LOCAL_DATE, WRAPPERS, read_wrapped
from bucketlake.format.avro.write_columns import ColumnPart, join, write_column
from bucketlake.format.hfile.framing import varint
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.hashing.xx_hash import xx_hash_64
from bucketlake.model.arrays import Ints
from bucketlake.model.file_name import FileId
from bucketlake.model.schema import META_NAMES

NULLABLE = UnionNode(value_branch=1, null_branch=0, branch_count=2)
TEXT = AvroNode(Wire.STRING, pa.string(), NULLABLE)
LONG = AvroNode(Wire.LONG, pa.int64(), NULLABLE)
BOOLEAN = AvroNode(Wire.BOOLEAN, pa.bool_())
INT = AvroNode(Wire.INT, pa.int32())

META_COUNT = 5
_STATISTICS = (MetadataPartition.COLUMN_STATS.value, MetadataPartition.PARTITION_STATS.value)
_KEY = AvroNode(Wire.STRING, pa.string())
_ABSENT, PRESENT = b"\0", b"\x02"  # Branches of a payload field.


class RecordKind(IntEnum):
    """What a record is about, by its number on storage."""

    PARTITION_LIST = 1
    FILES = 2
    COLUMN_STATS = 3
    RECORD_INDEX = 5
    PARTITION_STATS = 6


# Payload fields in their order. bucketlake reads and writes neither Bloom filters nor a secondary
# index, whose records are in partitions of their own.
_PAYLOADS = {
    "filesystemMetadata": "?map<HoodieMetadataFileInfo>",
    "BloomFilterMetadata": "HoodieMetadataBloomFilter?",
    "ColumnStatsMetadata": "HoodieMetadataColumnStats?",
    "recordIndexMetadata": "HoodieRecordIndexInfo?",
    "SecondaryIndexMetadata": "HoodieSecondaryIndexInfo?",
}
_PAYLOAD_OF = {
    RecordKind.PARTITION_LIST: 0,
    RecordKind.FILES: 0,
    RecordKind.COLUMN_STATS: 2,
    RecordKind.RECORD_INDEX: 3,
    RecordKind.PARTITION_STATS: 2,
}


def record_frame(kind: RecordKind) -> tuple[bytes, bytes]:
    """Return the bytes of a record before and after its payload."""
    number = _PAYLOAD_OF[kind]
    no_meta, no_key = _ABSENT * META_COUNT, b"\0"
    start = no_meta + no_key + bytes([2 * kind]) + _ABSENT * number + PRESENT
    return start, _ABSENT * (len(_PAYLOADS) - 1 - number)


def read_payloads(
    values: pa.BinaryArray,
    path: str,
    kinds: tuple[RecordKind, ...],
    nodes: Sequence[AvroNode | None],
) -> tuple[Ints, list[Any]]:
    """Read records of some kinds that have the same payload field.

    Parameters
    ----------
    values : pyarrow.BinaryArray
        Values of HFile cells.
    path : str
        The file, for messages.
    kinds : tuple of RecordKind
        Allowed kinds.
    nodes : sequence of AvroNode or None
        The types of the payload's fields; None is a wrapped value.

    Returns
    -------
    kinds : ndarray of int64, shape (n_records,)
        The kind of each record.
    columns : list of pyarrow.Array or WrappedValues
        The fields.

    Raises
    ------
    FormatError
        If a record is malformed or of another kind; the error names the file.
    """

    def refuse(expected: str, found: str, offset: int) -> FormatError:
        row = int(np.searchsorted(ends, offset, side="right"))
        return FormatError(path, f"{expected}, in entry {row} of an HFile", found)

    data, starts, ends = padded_records(values)
    cursor = Cursor(data, starts, ends, refuse)
    for _ in range(META_COUNT):
        read_column(TEXT, cursor)
    read_column(_KEY, cursor)
    before, numbers = cursor.position, cursor.ints()
    wanted = " or ".join(kind.name for kind in kinds)
    made: list[Make | WrappedValues] = []
    cursor.require(np.isin(numbers, kinds), f"a record of kind {wanted}", "another kind", before)
    for number, name in enumerate(_PAYLOADS):
        before, branches = cursor.position, cursor.longs()
        is_payload = number == _PAYLOAD_OF[kinds[0]]
        expected = f"{'a value' if is_payload else 'null'} in {name}"
        cursor.require(branches == is_payload, expected, "another branch", before)
        if is_payload:
            made = [_read_wrapped(cursor) if n is None else read_column(n, cursor) for n in nodes]
    cursor.require(cursor.position == ends, "the end of a record", "more bytes")
    return numbers, [each if isinstance(each, WrappedValues) else each() for each in made]


@cache
def record_schema_json(*, has_value_types: bool = True) -> str:
    """Return the Avro JSON of records, for HFiles and headers of log blocks."""
    schema = record_schema(has_value_types=has_value_types)
    return json.dumps(schema, separators=(",", ":"))


@cache
def commit_schema_json(*, has_value_types: bool = True) -> str:
    """Return the Avro JSON without the meta fields, for commit metadata."""
    schema = record_schema(has_value_types=has_value_types)
    schema["fields"] = schema["fields"][META_COUNT:]
    return json.dumps(schema, separators=(",", ":"))


def without_value_type_field(partition: str, values: pa.BinaryArray) -> pa.BinaryArray:
    """Return records of a partition as older tables store them.

    Only records of statistics have the field, as the last one of their payload. It must be null:
    then it is a zero, as are the absent payloads after it.
    """
    return pc.binary_slice(values, 0, -1) if partition in _STATISTICS else values


def with_value_type_field(values: pa.BinaryArray, path: str) -> pa.BinaryArray:
    """Return records of older tables as newer ones store them; see the function above."""
    is_statistics = any(name in path.split("/") for name in _STATISTICS)
    return pc.binary_join_element_wise(values, b"\0", b"") if is_statistics else values


_WRAPPERS = {
    "BooleanWrapper": "value boolean",
    "IntWrapper": "value int",
    "LongWrapper": "value long",
    "FloatWrapper": "value float",
    "DoubleWrapper": "value double",
    "BytesWrapper": "value bytes",
    "StringWrapper": "value string",
    "DateWrapper": "value int",
    "DecimalWrapper": "value decimal",
    "TimeMicrosWrapper": "value time-micros",
    "TimestampMicrosWrapper": "value long",
    "LocalDateWrapper": "value int",
}
_WRAPPED = "|".join(_WRAPPERS)
_RECORD = "HoodieMetadataRecord"
_STATS = "HoodieMetadataColumnStats"
_RECORDS = {  # In the notation of ``timeline_records``.
    _RECORD: "key string; type int; " + "; ".join(map(" ".join, _PAYLOADS.items())),
    "HoodieMetadataFileInfo": "size long; isDeleted boolean",
    "HoodieMetadataBloomFilter": """
        type string; timestamp string; bloomFilter bytes; isDeleted boolean
    """,
    "HoodieRecordIndexInfo": """
        partitionName string?; fileIdHighBits long?; fileIdLowBits long?; fileIndex int?;
        fileId string?; instantTime long?; fileIdEncoding int=0; position long?
    """,
    "HoodieSecondaryIndexInfo": "isDeleted boolean",
    _STATS: f"""
        fileName string?; columnName string?; minValue {_WRAPPED}|ArrayWrapper?;
        maxValue {_WRAPPED}|ArrayWrapper?; valueCount long?; nullCount long?; totalSize long?;
        totalUncompressedSize long?; isDeleted boolean; isTightBound boolean=false;
        valueType HoodieValueTypeInfo?
    """,
    **_WRAPPERS,
    "ArrayWrapper": f"wrappedValues array<?{_WRAPPED}>?",
    "HoodieValueTypeInfo": "typeOrdinal int; additionalInfo string?",
}


def record_schema(*, has_value_types: bool = True) -> dict[str, Any]:
    """Return the Avro schema of records, made anew.

    Since Hudi 1.1, bounds have value types, and there is a wrapper of arrays.
    """
    stats = _RECORDS[_STATS]
    if not has_value_types:
        stats = stats.replace("|ArrayWrapper", "").rpartition(";")[0]
    meta = [{"name": name, "type": ["null", "string"], "default": None} for name in META_NAMES]
    schema = avro_schema_of(_RECORD, {**_RECORDS, _STATS: stats})
    return {**schema, "fields": [*meta, *schema["fields"]]}


# ---- Values of the record-level index: the file group of a key -----------------------------------
#
# All keys of a file group that one commit inserted have the same value. So values are written and
# read once each, as the dictionary of a column.

_AS_UUID, _AS_TEXT = 0, 1  # Encodings of the file id.
_NO_INDEX = -1
_NO_POSITION = b"\0"  # Hudi writes none.
_INT_MAX = 2**31 - 1
_TWO_LONGS = struct.Struct(">qq")
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
    return pa.array([_encoded(location) for location in locations], pa.binary())


def _encoded(location: IndexedLocation) -> bytes:
    """Encode a location: for the few of a shard, columns of Arrow would cost more."""
    *numbers, text, encoding = _split(location.file_id)
    start, end = record_frame(RecordKind.RECORD_INDEX)
    texts = [_long(len(each)) + each for each in (location.partition_path.encode(), text)]
    fields = [texts[0], *map(_long, numbers), texts[1], _long(location.instant_ms)]
    present = b"".join(PRESENT + field for field in fields)
    return start + present + _long(encoding) + _NO_POSITION + end


def _long(number: int) -> bytes:
    return varint(number << 1 ^ number >> 63)


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
        If a value is malformed, or no location in the table; the error names the file.
    """
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    _, columns = read_payloads(encoded.dictionary, path, (RecordKind.RECORD_INDEX,), _NODES)
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    locations = tuple(_location(row, path) for row in rows)
    for location in locations:
        require_data_place(location.partition_path, location.file_id, path)
    return IndexedLocations(encoded.indices.cast(pa.int32()), locations)


def _split(file_id: str) -> tuple[int, int, int, bytes, int]:
    """Return a file id as the fields of a record: two numbers, an index, a text, the encoding."""
    match = _UUID_ID.fullmatch(file_id)
    if match is None or int(match[2] or 0) > _INT_MAX:
        return _NO_INDEX, _NO_INDEX, _NO_INDEX, file_id.encode(), _AS_TEXT
    high, low = _TWO_LONGS.unpack(bytes.fromhex(match[1].replace("-", "")))
    return high, low, _NO_INDEX if match[2] is None else int(match[2]), b"", _AS_UUID


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


# ---- Keys of the metadata table's entries, and the records of its list of files ------------------
#
# The record-level index uses record keys as they are. Statistics use hashes in Base64, so that all
# entries of a column have one prefix, and so have those of a column in one partition.

ALL_PARTITIONS = "__all_partitions__"
"""Key of the entry that lists the partitions."""

_NOT_PARTITIONED = "."
_SEED = 0xFFFFFFFFDABADABA  # 0xDABADABA, sign-extended to 64 bits.


def partition_key(partition_path: str) -> str:
    """Return the key of a partition's entry in ``files``; a path is empty without partitions.

    >>> partition_key("eu"), partition_key("")
    ('eu', '.')
    """
    return partition_path or _NOT_PARTITIONED


def partition_stats_key(column: str, partition_path: str) -> bytes:
    """Return the key of a column's statistics of a partition.

    It is also the prefix of the keys of the statistics of files in this partition.
    """
    return _hash_of_name(column) + _hash_of_name(partition_key(partition_path))


def column_stats_keys(column: str, partition_path: str, file_names: Iterable[str]) -> pa.Array:
    """Return the keys of a column's statistics of some files in one partition, as binary."""
    prefix = partition_stats_key(column, partition_path)
    return pc.binary_join_element_wise(prefix, _hashes_of_files(file_names), b"")


def keys_of_statistics(
    columns: pa.Array, partition_paths: Sequence[str], places: Ints, file_names: pa.Array
) -> pa.Array:
    """Return the keys of statistics, as binary.

    Parameters
    ----------
    columns, file_names : pyarrow.Array of string
        The column and the file of each key.
    partition_paths : sequence of str
        Data partitions.
    places : ndarray of int64
        The partition of each file: its place among the partitions.
    """
    named, files = columns.dictionary_encode(), file_names.dictionary_encode()
    names = named.dictionary.to_pylist()
    pairs = [partition_stats_key(name, path) for path in partition_paths for name in names]
    of_pair = places * len(names) + named.indices.to_numpy()
    hashes = _hashes_of_files(files.dictionary.to_pylist())
    parts = pa.array(pairs, pa.binary()).take(pa.array(of_pair)), hashes.take(files.indices)
    return pc.binary_join_element_wise(*parts, b"")


def _hashes_of_files(names: Iterable[str]) -> pa.Array:
    hashes = [b64encode(hashlib.md5(n.encode(), usedforsecurity=False).digest()) for n in names]
    return pa.array(hashes, pa.binary())


@lru_cache(maxsize=2**14)
def _hash_of_name(name: str) -> bytes:
    return b64encode(xx_hash_64(name.encode(), _SEED).to_bytes(8, "big"))


# ---- Records of the partition ``files``: the list of partitions, and the files of a partition ----
#
# A record has a map from names to sizes. The list of partitions has paths with size 0. How newer
# maps change older maps is left to the reader of the metadata table.

FILES_KINDS = (RecordKind.PARTITION_LIST, RecordKind.FILES)

_INFO = pa.struct(
    [
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("is_deleted", pa.bool_(), nullable=False),
    ]
)
FILE_MAP = pa.map_(pa.string(), pa.field("value", _INFO, nullable=False))
"""Type of a column of maps: file name to ``size_bytes`` and ``is_deleted``."""

_LONG = AvroNode(Wire.LONG, pa.int64())
_NODE = AvroNode(
    Wire.MAP,
    FILE_MAP,
    children=(
        AvroNode(Wire.STRING, pa.string()),
        AvroNode(Wire.RECORD, _INFO, children=(_LONG, BOOLEAN)),
    ),
)


def encode_file_maps(kind: RecordKind, maps: pa.MapArray) -> pa.BinaryArray:
    """Encode records of ``files``.

    Parameters
    ----------
    kind : RecordKind
        ``PARTITION_LIST`` for the one list of partitions, otherwise ``FILES``.
    maps : pyarrow.MapArray
        Of type ``FILE_MAP``. Entries are written in their order.
    """
    assert kind in FILES_KINDS, "a kind of the partition files"
    start, end = (pa.scalar(part) for part in record_frame(kind))
    return join([start, *write_column(_NODE, maps), end])


def decode_file_maps(values: pa.BinaryArray, path: str) -> tuple[Ints, pa.MapArray]:
    """Decode records of ``files``.

    Parameters
    ----------
    values : pyarrow.BinaryArray
        Values of an HFile.
    path : str
        The file, for messages.

    Returns
    -------
    kinds : ndarray of int64, shape (n_records,)
        ``PARTITION_LIST`` or ``FILES``.
    maps : pyarrow.MapArray
        Of type ``FILE_MAP``.

    Raises
    ------
    FormatError
        If a value is malformed, or no record of ``files``; the error names the file.
    """
    kinds, (maps,) = read_payloads(values, path, FILES_KINDS, [_NODE])
    return kinds, maps


# ---- Records of the metadata table that an older release of Hudi wrote, in the schema of today ---
#
# Each release of Hudi 1.x added fields to records, and wrappers to the union of bounds. Every file
# and log block stores the schema of its writer. Records of another schema are resolved as Avro
# defines it: fields that the writer did not know get their defaults. So all other modules know one
# schema. Each distinct value is converted once, since most entries of an index share few values.

_WITHOUT_VALUE_TYPES = object()


def resolver(schema_json: str, path: str) -> Callable[[pa.BinaryArray], pa.BinaryArray] | None:
    """Return what converts the records of a file to the schema of ``record_schema_json``.

    Parameters
    ----------
    schema_json : str
        The Avro JSON of the records in the file. Documentation and hints for Java do not matter.
    path : str
        The file, for messages.

    Returns
    -------
    callable or None
        None if the file has the schema of today. The callable raises FormatError for a record that
        is malformed.

    Raises
    ------
    FormatError
        If the text is no schema of such records.
    UnsupportedFeatureError
        If the schema has fields that bucketlake does not know: those of a newer release of Hudi.
    """
    writer = _writer_schema(schema_json)
    if writer is None:
        return None
    if writer is _WITHOUT_VALUE_TYPES:
        return lambda values: with_value_type_field(values, path)
    if isinstance(writer, str):
        raise FormatError(path, "an Avro schema of records of the metadata table", writer)
    unknown = _fields_of(parse_avro_schema(schema_json)) - _fields_of(record_schema())
    if unknown:
        feature = f"a metadata table with the fields {', '.join(sorted(unknown))} in its records"
        raise UnsupportedFeatureError(
            feature, path, "a newer Hudi wrote them: use a newer bucketlake"
        )
    return lambda values: _resolved(values, writer, path)


@lru_cache(maxsize=16)  # Many files have the same text.
def _writer_schema(schema_json: str) -> Any:
    """Return a schema as fastavro parses it; None for the schema of today, text if it is none.

    The schema of Hudi 1.0 is told apart, because its records need no parsing.
    """
    import fastavro  # A Spark task that reads records of today does not need it.

    try:
        found = parse_avro_schema(schema_json)
        known = record_schema()
        if _bare(found) == _bare(known):
            return None
        if _bare(found) == _bare(record_schema(has_value_types=False)):
            return _WITHOUT_VALUE_TYPES
        if not isinstance(found, dict) or found.get("name") != known["name"]:
            return repr(schema_json[:80])
        return fastavro.parse_schema(found)
    except Exception as error:  # fastavro raises many types for what is no schema.
        return f"{schema_json[:80]!r} ({error})"


@lru_cache(maxsize=1)
def _reader_schema() -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(record_schema_json()))


def _resolved(values: pa.BinaryArray, writer: Any, path: str) -> pa.BinaryArray:
    """Convert each distinct value."""
    encoded = values.dictionary_encode()
    converted = [_converted(value, writer, path) for value in encoded.dictionary.to_pylist()]
    return pa.array(converted, pa.binary()).take(encoded.indices)


def _converted(value: bytes, writer: Any, path: str) -> bytes:
    import fastavro

    stream, result = io.BytesIO(value), io.BytesIO()
    try:
        record = fastavro.schemaless_reader(
            stream, writer, _reader_schema(), return_record_name=True
        )
        fastavro.schemaless_writer(result, _reader_schema(), record)
    except Exception as error:  # fastavro raises many types for malformed bytes.
        expected = "a record of the metadata table in the schema of its file"
        raise FormatError(path, expected, f"{type(error).__name__}: {error}") from error
    if stream.tell() != len(value):
        raise FormatError(path, "the end of a record", "more bytes")
    return result.getvalue()


def _fields_of(part: Any) -> set[str]:
    """Return all fields of a schema and of its records, as ``Record.field``."""
    if isinstance(part, list):
        return {name for item in part for name in _fields_of(item)}
    if not isinstance(part, dict):
        return set()
    if part.get("type") != "record":
        return {name for key in ("type", "items", "values") for name in _fields_of(part.get(key))}
    own = {f"{part['name']}.{field['name']}" for field in part["fields"]}
    return own.union(*(_fields_of(field["type"]) for field in part["fields"]))


def _bare(part: Any) -> Any:
    """Return a schema without documentation and hints for Java."""
    if isinstance(part, dict):
        if set(part) == {"type", "avro.java.string"}:
            return part["type"]
        return {k: _bare(v) for k, v in part.items() if k not in ("doc", "avro.java.string")}
    return [_bare(item) for item in part] if isinstance(part, list) else part


# ---- Records of ``column_stats`` and ``partition_stats``: bounds and counts of a column ----------
#
# A record is about a column in a file, or in a whole partition; then it has the partition path in
# place of the file name. Bounds are stored as wrapped values. In index version V2 a *value type*
# says how to read the wrapped value; in V1 (tables of version 6) the wrapper alone does. Where a
# column has nulls only, Hudi writes no bounds for log files and perhaps zeros for base files.
# :mod:`bucketlake.format.metadata_record.bounds` converts Arrow columns to wrapped values and back.

STATS_KINDS = (RecordKind.COLUMN_STATS, RecordKind.PARTITION_STATS)

VALUE_TYPE = pa.struct([pa.field("ordinal", pa.int32(), nullable=False), ("info", pa.string())])
"""Type of the column of value types."""

_BOUNDS = (*WRAPPERS, LOCAL_DATE)  # Hudi never writes a bound of an array, the branch after these.
_VALUE_TYPE = AvroNode(Wire.RECORD, VALUE_TYPE, NULLABLE, children=(INT, TEXT))


@dataclass(frozen=True, slots=True, eq=False)
class WrappedValues:
    """Values of several types, a value or null for each row.

    Parameters
    ----------
    count : int
        Number of rows.
    parts : mapping of int to (ndarray, pyarrow.Array)
        By branch of the union, rows in ascending order and their values.
    """

    count: int
    parts: Mapping[int, tuple[Ints, pa.Array]]

    @classmethod
    def gather(cls, count: int, pieces: Iterable[tuple[int, Ints, pa.Array]]) -> Self:
        """Put values together from pieces: a branch, rows in any order, and their values."""
        by_branch: dict[int, list[tuple[Ints, pa.Array]]] = {}
        for branch, rows, values in pieces:
            if len(rows):
                by_branch.setdefault(branch, []).append((rows, values))
        parts = {}
        for branch, held in by_branch.items():
            rows = np.concatenate([rows for rows, _ in held])
            values = pa.concat_arrays([values for _, values in held])
            if (rows[1:] < rows[:-1]).any():
                order = np.argsort(rows)
                rows, values = rows[order], values.take(pa.array(order))
            parts[branch] = (rows, values)
        return cls(count, parts)

    def take(self, indices: Ints) -> Self:
        """Return the values of some rows, in the order of their indices."""
        pieces = []
        for branch, (rows, values) in self.parts.items():
            places = np.full(self.count, -1)
            places[rows] = np.arange(len(rows))
            found = places[indices]
            held = np.flatnonzero(found >= 0)
            pieces.append((branch, held, values.take(pa.array(found[held]))))
        return self.gather(len(indices), pieces)

    def only(self, rows: Ints) -> Self:
        """Return the values of some rows; the other rows stay, without values."""
        pieces = (
            (branch, held[np.isin(held, rows)], values.filter(pa.array(np.isin(held, rows))))
            for branch, (held, values) in self.parts.items()
        )
        return self.gather(self.count, pieces)

    @property
    def branches(self) -> Ints:
        """The branch of each row; 0 if it has no value."""
        branches = np.zeros(self.count, np.int64)
        for branch, (rows, _) in self.parts.items():
            branches[rows] = branch
        return branches

    def stored(self, rows: Ints) -> pa.Array:
        """Return the values of some rows that all have values of one branch, without wrappers."""
        (branch,) = set(self.branches[rows].tolist())
        held, values = self.parts[branch]
        return values.take(pa.array(np.searchsorted(held, rows)))


@dataclass(frozen=True, slots=True, eq=False)
class ColumnStats:
    """Statistics as columns of equal length, a row for each record.

    Parameters
    ----------
    names : pyarrow.Array of string
        File name, with the leading dot of a log file; or partition path.
    columns : pyarrow.Array of string
        Name of the column.
    minima, maxima : WrappedValues
        Bounds of values that are not null.
    value_counts, null_counts, stored_bytes, uncompressed_bytes : pyarrow.Array of int64
        Number of rows including nulls, number of nulls, and sizes of the column's chunks.
    is_deleted, is_tight_bound : pyarrow.Array of bool
        Whether the record is a removal, and whether it replaces older records.
    value_types : pyarrow.Array of struct
        ``ordinal`` and ``info`` of the value type; null in index version V1.
    """

    names: pa.Array
    columns: pa.Array
    minima: WrappedValues
    maxima: WrappedValues
    value_counts: pa.Array
    null_counts: pa.Array
    stored_bytes: pa.Array
    uncompressed_bytes: pa.Array
    is_deleted: pa.Array
    is_tight_bound: pa.Array
    value_types: pa.Array

    def __len__(self) -> int:
        return len(self.names)

    def take(self, indices: Ints) -> Self:
        """Return some rows, in the order of their indices."""
        arrow = pa.array(indices)
        columns = (getattr(self, field.name) for field in fields(self))
        return type(self)(
            *(c.take(indices if isinstance(c, WrappedValues) else arrow) for c in columns)
        )

    @classmethod
    def concat(cls, parts: Sequence[ColumnStats]) -> Self:
        """Put the rows of several statistics one after the other; there is at least one."""
        starts = np.cumsum([0, *(len(part) for part in parts)])
        joined = []
        for field in fields(cls):
            columns = [getattr(part, field.name) for part in parts]
            if isinstance(columns[0], WrappedValues):
                pieces = (
                    (branch, rows + start, values)
                    for start, column in zip(starts[:-1].tolist(), columns, strict=True)
                    for branch, (rows, values) in column.parts.items()
                )
                joined.append(WrappedValues.gather(int(starts[-1]), pieces))
            else:
                joined.append(pa.concat_arrays(columns))
        return cls(*joined)


# The types of a record's fields; None is a wrapped value.
_STATISTICS_NODES = (TEXT, TEXT, None, None, LONG, LONG, LONG, LONG, BOOLEAN, BOOLEAN, _VALUE_TYPE)


def encode_column_stats(kind: RecordKind, stats: ColumnStats) -> pa.BinaryArray:
    """Encode a record for each row of statistics; ``kind`` is one of ``STATS_KINDS``."""
    return encode_several_column_stats([(kind, len(stats))], stats)


def encode_several_column_stats(
    kinds: Sequence[tuple[RecordKind, int]], stats: ColumnStats
) -> pa.BinaryArray:
    """Encode a record for each row of statistics of several kinds.

    The cost of a call is far above that of a row.

    Parameters
    ----------
    kinds : sequence of (RecordKind, int)
        Kinds of ``STATS_KINDS``, each with the number of its rows, in order of the rows.
    stats : ColumnStats
        All rows.
    """
    assert {kind for kind, _ in kinds} <= {*STATS_KINDS}, "kinds of statistics"
    if len(stats.names) == 0:
        return pa.array([], pa.binary())
    starts = [pa.repeat(record_frame(kind)[0], count) for kind, count in kinds]
    _, end = record_frame(kinds[0][0])  # All kinds have the same payload field.
    parts: list[ColumnPart] = [pa.concat_arrays(starts)]
    for node, field in zip(_STATISTICS_NODES, fields(stats), strict=True):
        column = getattr(stats, field.name)
        parts += [_write_wrapped(column)] if node is None else write_column(node, column)
    return join([*parts, pa.scalar(end)])


def decode_column_stats(values: pa.BinaryArray, path: str) -> tuple[Ints, ColumnStats]:
    """Decode records of ``column_stats`` or ``partition_stats``.

    Parameters
    ----------
    values : pyarrow.BinaryArray
        Values of an HFile.
    path : str
        The file, for messages.

    Returns
    -------
    kinds : ndarray of int64, shape (n_records,)
        ``COLUMN_STATS`` or ``PARTITION_STATS``.
    stats : ColumnStats
        A row for each value.

    Raises
    ------
    FormatError
        If a value is malformed, or no statistics; the error names the file.
    """
    kinds, columns = read_payloads(values, path, STATS_KINDS, _STATISTICS_NODES)
    return kinds, ColumnStats(*columns)


def _read_wrapped(cursor: Cursor) -> WrappedValues:
    branches = cursor.numbers_below(len(_BOUNDS) + 1, "a bound of a single value")
    return WrappedValues(len(branches), read_wrapped(cursor, branches, _BOUNDS))


def _write_wrapped(values: WrappedValues) -> pa.BinaryArray:
    written = pa.array([b"\0"] * values.count, pa.binary())  # Branch 0, null.
    for branch, (rows, present) in values.parts.items():
        head = pa.scalar(bytes([2 * branch]))
        found = join([head, *write_column(_BOUNDS[branch - 1], present)])
        is_here = np.zeros(values.count, np.bool_)
        is_here[rows] = True
        written = pc.if_else(
            pa.array(is_here), with_nulls_between(found, rows, values.count), written
        )
    return written
