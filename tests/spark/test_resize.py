"""Hash rings through Spark: resizes in its tasks, writes of DataFrames while they are pending."""

from __future__ import annotations

import string
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bucketlake as bl
from bucketlake.flow.threads import Threads
from tests.ring_tables import (
    MERGE_ALL,
    SCHEMA,
    SPLIT_ALL,
    copies_of,
    is_pending,
    keyed,
    make_table,
    require_sound,
    ring_of,
    rows,
    values,
)
from tests.spark.frames import frame_of, rows_of
from tests.spies import forbid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.any_spark]

EXECUTE: dict[str, Any] = {"max_file_size": 1 << 40, "merge_threshold": 0.0}


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a resize that does not run in tasks of Spark."""
    forbid(monkeypatch, Threads, "start")


def read(spark: SparkSession, table: bl.Table, where: str | None = None) -> dict[str, int]:
    """Read with Spark: the value of each key."""
    found = rows_of(table.read(spark, where=where, columns=["id", "v"]))
    held = {row["id"]: row["v"] for row in found}
    assert len(held) == len(found), "a key is there twice"
    return held


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize(
    "index", [bl.ConsistentBucket(2), bl.ExtendibleBucket(2, 4)], ids=["rings", "directories"]
)
def test_frames_written_during_a_resize_are_read_before_and_after_it(
    spark: SparkSession,
    tmp_path: Path,
    table_type: str,
    index: bl.ConsistentBucket | bl.ExtendibleBucket,
) -> None:
    table = make_table(tmp_path / "t", index, table_type=table_type)
    table.upsert(frame_of(spark, rows(range(60), days="ab"), tmp_path))
    resize = table.resize(**SPLIT_ALL, schedule_only=True, spark=spark).scheduled
    assert resize is not None
    table.upsert(frame_of(spark, rows(range(40, 80), 1, days="ab"), tmp_path))
    table.delete(frame_of(spark, rows(range(10), days="ab").select(["id", "day"]), tmp_path))
    expected = keyed(range(10, 40)) | keyed(range(40, 80), 1)
    assert bool(copies_of(table, resize)) is (table_type == "merge_on_read")
    assert read(spark, table) == expected
    report = table.resize(**SPLIT_ALL, spark=spark)
    assert report.instants
    assert not is_pending(table, resize)
    assert (resize in report.instants) is (table_type == "merge_on_read")
    assert read(spark, table) == expected == values(table)
    assert read(spark, table, "day = 'b' AND id = 'k41'") == {"k41": 1}
    require_sound(table)
    table.upsert(frame_of(spark, rows(range(70, 90), 2, days="ab"), tmp_path))
    assert read(spark, table) == expected | keyed(range(70, 90), 2)
    require_sound(table)


def test_rings_of_many_partitions_reach_the_tasks_that_write_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    days = string.ascii_letters
    table = make_table(tmp_path / "t")
    table.upsert(frame_of(spark, rows(range(260), days=days), tmp_path))
    report = table.resize(**SPLIT_ALL, partitions=[*days[::3]], max_groups=None, spark=spark)
    assert {found.partition_path for found in report.buckets} == {*days[::3]}
    planned = table.resize(
        **MERGE_ALL, partitions=[*days[1::3]], max_groups=None, schedule_only=True
    )
    merged = {found.partition_path for found in planned.buckets}
    assert len(merged) > 12, "a partition whose rows are in one bucket is not merged"
    table.upsert(frame_of(spark, rows(range(100, 400), 1, days=days), tmp_path))
    expected = keyed(range(100)) | keyed(range(100, 400), 1)
    assert read(spark, table) == expected
    assert planned.scheduled in table.resize(**EXECUTE, spark=spark).instants
    assert read(spark, table) == expected
    assert {day: len(ring_of(table, day)) for day in merged} == dict.fromkeys(merged, 1)
    require_sound(table)


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_batches_of_a_stream_go_on_across_resizes(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    table = make_table(tmp_path / "t", table_type=table_type)
    source, expected = tmp_path / "source", {}
    resizes: list[dict[str, Any]] = [
        SPLIT_ALL,
        SPLIT_ALL | {"schedule_only": True},
        MERGE_ALL,
        SPLIT_ALL | {"split_at": "balanced"},
    ]
    for number, resize in enumerate(resizes):
        batch = range(number * 10, number * 10 + 30)
        frame_of(spark, rows(batch, number, days="ab"), source)
        run_stream(spark, table, source, tmp_path / "checkpoint")
        expected |= keyed(batch, number)
        table.resize(**resize, spark=spark)
        assert read(spark, table) == expected
    require_sound(table)
    assert len(ring_of(table)) > 1


def run_stream(spark: SparkSession, table: bl.Table, source: Path, checkpoint: Path) -> None:
    """Upsert what is new in a folder, as one batch of a stream."""
    schema = spark.read.parquet(str(source)).schema
    assert [*schema.names] == SCHEMA.names
    stream = spark.readStream.schema(schema).parquet(str(source))
    writer = stream.writeStream.foreachBatch(table.upsert_batch(query_name="events"))
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    assert query.exception() is None
