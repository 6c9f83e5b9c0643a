"""Columns of the void type, ``F.lit(None)`` and what contains it, which no Parquet file can hold.

A copy of such a column has texts in their place, all null; read again, they are nulls of the void
type.
"""

from __future__ import annotations

from pyspark.sql import Column, functions, types


def stored_schema(given: types.StructType) -> types.StructType:
    """Return a schema with texts in place of voids."""
    fields = [types.StructField(f.name, stored_type(f.dataType), f.nullable) for f in given.fields]
    return types.StructType(fields)


def stored_type(given: types.DataType) -> types.DataType:
    """Return a type with texts in place of voids.

    >>> stored_type(types.ArrayType(types.NullType())).simpleString()
    'array<string>'
    """
    if isinstance(given, types.NullType):
        return types.StringType()
    if isinstance(given, types.ArrayType):
        return types.ArrayType(stored_type(given.elementType), given.containsNull)
    if isinstance(given, types.MapType):
        key, value = stored_type(given.keyType), stored_type(given.valueType)
        return types.MapType(key, value, given.valueContainsNull)
    if isinstance(given, types.StructType):
        return stored_schema(given)
    return given


def with_voids(stored: Column, given: types.DataType) -> Column:
    """Return a stored column in the given type, with nulls in place of the texts."""
    if stored_type(given) == given:
        return stored
    if isinstance(given, types.ArrayType):
        return functions.transform(stored, lambda held: with_voids(held, given.elementType))
    if isinstance(given, types.StructType):
        fields = [with_voids(stored[f.name], f.dataType).alias(f.name) for f in given.fields]
        return functions.when(stored.isNotNull(), functions.struct(*fields))
    if isinstance(given, types.MapType):
        if isinstance(given.keyType, types.NullType):  # No key is null, so it has no entries.
            return functions.when(stored.isNotNull(), functions.create_map())
        return functions.transform_values(stored, lambda _, held: with_voids(held, given.valueType))
    return functions.lit(None)
