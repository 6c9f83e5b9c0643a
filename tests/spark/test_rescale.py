"""Partitions rescaled by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.spark.frames import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
DAYS = ("2024-01-01", "2024-01-02", "2023-01-01")


def rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    columns = [[f"k{n}" for n in numbers], [DAYS[n % 3] for n in numbers], list(numbers)]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def test_partitions_are_rescaled_and_written_on_by_spark(
    spark: SparkSession, table_path: Path, tmp_path: Path
) -> None:
    table = bl.create_table(
        str(table_path), schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=bl.SimpleBucket(2),
    )  # fmt: skip
    table.upsert(frame_of(spark, rows(0, 300), tmp_path))
    report = table.rescale({"2024": 5}, spark=spark, dry_run=False)
    assert [p.partition_path for p in report.partitions] == ["2024-01-01", "2024-01-02"]
    assert table.upsert(frame_of(spark, rows(200, 400), tmp_path)).updated == 100
    found = sorted(row.v for row in table.read(spark).collect())
    assert found == list(range(400))
    counts = dict.fromkeys(DAYS, 0)
    for bucket in table.buckets():
        counts[bucket.partition_path] += 1
    assert counts == {"2024-01-01": 5, "2024-01-02": 5, "2023-01-01": 2}
    for number in (0, 100, 250, 399):
        where = f"id = 'k{number}'"
        assert [row.v for row in table.read(spark, where=where).collect()] == [number]
