"""Compaction and rehashing of file slices in Spark tasks, several slices per task."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.facts import facts_of
from bucketlake.spark.index_entry_tasks import packed_keys, result_row, with_index
from bucketlake.spark.read import in_tasks
from bucketlake.spark.reports import REPORT_FIELD, Batches, BatchFunction, collect, reporting
from bucketlake.spark.session_settings import SHUFFLE_SETTINGS, changed_settings
from bucketlake.write.batch_source import TaskResult
from bucketlake.write.compactor import Compactor
from bucketlake.write.record_index.index_writer import IndexTask, ShardPlan, ShardResult
from bucketlake.write.record_index.key_changes import ChangedKeys
from bucketlake.write.rehash import Rehash, RehashJob
from bucketlake.write.resizer import ResizeJob, Resizer, ResizeResult
from bucketlake.write.write_plan import SlotResult

_RESULTS = pa.schema([pa.field("result", pa.string()), REPORT_FIELD])


def compact_in(
    spark: SparkSession, compactor: Compactor, slices: Sequence[FileSlice]
) -> list[WriteStat]:
    """Compact slices in tasks of a session."""
    work = in_tasks(spark, [s.to_text() for s in slices], [s.size_bytes for s in slices])

    def compact(text: str) -> list[str]:
        stat = compactor.compact(FileSlice.from_text(text))
        return [json.dumps(stat.to_facts())]

    return [WriteStat.from_facts(json.loads(text)) for text in results_of(work, compact)]


def rehash_in(
    spark: SparkSession, rehash: Rehash, jobs: Sequence[RehashJob], shards: Sequence[ShardPlan]
) -> list[TaskResult]:
    """Run the jobs of a rehash in tasks of a session, and then write shards of the index."""
    work = in_tasks(spark, [job.to_text() for job in jobs], [job.size_bytes for job in jobs])

    def run(text: str, changed: ChangedKeys | None = None) -> list[str]:
        return [result.to_text() for result in rehash.run(RehashJob.from_text(text), changed)]

    results, written = _run_with_index(work, run, shards, rehash.task.index)
    return [*map(SlotResult.from_text, results), *written]


def resize_in(
    spark: SparkSession, resizer: Resizer, jobs: Sequence[ResizeJob], shards: Sequence[ShardPlan]
) -> list[ResizeResult | ShardResult]:
    """Run the jobs of a resize in tasks of a session, and then write shards of the index."""
    work = in_tasks(spark, [job.to_text() for job in jobs], [job.size_bytes for job in jobs])

    def resize(text: str, changed: ChangedKeys | None = None) -> list[str]:
        return [resizer.resize(ResizeJob.from_text(text), changed).to_text()]

    results, written = _run_with_index(work, resize, shards, resizer.index)
    return [*map(ResizeResult.from_text, results), *written]


def results_of(work: DataFrame, run: Callable[[str], list[str]]) -> list[str]:
    """Run each piece of work in a task; return all results as text."""
    done = map_in_arrow(work, _reporting_results(run), _RESULTS)
    return [row.result for row in collect(done)]


def _run_with_index(
    work: DataFrame,
    run: Callable[[str, ChangedKeys | None], list[str]],
    shards: Sequence[ShardPlan],
    index: IndexTask | None,
) -> tuple[list[str], list[ShardResult]]:
    """Run each piece of work in a task, and then write shards of the index, if there is one."""
    if index is None:
        return results_of(work, lambda text: run(text, None)), []
    spark = work.sparkSession
    with changed_settings(spark, SHUFFLE_SETTINGS):
        return with_index(spark, work, _with_keys(run, index), shards, index)


def _with_keys(
    run: Callable[[str, ChangedKeys | None], list[str]], index: IndexTask
) -> BatchFunction:
    def work(batches: Batches) -> Batches:
        for batch in batches:
            for text in facts_of(batch.column("facts")):
                changed = index.collector()
                yield from map(result_row, run(text, changed))
                yield from packed_keys(index, changed)

    return work


def _reporting_results(run: Callable[[str], list[str]]) -> BatchFunction:
    def work(batches: Batches) -> Batches:
        for batch in batches:
            for text in facts_of(batch.column("facts")):
                for result in run(text):
                    yield pa.RecordBatch.from_pylist([{"result": result}], _RESULTS)

    return reporting(work, _RESULTS)
