"""Compaction and rehashing of file slices in Spark tasks, several slices per task."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.spark.facts import facts_of
from bucketlake.spark.read import in_tasks
from bucketlake.spark.reports import REPORT_FIELD, Batches, BatchFunction, collect, reporting
from bucketlake.spark.schema import spark_from_arrow
from bucketlake.write.compactor import Compactor
from bucketlake.write.plan import SlotResult
from bucketlake.write.rehash import Rehash, RehashJob
from bucketlake.write.resizer import ResizeJob, Resizer, ResizeResult

_RESULTS = pa.schema([pa.field("result", pa.string()), REPORT_FIELD])


def compact_in(
    spark: SparkSession, compactor: Compactor, slices: Sequence[FileSlice]
) -> list[WriteStat]:
    """Compact slices in tasks of a session."""
    work = in_tasks(spark, [s.to_text() for s in slices], [s.size_bytes for s in slices])

    def compact(text: str) -> list[str]:
        stat = compactor.compact(FileSlice.from_text(text))
        return [json.dumps(stat.to_facts())]

    return [WriteStat.from_facts(json.loads(text)) for text in _run(work, compact)]


def rehash_in(spark: SparkSession, rehash: Rehash, jobs: Sequence[RehashJob]) -> list[SlotResult]:
    """Run the jobs of a rehash in tasks of a session."""
    work = in_tasks(spark, [job.to_text() for job in jobs], [job.size_bytes for job in jobs])

    def run(text: str) -> list[str]:
        return [result.to_text() for result in rehash.run(RehashJob.from_text(text))]

    return [SlotResult.from_text(text) for text in _run(work, run)]


def resize_in(
    spark: SparkSession, resizer: Resizer, jobs: Sequence[ResizeJob]
) -> list[ResizeResult]:
    """Run the jobs of a resize in tasks of a session."""
    work = in_tasks(spark, [job.to_text() for job in jobs], [job.size_bytes for job in jobs])

    def resize(text: str) -> list[str]:
        return [resizer.resize(ResizeJob.from_text(text)).to_text()]

    return [ResizeResult.from_text(text) for text in _run(work, resize)]


def _run(work: DataFrame, run: Callable[[str], list[str]]) -> list[str]:
    """Run each piece of work in a task; return all results as text."""
    done = work.mapInArrow(_reporting_results(run), spark_from_arrow(_RESULTS))
    return [row.result for row in collect(done)]


def _reporting_results(run: Callable[[str], list[str]]) -> BatchFunction:
    def work(batches: Batches) -> Batches:
        for batch in batches:
            for text in facts_of(batch.column("facts")):
                for result in run(text):
                    yield pa.RecordBatch.from_pylist([{"result": result}], _RESULTS)

    return reporting(work, _RESULTS)
