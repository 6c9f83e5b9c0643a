"""Text of floating-point numbers in tables that turned a column of numbers into strings."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from bucketlake.model.value_text import floating_text


@pytest.mark.parametrize(
    ("number", "text"),
    [  # What Hudi 1.2.0 read from files of doubles under a schema of strings.
        (1e10, "1.0E10"),
        (0.1, "0.1"),
        (1.0, "1.0"),
        (123456789.0, "1.23456789E8"),
        (math.nan, "NaN"),
        (-0.0, "-0.0"),
        (1e-4, "1.0E-4"),
        (0.001, "0.001"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (2e-3, "0.002"),
        (-math.inf, "-Infinity"),
        (-12.25, "-12.25"),
        (100.0, "100.0"),
        (-1.5e-7, "-1.5E-7"),
    ],
)
def test_number_is_written_as_java_writes_it(number: float, text: str) -> None:
    assert floating_text(pa.array([number, None, number])).to_pylist() == [text, None, text]


def test_single_precision_has_its_own_shortest_digits() -> None:
    numbers = pa.array([0.1, 1e10, 3.4e38], pa.float32())
    assert floating_text(numbers).to_pylist() == ["0.1", "1.0E10", "3.4E38"]
