"""bucketlake with dynamic buckets, and with each other kind of index.

All are in one Spark session, so that they share a warm JVM, and all tables have a metadata table.
Each partition begins with as many dynamic buckets as it has simple ones, so that as many tasks
write. A record-level index has no buckets: it fills one file group after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bucketlake as bl
from benchmarks.common.bucketlake import BucketLakeContender, start_bucketlake
from benchmarks.common.process import serve
from benchmarks.common.rows import REGIONS
from benchmarks.dynamic.contenders.sizes import rows_of_files
from benchmarks.dynamic.steps import OURS, READ, SIMPLE, TABLE_TYPES


class BucketLake(BucketLakeContender):
    """Tell the sizes of the files after a write."""

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        seen = super().observe(step, table)
        if step != READ:
            rows = rows_of_files(table)
            # The rows of log files are not counted, and without a base file there is no largest.
            seen |= {"largest_file_rows": max(rows, default=0), "smallest": min(rows, default=0)}
        return seen


def contenders(settings: Mapping[str, Any]) -> dict[str, BucketLake]:
    """Build what this process offers."""
    _, spark = start_bucketlake(settings)
    count = settings["buckets"]
    offered: dict[str, BucketLake] = {}

    def offer(name: str, index: Any, table_type: str) -> None:
        contender = BucketLake(spark, settings, index, table_type, metadata_table=True)
        contender.settings["index"] = repr(index)
        offered[name] = contender

    for short, table_type in TABLE_TYPES.items():
        offer(OURS[short], bl.DynamicBucket(assigners=count), table_type)
        offer(SIMPLE[short], bl.SimpleBucket(count), table_type)
    offer("partition-cow", bl.PartitionBucket({REGIONS[0]: count}, default=count), "copy_on_write")
    offer("consistent-cow", bl.ConsistentBucket(count), "copy_on_write")
    offer("record-cow", bl.RecordIndex(), "copy_on_write")
    return offered


if __name__ == "__main__":
    serve(contenders)
