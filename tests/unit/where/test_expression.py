"""Expressions of updates and merges, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.where.expression import Expression

ROWS = pa.table({"s": ["b", None], "n": [1, 2]})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("concat(s, '-', 'x')", ["b-x", None]),
        ("s || 'x'", ["bx", None]),
        ("coalesce(s, 'x')", ["b", "x"]),
        ("nvl(s, 'x')", ["b", "x"]),
        ("n * 2 + 1", [3, 5]),
    ],
)
def test_values_are_those_of_spark(text: str, expected: list[Any]) -> None:
    assert Expression(text, ROWS.schema, "set").values(ROWS).to_pylist() == expected


@pytest.mark.parametrize("text", ["concat_ws('-', s, 'x')", "nvl2(s, 'x', 'y')", "reverse(s)"])
def test_functions_that_only_spark_knows_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="without Spark"):
        Expression(text, ROWS.schema, "set").values(ROWS)
