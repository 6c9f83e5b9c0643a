"""Conversion between Spark schemas and Arrow schemas, with the public type classes of both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkValueError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- the name that PySpark's users know.
from pyspark.sql import types as T  # noqa: N812 -- the name that PySpark's users know.

from bucketlake.errors import InputError
from bucketlake.model.column_type import BLOB
from bucketlake.model.field_path import steps_of
from bucketlake.model.names import quoted
from bucketlake.model.schema import NONE_LACKS, SOME_LACK
from bucketlake.model.variant import SPARK_VARIANT, VARIANT, is_variant
from bucketlake.model.vector import is_vector, vector_of_word, vector_word

HUDI_TYPE = "hudi_type"
"""Key of a column's metadata that names its type, as Hudi's Spark source has it."""

_DECLARED_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_LIMITED = re.compile(r"\b(var)?char\(\d+\)")

_SIMPLE: dict[type[T.DataType], pa.DataType] = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.CharType: pa.string(),
    T.VarcharType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
    T.NullType: pa.null(),
}
_VARIANT: type[T.DataType] | None = getattr(T, "VariantType", None)  # PySpark 3.5 has none.
VARIANT_VALUE: Any = getattr(T, "VariantVal", None)


def schema_of(df: DataFrame) -> T.StructType:
    """Return the schema of a DataFrame; raise InputError if PySpark cannot return it."""
    try:
        return df.schema
    except PySparkValueError as error:  # PySpark 3.5 has no type for calendar intervals.
        raise InputError(
            "the DataFrame",
            f"it has a column of a type that cannot be stored in a table: {error}",
            "cast or drop the column",
        ) from error


def arrow_from_spark(schema: T.StructType) -> pa.Schema:
    """Return the Arrow schema of a DataFrame's schema; timestamps with zone are in UTC.

    Raises
    ------
    InputError
        If a column has a type that tables cannot store, such as an interval.
    """
    fields = [(_arrow_field(field, field.name), field.metadata) for field in schema.fields]
    told = {each[b"lacks"].decode(): each for each in (NONE_LACKS, SOME_LACK)}
    return pa.schema([f.with_metadata(told.get(str(held.get("lacks")))) for f, held in fields])


def with_declared_types(schema: T.StructType) -> pa.Schema:
    """Return the Arrow schema of a new table, with the types that Hudi's metadata name."""
    words = [str(field.metadata.get(HUDI_TYPE, "")) for field in schema.fields]
    kinds = [_TOLD.get(word) or vector_of_word(word) for word in words]
    found = zip(arrow_from_spark(schema), kinds, strict=True)
    return pa.schema([field if kind is None else field.with_type(kind) for field, kind in found])


_TOLD = {"BLOB": BLOB, "VARIANT": VARIANT}


def limited_texts(schema: T.StructType) -> list[tuple[str, str]]:
    """Return the columns with a ``char`` or ``varchar``, and their types.

    Spark gives a DataFrame such columns as strings, with the declared type in their metadata.
    """
    found = []
    for field in schema.fields:
        declared = field.metadata.get(_DECLARED_TYPE, field.dataType.simpleString())
        if _LIMITED.search(declared):
            found.append((field.name, declared))
    return found


def spark_from_arrow(schema: pa.Schema) -> T.StructType:
    """Return the DataFrame schema of a table's schema; vectors are arrays.

    Metadata name the types that only Hudi has, as its Spark source wants them.
    """
    return T.StructType(
        [T.StructField(f.name, spark_type(f.type), f.nullable, _told(f.type)) for f in schema]
    )


def _told(data_type: pa.DataType) -> dict[str, str] | None:
    if is_vector(data_type):
        return {HUDI_TYPE: vector_word(data_type)}
    if is_variant(data_type):
        return None if _VARIANT else {HUDI_TYPE: "VARIANT"}
    return {HUDI_TYPE: "BLOB"} if data_type == BLOB else None


def spark_columns(paths: Sequence[str], names: Sequence[str]) -> list[Column]:
    """Return the values at paths as columns; the name of each column is its path.

    Parameters
    ----------
    paths : sequence of str
        Paths, see ``model/field_path.py``.
    names : sequence of str
        The columns of the DataFrame.
    """
    held = frozenset(names)
    return [F.col(quoted(steps_of(path, held))).alias(path) for path in paths]


def columns_named(names: Iterable[str]) -> list[Column]:
    """Return whole columns by their names, which may hold dots and quotes."""
    return [F.col(quoted([name])) for name in names]


def nested_columns(paths: Sequence[str], names: Sequence[str]) -> list[Column]:
    """Return the values at paths as columns and structs with only these fields.

    PySpark cannot send a column with a dot in its name to a Python task.

    Parameters
    ----------
    paths : sequence of str
        Paths, see ``model/field_path.py``.
    names : sequence of str
        The columns of the DataFrame; one of them may be a whole path.
    """
    tree: _Tree = {}
    held = frozenset(names)
    for path in paths:
        *parents, leaf = path.split(".")
        node = tree
        for step in parents:
            inner = node.setdefault(step, {})
            assert isinstance(inner, dict), f"{path} is in a column that has no fields"
            node = inner
        node[leaf] = F.col(quoted(steps_of(path, held)))
    return _built(tree)


_Tree: TypeAlias = "dict[str, Column | _Tree]"


def _built(tree: _Tree) -> list[Column]:
    return [
        (F.struct(*_built(held)) if isinstance(held, dict) else held).alias(name)
        for name, held in tree.items()
    ]


def _arrow_field(field: T.StructField, path: str) -> pa.Field:
    return _nullable_if_null(field.name, _arrow_type(field.dataType, path), field.nullable)


def _nullable_if_null(name: str, data_type: pa.DataType, nullable: bool) -> pa.Field:
    """Return a field; Spark's elements of an empty array have the null type and no nulls."""
    return pa.field(name, data_type, nullable or pa.types.is_null(data_type))


def _arrow_type(spark_type: T.DataType, path: str) -> pa.DataType:
    if isinstance(spark_type, T.DecimalType):
        return pa.decimal128(spark_type.precision, spark_type.scale)
    if isinstance(spark_type, T.StructType):
        return pa.struct([_arrow_field(f, f"{path}.{f.name}") for f in spark_type.fields])
    if isinstance(spark_type, T.ArrayType):
        element = _arrow_type(spark_type.elementType, f"{path}[]")
        return pa.list_(_nullable_if_null("element", element, spark_type.containsNull))
    if isinstance(spark_type, T.MapType):
        value = _arrow_type(spark_type.valueType, f"{path}[]")
        keys = _arrow_type(spark_type.keyType, f"{path}.key")
        return pa.map_(
            pa.string() if pa.types.is_null(keys) else keys,  # Arrow has no null type for keys.
            _nullable_if_null("value", value, spark_type.valueContainsNull),
        )
    if type(spark_type) is _VARIANT and not any(mark in path for mark in ".["):
        return SPARK_VARIANT
    if type(spark_type) not in _SIMPLE:
        raise InputError(
            f"column {path!r}",
            f"type {spark_type.simpleString()} cannot be stored in a table",
            "cast or drop the column",
        )
    return _SIMPLE[type(spark_type)]


def spark_type(arrow_type: pa.DataType) -> T.DataType:
    """Return the type in Spark of a column of a table."""
    if pa.types.is_decimal(arrow_type):
        return T.DecimalType(arrow_type.precision, arrow_type.scale)
    if is_variant(arrow_type) and _VARIANT:
        return _VARIANT()
    if pa.types.is_struct(arrow_type):
        return T.StructType(
            [T.StructField(f.name, spark_type(f.type), f.nullable) for f in arrow_type]
        )
    if pa.types.is_map(arrow_type):
        return T.MapType(
            spark_type(arrow_type.key_type),
            spark_type(arrow_type.item_type),
            arrow_type.item_field.nullable,
        )
    if is_vector(arrow_type):
        return T.ArrayType(spark_type(arrow_type.value_type), containsNull=False)
    if pa.types.is_list(arrow_type):
        return T.ArrayType(spark_type(arrow_type.value_type), arrow_type.value_field.nullable)
    if pa.types.is_timestamp(arrow_type):
        return T.TimestampType() if arrow_type.tz else T.TimestampNTZType()
    for spark_class, known in _SIMPLE.items():
        if known == arrow_type:
            return spark_class()
    raise AssertionError(f"a table schema holds {arrow_type}")


# ---- Values assigned to columns (see model/cast.py) ----------------------------------------------

_EXACT_MAX = 2**53  # Larger doubles may have lost digits.


def single(text: str) -> Column:
    """Return an expression that gives one value a row: inside another one, Spark refuses others."""
    return F.coalesce(F.expr(text))


def assigned_column(value: Column, held: pa.DataType, to: pa.DataType) -> Column:
    """Return numbers rounded to the digits of a column; other values as they are."""
    is_exact = pa.types.is_integer(held) or pa.types.is_decimal128(held)
    if pa.types.is_floating(to) and is_exact:
        return value.cast(spark_type(to))
    if pa.types.is_decimal128(to) and pa.types.is_floating(held):
        return F.round(value.cast("double"), to.scale)
    if pa.types.is_decimal128(to) and pa.types.is_decimal128(held) and held.scale > to.scale:
        return F.round(value, to.scale)
    return value


def exactly(value: Column, held: pa.DataType, to: pa.DataType) -> tuple[Column, Column | None]:
    """Return an assigned value in the exact type of a column, and its text where it is unfit.

    Spark makes doubles of all values of a CASE of which one is a double.
    """
    fits: Column | None = None
    if pa.types.is_floating(held) and pa.types.is_integer(to):
        fits = (F.abs(value) <= _EXACT_MAX) & (value == F.rint(value))
    elif pa.types.is_floating(held) and pa.types.is_decimal128(to):
        fits = F.abs(value) < float(10 ** (to.precision - to.scale))
    if fits is None:
        return value, None
    exact = pa.int64() if pa.types.is_integer(to) else pa.decimal128(38, to.scale)
    found = F.when(fits, value.cast(spark_type(exact)))
    return found, F.when(value.isNotNull() & ~fits, value.cast("string"))
