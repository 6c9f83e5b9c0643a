"""Structured Streaming into a growing table, with the services that keep it healthy.

Each batch is written by `foreachBatch(table.upsert_batch(...))`. After each few batches the same
function compacts, cleans and archives, so the batch that does so takes longer. A batch starts when
its time has come, or as soon as the batch before it has ended, if the stream is late.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import bucketlake as bl
from benchmarks.common.rows import DataSet
from benchmarks.common.spark import SparkContender
from benchmarks.common.usage import cpu_seconds, status_bytes
from benchmarks.streaming.contenders.tables import create, folder_facts
from benchmarks.streaming.rows import ORDERING, numbered_keys, stream_rows
from benchmarks.streaming.steps import RUN

QUERY = "orders"
RETAIN_COMMITS, KEEP_MIN, KEEP_MAX = 10, 20, 30


class Sink:
    """Writes the batches of the stream, and keeps what each took."""

    def __init__(self, contender: Stream, table: bl.Table, batches: int, deadline: float) -> None:
        self._contender, self._table = contender, table
        self._upsert = table.upsert_batch(query_name=QUERY)
        self._batches, self._deadline = batches, deadline
        self._started = time.perf_counter()
        self._log = Path(f"{table.path}.batches.jsonl")
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.measured: list[dict[str, Any]] = []

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        late = time.perf_counter() > self._deadline
        if self.done.is_set() or batch_id >= self._batches or late:
            self.done.set()  # A batch that has begun is always written whole.
            return
        try:
            self._write(batch, batch_id)
        except BaseException as error:
            self.error = error
            self.done.set()
            raise

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        begun, cpu = time.perf_counter(), cpu_seconds(os.getpid())
        facts: dict[str, Any] = {"batch": batch_id, "started": begun - self._started}
        result = self._upsert(batch, batch_id)
        facts |= {"inserted": result.inserted, "updated": result.updated}
        facts |= {"file_groups": result.file_groups, "upsert": time.perf_counter() - begun}
        facts["upsert_cpu"] = cpu_seconds(os.getpid()) - cpu
        if batch_id % self._contender.services_every == self._contender.services_every - 1:
            services = {
                "compact": lambda: self._table.compact(spark=batch.sparkSession),
                "clean": lambda: self._table.clean(retain_commits=RETAIN_COMMITS),
                "archive": lambda: self._table.archive(keep_min=KEEP_MIN, keep_max=KEEP_MAX),
            }
            for name, serve in services.items():
                before = time.perf_counter()
                serve()
                facts[name] = time.perf_counter() - before
        facts["seconds"] = time.perf_counter() - begun
        facts["cpu"] = cpu_seconds(os.getpid()) - cpu
        facts |= folder_facts(Path(self._table.path)) | self._contender.memory()
        self.measured.append(facts)
        with self._log.open("a") as log:  # What a person may watch; nothing reads it.
            log.write(json.dumps(facts) + "\n")


class Stream(SparkContender):
    """Run the stream, and check the table."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, Any]) -> None:
        super().__init__(spark)
        self._given = settings
        self.services_every: int = settings["services_every"]
        self._sink: Sink | None = None
        self._elapsed = 0.0
        self.settings = {
            "index": repr(bl.DynamicBucket(max_records=settings["bucket_rows"])),
            "table_type": "merge_on_read",
            "services": f"after each {self.services_every} batches: compact(), "
            f"clean(retain_commits={RETAIN_COMMITS}), "
            f"archive(keep_min={KEEP_MIN}, keep_max={KEEP_MAX})",
        }

    def run(self, _data: DataSet, table: Path) -> None:
        """Run until the table has its keys, or the longest time has passed."""
        rows, batches = self._given["batch_rows"], self._given["batches"]
        source = (
            self.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows)
            .option("numPartitions", self._given["cores"])
            .load()
        )
        frame = stream_rows(source.select("value"))
        made = create(table, frame.schema, self._given)
        deadline = time.perf_counter() + 60 * self._given["limit_minutes"]
        sink = self._sink = Sink(self, made, batches, deadline)
        started = time.perf_counter()
        query = (
            frame.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(table.with_name("checkpoint")))
            .trigger(processingTime=f"{self._given['interval_ms']} milliseconds")
            .start()
        )
        while not sink.done.wait(0.2) and len(sink.measured) < batches and query.isActive:
            pass
        self._elapsed = time.perf_counter() - started
        sink.done.set()
        query.stop()
        if sink.error is not None:
            raise sink.error
        assert sink.measured, query.exception()

    def read(self, table: Path) -> dict[str, int]:
        """Return the sums of the table, after they were compared with those of the stream."""
        assert self._sink is not None, "the stream runs first"
        count = len(self._sink.measured) * self._given["batch_rows"]
        numbers = self.spark.range(count).withColumnRenamed("id", "value")
        newest = numbered_keys(numbers).groupBy("number").max(ORDERING)
        sums = "count(*) AS rows", "sum({}) AS versions"
        expected = newest.selectExpr(sums[0], sums[1].format(f"`max({ORDERING})`")).first()
        found = bl.open_table(str(table)).read(self.spark, columns=[ORDERING])
        read = found.selectExpr(sums[0], sums[1].format(ORDERING)).first()
        assert expected is not None
        assert read is not None
        assert read.asDict() == expected.asDict(), f"the table has {read}, expected {expected}"
        return read.asDict()

    def observe(self, step: str, _table: Path) -> dict[str, Any]:
        if step != RUN or self._sink is None:
            return {}
        return {"elapsed": self._elapsed, "batches": self._sink.measured}

    def memory(self) -> dict[str, int]:
        """Return the memory of the driver: its Python process, and its JVM, in which tasks run."""
        context = self.spark.sparkContext
        runtime = context._jvm.java.lang.Runtime.getRuntime()
        return {
            "python_bytes": status_bytes(os.getpid(), "VmRSS"),
            "jvm_bytes": status_bytes(context._gateway.proc.pid, "VmRSS"),
            "heap_bytes": runtime.totalMemory() - runtime.freeMemory(),
        }
