"""Casting batches and older files to a table's schema."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ, list_type, map_of


def cast(array: pa.Array, target: pa.DataType) -> list[object]:
    result = cast_table(pa.table({"c": array}), pa.schema({"c": target}))
    result.validate(full=True)
    assert result.schema.field("c").type.equals(target)
    values: list[object] = result["c"].to_pylist()
    return values


def refusal(array: pa.Array, target: pa.DataType) -> InputError:
    with pytest.raises(InputError) as caught:
        cast_table(pa.table({"c": array}), pa.schema({"c": target}), where="orders")
    return caught.value


@pytest.mark.parametrize(
    ("array", "target", "expected"),
    [
        (pa.array([1, None], pa.int8()), pa.int32(), [1, None]),
        (pa.array([2**32 - 1], pa.uint32()), pa.int64(), [2**32 - 1]),
        (pa.array([2**53 + 1]), pa.float64(), [2.0**53]),
        (pa.array([16_777_217], pa.int32()), pa.float32(), [16_777_216.0]),
        (pa.array([0.1, -0.0, math.inf], pa.float32()), pa.float64(), [0.1, -0.0, math.inf]),
        (pa.array(np.array([1.5], np.float16)), pa.float32(), [1.5]),
        (pa.array([7, -7], pa.int32()), pa.decimal128(3, 2), [Decimal("7.00"), Decimal("-7.00")]),
        (pa.array([10**9]), pa.decimal128(38, 28), [Decimal("1000000000." + "0" * 28)]),
        (pa.array([Decimal("1.5")]), pa.decimal128(12, 4), [Decimal("1.5000")]),
        (pa.array([1], pa.timestamp("s")), TIMESTAMP_NTZ, [dt.datetime(1970, 1, 1, 0, 0, 1)]),
        (
            pa.array([1000], pa.timestamp("ns")),
            TIMESTAMP_NTZ,
            [dt.datetime(1970, 1, 1, 0, 0, 0, 1)],
        ),
        (pa.array([dt.date(1, 1, 1)], pa.date64()), pa.date32(), [dt.date(1, 1, 1)]),
        (pa.array(["a"], pa.large_string()), pa.string(), ["a"]),
        (pa.array(["a"], pa.string_view()), pa.string(), ["a"]),
        (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), ["a", None, "a"]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]), pa.string(), ["a", "a", "b"]),
        (pa.array([5]), pa.string(), ["5"]),
        (pa.array([1e10, 0.1]), pa.string(), ["1.0E10", "0.1"]),
        (pa.array([0.1], pa.float32()), pa.string(), ["0.1"]),
        (pa.array(["a"]), pa.binary(), [b"a"]),
        (
            pa.array([[1], None, []], pa.large_list(pa.int8())),
            list_type(pa.int32()),
            [[1], None, []],
        ),
        (pa.array([[1], None], pa.list_(pa.int8(), 1)), list_type(pa.int32()), [[1], None]),
        (pa.array([[1], None], pa.list_view(pa.int8())), list_type(pa.int32()), [[1], None]),
        (
            pa.array([[("a", 1)], None, []], pa.map_(pa.large_string(), pa.int8())),
            map_of(pa.int32()),
            [[("a", 1)], None, []],
        ),
        (pa.nulls(2), pa.struct({"a": list_type(pa.int32())}), [None, None]),
        (
            pa.array([{"b": 1, "a": 2}, None], pa.struct([("b", pa.int8()), ("a", pa.int8())])),
            pa.struct([("a", pa.int32()), ("new", map_of(pa.int32())), ("b", pa.int64())]),
            [{"a": 2, "new": None, "b": 1}, None],
        ),
    ],
    ids=lambda value: str(getattr(value, "type", value))[:40],
)
def test_values_are_cast(array: pa.Array, target: pa.DataType, expected: list[object]) -> None:
    assert repr(cast(array, target)) == repr(expected)
    twice = pa.concat_arrays([array, array]) if not pa.types.is_null(array.type) else array
    assert repr(cast(twice.slice(1), target)) == repr((expected * 2)[1 : len(twice)])


@pytest.mark.parametrize(
    ("array", "target", "path", "part"),
    [
        (pa.array([2**31]), pa.int32(), "c", "2147483648"),
        (pa.array([1], pa.timestamp("ns")), TIMESTAMP_NTZ, "c", "lose data: 1"),
        (pa.array([2**60], pa.timestamp("s")), TIMESTAMP_NTZ, "c", "out of bounds"),
        (pa.array([Decimal("1.25")]), pa.decimal128(5, 1), "c", "data loss"),
        (pa.array([Decimal("123.45")]), pa.decimal128(4, 2), "c", "fit"),
        (pa.array([1000]), pa.decimal128(4, 2), "c", "fit"),
        (pa.array([b"\xff"]), pa.string(), "c", "UTF8"),
        (pa.array([[2**31]]), list_type(pa.int32()), "c[]", "2147483648"),
        (
            pa.array([{"a": {"b": 2**31}}]),
            pa.struct({"a": pa.struct({"b": pa.int32()})}),
            "c.a.b",
            "2",
        ),
        (
            pa.array([[("k", 2**31)]], pa.map_(pa.string(), pa.int64())),
            map_of(pa.int32()),
            "c{}",
            "2147483648",
        ),
        (pa.array([1]), list_type(pa.int32()), "c", "array<int>"),
    ],
    ids=lambda value: str(getattr(value, "type", value))[:40],
)
def test_value_that_does_not_fit_is_refused_with_its_path(
    array: pa.Array, target: pa.DataType, path: str, part: str
) -> None:
    error = refusal(array, target)
    assert error.where == f"orders, column {path}"
    assert part in error.problem


def test_timestamp_of_another_zone_is_the_same_instant() -> None:
    times = pa.array([0, -1], pa.timestamp("ms", "Europe/Berlin"))
    result = cast_table(pa.table({"c": times}), pa.schema({"c": TIMESTAMP}))["c"]
    assert result.cast(pa.int64()).to_pylist() == [0, -1000]


def test_values_hidden_under_a_null_do_not_count() -> None:
    hidden = pa.StructArray.from_arrays([pa.array([2**40, 1])], ["x"], mask=pa.array([True, False]))
    assert cast(hidden, pa.struct({"x": pa.int32()})) == [None, {"x": 1}]
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array([2**40, 1]), mask=pa.array([True, False])
    )
    assert cast(lists, list_type(pa.int32())) == [None, [1]]


def test_null_in_a_required_column_is_refused_at_any_depth() -> None:
    required = pa.schema([pa.field("c", pa.int32(), False)])
    with pytest.raises(
        InputError, match=r"column c: the table requires a value, nulls in the batch: 1"
    ):
        cast_table(pa.table({"c": pa.array([1, None], pa.int32())}), required)
    with pytest.raises(
        InputError, match=r"column c: the table requires a value, nulls in the batch: 2"
    ):
        cast_table(pa.table({"c": pa.nulls(2)}), required)
    inner = pa.struct([pa.field("x", pa.int32(), False)])
    assert refusal(pa.array([{"x": None}, None]), inner).where == "orders, column c.x"
    assert refusal(pa.array([{"y": 1}]).cast(pa.struct([("y", pa.int64())])), inner)
    assert refusal(pa.array([[None]]), list_type(pa.int32(), nullable=False)).where.endswith("c[]")
    assert cast(pa.array([{"x": 1}, None]), inner) == [{"x": 1}, None]


def test_required_column_that_is_missing_is_refused_where_there_are_rows() -> None:
    target = pa.schema([("a", pa.int64()), pa.field("c", pa.int32(), False)])
    with pytest.raises(InputError, match="column c: the table requires a value"):
        cast_table(pa.table({"a": [1]}), target)
    assert cast_table(pa.table({"a": pa.array([], pa.int64())}), target).num_rows == 0


def test_column_that_the_target_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="column b: the table has no such column"):
        cast_table(pa.table({"a": [1], "b": [2]}), pa.schema({"a": pa.int64()}))
    wide = pa.array([{"x": 1, "y": 2}])
    assert refusal(wide, pa.struct({"x": pa.int64()})).where == "orders, column c.y"


def test_record_batches_stay_record_batches_and_chunks_stay_chunks() -> None:
    target = pa.schema({"a": pa.int64(), "b": pa.string()})
    batch = pa.record_batch({"a": pa.array([1], pa.int32())})
    assert isinstance(cast_table(batch, target), pa.RecordBatch)
    table = pa.Table.from_batches([batch, batch])
    assert cast_table(table, target)["a"].num_chunks == 2


def test_columns_of_the_right_type_are_taken_as_they_are() -> None:
    table = pa.table({"a": pa.array(["x", "y"])})
    cast_column = cast_table(table, table.schema)["a"].chunk(0)
    assert cast_column.buffers()[2].address == table["a"].chunk(0).buffers()[2].address


def test_old_two_level_list_gets_the_tables_names_and_nullability() -> None:
    old = pa.list_(pa.field("array", pa.int32(), nullable=False))
    assert cast(pa.array([[1, 2], None], old), list_type(pa.int32())) == [[1, 2], None]


@pytest.mark.parametrize(
    "required",
    [
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        TIMESTAMP,
        pa.decimal128(38, 38),
        list_type(pa.int32()),
        map_of(pa.int32()),
        pa.struct([pa.field("deep", pa.float64(), False)]),
    ],
    ids=str,
)
def test_required_field_under_a_null_struct_holds_no_null(required: pa.DataType) -> None:
    struct = pa.struct([pa.field("x", required, False)])
    (chunk,) = cast_table(
        pa.table({"c": pa.nulls(2, struct)}), pa.schema({"c": struct})
    )["c"].chunks  # fmt: skip
    assert chunk.to_pylist() == [None, None]
    assert chunk.field(0).null_count == 0
