"""Messages of Kafka in DataFrames of any session, classic or through Spark Connect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 -- the name that PySpark's users know.

import bucketlake as bl
from bucketlake.cdc.envelope import OLD_KEY
from bucketlake.cdc.message_settings import PLACEHOLDER
from bucketlake.following import reading_of
from bucketlake.intake.ingesting import IngestOptions, topics_of
from bucketlake.intake.job import Job, JobRules
from bucketlake.spark.debezium import decoded
from tests.cdc_streams import as_texts, kinds_of, messages, rows_at_end
from tests.spark.frames import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bucketlake.intake.topics import TopicOffsets


def require_rows_of_database(spark: SparkSession, tmp_path: Path) -> None:
    """Write a stream in two frames.

    The second one has a row whose key changed and whose value is in a row of the first one.
    """
    rows, table = messages("random", "default", "public.ledger"), None
    for number, part in enumerate((rows.slice(0, 150), rows.slice(150))):
        batch = bl.debezium(frame_of(spark, part, tmp_path / f"part{number}"), table)
        if table is None:
            path = str(tmp_path / "ledger")
            table = bl.create_table(
                path, schema=batch.schema, record_key="id", ordering="_position"
            )
        table.upsert(batch)
    kinds = kinds_of("random", "public.ledger")
    held = as_texts(table.to_arrow(), [*kinds], kinds)
    assert held == rows_at_end("random", "public.ledger")


def require_bad_message_apart(spark: SparkSession, tmp_path: Path) -> None:
    """Decode three messages, of which one cannot be read; a write with it is refused."""
    rows = messages("random", "default", "public.ledger").slice(0, 3)
    broken = rows.set_column(1, "value", pa.array([b"{", *rows["value"].to_pylist()[1:]]))
    frame = frame_of(spark, broken, tmp_path / "rows")
    found = decoded(frame, reading_of())
    assert found.rows.count() == 2
    (bad,) = found.bad.collect()
    assert (bad["offset"], bytes(bad["value"])) == (rows["offset"][0].as_py(), b"{")
    table = bl.create_table(
        str(tmp_path / "t"), schema=found.rows.schema, record_key="id", ordering="_position"
    )
    with pytest.raises(bl.InputError, match="offset 0: it cannot be read"):
        table.upsert(bl.debezium(frame))
    assert table.timeline() == []


BAD_OFFSET = 777


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


def sent(spark: SparkSession, count: int, large_from: int | None = None) -> DataFrame:
    """Return messages of a hundred keys; one is broken, and some may have 20 KB."""
    large = F.lit(False) if large_from is None else F.col("id") >= large_from
    hashes = "transform(sequence(1, 320), n -> sha2(concat(id, '-', n), 256))"
    pad = F.when(large, F.expr(f"concat_ws('', {hashes})"))  # Spark compresses what it hands over.
    key = F.concat(F.lit("k"), F.col("id") % 100).alias("id")
    row = F.to_json(F.struct(key, F.col("id").alias("n"), pad.alias("pad")))
    value = F.when(F.col("id") == BAD_OFFSET, F.lit("{broken")).otherwise(row)
    return spark.range(count).select(
        F.lit("orders").alias("topic"),
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
        F.encode(F.to_json(F.struct(F.lit("k").alias("id"))), "UTF-8").alias("key"),
        F.encode(value, "UTF-8").alias("value"),
    )


def job_of_frames(frames: Frames, table: str, **given: Any) -> Job:
    """Return a job that takes them."""
    messages = given.get("messages", {"envelope": "row", "schema": "id string, n bigint"})
    made = topics_of(frames, table, IngestOptions(), messages)
    made.bytes_here = given.get("bytes_here", made.bytes_here)
    return Job(made, JobRules({"index": bl.SimpleBucket(1)}))


def require_topic_taken(spark: SparkSession, tmp_path: Path, bytes_here: int) -> None:
    """Take a topic by tasks, or by the driver, and find its bad message as a dead letter."""
    count, table = 5_000, str(tmp_path / "table")
    job = job_of_frames(Frames(sent(spark, count), count), table, bytes_here=bytes_here)
    planned = next(job.source.batches(JobRules().opened))
    assert isinstance(planned.rows, pa.Table) == (bytes_here > 100_000)
    report = job.run(None)
    assert (report.batches, report.dead_letters) == (1, 1)
    found = {row["id"]: row["n"] for row in bl.open_table(table).to_arrow().to_pylist()}
    assert found == {f"k{n}": count - 100 + n for n in range(100)}
    assert dict(bl.open_table(table).position("orders").last) == {"0": count - 1}
    [letter] = bl.open_table(f"{table}_dead_letters").to_arrow().to_pylist()
    assert (letter["offset"], letter["value"]) == (BAD_OFFSET, b"{broken")


def moved(spark: SparkSession, count: int) -> DataFrame:
    """Return inserts of so many rows of 20 KB, and then a change of the key of each.

    Each change lacks the value that the row of the old key has.
    """
    new, number = F.col("id") >= count, F.col("id") % count
    hashes = "transform(sequence(1, 320), n -> sha2(concat(id, '-', n), 256))"
    key = F.concat(F.when(new, F.lit("new")).otherwise(F.lit("old")), number).alias("id")
    note = F.when(new, F.lit(PLACEHOLDER)).otherwise(F.concat(F.lit("note"), number)).alias("note")
    row = F.struct(key, note, F.expr(f"concat_ws('', {hashes})").alias("pad"))
    source = F.struct(F.lit("postgresql").alias("connector"), (F.col("id") + 1).alias("lsn"))
    value = F.struct(F.lit("c").alias("op"), row.alias("after"), source.alias("source"))
    old = F.encode(F.to_json(F.struct(F.concat(F.lit("old"), number).alias("id"))), "UTF-8")
    header = F.struct(F.lit(OLD_KEY).alias("key"), old.alias("value"))
    return spark.range(2 * count).select(
        F.lit("orders").alias("topic"),
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
        F.encode(F.to_json(F.struct(key)), "UTF-8").alias("key"),
        F.encode(F.to_json(value), "UTF-8").alias("value"),
        F.when(new, F.array(header)).alias("headers"),
    )
