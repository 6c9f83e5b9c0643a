"""The schema of the metadata table's records, and what all records have in common.

A record has five meta fields, an empty key, its kind, and payload fields, of which one is present.
The key is that of the HFile's cell. The meta fields are null; compacted files have their names.
:mod:`bucketlake.format.metadata_record.resolution` reads records of other schemas.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import FormatError
from bucketlake.format.avro.cursor import Cursor, Ints, padded_records
from bucketlake.format.avro.read_columns import read_column
from bucketlake.format.avro.timeline_records import NAMESPACE
from bucketlake.format.avro.tree import AvroNode, Union, Wire
from bucketlake.format.metadata_record.file_ids import MetadataPartition

NULLABLE = Union(value_branch=1, null_branch=0, branch_count=2)
TEXT = AvroNode(Wire.STRING, pa.string(), NULLABLE)
LONG = AvroNode(Wire.LONG, pa.int64(), NULLABLE)
BOOLEAN = AvroNode(Wire.BOOLEAN, pa.bool_())
INT = AvroNode(Wire.INT, pa.int32())

META_COUNT = 5
_STATISTICS = (MetadataPartition.COLUMN_STATS.value, MetadataPartition.PARTITION_STATS.value)
_KEY = AvroNode(Wire.STRING, pa.string())
_ABSENT, _PRESENT = b"\0", b"\x02"  # Branches of a payload field.


class RecordKind(IntEnum):
    """What a record is about, by its number on storage."""

    PARTITION_LIST = 1
    FILES = 2
    COLUMN_STATS = 3
    RECORD_INDEX = 5
    PARTITION_STATS = 6


# Payload fields in their order. bucketlake reads and writes neither Bloom filters nor a secondary
# index, whose records are in partitions of their own.
_PAYLOADS = (
    "filesystemMetadata",
    "BloomFilterMetadata",
    "ColumnStatsMetadata",
    "recordIndexMetadata",
    "SecondaryIndexMetadata",
)
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
    start = no_meta + no_key + bytes([2 * kind]) + _ABSENT * number + _PRESENT
    return start, _ABSENT * (len(_PAYLOADS) - 1 - number)


def read_payloads(
    values: pa.BinaryArray, path: str, kinds: tuple[RecordKind, ...], read: Callable[[Cursor], None]
) -> Ints:
    """Read records of some kinds that have the same payload field.

    Parameters
    ----------
    values : pyarrow.BinaryArray
        Values of HFile cells.
    path : str
        The file, for messages.
    kinds : tuple of RecordKind
        Allowed kinds.
    read : callable
        Reads the payloads; the cursor is before them and is to be moved after them.

    Returns
    -------
    ndarray of int64, shape (n_records,)
        The kind of each record.

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
    after, cursor.position = cursor.position, before
    wanted = " or ".join(kind.name for kind in kinds)
    cursor.require(np.isin(numbers, kinds), f"a record of kind {wanted}", "another kind")
    cursor.position = after
    for number, name in enumerate(_PAYLOADS):
        before, branches = cursor.position, cursor.longs()
        is_payload = number == _PAYLOAD_OF[kinds[0]]
        if not (branches == is_payload).all():
            cursor.position = before
            expected = f"{'a value' if is_payload else 'null'} in {name}"
            cursor.require(branches == is_payload, expected, "another branch")
        if is_payload:
            read(cursor)
    cursor.require(cursor.position == ends, "the end of a record", "more bytes")
    return numbers


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


_STRING = {"type": "string", "avro.java.string": "String"}  # So that Java decodes to String.
_META_NAMES = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
_WRAPPED: dict[str, Any] = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": _STRING,
    "DateWrapper": "int",
    "DecimalWrapper": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicrosWrapper": {"type": "long", "logicalType": "time-micros"},
    "TimestampMicrosWrapper": "long",
    "LocalDateWrapper": "int",
}
_ARRAY = "ArrayWrapper"


def record_schema(*, has_value_types: bool = True) -> dict[str, Any]:
    """Return the Avro schema of records, made anew.

    Since Hudi 1.1, bounds have value types, and there is a wrapper of arrays.
    """
    meta = [{"name": name, "type": ["null", "string"], "default": None} for name in _META_NAMES]
    files = {
        "type": "map",
        "values": _record("HoodieMetadataFileInfo", _field("size", "long"), _is_deleted()),
        "avro.java.string": "String",
    }
    bloom_filter = _record(
        "HoodieMetadataBloomFilter",
        _field("type", _STRING),
        _field("timestamp", _STRING),
        _field("bloomFilter", "bytes"),
        _is_deleted(),
    )
    record_index = _record(
        "HoodieRecordIndexInfo",
        _nullable("partitionName", _STRING),
        _nullable("fileIdHighBits", "long"),
        _nullable("fileIdLowBits", "long"),
        _nullable("fileIndex", "int"),
        _nullable("fileId", _STRING),
        _nullable("instantTime", "long"),
        {"name": "fileIdEncoding", "type": "int", "default": 0},
        _nullable("position", "long"),
    )
    return {
        "type": "record",
        "name": "HoodieMetadataRecord",
        "namespace": NAMESPACE,
        "fields": [
            *meta,
            _field("key", _STRING),
            _field("type", "int"),
            _field(_PAYLOADS[0], ["null", files]),
            _nullable(_PAYLOADS[1], bloom_filter),
            _nullable(_PAYLOADS[2], _column_stats_schema(has_value_types=has_value_types)),
            _nullable(_PAYLOADS[3], record_index),
            _nullable(_PAYLOADS[4], _record("HoodieSecondaryIndexInfo", _is_deleted())),
        ],
    }


def _column_stats_schema(*, has_value_types: bool) -> dict[str, Any]:
    wrappers = [_record(name, _field("value", held)) for name, held in _WRAPPED.items()]
    items = {"type": "array", "items": ["null", *_WRAPPED]}
    arrays = [_record(_ARRAY, _nullable("wrappedValues", items))] if has_value_types else []
    value_type = _record(
        "HoodieValueTypeInfo", _field("typeOrdinal", "int"), _nullable("additionalInfo", _STRING)
    )
    return _record(
        "HoodieMetadataColumnStats",
        _nullable("fileName", _STRING),
        _nullable("columnName", _STRING),
        {"name": "minValue", "type": ["null", *wrappers, *arrays], "default": None},
        {
            "name": "maxValue",
            "type": ["null", *_WRAPPED, *(each["name"] for each in arrays)],
            "default": None,
        },
        *(
            _nullable(name, "long")
            for name in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
        ),
        _is_deleted(),
        {"name": "isTightBound", "type": "boolean", "default": False},
        *([_nullable("valueType", value_type)] if has_value_types else []),
    )


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _field(name: str, avro: Any) -> dict[str, Any]:
    return {"name": name, "type": avro}


def _nullable(name: str, avro: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", avro], "default": None}


def _is_deleted() -> dict[str, Any]:
    return _field("isDeleted", "boolean")
