"""Compaction of the metadata table in Spark tasks, so that a write does not wait for one process.

The write that compacts would otherwise rewrite the whole record-level index in the driver. Small
compactions stay there, because a Spark job takes longer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from bucketlake.errors import BucketLakeError, StorageError
from bucketlake.metadata.slices.rewriter import PlannedSlice, SliceRewriter, rewrite_here
from bucketlake.model.write_stat import WriteStat
from bucketlake.spark.read import in_tasks
from bucketlake.spark.slices import results_of
from bucketlake.timeline.markers import Marker, MarkerType
from bucketlake.write.data_file import put_data_file

HERE_BYTES_MAX = 64 * 2**20
"""Up to this size of their files, slices are rewritten in the driver, in a few seconds.

50 MB, an index of 4 million keys, took 3.2 processor seconds in the driver and 5.3 in tasks.
"""


def rewrite_in(
    spark: SparkSession, rewriter: SliceRewriter, slices: Sequence[PlannedSlice]
) -> list[WriteStat]:
    """Rewrite slices of the metadata table in tasks of a session.

    Raises
    ------
    StorageError
        If Spark could not run the tasks.
    """
    sizes = [planned.size_bytes for planned in slices]
    if sum(sizes) <= HERE_BYTES_MAX:
        return rewrite_here(rewriter, slices)

    def rewrite(text: str) -> list[str]:
        stat = _rewritten(rewriter, PlannedSlice.from_text(text))
        return [] if stat is None else [json.dumps(stat.to_facts())]

    work = in_tasks(spark, [planned.to_text() for planned in slices], sizes)
    try:
        return [WriteStat.from_facts(json.loads(text)) for text in results_of(work, rewrite)]
    except BucketLakeError:
        raise
    except Exception as error:  # The commit before the compaction is complete, and must not fail.
        folder, doing = rewriter.table.storage.folder, "compact in Spark tasks"
        raise StorageError(folder, doing, str(error)) from error


def _rewritten(rewriter: SliceRewriter, planned: PlannedSlice) -> WriteStat | None:
    """Write the new base file of a slice, from a task that may run twice or late."""
    made = rewriter.rewrite(planned)
    if made is None:
        return None
    stat, data = made
    storage, name = rewriter.table.storage, stat.path.rpartition("/")[2]
    marker = Marker(stat.partition_path, name, MarkerType.CREATE)
    instant, inflight = rewriter.instant, rewriter.inflight
    if not put_data_file(storage, instant, inflight, marker, data, place=storage):
        stored = storage.stat(stat.path)  # Another deflate library makes another size.
        if stored is not None:
            stat = replace(stat, file_size_bytes=stored.size_bytes)
    return stat
