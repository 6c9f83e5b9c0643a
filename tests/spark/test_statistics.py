"""Statistics of columns: Spark's tasks send those of their files, and Spark's reads use them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.spark.frames import frame_of
from tests.tables.test_statistics_upkeep import require_statistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.any_spark]

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "day": pa.string(),
        "v": pa.int64(),
        "price": pa.float64(),
        "b": pa.binary(),
    }
)
DAYS = ("2024-01-01", "2024-01-02")


def rows(start: int, stop: int, v: int) -> pa.Table:
    numbers = range(start, stop)
    columns = [
        [f"k{n}" for n in numbers],
        [DAYS[n % 2] for n in numbers],
        [v + n for n in numbers],
        [math.nan if n == 150 else n / 2 for n in numbers],
        [b"%d" % n for n in numbers],
    ]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_files_that_tasks_write_have_their_statistics(
    spark: SparkSession, table_path: Path, tmp_path: Path, table_type: str
) -> None:
    table = bl.create_table(
        str(table_path), schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=bl.SimpleBucket(2), table_type=table_type, metadata_table=True,
    )  # fmt: skip
    table.upsert(frame_of(spark, rows(0, 200, 0), tmp_path))
    table.upsert(frame_of(spark, rows(100, 300, 1000), tmp_path))
    table.delete(frame_of(spark, rows(0, 20, 0).select(["id", "day"]), tmp_path))
    require_statistics(table)
    expected = sorted(table.to_arrow(where="v > 1250")["id"].to_pylist())
    found = table.read(spark, where="v > 1250").select("id").collect()
    assert sorted(row.id for row in found) == expected == sorted(f"k{n}" for n in range(251, 300))
    assert table.read(spark, where="price > 1e6").count() == 1  # The NaN.
    assert table.explain("v > 5000").file_groups_kept == 0
    if table_type == "merge_on_read":
        table.compact(spark=spark)
        require_statistics(table)
    table.rescale({".*": 4}, spark=spark, dry_run=False)
    require_statistics(table)
    table.insert_overwrite(frame_of(spark, rows(0, 50, 9), tmp_path))
    require_statistics(table)
    assert table.read(spark, where="v < 20").count() == 11
