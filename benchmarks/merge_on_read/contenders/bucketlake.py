"""bucketlake's merge-on-read tables, with the simple bucket index and the peers' bucket count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import bucketlake as bl
from benchmarks.common.bucketlake import BucketLakeContender, start_bucketlake
from benchmarks.common.process import serve
from benchmarks.common.rows import DataSet
from benchmarks.merge_on_read.contenders.merged_reads import MergedReads


class BucketLakeMergeOnRead(BucketLakeContender, MergedReads):
    """Upsert into log files, and compact them."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, Any]) -> None:
        index = bl.SimpleBucket(settings["buckets"])
        super().__init__(spark, settings, index, "merge_on_read")
        self.settings |= {"index": f"SimpleBucket({settings['buckets']})", "compact": "compact()"}

    def compact(self, _data: DataSet, table: Path) -> None:
        bl.open_table(str(table)).compact(spark=self.spark)


def contenders(settings: Mapping[str, Any]) -> dict[str, BucketLakeMergeOnRead]:
    """Build what this process offers."""
    name, spark = start_bucketlake(settings, "bucketlake-mor")
    return {name: BucketLakeMergeOnRead(spark, settings)}


if __name__ == "__main__":
    serve(contenders)
