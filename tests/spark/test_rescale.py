"""Partitions rescaled by Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import CommitConflictError
from tests.spark.frames import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.any_spark]

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


def test_upserts_and_reads_go_on_while_partitions_are_rescaled(
    spark: SparkSession, table_path: Path, tmp_path: Path
) -> None:
    """Whoever comes second starts again; no row is lost, doubled or in a wrong bucket."""
    table = bl.create_table(
        str(table_path), schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=bl.SimpleBucket(2),
    )  # fmt: skip
    table.upsert(frame_of(spark, rows(0, 300), tmp_path))
    batches = [frame_of(spark, rows(100 * n, 100 * n + 150), tmp_path) for n in range(1, 7)]
    done = Event()

    def rescale() -> int:
        conflicts = 0
        for buckets in (5, 3, 4):
            while True:
                try:
                    table.rescale({"2024": buckets}, spark=spark, dry_run=False)
                    break
                except CommitConflictError:
                    conflicts += 1
                    assert conflicts < 100
        return conflicts

    def read() -> int:
        reads = 0
        while not done.is_set():
            found = table.read(spark, columns=["id"]).collect()
            assert len({row.id for row in found}) == len(found) >= 300
            reads += 1
        return reads

    with ThreadPoolExecutor(2) as pool:
        rescaling, reading = pool.submit(rescale), pool.submit(read)
        try:
            for batch in batches:
                table.upsert(batch)
            rescaling.result()
        finally:
            done.set()
        assert reading.result() > 0
    assert sorted(row.v for row in table.read(spark).collect()) == list(range(750))
    assert bl.open_table(str(table_path)).index == bl.PartitionBucket({"2024": 4}, 2)
    for number in range(0, 750, 50):
        [location] = table.locate(f"k{number}")
        assert location.partition_path == DAYS[number % 3]
    assert all(instant.completed_at for instant in table.timeline())
