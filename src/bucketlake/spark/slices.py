"""Work on file slices by Spark, some slices a task: compaction, rehashing."""

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

_RESULTS = pa.schema([pa.field("result", pa.string()), REPORT_FIELD])


def compact_in(
    spark: SparkSession, compactor: Compactor, slices: Sequence[FileSlice]
) -> list[WriteStat]:
    """Compact slices in tasks of a session."""
    work = in_tasks(spark, [one.to_text() for one in slices], [one.size_bytes for one in slices])

    def compact(text: str) -> list[str]:
        stat = compactor.compact(FileSlice.from_text(text))
        return [json.dumps(stat.to_facts())]

    return [WriteStat.from_facts(json.loads(text)) for text in _run(work, compact)]


def rehash_in(spark: SparkSession, rehash: Rehash, jobs: Sequence[RehashJob]) -> list[SlotResult]:
    """Run the jobs of a rehash in tasks of a session."""
    work = in_tasks(spark, [one.to_text() for one in jobs], [one.size_bytes for one in jobs])

    def run(text: str) -> list[str]:
        return [result.to_text() for result in rehash.run(RehashJob.from_text(text))]

    return [SlotResult.from_text(text) for text in _run(work, run)]


def _run(work: DataFrame, run: Callable[[str], list[str]]) -> list[str]:
    """Have each piece of work done in a task; return what all of them gave, as text."""
    done = work.mapInArrow(_reporting_results(run), spark_from_arrow(_RESULTS))
    return [row.result for row in collect(done)]


def _reporting_results(run: Callable[[str], list[str]]) -> BatchFunction:
    def work(batches: Batches) -> Batches:
        for batch in batches:
            for text in facts_of(batch.column("facts")):
                for result in run(text):
                    yield pa.RecordBatch.from_pylist([{"result": result}], _RESULTS)

    return reporting(work, _RESULTS)
