"""Work on file slices by Spark, some slices a task: compaction, rehashing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.spark.read import in_tasks
from bucketlake.spark.reports import REPORT_FIELD, Batches, BatchFunction, collect, reporting
from bucketlake.spark.schema import spark_from_arrow
from bucketlake.write.compactor import Compactor
from bucketlake.write.rehash import Rehash, RehashJob

_STATS = pa.schema([pa.field("stat", pa.string()), REPORT_FIELD])


def compact_in(
    spark: SparkSession, compactor: Compactor, slices: Sequence[FileSlice]
) -> list[WriteStat]:
    """Compact slices in tasks of a session."""
    work = in_tasks(spark, [one.to_text() for one in slices], [one.size_bytes for one in slices])

    def compact(text: str) -> list[WriteStat]:
        return [compactor.compact(FileSlice.from_text(text))]

    return _stats(work, compact)


def rehash_in(spark: SparkSession, rehash: Rehash, jobs: Sequence[RehashJob]) -> list[WriteStat]:
    """Run the jobs of a rehash in tasks of a session."""
    work = in_tasks(spark, [one.to_text() for one in jobs], [one.size_bytes for one in jobs])

    def run(text: str) -> list[WriteStat]:
        return rehash.run(RehashJob.from_text(text))

    return _stats(work, run)


def _stats(work: DataFrame, run: Callable[[str], list[WriteStat]]) -> list[WriteStat]:
    written = work.mapInArrow(_reporting_stats(run), spark_from_arrow(_STATS))
    return [WriteStat(**json.loads(row.stat)) for row in collect(written)]


def _reporting_stats(run: Callable[[str], list[WriteStat]]) -> BatchFunction:
    def work(batches: Batches) -> Batches:
        for batch in batches:
            for text in batch.column("work").to_pylist():
                for stat in run(text):
                    yield pa.RecordBatch.from_pylist([{"stat": json.dumps(asdict(stat))}], _STATS)

    return reporting(work, _STATS)
