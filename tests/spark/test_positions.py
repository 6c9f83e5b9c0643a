"""Positions of sources with Spark: rows that are seen, and a ``foreachBatch`` with offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the name that PySpark's users know.

import bucketlake as bl
from bucketlake.errors import InputError

MESSAGES = "partition int, offset bigint, id string, v bigint"


def test_a_stream_that_lost_its_checkpoint_goes_on_at_the_position(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = bl.create_table(str(tmp_path / "table"), schema="id string, v bigint", record_key="id")
    upsert = table.upsert_batch("stream")

    def write(batch: Any, number: int) -> None:
        rows = table.unseen(batch, "topic")
        ends = dict(rows.groupBy(F.col("partition").cast("string")).agg(F.max("offset")).collect())
        if ends:
            upsert(rows.select("id", "v"), number, position=bl.Position("topic", ends))

    sent = [(0, 4, "a", 1), (0, 5, "b", 1), (1, 0, "c", 1)]
    write(spark.createDataFrame(sent, MESSAGES), 0)
    position = table.position("topic")
    assert position is not None
    assert dict(position.last) == {"0": 5, "1": 0}
    again = [(0, 5, "b", -1), (1, 1, "d", 2), (2, 7, "e", 2), (None, None, "f", 2)]
    kept = table.unseen(spark.createDataFrame(again, MESSAGES), "topic")
    assert sorted(row["id"] for row in kept.collect()) == ["d", "e", "f"]
    upsert = table.upsert_batch("another stream")
    write(spark.createDataFrame([*sent, *again[:3]], MESSAGES), 0)
    assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist()} == {
        "a": 1,
        "b": 1,
        "c": 1,
        "d": 2,
        "e": 2,
    }
    with pytest.raises(InputError, match="no column 'topic', but partition, offset, id, v"):
        table.unseen(spark.createDataFrame(sent, MESSAGES), "topic", partition="topic")


def test_a_merge_with_spark_stores_the_position(spark: SparkSession, tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "table"), schema="id string, v bigint", record_key="id")
    rows = spark.createDataFrame([("a", 1)], "id string, v bigint")
    merge = table.merge(rows, "t.id = s.id", position=bl.Position("topic", {"0": 1}))
    merge = merge.when_matched_update({"v": "t.v + s.v"}).when_not_matched_insert_all()
    assert merge.execute().inserted == 1
    assert merge.execute().skipped
    assert table.upsert(rows.limit(0), position=bl.Position("topic", {"0": 2})).instant
    assert table.to_arrow()["v"].to_pylist() == [1]
