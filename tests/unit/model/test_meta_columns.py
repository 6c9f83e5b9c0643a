"""Values of the meta columns."""

from __future__ import annotations

import pyarrow as pa

from bucketlake.model.file_name import InstantTime
from bucketlake.model.meta_columns import constant_column, meta_columns, sequence_numbers
from bucketlake.model.schema import META_NAMES

INSTANT = InstantTime("20260101000000000")


def test_meta_columns_of_new_rows() -> None:
    columns = meta_columns(INSTANT, 3, pa.array(["k1", "k2"]), "p=1", "f.parquet", first_row=99)
    assert tuple(columns) == META_NAMES
    assert [column.to_pylist() for column in columns.values()] == [
        [INSTANT, INSTANT],
        [f"{INSTANT}_3_99", f"{INSTANT}_3_100"],
        ["k1", "k2"],
        ["p=1", "p=1"],
        ["f.parquet", "f.parquet"],
    ]


def test_sequence_numbers_cross_powers_of_ten() -> None:
    numbers = sequence_numbers(INSTANT, 0, 1001)
    numbers.validate(full=True)
    assert numbers.to_pylist() == [f"{INSTANT}_0_{row}" for row in range(1001)]


def test_sequence_numbers_beyond_32_bits() -> None:
    first = 2**31 - 1
    assert sequence_numbers(INSTANT, 1, 2, first_row=first).to_pylist() == [
        f"{INSTANT}_1_{first}",
        f"{INSTANT}_1_{first + 1}",
    ]


def test_no_rows_give_no_values() -> None:
    assert sequence_numbers(INSTANT, 0, 0).to_pylist() == []
    assert constant_column("a", 0).to_pylist() == []


def test_constant_column_holds_its_value_once() -> None:
    column = constant_column("äöü", 1000)
    assert len(column.dictionary) == 1
    assert set(column.to_pylist()) == {"äöü"}
