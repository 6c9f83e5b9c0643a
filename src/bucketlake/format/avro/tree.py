"""Avro schemas that are read: the Arrow types of columns, and the layout of their bytes.

One walk over the JSON of a record makes both. :func:`arrow_from_avro` returns the columns of any
schema in Hudi's metadata. :func:`avro_tree` returns a tree, for a writer schema: it also has the
order of union branches, sizes of fixed values, symbols of enums and units of timestamps.
:mod:`bucketlake.format.avro.read_columns` and :mod:`bucketlake.format.avro.write_columns` use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.avro.bounded_schema import full_name, require_bounded
from bucketlake.format.avro.table_schema import PRIMITIVES, Json
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.column_type import (
    COMMENT,
    DECIMAL_PRECISION_MAX,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    list_type,
    map_of,
)
from bucketlake.model.variant import VARIANT, is_variant
from bucketlake.model.vector import ELEMENTS

_FROM_PRIMITIVE: dict[str, pa.DataType] = {
    name: data_type for data_type, name in PRIMITIVES.items() if isinstance(name, str)
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
)


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
class UnionNode:
    """A union of one type, with or without null."""

    value_branch: int
    null_branch: int | None
    branch_count: int


@dataclass(frozen=True, slots=True)
class AvroNode:
    """One type of a writer schema."""

    wire: Wire
    arrow: pa.DataType
    union: UnionNode | None = None  # The union around it, if there is one.
    children: tuple[AvroNode, ...] = ()  # Fields of a record, or items of an array or a map.
    size_bytes: int = 0  # Size of a fixed value.
    symbols: tuple[str, ...] = ()  # Symbols of an enum.
    unit_micros: int = 1  # Unit of a timestamp: 1000 for milliseconds.
    refused: UnsupportedFeatureError | None = None  # Why values of a column can only be skipped.

    @property
    def is_nullable(self) -> bool:
        """Whether a value may be null."""
        return self.union is not None and self.union.null_branch is not None


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
    columns, refused = understood_columns(schema_json, where=where)
    for error in refused.values():
        raise error
    return columns


def understood_columns(
    schema_json: str, *, where: str = "Avro schema"
) -> tuple[pa.Schema, dict[str, UnsupportedFeatureError]]:
    """Return the columns of a schema whose types are supported, and the errors of the others.

    The parameters are those of :func:`arrow_from_avro`.
    """
    tree = _record_of(schema_json, where, for_bytes=False)
    columns = [*zip(tree.arrow, tree.children, strict=True)]
    refused = {field.name: node.refused for field, node in columns if node.refused}
    return pa.schema([field for field, _ in columns if field.name not in refused]), refused


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
        The columns, and the record whose children are the columns in order. A column whose node
        is ``refused`` can only be skipped.

    Raises
    ------
    FormatError
        If the JSON is no Avro record schema.
    UnsupportedFeatureError
        If values of a column cannot even be skipped; the error names the column.
    """
    try:
        tree = _record_of(schema_json, where, for_bytes=True)
    except UnicodeEncodeError as error:  # JSON can contain half of a surrogate pair.
        raise FormatError(where, "an Avro schema of whole characters", str(error)) from error
    return pa.schema([*tree.arrow]), tree


def _record_of(schema_json: str, where: str, *, for_bytes: bool) -> AvroNode:
    try:
        parsed = parse_json(schema_json)
    except ValueError as error:
        raise FormatError(where, "Avro schema JSON", f"{schema_json[:40]!r} ({error})") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise FormatError(where, "an Avro record schema", f"{schema_json[:40]!r}")
    record = _Walk(where, for_bytes).record(parsed, "", "")
    try:
        require_bounded(parsed)
    except ValueError as error:
        refused = next((node.refused for node in record.children if node.refused), None)
        problem = FormatError(where, "an Avro schema in bounds", str(error))
        raise refused or problem from error
    return record


class _Walk:
    """Walks over one schema; it knows the named types so far, and the place for messages.

    Only with ``for_bytes`` it checks what nobody but a reader or writer of bytes needs.
    """

    def __init__(self, where: str, for_bytes: bool) -> None:
        self._where, self._for_bytes = where, for_bytes
        self._skips = False  # Whether only the sizes of values count, and not what they mean.
        self._named: dict[str, AvroNode | None] = {}  # None while a record is being read.

    def record(self, avro: Mapping[str, Json], namespace: str, prefix: str) -> AvroNode:
        """Walk a record and its fields."""
        name = self._full_name(avro, namespace, prefix)
        self._named[name] = None
        inner = name.rpartition(".")[0]
        fields = avro.get("fields")
        if not isinstance(fields, list) or not all(_is_field(field) for field in fields):
            raise self._malformed(prefix, "a list of named fields", fields)
        walk = self._union if prefix else self._column
        children = [walk(each["type"], inner, prefix + each["name"]) for each in fields]
        names = [field["name"] for field in fields]
        are_distinct = 0 < len(names) == len({*names})
        self._require(are_distinct, prefix, f"fields of record {name}, each once", names)
        columns = [_column(field, node) for field, node in zip(fields, children, strict=True)]
        node = AvroNode(Wire.RECORD, pa.struct(columns), children=tuple(children))
        self._named[name] = node
        return node

    def _column(self, avro: Json, namespace: str, name: str) -> AvroNode:
        """Walk the type of a whole column; if it is refused, the other columns can be read."""
        try:
            return self._union(avro, namespace, name)
        except UnsupportedFeatureError as error:
            self._skips = True
            try:
                node = self._union(avro, namespace, name)
            except UnsupportedFeatureError:
                if self._for_bytes:
                    raise
                node = AvroNode(Wire.BYTES, pa.binary())  # Nobody reads it.
            finally:
                self._skips = False
            return replace(node, refused=error)

    def _union(self, avro: Json, namespace: str, path: str) -> AvroNode:
        """Walk a type that may be a union with null, in either order."""
        branches = avro if isinstance(avro, list) else [avro]
        valued = [place for place, branch in enumerate(branches) if branch != "null"]
        if len(valued) != 1:
            raise self._unsupported(path, f"a union of {len(valued)} types")
        node = self._type(branches[valued[0]], namespace, path)
        if not isinstance(avro, list):
            return node
        null_branch = branches.index("null") if "null" in branches else None
        return replace(node, union=UnionNode(valued[0], null_branch, len(branches)))

    def _type(self, avro: Json, namespace: str, path: str) -> AvroNode:
        if isinstance(avro, list):
            return replace(self._union(avro, namespace, path), union=None)
        if isinstance(avro, str):
            primitive = _FROM_PRIMITIVE.get(avro)
            if primitive is None:
                return self._reference(avro, namespace, path)
            return AvroNode(Wire(avro), primitive)
        if not isinstance(avro, dict):
            raise self._malformed(path, "an Avro type", avro)
        logical, kind = avro.get("logicalType"), avro.get("type")
        if isinstance(logical, str) and logical in _REFUSED_LOGICAL and not self._skips:
            raise self._unsupported(path, f"type {logical}")
        if logical == "vector":
            return self._named_node(avro, namespace, path, self._vector(avro, path))
        if logical == "variant" and not self._skips:
            if any(mark in path for mark in ".[{"):
                raise self._unsupported(path, "a variant inside of another column")
            return self._named_node(avro, namespace, path, self._variant(avro, namespace, path))
        if logical == "decimal":
            return self._named_node(avro, namespace, path, self._decimal(avro, kind, path))
        if isinstance(kind, str) and isinstance(logical, str) and (kind, logical) in _FROM_LOGICAL:
            unit_micros = 1000 if logical.endswith("-millis") else 1
            return AvroNode(Wire(kind), _FROM_LOGICAL[kind, logical], unit_micros=unit_micros)
        return self._complex(avro, kind, namespace, path)

    def _complex(self, avro: Mapping[str, Json], kind: Json, namespace: str, path: str) -> AvroNode:
        match kind:
            case "array":
                items = self._union(avro.get("items"), namespace, f"{path}[]")
                arrow = list_type(items.arrow, nullable=items.is_nullable)
                return AvroNode(Wire.ARRAY, arrow, children=(items,))
            case "map":
                values = self._union(avro.get("values"), namespace, f"{path}{{}}")
                arrow = map_of(values.arrow, nullable=values.is_nullable)
                return AvroNode(Wire.MAP, arrow, children=(_KEY, values))
            case "record":
                return self.record(avro, namespace, f"{path}.")
            case "enum":
                node = AvroNode(Wire.ENUM, pa.string(), symbols=self._symbols(avro, path))
                return self._named_node(avro, namespace, path, node)
            case "fixed":
                node = AvroNode(Wire.FIXED, pa.binary(), size_bytes=self._size(avro, path))
                return self._named_node(avro, namespace, path, node)
            case _:  # {"type": "string", ...} and unions.
                is_name = isinstance(kind, str | dict)
                self._require(is_name, path, "the name of an Avro type", kind)
                return self._type(kind, namespace, path)

    def _decimal(self, avro: Mapping[str, Json], kind: Json, path: str) -> AvroNode:
        precision, scale = avro.get("precision"), avro.get("scale", 0)
        if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision):
            raise self._malformed(path, "a decimal's precision and scale", avro)
        if not 0 < precision <= DECIMAL_PRECISION_MAX:
            raise self._unsupported(path, f"decimal({precision},{scale})")
        arrow = pa.decimal128(precision, scale)
        if kind == "bytes":
            return AvroNode(Wire.BYTES, arrow)
        self._require(kind == "fixed", path, "a decimal of bytes or fixed", kind)
        return AvroNode(Wire.FIXED, arrow, size_bytes=self._size(avro, path))

    def _vector(self, avro: Mapping[str, Json], path: str) -> AvroNode:
        element = ELEMENTS.get(str(avro.get("elementType", "FLOAT")))
        if element is None or avro.get("storageBacking", _BACKING) != _BACKING:
            raise self._unsupported(path, f"type vector of {avro.get('elementType')}")
        dimension, width = avro.get("dimension"), element.bit_width // 8
        is_known = isinstance(dimension, int) and 0 < dimension * width < 2**31
        if not is_known or avro.get("size") != dimension * width:
            raise self._malformed(path, "a vector's dimension and size", avro)
        return AvroNode(Wire.FIXED, pa.list_(element, dimension), size_bytes=dimension * width)

    def _variant(self, avro: Mapping[str, Json], namespace: str, path: str) -> AvroNode:
        node = self.record(avro, namespace, f"{path}.")
        if not is_variant(node.arrow):
            raise self._unsupported(path, "a shredded variant")
        # Readers and writers of bytes need the fields in the order of the record.
        return node if self._for_bytes else replace(node, arrow=VARIANT)

    def _symbols(self, avro: Mapping[str, Json], path: str) -> tuple[str, ...]:
        symbols = avro.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
            self._require(False, path, "the symbols of an enum", symbols)
            return ()
        if self._for_bytes:
            "".join(symbols).encode()  # Raises UnicodeEncodeError for half of a surrogate pair.
        return tuple(symbols)

    def _size(self, avro: Mapping[str, Json], path: str) -> int:
        size = avro.get("size")
        if isinstance(size, int) and 0 < size < 2**31:
            return size
        self._require(False, path, "the size of a fixed value", size)
        return 0

    def _named_node(
        self, avro: Mapping[str, Json], namespace: str, path: str, node: AvroNode
    ) -> AvroNode:
        """Store a named type: later fields may refer to it by name."""
        if "name" in avro:
            self._named[self._full_name(avro, namespace, path)] = node
        return node

    def _reference(self, name: str, namespace: str, path: str) -> AvroNode:
        known_as = full_name(name, namespace)
        if known_as not in self._named and name in self._named:
            known_as = name  # As Avro does, for the types of Hudi that have no namespace.
        if known_as not in self._named:
            raise self._malformed(path, "a type defined before its use", name)
        node = self._named[known_as]
        if node is None:
            raise self._unsupported(path, f"record {known_as} inside itself")
        return node

    def _full_name(self, avro: Mapping[str, Json], namespace: str, path: str) -> str:
        name = avro.get("name")
        if not isinstance(name, str):
            raise self._malformed(path, "a named type", avro)
        return full_name(name, avro.get("namespace", namespace))

    def _require(self, holds: bool, path: str, expected: str, found: Json) -> None:
        if self._for_bytes and not holds:
            raise self._malformed(path, expected, found)

    def _malformed(self, path: str, expected: str, found: Json) -> FormatError:
        return FormatError(f"{self._where}, column {path.rstrip('.')}", expected, repr(found)[:80])

    def _unsupported(self, path: str, feature: str) -> UnsupportedFeatureError:
        where = f"{self._where}, column {path.rstrip('.')}"
        return UnsupportedFeatureError(
            feature, where, "read the table with Hudi, or drop the column"
        )


def _column(field: Mapping[str, Json], node: AvroNode) -> pa.Field:
    comment = field.get("doc")
    metadata = {COMMENT: comment} if isinstance(comment, str) and comment else None
    return pa.field(field["name"], node.arrow, node.is_nullable, metadata=metadata)


def _is_field(field: Json) -> bool:
    return isinstance(field, dict) and isinstance(field.get("name"), str) and "type" in field


_BACKING = "FIXED_BYTES"
_KEY = AvroNode(Wire.STRING, pa.string())
