"""Who writes a topic of Debezium's messages into a table: bucketlake's ingest, and Hudi's stream.

Settings, and why a Hudi engineer should agree with each:

- Both read the same messages with Spark's Kafka source, and know the columns. Hudi's side parses
  them with `from_json`, the fastest way that Spark has; Hudi Streamer has one more process to
  configure, and the same parse and the same writer inside.
- Hudi writes each micro-batch by `foreachBatch` and `upsert` with its simple bucket index, which
  looks nothing up, and without a metadata table, which its writes would have to maintain.
- Tables are merge-on-read, of eight partitions, and no service runs within a write.
- Both take as many messages a batch, and go on after the newest commit: Hudi by Spark's checkpoint.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, functions

import bucketlake as bl
from benchmarks.common.rows import DataSet
from benchmarks.systems import bucketlake, hudi
from benchmarks.systems.spark import MERGE_ON_READ, SparkSystem
from benchmarks.workloads.filled_topic import COLUMNS, SCHEMA, WARM, WHOLE, rows_of
from bucketlake.errors import TableNotFoundError
from examples.database.ingest_job import CONNECTORS

PARTITION = "region"
MICRO = "micro"
MICRO_ROWS, MICRO_BATCHES, MICRO_WARM_UP = 1_000, 16, 6
MICRO_SECONDS_MAX = 120


class TopicWriter(SparkSystem):
    """The steps of both: a warm-up, the whole topic, small batches.

    Parameters
    ----------
    settings : mapping
        Those of the run.
    session : mapping
        Settings of the session.
    packages : sequence of str
        Coordinates of jars.
    """

    def __init__(
        self, settings: Mapping[str, Any], session: Mapping[str, str], packages: list[str]
    ) -> None:
        jars = {"spark.jars.packages": ",".join(packages)}
        super().__init__(settings, {**session, **jars})
        self._given, self._work = settings, Path(settings["work"])
        self.seen: dict[str, Any] = {}
        self._commit_time: float | None = None  # Known by who is called back after a commit.

    @abstractmethod
    def take(self, topic: str, table: Path) -> None:
        """Write all of a topic into a new table."""

    @abstractmethod
    @contextmanager
    def following(self, topic: str, table: Path) -> Iterator[None]:
        """Write what comes to a topic, as long as the body runs."""

    @abstractmethod
    def taken(self, topic: str, table: Path) -> int:
        """Return how many messages of a topic are in commits."""

    def observe(self, _step: str, _table: Path) -> dict[str, Any]:
        """Return what the last step told."""
        seen, self.seen = self.seen, {}
        return seen

    # ---- steps ----------------------------------------------------------------------------------

    def warm(self, _data: DataSet, table: Path) -> None:
        """Write the small topic; check it."""
        self.take(WARM, table.with_name("warm"))
        self._compare(WARM, table.with_name("warm"))

    def ingest(self, _data: DataSet, table: Path) -> None:
        """Write the whole topic."""
        self.take(WHOLE, table)

    def check(self, _data: DataSet, table: Path) -> None:
        """Compare the table with the database, row by row."""
        self._compare(WHOLE, table)

    def micro(self, _data: DataSet, table: Path) -> None:
        """Follow a topic that gets so many changes again and again."""
        topic, table = f"{MICRO}-{id(self)}", table.with_name(MICRO)
        half, rows = MICRO_ROWS // 2, self._given["rows"]
        wanted = [half * MICRO_BATCHES, rows // 2 + half * MICRO_BATCHES]
        assert wanted[-1] <= rows, f"--rows must be {2 * wanted[0]:,} or more"
        found = self._messages(WHOLE).select("offset", "key", "value").persist()
        seconds = []
        self._send(found.limit(1), topic)  # So that the topic is there.
        with self.following(topic, table):
            self._await(topic, table, 1)
            for number in range(MICRO_BATCHES):
                starts = (half * number, rows // 2 + half * number)  # New rows, and changed ones.
                chosen = [
                    functions.col("offset").between(start, start + half - 1) for start in starts
                ]
                self._send(found.where(chosen[0] | chosen[1]), topic)
                started = time.perf_counter()
                self._await(topic, table, 1 + MICRO_ROWS * (number + 1))
                seconds.append((self._commit_time or time.perf_counter()) - started)
        found.unpersist()
        counted = seconds[MICRO_WARM_UP:]
        self.seen = {"batches": seconds, "batch_seconds": statistics.median(counted)}

    # ---- what they share ------------------------------------------------------------------------

    @property
    def _topic(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self._work / "topic.json").read_text())
        return told

    def kafka(self, topic: str) -> dict[str, str]:
        """Return the options of Spark's Kafka source."""
        return {
            "kafka.bootstrap.servers": self._topic["brokers"],
            "subscribe": topic,
            "minPartitions": str(self._given["cores"]),
        }

    def _messages(self, topic: str) -> DataFrame:
        return self.spark.read.format("kafka").options(**self.kafka(topic)).load()

    def _send(self, messages: DataFrame, topic: str) -> None:
        options = {"kafka.bootstrap.servers": self._topic["brokers"], "topic": topic}
        rows = messages.orderBy("offset").coalesce(1).select("key", "value")
        rows.write.format("kafka").options(**options).save()

    def _await(self, topic: str, table: Path, messages: int) -> None:
        until = time.monotonic() + MICRO_SECONDS_MAX
        while self.taken(topic, table) < messages:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.taken(topic, table)} of {messages} messages are written")
            time.sleep(0.01)

    def _compare(self, topic: str, table: Path) -> None:
        path = self._work / f"found-{id(self)}"
        self.frame(table, [*COLUMNS]).coalesce(1).write.mode("overwrite").parquet(str(path))
        found = pq.read_table(path).select([*COLUMNS]).cast(SCHEMA).sort_by("id")
        expected = pq.read_table(rows_of(self._work, topic))
        assert len(found) == len(expected), f"{len(found)} rows, expected {len(expected)}"
        for name in COLUMNS:
            same = pc.fill_null(pc.equal(found[name], expected[name]), False)
            assert pc.all(same).as_py(), f"column {name} differs"


class BucketlakeTopic(TopicWriter):
    """`bl.ingest`, with an index."""

    def __init__(self, settings: Mapping[str, Any], index: Any = None) -> None:
        super().__init__(settings, bucketlake.SESSION, [CONNECTORS["4.3"]])
        self._options: dict[str, Any] = {
            "schema": SCHEMA, "partition_by": [PARTITION], "table_type": MERGE_ON_READ,
            "max_rows": settings["batch_rows"], **({} if index is None else {"index": index}),
        }  # fmt: skip
        self.settings |= {k: repr(v) for k, v in self._options.items() if k != "schema"}
        self._follower = threading.Thread()
        self._instants = self._taken = 0

    def frame(self, table: Path, columns: Any = None) -> DataFrame:
        """Read the table."""
        return bl.open_table(str(table)).read(self.spark, columns=columns)

    def take(self, topic: str, table: Path) -> None:
        """Write all of a topic into a new table."""
        bl.ingest(self.kafka(topic), str(table), **self._options)

    @contextmanager
    def following(self, topic: str, table: Path) -> Iterator[None]:
        """Write what comes, in a thread that ends with the process."""

        def follow() -> None:
            bl.ingest(self.kafka(topic), str(table), every=0.02, **self._options)

        self._follower = threading.Thread(target=follow, daemon=True)
        self._follower.start()
        yield

    def taken(self, topic: str, table: Path) -> int:
        """Return how many messages of a topic are in commits."""
        if not self._follower.is_alive():
            raise RuntimeError("the ingest has ended; the log says why")
        with suppress(FileNotFoundError, TableNotFoundError):
            # The ingest runs in this process: a look at its table must cost little.
            instants = sum(1 for _ in (table / ".hoodie/timeline").iterdir())
            if instants != self._instants:
                position = bl.open_table(str(table)).position(topic)
                self._taken = 0 if position is None else position.last["0"] + 1
                self._instants = instants
        return self._taken


class HudiTopic(TopicWriter):
    """Structured Streaming with Hudi's own writer."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings, hudi.SESSION, [hudi.COORDINATES, CONNECTORS["3.5"]])
        self.versions = {"hudi": hudi.COORDINATES}
        self._options = {
            **hudi.TABLE,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": PARTITION,
            "hoodie.table.ordering.fields": "_position",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.compact.inline": "false",
            **hudi.simple_bucket(settings["buckets"]),
            hudi.METADATA_ENABLE: "false",
            hudi.OPERATION: "upsert",
        }
        self.settings |= self._options
        self._query: Any = None

    def frame(self, table: Path, columns: Any = None) -> DataFrame:
        """Read the table."""
        rows = self.spark.read.format("hudi").option(hudi.METADATA_ENABLE, "false")
        return rows.load(str(table)).select(*columns)

    def take(self, topic: str, table: Path) -> None:
        """Write all of a topic into a new table."""
        self._start(topic, table, availableNow=True).awaitTermination()

    @contextmanager
    def following(self, topic: str, table: Path) -> Iterator[None]:
        """Write what comes, as soon as the batch before it has ended."""
        self._query = self._start(topic, table, processingTime="0 seconds")
        try:
            yield
        finally:
            self._query.stop()

    def taken(self, topic: str, _table: Path) -> int:
        """Return how many messages of a topic are in commits."""
        if (failed := self._query.exception()) is not None:
            raise failed
        progress = self._query.lastProgress
        end = progress and progress["sources"][0]["endOffset"]
        return int(end[topic]["0"]) if end else 0

    def _start(self, topic: str, table: Path, **trigger: Any) -> Any:
        source = self.spark.readStream.format("kafka").options(**self.kafka(topic))
        source = source.option("startingOffsets", "earliest")
        source = source.option("maxOffsetsPerTrigger", self._given["batch_rows"])

        def write(batch: DataFrame, _number: int) -> None:
            rows = parsed(batch).write.format("hudi").options(**self._options)
            rows.mode("append").save(str(table))
            self._commit_time = time.perf_counter()

        return (
            source.load().writeStream.foreachBatch(write)
            .option("checkpointLocation", str(table.with_name(f"{table.name}-checkpoint")))
            .trigger(**trigger).start()
        )  # fmt: skip


def parsed(messages: DataFrame) -> DataFrame:
    """Return the rows of messages; a delete has the row before it, and Hudi's mark."""
    row = ", ".join(
        f"{name} {'string' if kind in ('text', 'timestamptz') else kind.split()[0]}"
        for name, kind in COLUMNS.items()
    )
    told = f"before struct<{row}>, after struct<{row}>, op string, source struct<lsn bigint>"
    given = messages.where("value is not null")
    change = given.select(
        functions.from_json(functions.col("value").cast("string"), told).alias("m")
    )
    is_deleted = functions.col("m.op") == "d"
    rows = change.select(
        functions.when(is_deleted, functions.col("m.before"))
        .otherwise(functions.col("m.after"))
        .alias("row"),
        functions.coalesce(functions.col("m.source.lsn"), functions.lit(0)).alias("_position"),
        is_deleted.alias("_hoodie_is_deleted"),
    )
    columns = [
        functions.col("row.at").cast("timestamp").alias("at")
        if name == "at"
        else functions.col(f"row.{name}")
        for name in COLUMNS
    ]
    return rows.select(*columns, "_position", "_hoodie_is_deleted")
