"""Ingest with Spark: a stream whose batches are written once, and messages in data frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the name that PySpark's users know.

import bucketlake as bl
from bucketlake.engine import active_session
from bucketlake.errors import ConfigError
from bucketlake.intake.ingesting import IngestOptions, topics_of
from bucketlake.intake.job import Job, JobRules
from bucketlake.intake.topics import TopicOffsets

MESSAGES = "topic string, partition int, offset bigint, key binary, value binary"


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


@dataclass
class Frames:
    """Topics whose messages are rows of a data frame."""

    messages_of: DataFrame
    count: int

    def ends(self) -> Mapping[str, TopicOffsets]:
        return {"orders": {0: self.count}}

    def beginnings(self, ends: Mapping[str, TopicOffsets]) -> Mapping[str, TopicOffsets]:
        return {"orders": {0: 0}}

    def messages(self, topic: str, starts: TopicOffsets, ends: TopicOffsets) -> DataFrame:
        return self.messages_of.where(f"offset >= {starts[0]} AND offset < {ends[0]}")

    def following(self, starts: Mapping[str, TopicOffsets], rows_max: int) -> None:
        return None


@pytest.mark.parametrize("bytes_here", [100_000, 100_000_000], ids=["by tasks", "here"])
def test_messages_are_decoded_by_tasks_if_they_are_many_and_bad_ones_are_dead_letters(
    spark: SparkSession, tmp_path: Path, bytes_here: int
) -> None:
    count = 25_000
    value = F.when(F.col("id") == 777, F.lit("{broken")).otherwise(
        F.to_json(
            F.struct(F.concat(F.lit("k"), F.col("id") % 100).alias("id"), F.col("id").alias("n"))
        )
    )
    frame = spark.range(count).select(
        F.lit("orders").alias("topic"),
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
        F.encode(F.to_json(F.struct(F.lit("k").alias("id"))), "UTF-8").alias("key"),
        F.encode(value, "UTF-8").alias("value"),
    )
    table = str(tmp_path / "table")
    messages = {"envelope": "row", "schema": "id string, n bigint"}
    made = topics_of(Frames(frame, count), table, IngestOptions(), messages)
    made.bytes_here = bytes_here
    planned = next(made.batches(JobRules().opened))
    assert isinstance(planned.rows, pa.Table) == (bytes_here > 100_000)
    report = Job(made, JobRules()).run(None)
    assert (report.batches, report.dead_letters) == (1, 1)
    assert rows_of(table) == {f"k{n}": count - 100 + n for n in range(100)}
    assert dict(bl.open_table(table).position("orders").last) == {"0": count - 1}
    [letter] = bl.open_table(f"{table}_dead_letters").to_arrow().to_pylist()
    assert (letter["offset"], letter["value"]) == (777, b"{broken")
