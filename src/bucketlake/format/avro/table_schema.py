"""Avro schemas of tables: the Avro JSON in Hudi's metadata, of an Arrow schema.

Commit metadata, log blocks and table properties store a table's schema as Avro JSON.
:func:`avro_from_arrow` returns exactly the text that Hudi 1.2.0 writes for the same columns.
:func:`bucketlake.format.avro.tree.arrow_from_avro` reads it, and also other spellings in Hudi
tables. :mod:`bucketlake.model.column_type` defines the allowed Arrow types. Other modules handle
values.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.model.bounded_json import NESTING_MAX, nesting_of, parse_json
from bucketlake.model.column_type import BLOB, COMMENT, TIMESTAMP, TIMESTAMP_NTZ
from bucketlake.model.schema import META_NAMES
from bucketlake.model.variant import is_variant
from bucketlake.model.vector import bytes_type, element_word, is_vector

Json = Any  # A JSON value.

PRIMITIVES: dict[pa.DataType, Json] = {
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
"""The Avro type of each type of a column that has no children and no parameters."""


_BLOB: Json = json.loads("""
{"type": "record", "name": "blob", "namespace": "", "fields": [
  {"name": "type", "type":
    {"type": "enum", "name": "blob_storage_type", "symbols": ["INLINE", "OUT_OF_LINE"]}},
  {"name": "data", "type": ["null", "bytes"], "default": null},
  {"name": "reference", "type": ["null",
    {"type": "record", "name": "reference", "fields": [
      {"name": "external_path", "type": "string"},
      {"name": "offset", "type": ["null", "long"]},
      {"name": "length", "type": ["null", "long"]},
      {"name": "managed", "type": "boolean"}]}], "default": null}
], "logicalType": "blob"}""")

_VARIANT: Json = json.loads("""
{"type": "record", "name": "variant", "namespace": "", "fields": [
  {"name": "metadata", "type": "bytes", "doc": "Variant metadata component"},
  {"name": "value", "type": "bytes", "doc": "Variant value component"}
], "logicalType": "variant"}""")

_NAMED = ("vector", "blob", "variant")


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

    Raises
    ------
    InputError
        If a column nests deeper than :func:`arrow_from_avro` reads.

    Examples
    --------
    >>> avro_from_arrow(pa.schema([pa.field("id", pa.int64(), nullable=False)]), "t")
    '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[{"name":"id","type":"long"}]}'
    """
    record = _record(list(schema), record_name(table_name), record_namespace(table_name))
    _name_known_types(record["fields"])
    text = _text(record)
    if nesting_of(text.encode()) > NESTING_MAX:
        found, name = max(
            (nesting_of(_text(each).encode()), each["name"]) for each in record["fields"]
        )
        raise InputError(
            f"schema of {table_name}, column {name}",
            f"its type nests too deeply: expected at most {NESTING_MAX} brackets inside each "
            f"other in its Avro schema (about 50 structs), found {found + 2}",
            "give its inner fields columns of their own, or store them as text",
        )
    return text


def _name_known_types(fields: list[Json]) -> None:
    """Give later columns of one of Hudi's types its name alone: Avro defines a type once."""
    known = set()
    for field in fields:
        avro = field["type"][-1] if isinstance(field["type"], list) else field["type"]
        if isinstance(avro, dict) and avro.get("logicalType") in _NAMED:
            name = avro["name"]
            if name in known:
                field["type"] = ["null", name] if isinstance(field["type"], list) else name
            known.add(name)


def _text(avro: Json) -> str:
    return json.dumps(avro, separators=(",", ":"), ensure_ascii=False)


def with_meta_fields(schema_json: str) -> str:
    """Put the meta fields before the fields of a data schema, as in blocks of log files."""
    record = parse_json(schema_json)
    meta = [
        {"name": name, "type": ["null", "string"], "doc": "", "default": None}
        for name in META_NAMES
    ]
    data = [field for field in record["fields"] if field["name"] not in META_NAMES]
    return _text({**record, "fields": meta + data})


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
    if data_type in PRIMITIVES:
        return PRIMITIVES[data_type]
    if pa.types.is_decimal128(data_type):
        return _decimal(data_type, f"{namespace}.{name}")
    if data_type == BLOB:
        return _BLOB
    if is_variant(data_type):
        return _VARIANT
    if is_vector(data_type):
        return _vector(data_type)
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


def _vector(data_type: pa.DataType) -> Json:
    element, dimension = element_word(data_type), data_type.list_size
    return {
        "type": "fixed",
        "name": f"vector_{element.lower()}_{dimension}",
        "namespace": "",
        "size": bytes_type(data_type).byte_width,
        "logicalType": "vector",
        "dimension": dimension,
        "elementType": element,
        "storageBacking": "FIXED_BYTES",
    }


def decimal_size_bytes(precision: int) -> int:
    """Return the size of the smallest two's-complement integer for a number of decimal digits."""
    return (int(10**precision - 1).bit_length() + 8) // 8
