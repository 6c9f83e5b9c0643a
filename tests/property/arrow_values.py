"""Strategies for table schemas and their data: every stored type, nested, with nulls everywhere."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ, list_type, map_of

Values = st.SearchStrategy[Any]

FIRST_DAY, LAST_DAY = dt.date.min, dt.date.max
EPOCH = dt.datetime(1970, 1, 1)
FIRST_TIME, LAST_TIME = dt.datetime.min, dt.datetime.max
BEFORE_1582 = dt.datetime(1582, 10, 10, 1, 2, 3, 4)

_SCALARS: dict[pa.DataType, Values] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats() | st.sampled_from([math.nan, -0.0, math.inf, 5e-324]),
    pa.string(): st.text(max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.dates() | st.sampled_from([FIRST_DAY, LAST_DAY, BEFORE_1582.date()]),
    TIMESTAMP: st.datetimes(timezones=st.just(dt.UTC)),
    TIMESTAMP_NTZ: st.datetimes() | st.sampled_from([FIRST_TIME, LAST_TIME, BEFORE_1582]),
}


def scalar_types() -> st.SearchStrategy[pa.DataType]:
    """Types without children, decimals of every precision and scale among them."""
    decimals = st.integers(1, 38).flatmap(
        lambda precision: st.integers(0, precision).map(lambda s: pa.decimal128(precision, s))
    )
    return st.sampled_from(list(_SCALARS)) | decimals


def stored_types(*, required: bool = False) -> st.SearchStrategy[pa.DataType]:
    """Stored types, nested up to three deep; children are nullable unless ``required``."""
    nullable = st.booleans() if required else st.just(True)

    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        lists = st.builds(lambda t, n: list_type(t, nullable=n), inner, nullable)
        maps = st.builds(lambda t, n: map_of(t, nullable=n), inner, nullable)
        return lists | maps | st.lists(fields(inner, nullable), min_size=1, max_size=3).map(_struct)

    return st.recursive(scalar_types(), nested, max_leaves=4)


def fields(
    types: st.SearchStrategy[pa.DataType], nullable: st.SearchStrategy[bool]
) -> st.SearchStrategy[tuple[pa.DataType, bool]]:
    """Types of fields, and whether they are nullable; the names follow from the places."""
    return st.tuples(types, nullable)


def _struct(children: list[tuple[pa.DataType, bool]]) -> pa.DataType:
    return pa.struct(_named(children))


def _named(children: list[tuple[pa.DataType, bool]]) -> list[pa.Field]:
    return [pa.field(f"f{i}", kind, nullable) for i, (kind, nullable) in enumerate(children)]


def schemas(*, required: bool = False) -> st.SearchStrategy[pa.Schema]:
    """Table schemas of one to four columns."""
    nullable = st.booleans() if required else st.just(True)
    columns = st.lists(fields(stored_types(required=required), nullable), min_size=1, max_size=4)
    return columns.map(_named).map(pa.schema)


def values(data_type: pa.DataType, *, nullable: bool = True) -> Values:
    """Python values of a type."""
    given = _present(data_type)
    return st.none() | given if nullable else given


def _present(data_type: pa.DataType) -> Values:
    if data_type in _SCALARS:
        return _SCALARS[data_type]
    if pa.types.is_decimal128(data_type):
        limit = 10**data_type.precision - 1
        unscaled = st.integers(-limit, limit) | st.sampled_from([limit, -limit])
        return unscaled.map(lambda n: _decimal(n, data_type.scale))
    if pa.types.is_list(data_type):
        element = data_type.value_field
        return st.lists(values(element.type, nullable=element.nullable), max_size=3)
    if pa.types.is_map(data_type):
        value = values(data_type.item_type, nullable=data_type.item_field.nullable)
        return st.dictionaries(st.text(max_size=2), value, max_size=3).map(
            lambda pairs: list(pairs.items())
        )
    return st.fixed_dictionaries(
        {field.name: values(field.type, nullable=field.nullable) for field in data_type}
    )


def _decimal(unscaled: int, scale: int) -> Decimal:
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -scale))


def tables(
    of_schemas: Callable[[], st.SearchStrategy[pa.Schema]] = schemas, *, max_rows: int = 6
) -> st.SearchStrategy[pa.Table]:
    """Tables, each cut into chunks anywhere."""
    return of_schemas().flatmap(lambda schema: _tables_of(schema, max_rows))


def _tables_of(schema: pa.Schema, max_rows: int) -> st.SearchStrategy[pa.Table]:
    rows = st.fixed_dictionaries(
        {field.name: values(field.type, nullable=field.nullable) for field in schema}
    )
    chunks = st.lists(st.lists(rows, max_size=max_rows), min_size=1, max_size=3)
    return chunks.map(
        lambda parts: pa.concat_tables(pa.Table.from_pylist(p, schema=schema) for p in parts)
    )
