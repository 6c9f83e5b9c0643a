"""Change data through Spark: the same rows as without it, and any condition."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("tags", pa.list_(pa.string())),
     ("in", pa.struct([("n", pa.int32()), ("at", pa.timestamp("us", "UTC"))])), ("at", pa.int64())]
)  # fmt: skip

IMAGES = ("before", "after")


def rows(numbers: range, at: int) -> pa.Table:
    made = [
        {
            "id": f"k{n}",
            "day": "ab"[n % 2],
            "tags": [f"t{n}", str(at)],
            "in": {"n": n * at},
            "at": at,
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> bl.Table:
    made = bl.create_table(
        str(tmp_path / "t"),
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        ordering="at",
        index=bl.SimpleBucket(2),
        table_type=request.param,
    )
    made.upsert(rows(range(20), 1))
    made.upsert(rows(range(15, 25), 2))
    made.delete(rows(range(3), 1))
    made.insert_overwrite(rows(range(4, 8, 2), 3))
    return made


def test_changes_on_spark_are_those_without_it(spark: SparkSession, table: bl.Table) -> None:
    first, second, *_ = table.timeline()
    for given in (
        {},
        {"since": first.completed_at, "until": second.completed_at},
        {"columns": ["day", "in.n"], "where": "id IN ('k4', 'k17')"},
        {"where": "at = 2"},
    ):
        expected = table.changes_to_arrow(**given)
        found = table.changes(spark, **given)
        assert found.columns == expected.column_names
        assert in_order(collected(found)) == in_order(expected.to_pylist())
        assert expected.num_rows


def test_spark_evaluates_a_condition_on_both_images(spark: SparkSession, table: bl.Table) -> None:
    where = "size(tags) = 2 AND element_at(tags, 1) LIKE 't1%' AND in.n % 5 = 0"
    found = collected(table.changes(spark, where=where, columns=["at", "id"]))
    changes = table.changes_to_arrow().to_pylist()
    expected = [
        (row["op"], *(row[image] and {n: row[image][n] for n in ("at", "id")} for image in IMAGES))
        for row in changes
        if any(
            row[image] and row[image]["tags"][0].startswith("t1") and row[image]["in"]["n"] % 5 == 0
            for image in IMAGES
        )
    ]
    assert expected
    assert sorted([(r["op"], r["before"], r["after"]) for r in found], key=str) == sorted(
        expected, key=str
    )
    with pytest.raises(InputError, match="no_such_function"):
        table.changes(spark, where="no_such_function(id)")


def test_a_range_without_changes_has_the_columns(spark: SparkSession, table: bl.Table) -> None:
    found = table.changes(spark, since=table.timeline()[-1].completed_at)
    assert (found.count(), found.columns[0], found.schema["after"].dataType.names) == (
        0, "op", SCHEMA.names
    )  # fmt: skip


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def in_order(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(changes, key=str)
