"""The text of values in keys and paths, beyond what the golden files of real Hudi hold."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from bucketlake.model.value_text import value_texts

WHERE = "record key column 'k'"


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([1, None], pa.uint16()), ["1", None]),
        (pa.array(["a", None], pa.large_string()), ["a", None]),
        (pa.array(["a", None], pa.string_view()), ["a", None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.array([7, None], pa.int32()).dictionary_encode(), ["7", None]),
        (pa.array(np.array([1.5, 2], np.float16)), ["1.5", "2.0"]),
        (pa.array([Decimal("1E+3")], pa.decimal128(4, -3)), ["1E+3"]),
        (pa.array([Decimal("1.50")], pa.decimal256(40, 2)), ["1.50"]),
        (pa.array([date(2024, 2, 29), None], pa.date64()), ["2024-02-29", None]),
        (pa.array([datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("s", "Asia/Tokyo")), ["1000000"]),
        (pa.array([1_000], pa.timestamp("ns")), ["1"]),
        (pa.nulls(2), [None, None]),
        (pa.array([b"\x01\xab"], pa.binary(2)), ["01ab"]),
        (pa.array([b"\xff", None, b""], pa.large_binary()), ["ff", None, ""]),
        (pa.array([b"\xff", None, b"\x00"], pa.binary_view()), ["ff", None, "00"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_a_layout_of_arrow_is_spelled_as_the_value_it_holds(
    values: pa.Array, texts: list[str | None]
) -> None:
    found = value_texts(values, WHERE)
    assert found.to_pylist() == texts
    assert found.type == pa.string()
    assert value_texts(values.slice(1), WHERE).to_pylist() == texts[1:]
    assert value_texts(pa.chunked_array([values, values]), WHERE).to_pylist() == texts * 2


def test_a_chunked_column_without_chunks_is_spelled_as_no_texts() -> None:
    assert value_texts(pa.chunked_array([], pa.int64()), WHERE).to_pylist() == []


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([1], pa.time64("us")),
        pa.array([1], pa.duration("s")),
    ],
    ids=lambda values: str(values.type),
)
def test_a_type_without_a_spelling_is_refused_with_column_and_type(values: pa.Array) -> None:
    with pytest.raises(InputError) as caught:
        value_texts(values, WHERE)
    assert WHERE in str(caught.value)
    assert str(values.type) in str(caught.value)


@pytest.mark.parametrize("days", [-719_163, 2_932_897])
def test_a_date_outside_of_the_years_1_to_9999_is_refused(days: int) -> None:
    dates = pa.array([0, days, None], pa.int32()).cast(pa.date32())
    with pytest.raises(InputError, match=f"the date {days} days from 1970-01-01"):
        value_texts(dates, WHERE)


def test_a_timestamp_finer_than_microseconds_is_refused() -> None:
    with pytest.raises(InputError, match="whole microseconds"):
        value_texts(pa.array([1_001], pa.timestamp("ns")), WHERE)


@pytest.mark.parametrize("number", [2.0**53, -(2.0**53), 2.0**-30, 5e-324])
def test_a_double_that_versions_of_java_spell_differently_is_refused(number: float) -> None:
    with pytest.raises(InputError) as caught:
        value_texts(pa.array([0.5, number, None]), WHERE)
    assert str(number) in str(caught.value)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2.0**53 - 1, "9.007199254740991E15"),
        (2.0**-20, "9.5367431640625E-7"),
        (-0.001, "-0.001"),
        (1e7, "1.0E7"),
        (9999999.5, "9999999.5"),
    ],
)
def test_a_double_at_the_edge_of_what_is_sure_is_spelled(number: float, text: str) -> None:
    value: Any = value_texts(pa.array([number]), WHERE)[0].as_py()
    assert value == text
