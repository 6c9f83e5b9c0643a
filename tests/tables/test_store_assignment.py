"""Numbers of updates, merges and batches in columns of other number types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "n": pa.int64(),
        "i": pa.int32(),
        "f": pa.float32(),
        "d": pa.float64(),
        "a": pa.decimal128(10, 2),
    }
)
FIRST = {"id": "a", "n": 1, "i": 2, "f": 3.3, "d": 1.5, "a": Decimal("12.34")}
LARGE = {
    "id": "b",
    "n": 2**62,
    "i": 2**31 - 1,
    "f": None,
    "d": None,
    "a": Decimal("99999999.99"),
}

TAKEN: list[tuple[str, str, object]] = [
    ("d", "9.99", 9.99),
    ("d", "n", 1.0),
    ("d", "a", 12.34),
    ("a", "a * 1.1", Decimal("13.57")),
    ("a", "a * 1.25", Decimal("15.43")),  # 15.425 is rounded half up.
    ("a", "d", Decimal("1.50")),
    ("a", "-d * 0.0033", Decimal("0.00")),
    ("f", "f * 0.1", 0.32999998331069946),
    ("f", "9.99", 9.989999771118164),
    ("n", "d * 2", 3),
    ("n", "i * 1.0", 2),
    ("i", "n", 1),
]
"""A column, an expression of the row ``FIRST``, and what is stored."""

REFUSED: list[tuple[str, str, str]] = [
    ("a", "a * 1.1", "109999999.99 of key 'b'"),
    ("a", "a + 9e7", "189999999.99 of key 'b'"),
    ("i", "n", "4611686018427387904 of key 'b'"),
    ("n", "d", "1.5 of key 'a'"),
    ("n", "a", "12.34 of key 'a'"),
    ("f", "1e300", "1e+300 of key 'a'"),
]
"""A column, an expression, and the value and key in the error."""


def new_table(path: str) -> bl.Table:
    table = bl.create_table(path, schema=SCHEMA, record_key="id", index=bl.SimpleBucket(1))
    table.upsert(pa.Table.from_pylist([FIRST, LARGE], schema=SCHEMA))
    return table


def row_of(table: bl.Table, key: str = "a") -> Mapping[str, Any]:
    (row,) = table.to_arrow(where=f"id = '{key}'").to_pylist()
    found: Mapping[str, Any] = row
    return found


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    return new_table(new_path())


def test_update_rounds_to_the_digits_of_the_column(table: bl.Table) -> None:
    stored = [FIRST]
    for column, text, value in TAKEN:
        table.upsert(pa.Table.from_pylist(stored, schema=SCHEMA))
        assert table.update({column: text}, where="id = 'a'").updated == 1
        assert repr(row_of(table)[column]) == repr(value), text


def test_merge_rounds_to_the_digits_of_the_column(table: bl.Table) -> None:
    source = pa.table({"id": ["a"]})
    for column, text, value in TAKEN:
        table.upsert(pa.Table.from_pylist([FIRST], schema=SCHEMA))
        table.merge(source, on="t.id = s.id").when_matched_update({column: text}).execute()
        assert repr(row_of(table)[column]) == repr(value), text


@pytest.mark.parametrize(("column", "text", "told"), REFUSED)
def test_number_that_does_not_fit_is_refused_with_value_and_key(
    table: bl.Table, column: str, text: str, told: str
) -> None:
    before = table.to_arrow()
    merge = table.merge(before.select(["id"]), on="t.id = s.id")
    for change in (
        lambda: table.update({column: text}),
        merge.when_matched_update({column: text}).execute,
    ):
        with pytest.raises(InputError) as raised:
            change()
        assert f"value {told}" in str(raised.value)
        assert "merge_schema" not in str(raised.value), "an update or merge widens no column"
    assert table.to_arrow().equals(before)


def test_text_for_a_number_is_refused_in_the_words_of_an_update(table: bl.Table) -> None:
    with pytest.raises(InputError) as raised:
        table.update({"n": "id"})
    assert "column n: the table holds bigint, the value string; cast the value" in str(raised.value)


def batch_of(column: str, values: pa.Array) -> pa.Table:
    columns = {field.name: pa.nulls(len(values), field.type) for field in SCHEMA}
    keys = [f"k{number}" for number in range(len(values))]
    return pa.table({**columns, "id": keys, column: values})


@pytest.mark.parametrize(
    ("column", "values", "stored"),
    [
        ("n", pa.array([1.0, None]), 1),  # As pandas holds whole numbers, if one is missing.
        ("i", pa.array([7], pa.int64()), 7),
        ("n", pa.array([Decimal("5.00")]), 5),
        ("a", pa.array([0.1]), Decimal("0.10")),
        ("a", pa.array([0.1], pa.float32()), Decimal("0.10")),
        ("d", pa.array([Decimal("9.99")]), 9.99),
        ("f", pa.array([Decimal("9.99")]), 9.989999771118164),
        ("f", pa.array([0.1]), 0.10000000149011612),
    ],
)
def test_batch_of_another_number_type_is_taken(
    table: bl.Table, column: str, values: pa.Array, stored: object
) -> None:
    table.upsert(batch_of(column, values))
    assert repr(row_of(table, "k0")[column]) == repr(stored)


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("n", pa.array([1.0, 1.5]), "1.5 of key 'k1'"),
        ("n", pa.array([2.0**53 + 2]), "so large a floating number may have lost digits"),
        ("n", pa.array([Decimal("5.01")]), "5.01 of key 'k0'"),
        ("a", pa.array([0.25, 0.123]), "0.123 of key 'k1'"),
        ("a", pa.array([float("nan")]), "nan of key 'k0'"),
        ("d", pa.array([Decimal("0.1234567890123456789")]), "double would round it"),
        ("d", pa.array([2**53 + 1]), "double would round it"),
        ("f", pa.array([1.0, 1e300]), "1e+300 of key 'k1'"),
        ("i", pa.array([1, 2**40]), "widen the table's column with merge_schema='widen_types'"),
    ],
)
def test_batch_that_would_lose_a_digit_is_refused_with_value_and_key(
    table: bl.Table, column: str, values: pa.Array, told: str
) -> None:
    with pytest.raises(InputError) as raised:
        table.upsert(batch_of(column, values))
    assert told in str(raised.value)
    assert table.count() == 2


def test_whole_numbers_of_pandas_are_taken(table: bl.Table) -> None:
    pandas = pytest.importorskip("pandas")
    schema = pa.schema({"id": pa.string(), "n": pa.int64()})
    table = bl.create_table("memory://assigned/pandas", schema=schema, record_key="id")
    assert table.upsert(pandas.DataFrame({"id": ["a", "b"], "n": [1, None]})).inserted == 2
    assert table.to_arrow().sort_by("id")["n"].to_pylist() == [1, None]


def test_maps_of_texts_as_polars_makes_them_are_taken_beside_a_null() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    table = bl.create_table(
        "memory://assigned/maps", schema=pa.schema({"id": pa.string(), "m": kind}), record_key="id"
    )
    maps = pa.array([[("k", 1)], None], pa.map_(pa.string_view(), pa.int64()))
    table.upsert(pa.table({"id": ["a", "b"], "m": maps}))
    assert table.to_arrow().sort_by("id")["m"].to_pylist() == [[("k", 1)], None]
