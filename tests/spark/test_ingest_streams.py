"""Ingest with Spark: a stream whose batches are written once, and messages in data frames."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import bucketlake as bl
from bucketlake.engine import active_session
from bucketlake.errors import ConfigError, InputError
from tests.spark.message_frames import Frames, job_of_frames, moved, require_topic_taken, sent


def rows_of(path: str) -> dict[str, Any]:
    return {row["id"]: row["n"] for row in bl.open_table(path).to_arrow().to_pylist()}


def test_batches_of_a_stream_are_written_once_and_bad_rows_are_dead_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, table = tmp_path / "source", str(tmp_path / "table")
    source.mkdir()
    stream = spark.readStream.schema("id string, n bigint").json(str(source))
    (source / "1.json").write_text('{"id": "a", "n": 1}\n{"n": 2}\n{"id": "b", "n": 3}\n')
    options = {"record_key": "id", "checkpoint": str(tmp_path / "checkpoint")}
    with pytest.raises(ConfigError, match="checkpoint"):
        bl.ingest(stream, table, record_key="id")
    with pytest.raises(ConfigError, match="option of topics and files; leave it out"):
        bl.ingest(stream, table, schema="id string", **options)
    report = bl.ingest(stream, table, **options)
    assert (report.batches, report.rows, report.dead_letters) == (1, 2, 1)
    (source / "2.json").write_text('{"id": "a", "n": 5}\n')
    assert bl.ingest(stream, table, **options).rows == 1
    assert rows_of(table) == {"a": 5, "b": 3}
    [letter] = bl.open_table(f"{table}_dead_letters").to_arrow().to_pylist()
    assert (json.loads(letter["value"]), letter["partition"]) == ({"id": None, "n": 2}, "0")
    assert bl.ingest(stream, table, replay=True).dead_letters == 1


def test_another_thread_finds_the_session(spark: SparkSession) -> None:
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(active_session).result()
    assert found is not None
    assert found.range(3).count() == 3


@pytest.mark.parametrize("bytes_here", [100_000, 100_000_000], ids=["by tasks", "here"])
def test_messages_are_decoded_by_tasks_if_they_are_many_and_bad_ones_are_dead_letters(
    spark: SparkSession, tmp_path: Path, bytes_here: int
) -> None:
    require_topic_taken(spark, tmp_path, bytes_here)


@contextmanager
def handing_over_one_megabyte(spark: SparkSession) -> Iterator[None]:
    settings = spark.sparkContext._jsc.sc().conf()
    before = settings.get("spark.driver.maxResultSize", "1g")
    settings.set("spark.driver.maxResultSize", "1m")
    try:
        yield
    finally:
        settings.set("spark.driver.maxResultSize", before)


def test_large_messages_after_small_ones_go_to_tasks_if_spark_hands_fewer_bytes_to_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = sent(spark, 400, large_from=200)
    made = job_of_frames(Frames(frame, 400), str(tmp_path / "table"))
    with handing_over_one_megabyte(spark):
        assert made.run(None).batches == 1
    assert made.source._most == {"orders": 200}  # type: ignore[attr-defined]
    assert rows_of(str(tmp_path / "table")) == {f"k{n}": 300 + n for n in range(100)}


def test_old_keys_are_looked_up_for_fewer_messages_if_spark_hands_fewer_bytes_to_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    count, table = 128, str(tmp_path / "table")
    messages = {"schema": "id string, note string, pad string"}
    frames = Frames(moved(spark, count), 2 * count)
    made = job_of_frames(frames, table, bytes_here=1, messages=messages)
    with handing_over_one_megabyte(spark):
        with pytest.raises(InputError, match=r"more bytes than .*raise spark\.driver\.max"):
            bl.debezium(frames.messages_of, messages["schema"])
        report = made.run(None)
    assert report.dead_letters == 0
    assert 2 < report.batches < 2 * count
    rows = bl.open_table(table).to_arrow(columns=["id", "note"]).to_pylist()
    held = {row["id"]: row["note"] for row in rows if row["id"].startswith("new")}
    assert held == {f"new{n}": f"note{n}" for n in range(count)}
