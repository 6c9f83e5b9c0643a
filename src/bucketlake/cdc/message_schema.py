"""What the schema of a message says of its columns: Kafka Connect's in JSON, Avro's, or a table's.

A type is named by Connect's name of it, such as ``io.debezium.time.MicroTimestamp``, which also
Avro schemas carry. Messages without a schema are read with the types that the caller declares; a
few of them show in which form they write a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bucketlake.cdc.values import Field
from bucketlake.model.column_type import (
    DECIMAL_PRECISION_MAX,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    is_list,
    stored_type,
)

_PLAIN = {
    "int8": (pa.int64(), pa.int32()),
    "int16": (pa.int64(), pa.int32()),
    "int32": (pa.int64(), pa.int32()),
    "int64": (pa.int64(), pa.int64()),
    "float": (pa.float64(), pa.float32()),
    "double": (pa.float64(), pa.float64()),
    "boolean": (pa.bool_(), pa.bool_()),
    "string": (pa.string(), pa.string()),
}
_AVRO = {"int": "int32", "long": "int64"}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_TIMES: dict[str, tuple[str, pa.DataType]] = {
    "org.apache.kafka.connect.data.Date": ("days", pa.date32()),
    "org.apache.kafka.connect.data.Time": ("unit ms", pa.int64()),
    "org.apache.kafka.connect.data.Timestamp": ("unit ms", TIMESTAMP_NTZ),
    "io.debezium.time.Date": ("days", pa.date32()),
    "io.debezium.time.Time": ("unit ms", pa.int64()),
    "io.debezium.time.MicroTime": ("unit us", pa.int64()),
    "io.debezium.time.NanoTime": ("unit ns", pa.int64()),
    "io.debezium.time.Timestamp": ("unit ms", TIMESTAMP_NTZ),
    "io.debezium.time.MicroTimestamp": ("unit us", TIMESTAMP_NTZ),
    "io.debezium.time.NanoTimestamp": ("unit ns", TIMESTAMP_NTZ),
    "io.debezium.time.ZonedTimestamp": ("instant", TIMESTAMP),
    "io.debezium.time.MicroDuration": ("unit us", pa.int64()),
    "io.debezium.time.NanoDuration": ("unit ns", pa.int64()),
    "io.debezium.time.IsoDate": ("iso date", pa.date32()),
    "io.debezium.time.IsoTime": ("iso time", pa.int64()),
    "io.debezium.time.IsoTimestamp": ("instant", TIMESTAMP_NTZ),
}
VARIABLE_RAW = pa.struct([("scale", pa.int64()), ("value", pa.string())])


def connect_field(schema: Mapping[str, Any], name: str = "") -> Field:
    """Return a column of Connect's schema of it, as its JSON converter writes it."""
    name, kind = schema.get("field", name), schema["type"]
    known, parameters = schema.get("name", ""), schema.get("parameters") or {}
    if known == _DECIMAL:
        return _decimal(name, pa.string(), parameters)
    if known == _VARIABLE:
        return Field(name, VARIABLE_RAW, pa.string(), "variable")
    if known in _TIMES:
        rule, stored = _TIMES[known]
        return Field(name, pa.string() if kind == "string" else pa.int64(), stored, rule)
    if kind == "bytes":
        return Field(name, pa.string(), pa.binary(), "bytes")
    if kind == "array":
        return Field.list_of(name, connect_field(schema["items"], "element"))
    if kind == "map":
        return Field.map_of(name, connect_field(schema["values"], "value"))
    if kind == "struct":
        return Field.struct_of(name, tuple(connect_field(part) for part in schema["fields"]))
    return Field(name, *_PLAIN[kind])


def _decimal(name: str, raw: pa.DataType, parameters: Mapping[str, Any]) -> Field:
    scale = int(parameters["scale"])
    digits = int(parameters.get("connect.decimal.precision") or DECIMAL_PRECISION_MAX)
    if 0 <= scale <= digits <= DECIMAL_PRECISION_MAX:
        return Field(name, raw, pa.decimal128(digits, scale), "decimal")
    # Debezium writes the negative scale of numeric(5,-2) as 2046.
    return Field(name, raw, pa.string(), "long", scale=scale)


def avro_field(schema: Any, name: str = "") -> Field:
    """Return a column of the Avro schema of it, with the names that Connect's converter puts there.

    Named types are written out where they are used, see :func:`written_out`.
    """
    if isinstance(schema, list):
        (schema,) = [branch for branch in schema if _kind_of(branch) != "null"]
    kind = _kind_of(schema)
    facts: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    known = facts.get("connect.name", "")
    if kind in ("bytes", "fixed") and facts.get("logicalType") == "decimal":
        own = {"scale": facts.get("scale", 0), "connect.decimal.precision": facts.get("precision")}
        return _decimal(name, pa.binary(), {**own, **facts.get("connect.parameters", {})})
    if known == _VARIABLE:
        raw = pa.struct([("scale", pa.int64()), ("value", pa.binary())])
        return Field(name, raw, pa.string(), "variable")
    if known in _TIMES:
        rule, stored = _TIMES[known]
        return Field(name, pa.string() if kind == "string" else pa.int64(), stored, rule)
    if kind in ("bytes", "fixed"):
        return Field(name, pa.binary(), pa.binary())
    if kind == "array":
        return Field.list_of(name, avro_field(facts["items"], "element"))
    if kind == "map":
        return Field.map_of(name, avro_field(facts["values"], "value"))
    if kind == "record":
        return Field.struct_of(
            name, tuple(avro_field(part["type"], part["name"]) for part in facts["fields"])
        )
    return Field(name, *_PLAIN["string" if kind == "enum" else _AVRO.get(kind, kind)])


def _kind_of(schema: Any) -> str:
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    return _kind_of(kind) if isinstance(kind, Mapping) else str(kind)


def declared_field(name: str, kind: pa.DataType, seen: Sequence[Any]) -> Field:
    """Return a column that the caller declares, in the form of the values that were seen."""
    sample = next((value for value in seen if value is not None), None)
    is_text, is_number = isinstance(sample, str), isinstance(sample, int | float)
    if is_list(kind):
        inner = [item for value in seen if isinstance(value, list) for item in value]
        return Field.list_of(name, declared_field("element", kind.value_type, inner))
    if pa.types.is_map(kind):
        values = [item for value in seen if isinstance(value, dict) for item in value.values()]
        return Field.map_of(name, declared_field("value", kind.item_type, values))
    if pa.types.is_struct(kind):
        held = [value for value in seen if isinstance(value, dict)]
        parts = (declared_field(f.name, f.type, [v.get(f.name) for v in held]) for f in kind)
        return Field.struct_of(name, tuple(parts))
    stored = stored_type(kind, name, "schema")
    if isinstance(sample, dict) and {*sample} == {"scale", "value"}:
        return Field(name, VARIABLE_RAW, pa.string(), "variable")
    if pa.types.is_decimal(kind):
        raw = pa.float64() if is_number else pa.string()
        return Field(name, raw, stored, "decimal text")
    if pa.types.is_binary(stored):
        return Field(name, pa.string(), stored, "bytes")
    if pa.types.is_date(kind):
        rule = "iso date" if is_text else "days"
        return Field(name, pa.string() if is_text else pa.int64(), stored, rule)
    if pa.types.is_timestamp(kind):
        texts = is_text or (kind.tz is not None and not is_number)
        rule = "instant" if texts else f"unit {kind.unit}"
        return Field(name, pa.string() if texts else pa.int64(), stored, rule)
    is_coded = (is_text or is_number) and not isinstance(sample, bool)  # 1 for true, as MySQL's.
    if pa.types.is_integer(kind) or (pa.types.is_boolean(kind) and is_coded):
        return Field(name, pa.string() if is_text else pa.int64(), stored)
    if pa.types.is_floating(kind):
        return Field(name, pa.float64(), stored)
    return Field(name, stored, stored)


def written_out(schema: Any, known: dict[str, Any] | None = None, space: str = "") -> Any:
    """Return an Avro schema in which a named type stands wherever it is used."""
    known = {} if known is None else known
    if isinstance(schema, str):
        return known.get(schema) or known.get(f"{space}.{schema}") or schema
    if isinstance(schema, list):
        return [written_out(branch, known, space) for branch in schema]
    if isinstance(schema["type"], Mapping | list):
        return written_out(schema["type"], known, space)
    found = dict(schema)
    space = found.get("namespace", space)
    for part in ("items", "values"):
        if part in found:
            found[part] = written_out(found[part], known, space)
    if found["type"] == "record":
        found["fields"] = [
            {**part, "type": written_out(part["type"], known, space)} for part in found["fields"]
        ]
    if "name" in found:
        known[found["name"]] = known[f"{space}.{found['name']}"] = found
    return found
