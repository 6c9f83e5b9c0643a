"""Records of the metadata table that an older release of Hudi wrote, in the schema of today.

Each release of Hudi 1.x added fields to records, and wrappers to the union of bounds. Every file
and log block stores the schema of its writer. Records of another schema are resolved as Avro
defines it: fields that the writer did not know get their defaults. So all other modules know one
schema. Each distinct value is converted once, since most entries of an index share few values.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.metadata_record.record_schema import (
    record_schema,
    record_schema_json,
    with_value_type_field,
)

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
    unknown = _fields_of(json.loads(schema_json)) - _fields_of(record_schema())
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
        found = json.loads(schema_json)
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
