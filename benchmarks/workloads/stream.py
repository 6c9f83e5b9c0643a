"""Structured Streaming into a growing table, with the services that keep it healthy.

Each batch is written by `foreachBatch(table.upsert_batch(...))`. After each few batches the same
function compacts, cleans and archives, so the batch that does so takes longer. A batch starts when
its time has come, or as soon as the batch before it has ended, if the stream is late.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

import bucketlake as bl
from benchmarks.common.rows import DataSet
from benchmarks.common.usage import cpu_seconds, status_bytes
from benchmarks.systems.bucketlake import SESSION
from benchmarks.systems.order_tables import create
from benchmarks.systems.spark import SparkSystem, files_of
from benchmarks.workloads.stream_rows import ORDERING, numbered_keys, stream_rows

QUERY = "orders"
RETAIN_COMMITS, KEEP_MIN, KEEP_MAX = 10, 20, 30
ASSIGNERS = 4


class Sink:
    """Writes the batches of the stream, and keeps what each took."""

    def __init__(self, contender: Stream, table: bl.Table, batches: int, deadline: float) -> None:
        self._contender, self._table = contender, table
        self._upsert = table.upsert_batch(query_name=QUERY)
        self._batches, self._deadline = batches, deadline
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
        facts: dict[str, Any] = {"batch": batch_id}
        self._upsert(batch, batch_id)
        facts["upsert"] = time.perf_counter() - begun
        facts["upsert_cpu"] = cpu_seconds(os.getpid()) - cpu
        if (batch_id + 1) % self._contender.services_every == 0:
            facts |= self._serve(batch)
        facts["seconds"] = time.perf_counter() - begun
        facts["cpu"] = cpu_seconds(os.getpid()) - cpu
        facts |= folder_facts(Path(self._table.path)) | self._contender.memory()
        self.measured.append(facts)

    def _serve(self, batch: DataFrame) -> dict[str, float]:
        """Run the services, and return the seconds of each."""
        services: dict[str, Callable[[], object]] = {
            "compact": lambda: self._table.compact(spark=batch.sparkSession),
            "clean": lambda: self._table.clean(retain_commits=RETAIN_COMMITS),
            "archive": lambda: self._table.archive(keep_min=KEEP_MIN, keep_max=KEEP_MAX),
        }
        taken = {}
        for name, serve in services.items():
            before = time.perf_counter()
            serve()
            taken[name] = time.perf_counter() - before
        return taken


class Stream(SparkSystem):
    """Run the stream, and check the table."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings, SESSION)
        self._given = settings
        self.services_every: int = settings["services_every"]
        self._sink: Sink | None = None
        self._elapsed = 0.0
        self.settings |= {
            "index": repr(bl.DynamicBucket(settings["bucket_rows"], assigners=ASSIGNERS)),
            "table_type": "merge_on_read",
            "services": f"after each {self.services_every} batches: compact(), "
            f"clean(retain_commits={RETAIN_COMMITS}), "
            f"archive(keep_min={KEEP_MIN}, keep_max={KEEP_MAX})",
        }

    def run(self, _data: DataSet, table: Path) -> None:
        """Run until the table has its keys, or the longest time has passed."""
        batches, interval_ms = pace(self._given, self._given["rows"])
        frame = stream_rows(self._source().select("value"))
        made = create_streamed(table, frame.schema, self._given["bucket_rows"])
        deadline = time.perf_counter() + 60 * self._given["limit_minutes"]
        sink = self._sink = Sink(self, made, batches, deadline)
        started = time.perf_counter()
        query = (
            frame.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(table.with_name("checkpoint")))
            .trigger(processingTime=f"{interval_ms} milliseconds")
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

    def check(self, _data: DataSet, table: Path) -> None:
        """Compare the sums of the table with those of the stream."""
        assert self._sink is not None, "the stream runs first"
        count = len(self._sink.measured) * self._given["batch_rows"]
        numbers = self.spark.range(count).withColumnRenamed("id", "value")
        newest = numbered_keys(numbers).groupBy("number").max(ORDERING)
        sums = "count(*) AS rows", "sum({}) AS versions"
        expected = newest.selectExpr(sums[0], sums[1].format(f"`max({ORDERING})`")).first()
        found = bl.open_table(str(table)).read(self.spark, columns=[ORDERING])
        read = found.selectExpr(sums[0], sums[1].format(ORDERING)).first()
        assert read == expected, f"the table has {read}, expected {expected}"

    def observe(self, _step: str, _table: Path) -> dict[str, Any]:
        """Return what each batch took."""
        return {"elapsed": self._elapsed, "batches": self._sink.measured if self._sink else []}

    def memory(self) -> dict[str, int]:
        """Return the memory of the driver: its Python process, and its JVM, in which tasks run."""
        context: Any = self.spark.sparkContext
        runtime = context._jvm.java.lang.Runtime.getRuntime()
        return {
            "python_bytes": status_bytes(os.getpid(), "VmRSS"),
            "jvm_bytes": status_bytes(context._gateway.proc.pid, "VmRSS"),
            "heap_bytes": runtime.totalMemory() - runtime.freeMemory(),
        }

    def _source(self) -> DataFrame:
        source = self.spark.readStream.format("rate-micro-batch")
        source = source.option("rowsPerBatch", self._given["batch_rows"])
        return source.option("numPartitions", self._given["cores"]).load()


def pace(settings: Mapping[str, Any], keys: int) -> tuple[int, int]:
    """Return the number of batches, and the milliseconds between two of them.

    Examples
    --------
    >>> pace({"batch_rows": 100, "minutes": 1.0}, 1_000)
    (20, 3000)
    """
    batches = -(-2 * keys // settings["batch_rows"])  # Half of the rows have new keys.
    return batches, round(60_000 * settings["minutes"] / batches)


def create_streamed(path: Path, schema: StructType, max_records: int) -> bl.Table:
    """Create a merge-on-read table with dynamic buckets."""
    index = bl.DynamicBucket(max_records=max_records, assigners=ASSIGNERS)
    return create(path, schema, index, "merge_on_read", ordering=ORDERING)


def folder_facts(path: Path) -> dict[str, int]:
    """Count the files of a table: data, log, active timeline, metadata table and archive."""
    metadata = path / ".hoodie/metadata"
    return {
        **files_of(path),
        "timeline_files": _files(path / ".hoodie/timeline"),
        "archive_files": _files(path / ".hoodie/timeline/history"),
        "metadata_timeline_files": _files(metadata / ".hoodie/timeline"),
        "metadata_files": sum(
            len(names)
            for folder, _, names in os.walk(metadata)
            if "/.hoodie/metadata/.hoodie" not in folder
        ),
    }


def _files(folder: Path) -> int:
    """Count the files of a folder itself."""
    return sum(entry.is_file() for entry in os.scandir(folder)) if folder.exists() else 0
