"""Columns of the void type, ``F.lit(None)`` and what contains it, which no Parquet file can hold.

A copy of such a column has texts in their place, all null; read again, they are nulls of the void
type.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T


def stored_type(given: T.DataType) -> T.DataType:
    """Return a type with texts in place of voids.

    >>> stored_type(T.ArrayType(T.NullType())).simpleString()
    'array<string>'
    """
    if isinstance(given, T.NullType):
        return T.StringType()
    if isinstance(given, T.ArrayType):
        return T.ArrayType(stored_type(given.elementType), given.containsNull)
    if isinstance(given, T.MapType):
        key, value = stored_type(given.keyType), stored_type(given.valueType)
        return T.MapType(key, value, given.valueContainsNull)
    if isinstance(given, T.StructType):
        return T.StructType(
            [T.StructField(f.name, stored_type(f.dataType), f.nullable) for f in given.fields]
        )
    return given


def with_voids(stored: Column, given: T.DataType) -> Column:
    """Return a stored column in the given type, with nulls in place of the texts."""
    if stored_type(given) == given:
        return stored
    if isinstance(given, T.ArrayType):
        return F.transform(stored, lambda held: with_voids(held, given.elementType))
    if isinstance(given, T.StructType):
        fields = [with_voids(stored[f.name], f.dataType).alias(f.name) for f in given.fields]
        return F.when(stored.isNotNull(), F.struct(*fields))
    if isinstance(given, T.MapType):
        if isinstance(given.keyType, T.NullType):  # No key is null, so it has no entries.
            return F.when(stored.isNotNull(), F.create_map())
        return F.transform_values(stored, lambda _, held: with_voids(held, given.valueType))
    return F.lit(None)
