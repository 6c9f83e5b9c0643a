"""For all types and data: Avro undoes Arrow, reading undoes writing, casts equal a row oracle."""

from __future__ import annotations

import math
import struct
import warnings
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import NullElementWarning
from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.format.avro.tree import arrow_from_avro
from bucketlake.format.base_file import BaseFileReader, encode_base_file
from bucketlake.format.key_range import key_range
from bucketlake.model.arrays import columns_with_null_elements
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import list_type, map_of
from bucketlake.model.evolution import evolve
from bucketlake.model.schema import META_NAMES, normalise_schema
from bucketlake.storage.memory import MemoryStorage
from tests.meta_columns import meta_columns
from tests.property.arrow_values import schemas, tables, values

INSTANT = "20260101000000000"


@given(schema=schemas(required=True))
def test_avro_schema_read_back_is_the_arrow_schema(schema: pa.Schema) -> None:
    text = avro_from_arrow(schema, "orders")
    assert arrow_from_avro(text).equals(schema)
    assert avro_from_arrow(arrow_from_avro(text), "orders") == text


@given(schema=schemas())
def test_schema_of_stored_types_is_normal_already(schema: pa.Schema) -> None:
    assert normalise_schema(schema, "orders").equals(schema)
    assert evolve(schema, schema).equals(schema)


def with_meta_columns(data: pa.Table, first_row: int = 0) -> pa.Table:
    keys = pa.array([f"k{row}" for row in range(first_row, first_row + data.num_rows)], pa.string())
    meta = meta_columns(INSTANT, 0, keys, "p", "f.parquet", first_row=first_row)
    return pa.table({**meta, **dict(zip(data.column_names, data.columns, strict=True))})


def encoded(parts: list[pa.Table], schema: pa.Schema) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NullElementWarning)
        return bytes(encode_base_file(parts, schema).data)


@given(data=tables(lambda: schemas(required=True)))
def test_base_file_gives_the_rows_that_were_written(data: pa.Table) -> None:
    storage = MemoryStorage("property-types")
    storage.put("f.parquet", encoded([with_meta_columns(data)], data.schema))
    with BaseFileReader(storage, "f.parquet") as reader:
        read = reader.read()
    assert read.column_names == [*META_NAMES, *data.schema.names]
    assert repr(cast_table(read.select(data.column_names), data.schema).to_pylist()) == repr(
        data.to_pylist()
    )


@given(data=tables(max_rows=12), cut=st.integers(0, 12))
def test_base_file_bytes_do_not_show_how_rows_were_cut(data: pa.Table, cut: int) -> None:
    whole = with_meta_columns(data.combine_chunks())
    parts = [
        with_meta_columns(data.slice(0, cut)),
        with_meta_columns(data.slice(cut), first_row=min(cut, data.num_rows)),
    ]
    assert encoded(parts, data.schema) == encoded([whole], data.schema)


@given(data=tables())
def test_null_elements_are_found_where_a_row_has_one(data: pa.Table) -> None:
    found = columns_with_null_elements(data)
    expected = {
        path
        for field in data.schema
        for value in data[field.name].to_pylist()
        for path in null_element_paths(value, field.type, field.name)
    }
    assert set(found) == expected
    assert len(found) == len(expected)


def null_element_paths(value: Any, data_type: pa.DataType, path: str) -> set[str]:
    """Row oracle of ``columns_with_null_elements``."""
    if value is None:
        return set()
    if pa.types.is_list(data_type):
        own = {path} if None in value else set()
        inner = (null_element_paths(v, data_type.value_type, f"{path}[]") for v in value)
        return own.union(*inner)
    if pa.types.is_map(data_type):
        inner = (null_element_paths(v, data_type.item_type, f"{path}{{}}") for _, v in value)
        return set().union(*inner)
    if pa.types.is_struct(data_type):
        inner = (null_element_paths(value[f.name], f.type, f"{path}.{f.name}") for f in data_type)
        return set().union(*inner)
    return set()


WIDER = {
    pa.int32(): [pa.int64(), pa.float64(), pa.decimal128(38, 8), pa.float32(), pa.string()],
    pa.int64(): [pa.float64(), pa.decimal128(38, 8), pa.string()],
    pa.float32(): [pa.float64()],
    pa.string(): [pa.binary()],
}


def wider_types(data_type: pa.DataType) -> st.SearchStrategy[pa.DataType]:
    """Types that hold every value of a type: what older files are read as."""
    if pa.types.is_list(data_type):
        return wider_types(data_type.value_type).map(list_type)
    if pa.types.is_map(data_type):
        return wider_types(data_type.item_type).map(map_of)
    if pa.types.is_struct(data_type):
        return wider_fields(list(data_type)).map(pa.struct)
    if pa.types.is_decimal128(data_type):
        room = 38 - data_type.precision
        return st.tuples(st.integers(0, room), st.integers(0, room)).map(
            lambda more: pa.decimal128(data_type.precision + max(more), data_type.scale + min(more))
        )
    return st.sampled_from([data_type, *WIDER.get(data_type, [])])


def wider_fields(fields: list[pa.Field]) -> st.SearchStrategy[list[pa.Field]]:
    """Wider fields in another order, among new ones."""
    wider = st.tuples(*(wider_types(f.type).map(f.with_type) for f in fields))
    return wider.flatmap(
        lambda known: st.permutations([*known, pa.field("new", list_type(pa.int32()))])
    )


@given(data=tables(), more=st.data())
def test_cast_of_columns_equals_cast_of_rows(data: pa.Table, more: st.DataObject) -> None:
    target = pa.schema(more.draw(wider_fields(list(data.schema))))
    cast = cast_table(data, target)
    assert cast.schema.equals(target)
    cast.validate(full=True)
    expected = [cast_row(row, list(data.schema), list(target)) for row in data.to_pylist()]
    assert repr(cast.to_pylist()) == repr(expected)


def cast_row(row: dict[str, Any], fields: list[pa.Field], target: list[pa.Field]) -> dict[str, Any]:
    """Row oracle of ``cast_table``."""
    types = {field.name: field.type for field in fields}
    return {
        field.name: cast_value(row[field.name], types[field.name], field.type)
        if field.name in types
        else None
        for field in target
    }


def cast_value(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """One value of the row oracle."""
    if value is None or source == target:
        return value
    if pa.types.is_list(source):
        return [cast_value(v, source.value_type, target.value_type) for v in value]
    if pa.types.is_map(source):
        return [(k, cast_value(v, source.item_type, target.item_type)) for k, v in value]
    if pa.types.is_struct(source):
        return cast_row(value, list(source), list(target))
    if pa.types.is_decimal128(target):
        return rescaled(Decimal(value), target.scale)
    if target == pa.float64():
        return shortest(value) if source == pa.float32() else float(value)
    if target == pa.float32():
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    if target == pa.string():
        return str(value)
    if target == pa.binary():
        return value.encode()
    return value


def rescaled(value: Decimal, scale: int) -> Decimal:
    """Give a decimal more digits after its point, in integers: no context rounds them."""
    sign, digits, exponent = value.as_tuple()
    return Decimal((sign, (*digits, *[0] * (scale + exponent)), -scale))


def shortest(value: float) -> float:
    """Return the double with the fewest decimal digits that name a float."""
    if math.isnan(value) or math.isinf(value):
        return value
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if struct.pack("f", float(text)) == struct.pack("f", value):
            return float(text)
    raise AssertionError(value)


@given(keys=st.lists(st.text()))
def test_key_range_is_that_of_java_strings(keys: list[str]) -> None:
    ordered = sorted(keys, key=lambda key: key.encode("utf-16-be"))
    expected = (ordered[0], ordered[-1]) if keys else None
    assert key_range(pa.array(keys, pa.string())) == expected
    padded = pa.array(["\U0001f600", *keys, "\uffff"], pa.string())
    assert key_range(padded.slice(1, len(keys))) == expected


@given(value=values(pa.float64(), nullable=False))
def test_floating_text_reads_back_as_the_number(value: float) -> None:
    (text,) = cast_table(pa.table({"x": [value]}), pa.schema({"x": pa.string()}))["x"].to_pylist()
    assert repr(float(text)) == repr(value)
