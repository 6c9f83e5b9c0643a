"""The writer schema of Avro records as a tree: the layout of the bytes, and their columns.

:func:`bucketlake.format.avro.table_schema.arrow_from_avro` decides the Arrow type of a field. This
module adds the other facts for reading and writing bytes: order of union branches, sizes of fixed
values, symbols of enums, units of timestamps. :mod:`bucketlake.format.avro.read_columns` and
:mod:`bucketlake.format.avro.write_columns` use the tree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from bucketlake.errors import FormatError
from bucketlake.format.avro.table_schema import Json, arrow_from_avro, full_name
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ


class Wire(Enum):
    """The binary form of a value."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    FIXED = "fixed"
    ENUM = "enum"
    ARRAY = "array"
    MAP = "map"
    RECORD = "record"


@dataclass(frozen=True, slots=True)
class Union:
    """A union of one type, with or without null."""

    value_branch: int
    null_branch: int | None
    branch_count: int


@dataclass(frozen=True, slots=True)
class AvroNode:
    """One type of a writer schema."""

    wire: Wire
    arrow: pa.DataType
    union: Union | None = None  # The union around it, if there is one.
    children: tuple[AvroNode, ...] = ()  # Fields of a record, or items of an array or a map.
    size_bytes: int = 0  # Size of a fixed value.
    symbols: tuple[str, ...] = ()  # Symbols of an enum.
    unit_micros: int = 1  # Unit of a timestamp: 1000 for milliseconds.


def avro_tree(schema_json: str, where: str) -> tuple[pa.Schema, AvroNode]:
    """Parse a writer schema.

    Parameters
    ----------
    schema_json : str
        Avro JSON of a record.
    where : str
        Place of the schema, for messages.

    Returns
    -------
    (pyarrow.Schema, AvroNode)
        The columns, and the record whose children are the columns in order.

    Raises
    ------
    FormatError
        If the JSON is no Avro record schema.
    UnsupportedFeatureError
        If a table cannot hold the type of a column; the error names the column.
    """
    try:
        schema = arrow_from_avro(schema_json, where=where)
        tree = _Walk(where).record(json.loads(schema_json), pa.struct(list(schema)), "")
    except RecursionError:
        raise FormatError(where, "an Avro schema", "a schema nested too deeply") from None
    except UnicodeEncodeError as error:  # JSON can contain half of a surrogate pair.
        raise FormatError(where, "an Avro schema of whole characters", str(error)) from error
    return schema, tree


class _Walk:
    """Walks over a valid schema; it knows the named types so far."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._named: dict[str, AvroNode] = {}

    def record(self, avro: Mapping[str, Json], arrow: pa.StructType, namespace: str) -> AvroNode:
        """Walk a record and its fields."""
        name = full_name(avro["name"], avro.get("namespace", namespace))
        inner = name.rpartition(".")[0]
        pairs = zip(avro["fields"], arrow, strict=True)
        children = tuple(self._type(child["type"], field.type, inner) for child, field in pairs)
        names = {child["name"] for child in avro["fields"]}
        if not children or len(names) < len(children):
            found = ", ".join(child["name"] for child in avro["fields"]) or "none"
            raise FormatError(self._where, f"fields of record {name}, each once", found[:80])
        self._named[name] = AvroNode(Wire.RECORD, arrow, children=children)
        return self._named[name]

    def _type(self, avro: Json, arrow: pa.DataType, namespace: str) -> AvroNode:
        if isinstance(avro, list):
            return self._union(avro, arrow, namespace)
        if isinstance(avro, str):
            return self._by_name({"type": avro}, arrow, namespace)
        if avro.get("logicalType") == "decimal":
            return self._decimal(avro, arrow, namespace)
        match avro["type"]:
            case "record":
                return self.record(avro, arrow, namespace)
            case "array":
                items = self._type(avro["items"], arrow.value_type, namespace)
                return AvroNode(Wire.ARRAY, arrow, children=(items,))
            case "map":
                values = self._type(avro["values"], arrow.item_type, namespace)
                return AvroNode(Wire.MAP, arrow, children=(_KEY, values))
            case "enum":
                node = AvroNode(Wire.ENUM, arrow, symbols=tuple(self._symbols(avro)))
                return self._named_leaf(avro, node, namespace)
            case "fixed":
                node = AvroNode(Wire.FIXED, arrow, size_bytes=self._size(avro))
                return self._named_leaf(avro, node, namespace)
            case str():
                return self._by_name(avro, arrow, namespace)
            case dict() as inner:
                return self._type(inner, arrow, namespace)
            case other:
                raise FormatError(self._where, "the name of an Avro type", repr(other)[:80])

    def _union(self, branches: list[Json], arrow: pa.DataType, namespace: str) -> AvroNode:
        (value_branch,) = (i for i, branch in enumerate(branches) if branch != "null")
        null_branch = branches.index("null") if "null" in branches else None
        node = self._type(branches[value_branch], arrow, namespace)
        return replace(node, union=Union(value_branch, null_branch, len(branches)))

    def _by_name(self, avro: Mapping[str, Json], arrow: pa.DataType, namespace: str) -> AvroNode:
        wire = _PRIMITIVES.get(avro["type"])
        if wire is None:
            return self._named[full_name(avro["type"], namespace)]
        is_time = arrow in (TIMESTAMP, TIMESTAMP_NTZ)
        is_millis = is_time and avro["logicalType"].endswith("-millis")
        return AvroNode(wire, arrow, unit_micros=1000 if is_millis else 1)

    def _decimal(self, avro: Mapping[str, Json], arrow: pa.DataType, namespace: str) -> AvroNode:
        match avro.get("type"):
            case "bytes":
                node = AvroNode(Wire.BYTES, arrow)
            case "fixed":
                node = AvroNode(Wire.FIXED, arrow, size_bytes=self._size(avro))
            case other:
                raise FormatError(self._where, "a decimal of bytes or fixed", repr(other)[:80])
        return self._named_leaf(avro, node, namespace)

    def _named_leaf(self, avro: Mapping[str, Json], node: AvroNode, namespace: str) -> AvroNode:
        """Store a type if it has a name."""
        name = avro.get("name")
        if isinstance(name, str):
            self._named[full_name(name, avro.get("namespace", namespace))] = node
        return node

    def _symbols(self, avro: Mapping[str, Json]) -> list[str]:
        symbols = avro.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise FormatError(self._where, "the symbols of an enum", repr(symbols)[:80])
        for symbol in symbols:
            symbol.encode()
        return symbols

    def _size(self, avro: Mapping[str, Json]) -> int:
        size = avro.get("size")
        if not isinstance(size, int) or not 0 < size < 2**31:
            raise FormatError(self._where, "the size of a fixed value", repr(size)[:80])
        return size


_PRIMITIVES = {
    wire.value: wire
    for wire in (
        *(Wire.BOOLEAN, Wire.INT, Wire.LONG, Wire.FLOAT, Wire.DOUBLE),
        *(Wire.STRING, Wire.BYTES),
    )
}
_KEY = AvroNode(Wire.STRING, pa.string())
