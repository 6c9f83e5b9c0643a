"""bucketlake with the partition-level index, rescaled by `Table.rescale` in the Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import bucketlake as bl
from benchmarks.common.bucketlake import BucketLakeContender, start_bucketlake
from benchmarks.common.process import serve
from benchmarks.common.rows import DataSet
from benchmarks.rescale.counts import ANY_PATTERN, CHOSEN_PATTERN


class BucketLakeRescale(BucketLakeContender):
    """Give one partition, or all, their new count."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, Any]) -> None:
        old, self._new = settings["buckets"], settings["new_buckets"]
        super().__init__(spark, settings, bl.PartitionBucket({CHOSEN_PATTERN: old}, old))
        self.settings |= {
            "index": f"PartitionBucket({{{CHOSEN_PATTERN!r}: {old}}}, {old})",
            "one partition": f"rescale(add={{{CHOSEN_PATTERN!r}: {self._new}}})",
            "whole table": f"rescale({{{ANY_PATTERN!r}: {self._new}}}, default={self._new})",
        }

    def prepare(self, data: DataSet, table: Path) -> None:
        """Nothing: a table is its folder."""

    def rescale_partition(self, _data: DataSet, table: Path) -> None:
        bl.open_table(str(table)).rescale(
            add={CHOSEN_PATTERN: self._new}, spark=self.spark, dry_run=False
        )

    def rescale_table(self, _data: DataSet, table: Path) -> None:
        bl.open_table(str(table)).rescale(
            {ANY_PATTERN: self._new}, default=self._new, spark=self.spark, dry_run=False
        )


def contenders(settings: Mapping[str, Any]) -> dict[str, BucketLakeRescale]:
    """Build what this process offers."""
    name, spark = start_bucketlake(settings)
    return {name: BucketLakeRescale(spark, settings)}


if __name__ == "__main__":
    serve(contenders)
