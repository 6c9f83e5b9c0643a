"""Incoming records as columns."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from bucketlake.merge.incoming import comparable


@pytest.mark.parametrize(
    ("data_type", "zero"),
    [
        (pa.int32(), 0),
        (pa.int64(), 0),
        (pa.decimal128(2, 2), Decimal("0.00")),
        (pa.decimal128(38, 38), Decimal(0)),
    ],
)
def test_missing_number_is_ordered_as_zero(data_type: pa.DataType, zero: int | Decimal) -> None:
    assert comparable(pa.array([None], data_type)).to_pylist() == [zero]


def test_missing_value_that_is_no_number_stays_less_than_all() -> None:
    assert comparable(pa.array([None, ""])).to_pylist() == [None, ""]
