"""Filtering Arrow data with Spark's results."""

import math
import time
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.where.arrow_filter import require_answerable, truth_of
from bucketlake.where.parser import parse_where

ROWS = pa.table(
    {
        "row": range(4),
        "s": pa.array(["a", "b", "", None], pa.string()),
        "i": pa.array([1, 2, -3, None], pa.int32()),
        "d": pa.array([-0.0, math.nan, math.inf, None], pa.float64()),
        "f": pa.array([0.1, 0.5, math.nan, None], pa.float32()),
        "x": pa.array([Decimal("1.50"), Decimal("-2.00"), Decimal(0), None], pa.decimal128(9, 2)),
        "b": pa.array([True, False, True, None], pa.bool_()),
        "t": pa.array([date(2024, 1, 1), date(2024, 1, 2), date(1, 1, 1), None], pa.date32()),
        "z": pa.array(
            [datetime(2024, 1, 1, 12, tzinfo=UTC), None, None, None], pa.timestamp("us", "UTC")
        ),
        "dotted.name": pa.array([1, 2, 3, None], pa.int64()),
        "tags": pa.array([["a"], [], None, None], pa.list_(pa.string())),
    }
)


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("s = 'a'", [0]),
        ("s <> 'a'", [1, 2]),
        ("NOT s = 'a'", [1, 2]),
        ("s >= ''", [0, 1, 2]),
        ("s <=> 'a'", [0]),
        ("NOT s <=> 'a'", [1, 2, 3]),
        ("s IN ('a', 'z')", [0]),
        ("s NOT IN ('a', 'z')", [1, 2]),
        ("s NOT IN ('a', NULL)", []),
        ("s IN ('a', NULL)", [0]),
        ("s = NULL OR s = 'b'", [1]),
        ("NOT (s = NULL AND s = 'b')", [0, 2]),
        ("s IS NULL", [3]),
        ("s LIKE '_'", [0, 1]),
        ("s NOT LIKE 'a%'", [1, 2]),
        ("i > 1.5", [1]),
        ("i IN (1, -3, 5000000000)", [0, 2]),
        ("i NOT IN (1, 1.5)", [1, 2]),
        ("i < 5000000000", [0, 1, 2]),
        ("i BETWEEN -3 AND 1", [0, 2]),
        ("d = 0", [0]),
        ("d IN (0, 7)", [0]),
        ("d = 'NaN'", [1]),
        ("d <> 'NaN'", [0, 2]),
        ("d >= 'NaN'", [1]),
        ("d > 'NaN'", []),
        ("d < 'NaN'", [0, 2]),
        ("NOT d > 'NaN'", [0, 1, 2]),
        ("d <= 'NaN'", [0, 1, 2]),
        ("d > 'Infinity'", [1]),
        ("d >= 1", [1, 2]),
        ("d < 1", [0]),
        ("d <=> 'NaN'", [1]),
        ("f = 0.1", []),
        ("f > 0.1", [0, 1, 2]),
        ("f = 0.5", [1]),
        ("x = 1.5", [0]),
        ("x IN (1.5, -2)", [0, 1]),
        ("x < 0.001", [1, 2]),
        ("b", [0, 2]),
        ("NOT b", [1]),
        ("b IS NOT TRUE", [1, 3]),
        ("b < TRUE", [1]),
        ("t > '2024-01-01'", [1]),
        ("t IN ('2024-01-01', DATE '2024-01-02')", None),
        ("t IN (DATE '2024-01-01')", [0]),
        ("z >= TIMESTAMP '2024-01-01 13:00:00+01:00'", [0]),
        ("z IN (TIMESTAMP '2024-01-01 12:00:00Z')", [0]),
        ("`dotted.name` = 2", [1]),
        ("tags IS NOT NULL", [0, 1]),
        ("true", [0, 1, 2, 3]),
        ("NOT NULL", []),
        ("false OR s = 'a'", [0]),
    ],
)
def test_filter_keeps_the_rows_that_spark_keeps(where: str, kept: list[int] | None) -> None:
    predicate = parse_where(where, ROWS.schema)
    if kept is None:
        with pytest.raises(UnsupportedFeatureError, match="several types"):
            truth_of(predicate, ROWS)
    else:
        assert ROWS.filter(truth_of(predicate, ROWS))["row"].to_pylist() == kept


@pytest.mark.parametrize(
    ("one", "join", "kept"),
    [("(i = {} AND s = 'a')", " OR ", [0]), ("i <> {}", " AND ", [1, 2]), ("d = {}.5", " OR ", [])],
)
def test_many_conditions_take_a_time_that_grows_with_their_number(
    one: str, join: str, kept: list[int]
) -> None:
    where = join.join(one.format(i if i != 2 else 1) for i in range(4_000))
    predicate = parse_where(where, ROWS.schema)
    began = time.process_time()
    assert ROWS.filter(truth_of(predicate, ROWS))["row"].to_pylist() == kept
    assert time.process_time() - began < 1  # In one chain it takes several seconds.


@pytest.mark.parametrize("where", ["s = 5", "i = 1 AND upper(s) = 'A'", "NOT (i = 1 OR s = 5)"])
def test_condition_that_only_spark_can_answer_is_refused(where: str) -> None:
    predicate = parse_where(where, ROWS.schema)
    with pytest.raises(UnsupportedFeatureError, match=r"s = 5|UPPER\(s\) = 'A'") as refused:
        require_answerable(predicate)
    assert "read the table with Spark" in str(refused.value)
