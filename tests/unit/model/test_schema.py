"""Table schemas and their meta columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from bucketlake.model.schema import META_NAMES, normalise_schema, with_meta, without_meta

SCHEMA = pa.schema({"id": pa.string(), "n": pa.int64()})


def test_meta_columns_come_first_and_go_again() -> None:
    full = with_meta(SCHEMA)
    assert full.names == [*META_NAMES, "id", "n"]
    assert with_meta(full).equals(full)
    assert without_meta(full).equals(SCHEMA)


def test_operation_column_is_a_meta_column_too() -> None:
    kept = pa.schema({"id": pa.string(), "_hoodie_operation": pa.string()})
    assert without_meta(kept).names == ["id"]


def test_normal_schema_keeps_order_and_comments_and_is_nullable() -> None:
    given = pa.schema(
        [
            pa.field("b", pa.int8(), False, {"comment": "why", "PARQUET:field_id": "1"}),
            pa.field("a", pa.large_string()),
        ],
        metadata={"pandas": "{}"},
    )
    normal = normalise_schema(given, "orders")
    expected = pa.schema(
        [pa.field("b", pa.int32(), metadata={"comment": "why"}), ("a", pa.string())]
    )
    assert normal.equals(expected, check_metadata=True)


@pytest.mark.parametrize("name", [*META_NAMES, "_hoodie_operation", "_hoodie_x"])
def test_name_of_hudis_own_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"column {name}: Hudi reserves this name"):
        normalise_schema(pa.schema({name: pa.string()}), "orders")


def test_delete_flag_is_a_column_like_others() -> None:
    schema = pa.schema({"_hoodie_is_deleted": pa.bool_()})
    assert normalise_schema(schema, "orders").equals(schema)


def test_schema_without_columns_is_refused() -> None:
    with pytest.raises(InputError, match="orders: there are no columns"):
        normalise_schema(pa.schema([]), "orders")


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (pa.schema([("a", pa.int32()), ("A", pa.int32())]), "A"),
        (pa.schema([("a", pa.int32()), ("a", pa.int32())]), "a"),
        (pa.schema({"s": pa.struct([("x", pa.int32()), ("X", pa.int32())])}), "s.X"),
    ],
)
def test_names_that_spark_cannot_tell_apart_are_refused(schema: pa.Schema, path: str) -> None:
    with pytest.raises(InputError, match=r"two columns have the same name") as caught:
        normalise_schema(schema, "orders")
    assert caught.value.where == f"orders, column {path}"


def test_name_that_avro_cannot_hold_is_refused_with_its_path() -> None:
    schema = pa.schema({"s": pa.list_(pa.struct({"a-b": pa.int32()}))})
    with pytest.raises(InputError, match=r"orders, column s\[\]\.a-b: the name cannot be stored"):
        normalise_schema(schema, "orders")
