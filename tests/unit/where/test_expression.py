"""Expressions of updates and merges, without Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.where.expression import Expression

ROWS = pa.table(
    {
        "s": ["b", None],
        "n": [1, 2],
        "f": pa.array([0.1, None], pa.float32()),
        "d": [0.1, None],
        "a": pa.array([Decimal("10.00"), None], pa.decimal128(10, 2)),
        "p": [True, False],
        "q": [False, True],
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("concat(s, '-', 'x')", ["b-x", None]),
        ("s || 'x'", ["bx", None]),
        ("coalesce(s, 'x')", ["b", "x"]),
        ("nvl(s, 'x')", ["b", "x"]),
        ("n * 2 + 1", [3, 5]),
        ("upper('straße ŉ')", ["STRASSE ʼN"] * 2),
        ("lower('ΟΔΟΣ İ')", ["οδος i\u0307"] * 2),
        ("f * 2", [0.20000000298023224, None]),
        ("coalesce(f, 0)", [0.10000000149011612, 0.0]),
        ("d + 0.2", [0.30000000000000004, None]),
        ("a * 1.1", [Decimal("11.000"), None]),
        ("a + n", [Decimal("11.00"), None]),
        ("(p = q) <= q", [True, True]),
        ("coalesce(NULL, DATE '2024-02-29')", [date(2024, 2, 29)] * 2),
        ("CAST('2024-02-29' AS DATE) = DATE '2024-03-01'", [False] * 2),
        ("TIMESTAMP '2024-01-01 10:00:00+02:00'", [datetime(2024, 1, 1, 8, tzinfo=UTC)] * 2),
        ("TIMESTAMP_NTZ '2024-01-01 10:00:00'", [datetime(2024, 1, 1, 10)] * 2),
        ("p = (q <= q)", [True, False]),
    ],
)
def test_values_are_those_of_spark(text: str, expected: list[Any]) -> None:
    assert Expression(text, ROWS.schema, "set").values(ROWS).to_pylist() == expected


@pytest.mark.parametrize(
    "text",
    [
        "p = q <= q",  # Spark reads (p = q) <= q.
        "p = q IS NULL",
        "p IS NULL = q",
        "n IN (1) = true",
        "s || n + 1",
        "p OR n * 9223372036854775807 > 0",  # Spark needs no product of the first row.
        "coalesce(n, n * 9223372036854775807)",
        "lower(upper(s))",  # Spark drops the inner change.
        "upper('\u0264')",  # Capital only since Unicode 16.
        "TIMESTAMP '2024-01-01 10:00:00'",  # In the zone of the session.
        "CAST(s AS DATE)",
        "CAST('1' AS INT)",
        "f IN (1, 2) AND s LIKE 'a\\%'",
    ],
)
def test_what_spark_may_read_otherwise_is_left_to_spark(text: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="start a SparkSession"):
        Expression(text, ROWS.schema, "set").values(ROWS)


@pytest.mark.parametrize("text", ["concat_ws('-', s, 'x')", "nvl2(s, 'x', 'y')", "reverse(s)"])
def test_functions_that_only_spark_knows_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="without Spark"):
        Expression(text, ROWS.schema, "set").values(ROWS)
