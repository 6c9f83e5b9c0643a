"""Record keys: which rows have none, which columns are missing, keys of literals."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError, InputError
from bucketlake.model.keys import KeyGenerator, KeySpec, key_text, record_keys

SIMPLE = KeySpec(("id",), (), KeyGenerator.NON_PARTITION)
COMPOSITE = KeySpec(("id", "day"), ("day",), KeyGenerator.COMPLEX)


def test_a_key_of_one_field_is_its_bare_text_unless_the_generator_is_complex() -> None:
    table = pa.table({"id": ["a", "b"]})
    assert record_keys(table, SIMPLE).to_pylist() == ["a", "b"]
    complex_spec = KeySpec(("id",), ("p",), KeyGenerator.COMPLEX)
    assert record_keys(table, complex_spec).to_pylist() == ["id:a", "id:b"]


def test_fields_stand_in_the_order_of_the_setting_and_not_of_the_columns() -> None:
    table = pa.table({"day": ["mo"], "id": [1]})
    assert record_keys(table, COMPOSITE).to_pylist() == ["id:1,day:mo"]


def test_a_record_batch_and_a_table_of_uneven_chunks_give_the_same_keys() -> None:
    batch = pa.record_batch({"id": pa.array([1, 2, 3]), "day": pa.array(["a", "", None])})
    expected = ["id:1,day:a", "id:2,day:__empty__", "id:3,day:__null__"]
    assert record_keys(batch, COMPOSITE).to_pylist() == expected
    chunked = pa.table(
        {
            "id": pa.chunked_array([[1], [2, 3]]),
            "day": pa.chunked_array([["a", ""], pa.array([None], pa.string())]),
        }
    )
    assert record_keys(chunked, COMPOSITE).to_pylist() == expected


def test_no_rows_have_no_keys() -> None:
    empty = pa.table({"id": pa.array([], pa.int64()), "day": pa.array([], pa.string())})
    assert record_keys(empty, SIMPLE).to_pylist() == []
    assert record_keys(empty, COMPOSITE).to_pylist() == []


@pytest.mark.parametrize("bad", [None, ""])
def test_rows_without_a_single_key_are_counted_and_the_first_is_shown(bad: str | None) -> None:
    table = pa.table({"id": ["a", bad, bad], "city": ["Rom", "Ulm", "Bonn"], "n": [1, 2, 3]})
    with pytest.raises(InputError) as caught:
        record_keys(table, SIMPLE)
    assert str(caught.value) == (
        "record key column 'id': 2 of 3 rows have a null or empty key, the first of them is row 1 "
        "with city='Ulm', n=2; give each row a key, or drop these rows"
    )


def test_a_composite_key_needs_a_value_in_one_of_its_fields() -> None:
    some = pa.table({"id": pa.array([None, 1]), "day": ["x", None]})
    assert record_keys(some, COMPOSITE).to_pylist() == ["id:__null__,day:x", "id:1,day:__null__"]
    none = pa.table({"id": pa.array([1, None]), "day": ["x", ""]})
    with pytest.raises(InputError, match=r"columns 'id', 'day': 1 of 2 rows"):
        record_keys(none, COMPOSITE)


def test_a_missing_column_is_named_with_the_columns_there_are() -> None:
    with pytest.raises(InputError, match="record key column 'id': the data has no such column"):
        record_keys(pa.table({"ID": [1], "x": [2]}), SIMPLE)
    with pytest.raises(InputError, match="its columns are 'ID', 'x'"):
        record_keys(pa.table({"ID": [1], "x": [2]}), SIMPLE)


def test_a_column_that_the_data_holds_twice_is_refused() -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(InputError, match="several such columns"):
        record_keys(table, SIMPLE)


def test_a_table_without_key_fields_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hoodie\.table\.recordkey\.fields"):
        record_keys(pa.table({"id": [1]}), KeySpec((), (), KeyGenerator.NON_PARTITION))


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("n", pa.struct([("id", pa.string())])),
    ]
)


@pytest.mark.parametrize(
    ("fields", "values", "key"),
    [
        (("id",), {"id": 7, "other": "x"}, "7"),
        (("day",), {"day": date(2024, 1, 2)}, "2024-01-02"),
        (("day",), {"day": "2024-01-02"}, "2024-01-02"),
        (("at",), {"at": datetime(1970, 1, 1, 0, 0, 1)}, "1000000"),
        (("price",), {"price": Decimal("1.5")}, "1.50"),
        (("id", "day"), {"id": 7}, "id:7,day:__null__"),
        (("n.id", "id"), {"n": {"id": "u"}}, "n.id:u,id:__null__"),
        (("n.id", "id"), {"n.id": "u", "id": 3}, "n.id:u,id:3"),
    ],
)
def test_a_literal_row_has_the_key_that_a_writer_gives_it(
    fields: tuple[str, ...], values: dict[str, Any], key: str
) -> None:
    assert key_text(KeySpec(fields, (), KeyGenerator.NON_PARTITION), values, SCHEMA) == key


@pytest.mark.parametrize("values", [{"id": "seven"}, {"id": 2**63}, {"id": 1.5}, {"id": object()}])
def test_a_literal_of_another_type_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="is not a value of its type int64"):
        key_text(SIMPLE, values, SCHEMA)


def test_a_literal_row_without_a_key_or_for_a_column_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match="null or empty key"):
        key_text(SIMPLE, {}, SCHEMA)
    with pytest.raises(InputError, match="the table has no such column"):
        key_text(KeySpec(("nope",), (), KeyGenerator.NON_PARTITION), {"nope": 1}, SCHEMA)
