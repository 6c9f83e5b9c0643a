"""Avro schemas of tables: conversion between Arrow schemas and the Avro JSON in Hudi's metadata.

Commit metadata, log blocks and table properties store a table's schema as Avro JSON.
:func:`avro_from_arrow` returns exactly the text that Hudi 1.2.0 writes for the same columns.
:func:`arrow_from_avro` reads it, and also other spellings in Hudi tables.
:mod:`bucketlake.model.column_type` defines the allowed Arrow types. Other modules handle values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.model.column_type import (
    COMMENT,
    DECIMAL_PRECISION_MAX,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    list_of,
    map_of,
)
from bucketlake.model.schema import META_NAMES

Json = Any  # A JSON value; its shape is what this module checks.

_PRIMITIVES: dict[pa.DataType, Json] = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
    TIMESTAMP_NTZ: {"type": "long", "logicalType": "local-timestamp-micros"},
}

_FROM_PRIMITIVE: dict[str, pa.DataType] = {
    name: data_type for data_type, name in _PRIMITIVES.items() if isinstance(name, str)
}

_FROM_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): TIMESTAMP_NTZ,
    ("long", "local-timestamp-micros"): TIMESTAMP_NTZ,
}

_REFUSED_LOGICAL = frozenset(
    {"time-millis", "time-micros", "duration", "timestamp-nanos", "local-timestamp-nanos"}
    | {"vector", "variant", "blob"}  # Types of Hudi after table version 9.
)


def record_name(table_name: str) -> str:
    """Return the name of a table's Avro record: ``<table>_record``, sanitised as Hudi does.

    Examples
    --------
    >>> record_name("daily-orders")
    'daily__orders_record'
    """
    return f"{_sanitise(table_name)}_record"


def record_namespace(table_name: str) -> str:
    """Return the namespace of a table's Avro record: ``hoodie.<table>``, sanitised."""
    return f"hoodie.{_sanitise(table_name)}"


def _sanitise(table_name: str) -> str:
    # Hudi 1.2.0 writes "__" for each such character, also for a leading digit or non-ASCII letter.
    return re.sub(r"^[^A-Za-z_]|[^A-Za-z0-9_]", "__", table_name)


def avro_from_arrow(schema: pa.Schema, table_name: str) -> str:
    """Return a schema as Avro JSON, as Hudi writes it into commit metadata.

    Parameters
    ----------
    schema : pyarrow.Schema
        Columns of stored types, with or without meta columns.
    table_name : str
        The table's name, as in its properties.

    Returns
    -------
    str
        JSON without white space. Nullable columns are unions with null first and default null.
        Structs and decimals are named after their path of fields.

    Examples
    --------
    >>> avro_from_arrow(pa.schema([pa.field("id", pa.int64(), nullable=False)]), "t")
    '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[{"name":"id","type":"long"}]}'
    """
    record = _record(list(schema), record_name(table_name), record_namespace(table_name))
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def with_meta_fields(schema_json: str) -> str:
    """Put the meta fields before the fields of a data schema, as in blocks of log files."""
    record = json.loads(schema_json)
    meta = [
        {"name": name, "type": ["null", "string"], "doc": "", "default": None}
        for name in META_NAMES
    ]
    data = [field for field in record["fields"] if field["name"] not in META_NAMES]
    return json.dumps({**record, "fields": meta + data}, separators=(",", ":"), ensure_ascii=False)


def _record(fields: list[pa.Field], name: str, namespace: str) -> Json:
    children = [_field(field, f"{namespace}.{name}") for field in fields]
    return {"type": "record", "name": name, "namespace": namespace, "fields": children}


def _field(field: pa.Field, namespace: str) -> Json:
    avro = {"name": field.name, "type": _union(field, field.name, namespace)}
    comment = (field.metadata or {}).get(COMMENT)
    if comment is not None:
        avro["doc"] = comment.decode()
    if field.nullable:
        avro["default"] = None
    return avro


def _union(field: pa.Field, name: str, namespace: str) -> Json:
    avro = _type(field.type, name, namespace)
    return ["null", avro] if field.nullable else avro


def _type(data_type: pa.DataType, name: str, namespace: str) -> Json:
    if data_type in _PRIMITIVES:
        return _PRIMITIVES[data_type]
    if pa.types.is_decimal128(data_type):
        return _decimal(data_type, f"{namespace}.{name}")
    if pa.types.is_list(data_type):
        return {"type": "array", "items": _union(data_type.value_field, name, namespace)}
    if pa.types.is_map(data_type):
        return {"type": "map", "values": _union(data_type.item_field, name, namespace)}
    assert pa.types.is_struct(data_type), f"{namespace}.{name} is of no stored type: {data_type}"
    return _record(list(data_type), name, namespace)


def _decimal(data_type: pa.Decimal128Type, namespace: str) -> Json:
    return {
        "type": "fixed",
        "name": "fixed",
        "namespace": namespace,
        "size": decimal_size_bytes(data_type.precision),
        "logicalType": "decimal",
        "precision": data_type.precision,
        "scale": data_type.scale,
    }


def decimal_size_bytes(precision: int) -> int:
    """Return the size of the smallest two's-complement integer for a number of decimal digits."""
    return (int(10**precision - 1).bit_length() + 8) // 8


def arrow_from_avro(schema_json: str, *, where: str = "Avro schema") -> pa.Schema:
    """Convert an Avro record schema to an Arrow schema of stored types.

    Parameters
    ----------
    schema_json : str
        Avro JSON of a record, from commit metadata, a log block or ``hoodie.table.create.schema``.
    where : str
        Place of the schema, for messages.

    Returns
    -------
    pyarrow.Schema
        Columns in order; a field is nullable if its union contains null. Enums and uuids are
        strings, fixed values without a logical type are binary, as in Spark.

    Raises
    ------
    FormatError
        If the JSON is no Avro record schema.
    UnsupportedFeatureError
        If Spark cannot hold the type of a column: times of day, durations, nanoseconds, unions of
        several types, recursive records, decimals beyond 38 digits. The error names the column.
    """
    try:
        parsed = json.loads(schema_json)
    except ValueError as error:
        raise FormatError(where, "Avro schema JSON", f"{schema_json[:40]!r} ({error})") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise FormatError(where, "an Avro record schema", f"{schema_json[:40]!r}")
    return pa.schema(_Reader(where).fields_of(parsed, "", ""))


class _Reader:
    """Converts one schema; it knows the named types so far, and the place for messages."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._named: dict[str, pa.DataType | None] = {}  # None while a record is being read.

    def fields_of(self, record: Mapping[str, Json], namespace: str, prefix: str) -> list[pa.Field]:
        """Read the fields of a record."""
        name = self._full_name(record, namespace, prefix)
        self._named[name] = None
        inner = name.rpartition(".")[0]
        fields = record.get("fields")
        if not isinstance(fields, list) or not all(_is_field(field) for field in fields):
            raise self._malformed(prefix, "a list of named fields", fields)
        return [self._field(field, inner, prefix) for field in fields]

    def _field(self, field: Mapping[str, Json], namespace: str, prefix: str) -> pa.Field:
        path = prefix + field["name"]
        data_type, nullable = self._nullable(field["type"], namespace, path)
        comment = field.get("doc")
        metadata = {COMMENT: comment} if isinstance(comment, str) and comment else None
        return pa.field(field["name"], data_type, nullable, metadata=metadata)

    def _nullable(self, avro: Json, namespace: str, path: str) -> tuple[pa.DataType, bool]:
        """Read a type that may be a union with null, in either order."""
        branches = avro if isinstance(avro, list) else [avro]
        valued = [branch for branch in branches if branch != "null"]
        if len(valued) != 1:
            raise self._unsupported(path, f"a union of {len(valued)} types")
        return self._type(valued[0], namespace, path), len(valued) < len(branches)

    def _type(self, avro: Json, namespace: str, path: str) -> pa.DataType:
        if isinstance(avro, list):
            return self._nullable(avro, namespace, path)[0]
        if isinstance(avro, str):
            return _FROM_PRIMITIVE.get(avro) or self._reference(avro, namespace, path)
        if not isinstance(avro, dict):
            raise self._malformed(path, "an Avro type", avro)
        logical = avro.get("logicalType")
        if isinstance(logical, str) and logical in _REFUSED_LOGICAL:
            raise self._unsupported(path, f"type {logical}")
        if logical == "decimal":
            return self._named_type(avro, namespace, path, self._decimal(avro, path))
        kind = avro.get("type")
        if isinstance(kind, str) and isinstance(logical, str) and (kind, logical) in _FROM_LOGICAL:
            return _FROM_LOGICAL[kind, logical]
        return self._complex(avro, kind, namespace, path)

    def _complex(
        self, avro: Mapping[str, Json], kind: Json, namespace: str, path: str
    ) -> pa.DataType:
        match kind:
            case "array":
                element, nullable = self._nullable(avro.get("items"), namespace, f"{path}[]")
                return list_of(element, nullable=nullable)
            case "map":
                value, nullable = self._nullable(avro.get("values"), namespace, f"{path}{{}}")
                return map_of(value, nullable=nullable)
            case "record":
                fields = self.fields_of(avro, namespace, f"{path}.")
                return self._named_type(avro, namespace, path, pa.struct(fields))
            case "enum":
                return self._named_type(avro, namespace, path, pa.string())
            case "fixed":
                return self._named_type(avro, namespace, path, pa.binary())
            case _:
                return self._type(kind, namespace, path)  # {"type": "string", ...} and unions.

    def _decimal(self, avro: Mapping[str, Json], path: str) -> pa.DataType:
        precision, scale = avro.get("precision"), avro.get("scale", 0)
        if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision):
            raise self._malformed(path, "a decimal's precision and scale", avro)
        if not 0 < precision <= DECIMAL_PRECISION_MAX:
            raise self._unsupported(path, f"decimal({precision},{scale})")
        return pa.decimal128(precision, scale)

    def _named_type(
        self, avro: Mapping[str, Json], namespace: str, path: str, data_type: pa.DataType
    ) -> pa.DataType:
        """Store a named type: later fields may refer to it by name."""
        if "name" in avro:
            self._named[self._full_name(avro, namespace, path)] = data_type
        return data_type

    def _reference(self, name: str, namespace: str, path: str) -> pa.DataType:
        known_as = full_name(name, namespace)
        if known_as not in self._named:
            raise self._malformed(path, "a type defined before its use", name)
        data_type = self._named[known_as]
        if data_type is None:
            raise self._unsupported(path, f"record {known_as} inside itself")
        return data_type

    def _full_name(self, avro: Mapping[str, Json], namespace: str, path: str) -> str:
        name = avro.get("name")
        if not isinstance(name, str):
            raise self._malformed(path, "a named type", avro)
        return full_name(name, avro.get("namespace", namespace))

    def _malformed(self, path: str, expected: str, found: Json) -> FormatError:
        return FormatError(f"{self._where}, column {path.rstrip('.')}", expected, repr(found)[:80])

    def _unsupported(self, path: str, feature: str) -> UnsupportedFeatureError:
        where = f"{self._where}, column {path.rstrip('.')}"
        return UnsupportedFeatureError(
            feature, where, "read the table with Hudi, or drop the column"
        )


def full_name(name: str, namespace: str) -> str:
    """Return the full name of a type; a name with a dot is full and ignores the namespace."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _is_field(field: Json) -> bool:
    return isinstance(field, dict) and isinstance(field.get("name"), str) and "type" in field
