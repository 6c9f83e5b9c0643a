"""Merge-on-read tables written, read and compacted by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.timeline.instant import Action
from tests.spark.frames import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("v", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
DAYS = ("2024-01-01", "2024-01-02")


def rows(start: int, stop: int, v: int, *, deleted: bool = False) -> pa.Table:
    numbers = range(start, stop)
    columns = [
        [f"k{n}" for n in numbers],
        [DAYS[n % 2] for n in numbers],
        [v] * len(numbers),
        pa.array([v * 1_000_000] * len(numbers), pa.timestamp("us", "UTC")),
        [[f"t{v}", "x"]] * len(numbers),
        [deleted] * len(numbers),
    ]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def values(frame: DataFrame) -> dict[str, int]:
    found = frame.select("id", "v").collect()
    assert len({row.id for row in found}) == len(found)
    return {row.id: row.v for row in found}


def keys(start: int, stop: int, v: int) -> dict[str, int]:
    return {f"k{n}": v for n in range(start, stop)}


@pytest.fixture
def table(spark: SparkSession, table_path: Path, tmp_path: Path) -> bl.Table:
    """A table of 200 rows, the second half of them updated in log files."""
    made = bl.create_table(
        str(table_path), schema=SCHEMA, record_key=["id"], partition_by=["day"], ordering="ts",
        index=bl.SimpleBucket(3), table_type="merge_on_read",
    )  # fmt: skip
    made.upsert(frame_of(spark, rows(0, 150, 1), tmp_path))
    made.upsert(frame_of(spark, rows(100, 200, 3), tmp_path))
    return made


def test_spark_reads_merged_rows(spark: SparkSession, table: bl.Table, tmp_path: Path) -> None:
    before = table.timeline()[-1].requested_at
    table.upsert(frame_of(spark, rows(190, 195, 4, deleted=True), tmp_path))
    table.upsert(frame_of(spark, rows(0, 10, 0), tmp_path))  # Too late.
    table.delete(frame_of(spark, rows(10, 12, 0).select(["id", "day"]), tmp_path))
    expected = {**keys(0, 10, 1), **keys(12, 100, 1), **keys(100, 190, 3), **keys(195, 200, 3)}
    assert values(table.read(spark)) == expected
    assert sorted(table.to_arrow()["id"].to_pylist()) == sorted(expected)
    assert values(table.read(spark, as_of=before)) == {**keys(0, 100, 1), **keys(100, 200, 3)}
    assert values(table.read(spark, where="v = 3 AND day = '2024-01-01'")) == {
        f"k{n}": 3 for n in [*range(100, 190, 2), 196, 198]
    }
    [row] = table.read(spark, where="id = 'k150'").collect()
    assert (row.v, row.tags, row.day) == (3, ["t3", "x"], "2024-01-01")
    assert table.read(spark, columns=["v"]).columns == ["v"]
    some = table.read(spark, where="upper(id) = 'K150'", columns=["day"]).collect()
    assert [row.day for row in some] == ["2024-01-01"]
    assert table.read(spark, where="id = 'nobody'").count() == 0


def test_spark_reads_what_changed(spark: SparkSession, table: bl.Table, tmp_path: Path) -> None:
    [_, second] = [i.completed_at for i in table.timeline()]
    table.upsert(frame_of(spark, rows(195, 205, 5), tmp_path))
    assert values(table.read(spark, since=second)) == keys(195, 205, 5)
    assert values(table.read(spark, since=second, where="id = 'k199'")) == {"k199": 5}
    assert table.read(spark, since=second).columns == SCHEMA.names


def test_spark_compacts(spark: SparkSession, table: bl.Table, tmp_path: Path) -> None:
    expected = values(table.read(spark))
    scheduled = table.compact(schedule_only=True, spark=spark).scheduled
    table.upsert(frame_of(spark, rows(0, 20, 5), tmp_path))
    expected |= keys(0, 20, 5)
    report = table.compact(spark=spark, min_log_files=2)
    assert report.instants == (scheduled,)
    assert values(table.read(spark)) == expected
    [done] = [i for i in table.timeline() if i.requested_at == scheduled]
    assert done.action is Action.COMMIT
    table.compact(spark=spark)
    assert {b.log_files for b in table.buckets()} == {0}
    assert values(table.read(spark)) == expected
