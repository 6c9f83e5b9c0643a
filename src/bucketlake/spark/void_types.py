"""Columns of the void type, ``F.lit(None)`` and what contains it, which no Parquet file can hold.

A copy of such a column has texts in their place, all null; read again, they are nulls of the void
type.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions, types

from bucketlake.model.names import quoted


def without_voids(df: DataFrame) -> DataFrame:
    """Return a DataFrame with texts in place of voids; the same one if it has none."""
    kept = stored_schema(df.schema)
    if kept == df.schema:
        return df
    return df.select([df[quoted([f.name])].cast(f.dataType) for f in kept.fields])


def with_voids(df: DataFrame, schema: types.StructType) -> DataFrame:
    """Return a DataFrame of :func:`without_voids` in the schema that it had before."""
    if df.schema == schema:
        return df
    columns = ((f.name, _with_voids(df[quoted([f.name])], f.dataType)) for f in schema.fields)
    return df.select([column.alias(name) for name, column in columns])


def stored_schema(given: types.StructType) -> types.StructType:
    """Return a schema with texts in place of voids.

    >>> given = types.StructType().add("a", types.ArrayType(types.NullType()))
    >>> stored_schema(given).simpleString()
    'struct<a:array<string>>'
    """
    fields = [types.StructField(f.name, _stored(f.dataType), f.nullable) for f in given.fields]
    return types.StructType(fields)


def _stored(given: types.DataType) -> types.DataType:
    if isinstance(given, types.NullType):
        return types.StringType()
    if isinstance(given, types.ArrayType):
        return types.ArrayType(_stored(given.elementType), given.containsNull)
    if isinstance(given, types.MapType):
        key, value = _stored(given.keyType), _stored(given.valueType)
        return types.MapType(key, value, given.valueContainsNull)
    if isinstance(given, types.StructType):
        return stored_schema(given)
    return given


def _with_voids(stored: Column, given: types.DataType) -> Column:
    """Return a stored column in the given type, with nulls in place of the texts."""
    if _stored(given) == given:
        return stored
    if isinstance(given, types.ArrayType):
        return functions.transform(stored, lambda held: _with_voids(held, given.elementType))
    if isinstance(given, types.StructType):
        fields = [_with_voids(stored[f.name], f.dataType).alias(f.name) for f in given.fields]
        return functions.when(stored.isNotNull(), functions.struct(*fields))
    if isinstance(given, types.MapType):
        if isinstance(given.keyType, types.NullType):  # No key is null, so it has no entries.
            return functions.when(stored.isNotNull(), functions.create_map())
        return functions.transform_values(
            stored, lambda _, held: _with_voids(held, given.valueType)
        )
    return functions.lit(None)
