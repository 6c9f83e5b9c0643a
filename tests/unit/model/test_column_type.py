"""Which types a table stores, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from bucketlake.model.column_type import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    is_avro_name,
    list_type,
    map_of,
    stored_type,
    type_name,
)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.int8(), pa.int32()),
        (pa.int16(), pa.int32()),
        (pa.uint8(), pa.int32()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("s"), TIMESTAMP_NTZ),
        (pa.timestamp("ms", "Europe/Berlin"), TIMESTAMP),
        (pa.timestamp("ns", "UTC"), TIMESTAMP),
        (pa.decimal128(38, 38), pa.decimal128(38, 38)),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.run_end_encoded(pa.int32(), pa.int16()), pa.int32()),
        (pa.large_list(pa.int8()), list_type(pa.int32())),
        (pa.list_(pa.int8(), 3), list_type(pa.int32())),
        (pa.list_view(pa.int8()), list_type(pa.int32())),
        (pa.map_(pa.large_string(), pa.int8()), map_of(pa.int32())),
        (pa.struct({"a": pa.int8()}), pa.struct({"a": pa.int32()})),
    ],
    ids=str,
)
def test_type_of_arrow_has_its_stored_type(given: pa.DataType, stored: pa.DataType) -> None:
    assert stored_type(given, "c", "orders").equals(stored)
    assert stored_type(stored, "c", "orders").equals(stored)


def test_children_of_stored_types_are_nullable_and_named_as_parquet_names_them() -> None:
    element = pa.field("item", pa.map_(pa.string(), pa.field("v", pa.int32(), False)), False)
    stored = stored_type(pa.list_(element), "c", "orders")
    assert stored.value_field.name == "element"
    assert stored.value_field.nullable
    assert stored.value_type.item_field.name == "value"
    assert stored.value_type.item_field.nullable
    struct = stored_type(pa.struct([pa.field("a", pa.int32(), False)]), "c", "orders")
    assert struct.field("a").nullable


@pytest.mark.parametrize(
    ("given", "path", "part"),
    [
        (pa.uint64(), "c", "uint64"),
        (pa.time32("s"), "c", "time32"),
        (pa.time64("us"), "c", "time64"),
        (pa.duration("us"), "c", "duration"),
        (pa.month_day_nano_interval(), "c", "interval"),
        (pa.dense_union([pa.field("a", pa.int32())]), "c", "union"),
        (pa.decimal256(50, 2), "c", "decimal256"),
        (pa.decimal256(10, 2), "c", "decimal256"),
        (pa.decimal128(10, -2), "c", "-2"),
        (pa.decimal128(5, 7), "c", "(5, 7)"),
        (pa.opaque(pa.int64(), "x", "y"), "c", "arrow.opaque"),
        (pa.map_(pa.int32(), pa.int32()), "c", "map<int32"),
        (pa.map_(pa.string(), pa.uint64()), "c{}", "uint64"),
        (pa.list_(pa.list_(pa.uint64())), "c[][]", "uint64"),
        (pa.struct({"a": pa.list_(pa.struct({"b": pa.duration("s")}))}), "c.a[].b", "duration"),
        (pa.struct([]), "c", "struct<>"),
    ],
    ids=str,
)
def test_type_that_cannot_be_stored_is_refused_with_its_path(
    given: pa.DataType, path: str, part: str
) -> None:
    with pytest.raises(InputError) as caught:
        stored_type(given, "c", "orders")
    assert caught.value.where == f"orders, column {path}"
    assert part in caught.value.problem
    assert caught.value.next_step


def test_extension_type_of_a_user_is_refused_although_it_has_no_hash() -> None:
    class Point(pa.ExtensionType):
        def __init__(self) -> None:
            super().__init__(pa.string(), "geo.point")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, _type: pa.DataType, _text: bytes) -> Point:
            return cls()

    with pytest.raises(InputError, match=r"column c\[\]: .*geo.point.*cast it to .*string"):
        stored_type(pa.list_(Point()), "c", "orders")


@pytest.mark.parametrize("name", ["a", "_a", "A1", "é", "日本", "a٣", "_"])
def test_name_of_letters_and_digits_is_taken_as_hudi_takes_it(name: str) -> None:
    assert is_avro_name(name)


@pytest.mark.parametrize("name", ["", "a-b", "a b", "a.b", "1a", "٣a", "a²", "a\n", "𝒜", "🙂"])
def test_name_that_hudi_refuses_is_refused(name: str) -> None:
    assert not is_avro_name(name)


def test_type_names_are_those_of_spark() -> None:
    nested = pa.struct({"a": list_type(pa.decimal128(10, 2)), "b": map_of(TIMESTAMP_NTZ)})
    expected = "struct<a:array<decimal(10,2)>,b:map<string,timestamp_ntz>>"
    assert type_name(nested) == expected
    assert type_name(pa.int64()) == "bigint"
    assert type_name(pa.uint64()) == "uint64"
