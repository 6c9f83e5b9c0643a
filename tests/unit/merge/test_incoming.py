"""Incoming records as columns: which of them delete, which of several stays, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.merge.incoming import (
    IncomingRecords,
    IntArray,
    at_least,
    codes_of_repeated_keys,
    commit_time_deletes,
    comparable,
    delete_flags,
    distinct_rows,
    key_order,
    marker_field,
    sort_nulls_first,
)

NAN = float("nan")


def records(
    keys: Sequence[str],
    columns: dict[str, Any] | None = None,
    *,
    ordering: Sequence[int | None] | None = None,
    deleted: Sequence[bool] = (),
    resets: Sequence[bool] = (),
) -> IncomingRecords:
    count = len(keys)
    return IncomingRecords(
        pa.array(keys, pa.string()),
        pa.table(columns or {"id": pa.array(keys, pa.string())}),
        () if ordering is None else (comparable(pa.array(ordering, pa.int64())),),
        np.array(deleted or [False] * count, np.bool_),
        np.array(resets or [False] * count, np.bool_),
    )


def test_records_are_taken_with_all_that_belongs_to_them() -> None:
    taken = records(
        ["a", "b", "c"],
        {"v": [1, 2, 3]},
        ordering=[7, 8, 9],
        deleted=[False, True, False],
        resets=[False, False, True],
    ).take(np.array([2, 1]))
    assert len(taken) == 2
    assert taken.keys.to_pylist() == ["c", "b"]
    assert taken.columns["v"].to_pylist() == [3, 2]
    assert [values.to_pylist() for values in taken.ordering] == [[9, 8]]
    assert taken.deleted.tolist() == [False, True]
    assert taken.is_reset.tolist() == [True, False]


def test_a_record_wins_unless_its_ordering_value_is_less_or_it_is_a_commit_time_delete() -> None:
    new = records(["a", "b", "c", "d"], ordering=[5, 5, 5, 5], resets=[False, False, False, True])
    stored = pa.table({"ts": pa.chunked_array([[6, 9], [5, 4]])})
    rows, positions = np.array([0, 2, 3, 1]), np.array([0, 1, 2, 3])
    assert new.wins_over(stored, rows, positions, ["ts"]).tolist() == [False, True, True, True]
    assert new.wins_over(stored, rows, positions, []).tolist() == [True] * 4
    none = np.array([], np.int64)
    assert new.wins_over(stored, none, none, ["ts"]).tolist() == []
    with pytest.raises(Exception, match="ordering") as caught:
        new.wins_over(stored, rows, positions, ["absent"])
    assert "absent" in str(caught.value)


def test_rows_delete_by_the_flag_or_by_a_marker_and_not_by_a_null() -> None:
    columns = pa.table({"_hoodie_is_deleted": [True, False, None, False], "op": list("iDDu")})
    assert delete_flags(columns).tolist() == [True, False, False, False]
    assert delete_flags(columns, ("op", "D")).tolist() == [True, True, True, False]
    assert delete_flags(columns, ("other", "D")).tolist() == [True, False, False, False]
    assert delete_flags(columns.select(["op"]), ("op", "D")).tolist() == [False, True, True, False]
    assert delete_flags(columns.select(["op"])).tolist() == [False] * 4
    untyped = pa.table({"_hoodie_is_deleted": pa.nulls(2), "op": pa.nulls(2)})
    assert delete_flags(untyped, ("op", "D")).tolist() == [False, False]


@pytest.mark.parametrize(
    ("values", "marker"),
    [
        (pa.array([1, 2]), "2"),
        (pa.array([False, True]), "true"),
        (pa.array(["a", "b"]), "b"),
        (pa.array(["a", "b"], pa.large_string()), "b"),
        (pa.array([{"op": 1}, {"op": 2}]), "2"),
    ],
)
def test_a_marker_is_the_text_of_a_value_of_a_column_or_a_field(
    values: pa.Array, marker: str
) -> None:
    name = "c.op" if pa.types.is_struct(values.type) else "c"
    assert delete_flags(pa.table({"c": values}), (name, marker)).tolist() == [False, True]


def test_a_marker_in_a_column_whose_text_differs_in_java_is_refused() -> None:
    schema = pa.schema([("c", pa.float64()), ("d", pa.string())])
    assert marker_field(schema, "absent") is None
    assert marker_field(schema, "d") == schema.field("d")
    with pytest.raises(UnsupportedFeatureError) as caught:
        marker_field(schema, "c")
    assert "a delete marker in a column of type double" in str(caught.value)
    assert "column c" in str(caught.value)
    assert "_hoodie_is_deleted" in str(caught.value)


@pytest.mark.parametrize(
    ("data_type", "values", "expected"),
    [
        (pa.int32(), [None, 0, 1], [True, True, False]),
        (pa.date32(), [None, date(1970, 1, 1), date(1970, 1, 2)], [True, True, False]),
        (pa.int64(), [None, 0, 1], [True, False, False]),
        (pa.string(), [None, "", "0"], [True, False, False]),
    ],
)
def test_a_delete_without_an_ordering_value_is_a_commit_time_delete(
    data_type: pa.DataType, values: list[Any], expected: list[bool]
) -> None:
    columns = pa.table({"ts": pa.array([*values, None], data_type)})
    deleted = np.array([True, True, True, False])
    assert commit_time_deletes(deleted, columns, ["ts"]).tolist() == [*expected, False]
    assert commit_time_deletes(deleted, columns, []).tolist() == deleted.tolist()


def test_of_several_ordering_fields_all_are_null_in_a_commit_time_delete() -> None:
    columns = pa.table(
        {
            "a": pa.array([None, None, 0, 0], pa.int32()),
            "b": pa.array([None, 0, None, 0], pa.int32()),
        }
    )
    deleted = np.array([True] * 4)
    assert commit_time_deletes(deleted, columns, ["a", "b"]).tolist() == [True, False, False, False]
    assert deleted.all(), "what was given stays as it is"


def test_floating_values_compare_in_the_total_order_of_java() -> None:
    ascending = [-float("inf"), -2.5, -1.0, -0.0, 0.0, 1e-300, 1.0, 2.5, float("inf"), NAN]
    for data_type in (pa.float64(), pa.float32()):
        found = comparable(pa.array([x if x != 1e-300 else 0.5 for x in ascending], data_type))
        numbers = found.to_pylist()
        assert numbers == sorted(numbers)
        assert len({*numbers}) == len(ascending)
    close = pa.array([np.nextafter(-1.0, -2.0), -1.0, np.nextafter(-1.0, 0.0)])
    assert comparable(close).to_pylist() == sorted({*comparable(close).to_pylist()})
    odd_nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    both = comparable(pa.chunked_array([pa.array(odd_nan), pa.array([NAN])])).to_pylist()
    assert len({*both}) == 1, "Java takes all NaN for equal"
    assert comparable(pa.array([None, 0.0])).to_pylist() == [0, 0]


def test_the_zero_of_a_decimal_has_its_type() -> None:
    values = pa.array([None, Decimal("1.5")], pa.decimal128(2, 1))
    assert comparable(values).to_pylist() == [Decimal("0.0"), Decimal("1.5")]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([(1,), (2,), (3,)], [(2,), (2,), (2,)], [False, True, True]),
        ([(None,), ("",), (None,)], [("",), (None,), (None,)], [False, True, True]),
        (
            [(1, 9), (2, 1), (2, 2), (2, 3), (3, 0)],
            [(2, 2)] * 5,
            [False, False, True, True, True],
        ),
        (
            [(2, None), (2, "a"), (None, "b"), (2, None)],
            [(2, "a"), (2, None), (2, "a"), (2, None)],
            [False, True, False, True],
        ),
    ],
)
def test_ordering_values_compare_field_by_field_a_null_first(
    left: list[tuple[Any, ...]], right: list[tuple[Any, ...]], expected: list[bool]
) -> None:
    sides = [
        tuple(pa.array(list(column)) for column in zip(*side, strict=True))
        for side in (left, right)
    ]
    typed = [
        tuple(a.cast(b.type) if pa.types.is_null(a.type) else a for a, b in zip(*pair, strict=True))
        for pair in (sides, sides[::-1])
    ]
    assert at_least(*typed).tolist() == expected


def test_sides_with_different_numbers_of_fields_are_no_comparison() -> None:
    one = pa.array([1])
    with pytest.raises(ValueError, match="zip"):
        at_least((one,), (one, one))


def kept(given: IncomingRecords, positions: IntArray | None) -> dict[str, Any]:
    found = given.take(distinct_rows(given, positions))
    return dict(zip(found.keys.to_pylist(), found.columns["v"].to_pylist(), strict=True))


def test_records_without_repeated_keys_are_kept_as_they_are() -> None:
    for keys in ([], ["b"], ["b", "a"]):
        given = records(keys)
        assert codes_of_repeated_keys(given.keys) is None
        assert distinct_rows(given, None).tolist() == list(range(len(keys)))


def test_equal_keys_have_equal_codes() -> None:
    codes = codes_of_repeated_keys(pa.array(["b", "a", "b", "c"]))
    assert codes is not None
    assert codes.tolist() == [0, 1, 0, 2]


def test_the_greatest_ordering_value_stays_and_the_later_of_equal_ones() -> None:
    given = records(
        ["a", "b", "a", "c", "b", "a"], {"v": [0, 1, 2, 3, 4, 5]}, ordering=[3, 7, 3, 0, 6, 2]
    )
    assert kept(given, np.arange(6)) == {"a": 2, "b": 1, "c": 3}
    assert distinct_rows(given, np.arange(6)).tolist() == [1, 2, 3]
    assert distinct_rows(given, np.arange(6)[::-1]).tolist() == [0, 1, 3]
    assert kept(given, np.arange(6)[::-1]) == {"a": 0, "b": 1, "c": 3}
    by_commit = records(["a", "b", "a"], {"v": [0, 1, 2]})
    assert kept(by_commit, np.arange(3)) == {"a": 2, "b": 1}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("column", "stays"),
    [
        (pa.array([9, 10]), 10),
        (pa.array([["a", "c"], ["b"]]), ["b"]),
        (pa.array([{"x": 1, "y": 2}, {"x": 1, "y": 3}]), {"x": 1, "y": 3}),
        (pa.array([[Decimal("1.5")], [Decimal("2.5")]]), [Decimal("2.5")]),
        (pa.array([None, 0]), 0),
    ],
)
def test_contents_decide_between_records_of_an_input_without_an_order(
    column: pa.Array, stays: Any, turned: bool
) -> None:
    """So a second evaluation of the input keeps the same record."""
    order = pa.array([1, 0] if turned else [0, 1])
    given = records(["a", "a"], {"v": column.take(order)}, ordering=[1, 1])
    assert kept(given, None) == {"a": stays}


@pytest.mark.parametrize("turned", [False, True])
def test_a_delete_stays_beside_a_row_of_an_input_without_an_order(turned: bool) -> None:
    flags = [True, False] if turned else [False, True]
    values = [0, 9] if turned else [9, 0]
    given = records(["a", "a"], {"v": values}, ordering=[1, 1], deleted=flags)
    assert given.take(distinct_rows(given, None)).deleted.tolist() == [True]


def test_rows_are_sorted_by_several_keys_a_null_first() -> None:
    first, second = pa.array([2, None, 1, 1, 1]), pa.array(["x", "y", "b", None, "a"])
    assert sort_nulls_first([first, second]).tolist() == [1, 3, 4, 2, 0]


@pytest.mark.parametrize(
    "keys",
    [
        [],
        ["b"],
        ["b", "a"],
        ["same", "same", "same"],
        ["k-0000000000000002", "k-0000000000000001", "k-0000000000000002", "k-"],
        ["p-00000000b", "p-00000000a", "p-1"],
        ["prefix-12345678b", "prefix-12345678a", "prefix-12345678", "prefix-1234567"],
        ["a", "", "aaaaaaaaa", "aaaaaaaa", "aa", "aaaaaaaab"],
        ["x" * 30 + "b", "x" * 30 + "a", "x" * 29],
        ["é", "z", "日本", "\U0001f600", "e"],
        ["b\0", "b", "b\0\0", "a"],
    ],
)
def test_keys_are_sorted_by_their_bytes_and_equal_ones_keep_their_order(keys: list[str]) -> None:
    expected = sorted(range(len(keys)), key=lambda i: keys[i].encode())
    assert key_order(pa.array(keys, pa.string())).tolist() == expected
    for data_type in (pa.string(), pa.large_string()):
        within = pa.array(["~before", *keys, "~after"], data_type).slice(1, len(keys))
        assert key_order(within).tolist() == expected
