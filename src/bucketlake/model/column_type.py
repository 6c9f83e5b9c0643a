"""Types of columns: the types that a table stores, and the stored type of other Arrow types.

A Hudi table holds the types that Spark, Avro and Parquet share (docs/spec/types.md). Arrow has more
widths, units and layouts. :func:`stored_type` returns the stored type of an Arrow type, or raises
an error that names the column. :func:`bucketlake.model.cast.cast_table` casts the data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.model.arguments import check_integers, check_kinds, check_texts
from bucketlake.model.variant import SPARK_VARIANT, VARIANT, is_variant
from bucketlake.model.vector import is_vector, plain_vector, vector_word

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""An instant; Spark's ``timestamp``."""

TIMESTAMP_NTZ = pa.timestamp("us")
"""A wall-clock time without a zone; Spark's ``timestamp_ntz``."""

DECIMAL_PRECISION_MAX = 38
LIST_ELEMENT = "element"  # Parquet's name for it, and Spark's.
COMMENT = b"comment"  # Key of a column's comment in its field metadata, as Spark spells it.

BLOB = pa.struct(
    [
        pa.field("type", pa.string(), nullable=False),
        pa.field("data", pa.binary()),
        pa.field(
            "reference",
            pa.struct(
                [
                    pa.field("external_path", pa.string(), nullable=False),
                    pa.field("offset", pa.int64()),
                    pa.field("length", pa.int64()),
                    pa.field("managed", pa.bool_(), nullable=False),
                ]
            ),
        ),
    ]
)
"""Hudi's type BLOB: bytes (``INLINE``), or where they are (``OUT_OF_LINE``)."""

BLOB_STORAGE_TYPES = ("INLINE", "OUT_OF_LINE")


def blob(data: bytes) -> dict[str, Any]:
    """Return a value of a column of Hudi's type BLOB that holds its bytes.

    Parameters
    ----------
    data : bytes

    Returns
    -------
    dict
        ``type``, ``data`` and ``reference``, as a row has it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import bucketlake as bl
    >>> schema = "id string, scan blob"
    >>> table = bl.create_table("memory://docs/blobs", schema=schema, record_key="id")
    >>> rows = [{"id": "a", "scan": bl.blob(b"page")}]
    >>> _ = table.upsert(pa.Table.from_pylist(rows, table.schema()))
    >>> bl.read_blob(table.to_arrow()["scan"][0].as_py(), base="memory://docs")
    b'page'
    """
    check_kinds((bytes,), data=data)
    return {"type": BLOB_STORAGE_TYPES[0], "data": data, "reference": None}


def blob_reference(
    path: str, offset: int | None = None, length: int | None = None
) -> dict[str, Any]:
    """Return a value of a column of Hudi's type BLOB that says where its bytes are.

    Nothing is read, copied or deleted there; :func:`read_blob` reads it when you ask.

    Parameters
    ----------
    path : str
        Address of a file.
    offset, length : int, optional
        The part of it, in bytes; by default all of it, or all from ``offset`` on.

    Returns
    -------
    dict
        ``type``, ``data`` and ``reference``, as a row has it. The file is not managed by the table.

    Examples
    --------
    >>> blob_reference("s3://scans/a.pdf", 10, 20)["reference"]
    {'external_path': 's3://scans/a.pdf', 'offset': 10, 'length': 20, 'managed': False}
    """
    check_texts(path=path)
    given = {"offset": offset, "length": length}
    check_integers(0, **{name: number for name, number in given.items() if number is not None})
    place = {"external_path": path, **given, "managed": False}
    return {"type": BLOB_STORAGE_TYPES[1], "data": None, "reference": place}


_STORED_AS: dict[pa.DataType, pa.DataType] = {
    pa.bool_(): pa.bool_(),
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.int32(): pa.int32(),
    pa.int64(): pa.int64(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.float32(): pa.float32(),
    pa.float64(): pa.float64(),
    pa.string(): pa.string(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date32(): pa.date32(),
    pa.date64(): pa.date32(),
    pa.null(): pa.null(),  # Only in a batch: the values are nulls of the table's type.
}

SPARK_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
}
_SPARK_NAMES = {data_type: name for name, data_type in SPARK_TYPES.items()}


def stored_type(data_type: pa.DataType, path: str, where: str) -> pa.DataType:
    """Return the type in which a table stores values of an Arrow type.

    Parameters
    ----------
    data_type : pyarrow.DataType
        Any Arrow type.
    path : str
        The column, for messages: ``a.b`` is a field, ``a[]`` an element, ``a{}`` a map's value.
    where : str
        The table or input, for messages.

    Returns
    -------
    pyarrow.DataType
        The stored type; everything inside it is nullable, except map keys. The null type stays:
        it takes the type of the table's column (:func:`bucketlake.model.evolution.evolve`).

    Raises
    ------
    InputError
        If no stored type holds every value of the type.

    Examples
    --------
    >>> stored_type(pa.list_(pa.uint16()), "sizes", "orders")
    ListType(list<element: int32>)
    """
    if isinstance(data_type, pa.BaseExtensionType):  # Some have no hash.
        stored = stored_type_of_extension(data_type)
        if stored is not None:
            return stored
        storage = data_type.storage_type
        stored_type(storage, path, where)  # Raises, unless the advice works.
        raise refused_type(data_type, path, where, f"cast it to its storage type, {storage}")
    if data_type in _STORED_AS:
        return _STORED_AS[data_type]
    for holds, store in _BY_KIND:
        if holds(data_type):
            return store(data_type, path, where)
    raise refused_type(data_type, path, where, "cast it to a type that Spark and Hudi share")


def is_untyped(data_type: pa.DataType) -> bool:
    """Return whether a type has only nulls, in any encoding."""
    encoded = pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type)
    return bool(pa.types.is_null(data_type.value_type if encoded else data_type))


def untyped_path(data_type: pa.DataType, path: str) -> str | None:
    """Return the path of the first null type in a stored type; None if there is none.

    Examples
    --------
    >>> untyped_path(pa.struct({"a": pa.int32(), "b": pa.list_(pa.null())}), "s")
    's.b[]'
    """
    if pa.types.is_null(data_type):
        return path
    if pa.types.is_struct(data_type):
        inner = [(field.type, f"{path}.{field.name}") for field in data_type]
    elif pa.types.is_map(data_type):
        inner = [(data_type.item_type, f"{path}{{}}")]
    elif is_list(data_type):
        inner = [(data_type.value_type, f"{path}[]")]
    else:
        return None
    return next((found for held in inner if (found := untyped_path(*held)) is not None), None)


def refused_type(data_type: pa.DataType, path: str, where: str, next_step: str) -> InputError:
    """Return the error that a column's type cannot be stored."""
    return InputError(f"{where}, column {path}", f"type {data_type} cannot be stored", next_step)


def type_name(data_type: pa.DataType) -> str:
    """Return Spark SQL's name of a type, for messages; other types have Arrow's name."""
    if pa.types.is_decimal128(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if data_type == BLOB:
        return "blob"
    if is_variant(data_type):
        return "variant"
    if is_vector(data_type):
        return vector_word(data_type).lower()
    if is_list(data_type):
        return f"array<{type_name(data_type.value_type)}>"
    if pa.types.is_map(data_type):
        return f"map<{type_name(data_type.key_type)},{type_name(data_type.item_type)}>"
    if pa.types.is_struct(data_type):
        fields = ",".join(f"{field.name}:{type_name(field.type)}" for field in data_type)
        return f"struct<{fields}>"
    return _SPARK_NAMES.get(data_type, str(data_type))


def is_list(data_type: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's list layouts (a map is not)."""
    return any(is_kind(data_type) for is_kind in _LIST_KINDS)


def is_number_type(data_type: pa.DataType) -> bool:
    """Return whether a type is one of numbers: integers, floats or decimals."""
    kinds = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal
    return any(is_kind(data_type) for is_kind in kinds)


def is_text_type(data_type: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's types of text."""
    return data_type in (pa.string(), pa.large_string(), pa.string_view())


def list_type(element: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """Return the stored list type of an element type."""
    return pa.list_(pa.field(LIST_ELEMENT, element, nullable))


def with_arrays(schema: pa.Schema) -> pa.Schema:
    """Return a schema as Spark has it: vectors are lists of any length, also inside structs."""
    return pa.schema([_with_arrays(field) for field in schema])


def _with_arrays(field: pa.Field) -> pa.Field:
    if is_vector(field.type):
        return field.with_type(list_type(field.type.value_type))
    if is_variant(field.type):
        return field.with_type(SPARK_VARIANT)
    if pa.types.is_struct(field.type):
        return field.with_type(pa.struct([_with_arrays(inner) for inner in field.type]))
    return field


def map_of(value: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """Return the stored map type of a value type; keys are strings, as in Avro."""
    return pa.map_(pa.string(), pa.field("value", value, nullable))


_LIST_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def _stored_decimal(data_type: pa.DataType, path: str, where: str) -> pa.DataType:
    precision, scale = data_type.precision, data_type.scale
    if pa.types.is_decimal256(data_type) or precision > DECIMAL_PRECISION_MAX:
        raise refused_type(
            data_type, path, where, f"cast it to decimal({DECIMAL_PRECISION_MAX}, ...)"
        )
    if not 0 <= scale <= precision:
        raise refused_type(data_type, path, where, "give it a scale between 0 and its precision")
    return pa.decimal128(precision, scale)


def _stored_timestamp(data_type: pa.DataType, _path: str, _where: str) -> pa.DataType:
    return TIMESTAMP_NTZ if data_type.tz is None else TIMESTAMP


def _stored_list(data_type: pa.DataType, path: str, where: str) -> pa.DataType:
    return list_type(stored_type(data_type.value_type, f"{path}[]", where))


def _stored_map(data_type: pa.DataType, path: str, where: str) -> pa.DataType:
    if stored_type(data_type.key_type, f"{path}'s keys", where) != pa.string():
        raise refused_type(
            data_type, path, where, "cast its keys to string, the only keys of Avro maps"
        )
    return map_of(stored_type(data_type.item_type, f"{path}{{}}", where))


def _stored_struct(data_type: pa.DataType, path: str, where: str) -> pa.DataType:
    if data_type.num_fields == 0:
        raise refused_type(data_type, path, where, "leave it out, or give it a field")
    return pa.struct(stored_fields(list(data_type), f"{path}.", where))


def stored_fields(fields: list[pa.Field], prefix: str, where: str) -> list[pa.Field]:
    """Return the fields of a schema or struct with stored types, nullable; check their names.

    A whole column of fixed-size lists of numbers holds vectors; inside others they are lists. Only
    the fields of a blob or a variant stay required, by which it is known.
    """
    # A separator at the end of each line of CSV makes a column without name and values.
    names = [f.name for f in fields if f.name or prefix or not pa.types.is_null(f.type)]
    _check_names(names, prefix, where)
    stored = []
    for field in fields:
        if not prefix and is_vector(field.type):
            kind = plain_vector(field.type)
        elif not prefix and field.type == BLOB:
            kind = BLOB
        elif not prefix and is_variant(field.type):
            kind = VARIANT
        else:
            kind = stored_type(field.type, prefix + field.name, where)
        stored.append(pa.field(field.name, kind, metadata=_comment_alone(field)))
    return stored


def _comment_alone(field: pa.Field) -> dict[bytes, bytes] | None:
    metadata = field.metadata or {}
    return {COMMENT: metadata[COMMENT]} if metadata.get(COMMENT) else None


def _check_names(names: list[str], prefix: str, where: str) -> None:
    """Raise InputError for names that Avro cannot hold, or that Spark cannot distinguish."""
    seen: dict[str, str] = {}
    for name in names:
        if not is_avro_name(name):
            problem = "the name cannot be stored: use letters, digits and _, with no digit first"
            raise InputError(f"{where}, column {prefix}{name}", problem, "rename the column")
        if name.lower() in seen:
            other = seen[name.lower()]
            problem = f"two columns have the same name ({other}, {name}); Spark ignores case"
            raise InputError(f"{where}, column {prefix}{name}", problem, "rename one of them")
        seen[name.lower()] = name


@lru_cache(maxsize=4096)  # Each file that is opened asks for the names of the table's columns.
def is_avro_name(name: str) -> bool:
    """Return whether Hudi's Avro accepts a name: letters and digits below U+10000, and ``_``.

    Measured on Hudi 1.2.0: it accepts ``é`` and ``日本``, but not ``a-b``, ``a b``, ``1a``, ``a²``.
    """
    letters_and_digits = all(
        c == "_" or (ord(c) <= _AVRO_LAST_CODE_POINT and (c.isalpha() or c.isdecimal()))
        for c in name
    )
    return bool(name) and letters_and_digits and not name[0].isdecimal()


_AVRO_LAST_CODE_POINT = 0xFFFF  # Java checks UTF-16 units, and a surrogate is not a letter.

_Store = Callable[[pa.DataType, str, str], pa.DataType]

_BY_KIND: tuple[tuple[Callable[[pa.DataType], bool], _Store], ...] = (
    (pa.types.is_decimal, _stored_decimal),
    (pa.types.is_timestamp, _stored_timestamp),
    (is_list, _stored_list),
    (pa.types.is_map, _stored_map),
    (pa.types.is_struct, _stored_struct),
    (pa.types.is_fixed_size_binary, lambda *_: pa.binary()),
    (pa.types.is_dictionary, lambda t, path, where: stored_type(t.value_type, path, where)),
    (pa.types.is_run_end_encoded, lambda t, path, where: stored_type(t.value_type, path, where)),
)


# ---- Arrow extension types: those with a stored type, and their values in it ---------------------
#
# docs/spec/types.md lists them. Other extension types are refused, at the creation of a table and
# at each write, because their storage alone does not tell what the values mean.

_DASHES_AT = (8, 13, 18, 23)

_UUID_BYTES, _UUID_CHARACTERS = 16, 36

_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def stored_type_of_extension(data_type: pa.BaseExtensionType) -> pa.DataType | None:
    """Return the type that stores values of an extension type; None if the type is refused.

    Examples
    --------
    >>> stored_type_of_extension(pa.uuid()), stored_type_of_extension(pa.bool8())
    (DataType(string), DataType(bool))
    """
    if isinstance(data_type, pa.UuidType | pa.JsonType):
        return pa.string()
    return pa.bool_() if isinstance(data_type, pa.Bool8Type) else None


def plain_values(array: pa.ExtensionArray) -> pa.Array:
    """Return the values of an extension type that has a stored type, without the extension."""
    if isinstance(array.type, pa.UuidType):
        return _uuid_texts(array.storage)
    return pc.not_equal(array.storage, 0) if isinstance(array.type, pa.Bool8Type) else array.storage


def _uuid_texts(values: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return UUIDs as text of 36 characters, as Java and Python write them."""
    filled = values.fill_null(b"\0" * _UUID_BYTES)
    start = filled.offset * _UUID_BYTES
    data = np.frombuffer(filled.buffers()[1], np.uint8, len(filled) * _UUID_BYTES, start)
    digits = np.stack([_HEX_DIGITS[data >> 4], _HEX_DIGITS[data & 15]], axis=1)
    texts = np.full((len(filled), _UUID_CHARACTERS), ord("-"), np.uint8)
    is_digit = np.ones(_UUID_CHARACTERS, np.bool_)
    is_digit[list(_DASHES_AT)] = False
    texts[:, is_digit] = digits.reshape(len(filled), 2 * _UUID_BYTES)
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(_UUID_CHARACTERS), len(filled), [None, pa.py_buffer(texts.tobytes())]
    )
    return pc.if_else(values.is_valid(), fixed.cast(pa.binary()).cast(pa.string()), None)
