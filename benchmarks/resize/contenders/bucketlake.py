"""bucketlake's merge-on-read tables with the consistent and the simple bucket index, in Spark.

The resize that is pending splits every bucket, so that each record of an upsert belongs to a bucket
that is being resized: the worst case. Dual write is what happens on a disk without hard links; it
is forced here by a disk that refuses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession

import bucketlake as bl
from benchmarks.common.bucketlake import BucketLakeContender, start_bucketlake
from benchmarks.common.process import serve
from benchmarks.common.rows import DataSet
from benchmarks.resize.steps import CONSISTENT, SIMPLE
from bucketlake.storage import system_calls

SPLIT_ALL: dict[str, Any] = {
    "max_file_size": 1,
    "merge_threshold": 0.0,
    "max_bytes": None,
    "max_groups": None,
}


class BucketLakeKind(BucketLakeContender):
    """Upserts before and during a resize, and the resize."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Mapping[str, Any],
        index: bl.SimpleBucket | bl.ConsistentBucket,
    ) -> None:
        super().__init__(spark, settings, index, "merge_on_read")
        self.settings |= {"index": repr(index), "resize": f"resize(**{SPLIT_ALL})"}

    def schedule(self, _data: DataSet, table: Path) -> None:
        bl.open_table(str(table)).resize(**SPLIT_ALL, schedule_only=True, spark=self.spark)

    def upsert_linked(self, data: DataSet, table: Path) -> None:
        self.upsert(data, table)

    def upsert_twice(self, data: DataSet, table: Path) -> None:
        with mock.patch.object(system_calls, "add_name", return_value=False) as refused:
            self.upsert(data, table)
        assert refused.called, "the upsert copied no log file"

    def complete(self, _data: DataSet, table: Path) -> None:
        # The limits keep this call from planning another resize behind the pending one.
        report = bl.open_table(str(table)).resize(
            max_file_size=1 << 40, merge_threshold=0.0, spark=self.spark
        )
        assert len(report.instants) == 1, report


def contenders(settings: Mapping[str, Any]) -> dict[str, BucketLakeKind]:
    """Build what this process offers."""
    _, spark = start_bucketlake(settings)
    buckets = settings["buckets"]
    return {
        CONSISTENT: BucketLakeKind(spark, settings, bl.ConsistentBucket(buckets)),
        SIMPLE: BucketLakeKind(spark, settings, bl.SimpleBucket(buckets)),
    }


if __name__ == "__main__":
    serve(contenders)
