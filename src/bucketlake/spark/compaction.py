"""Compaction by Spark: some slices a task."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa
from pyspark.sql import SparkSession

from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.spark.read import slices_in_tasks
from bucketlake.spark.reports import REPORT_FIELD, Batches, BatchFunction, collect, reporting
from bucketlake.spark.schema import spark_from_arrow
from bucketlake.write.compactor import Compactor

_STATS = pa.schema([pa.field("stat", pa.string()), REPORT_FIELD])


def compact_in(
    spark: SparkSession, compactor: Compactor, slices: Sequence[FileSlice]
) -> list[WriteStat]:
    """Compact slices in tasks of a session."""
    if not slices:
        return []
    written = slices_in_tasks(spark, slices).mapInArrow(
        _compacting(compactor), spark_from_arrow(_STATS)
    )
    return [WriteStat(**json.loads(row.stat)) for row in collect(written)]


def _compacting(compactor: Compactor) -> BatchFunction:
    def compact(batches: Batches) -> Batches:
        for batch in batches:
            for text in batch.column("slice").to_pylist():
                stat = compactor.compact(FileSlice.from_text(text))
                yield pa.RecordBatch.from_pylist([{"stat": json.dumps(asdict(stat))}], _STATS)

    return reporting(compact, _STATS)
