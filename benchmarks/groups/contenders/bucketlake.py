"""bucketlake with several file groups in a bucket, and with one, in tables of both types.

A table of several groups gets the size at which a first load opens the wanted number of them: a
load guesses that a stored row takes half of its bytes in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import bucketlake as bl
from benchmarks.common.bucketlake import BucketLakeContender, start_bucketlake
from benchmarks.common.process import serve
from benchmarks.common.rows import KEY, DataSet
from benchmarks.groups.steps import GROUPS, SIMPLE, TABLE_TYPES

STORED_SHARE = 0.5
SLACK = 1.12  # Buckets differ a little in their rows, and the fullest has to fit too.


class BucketLake(BucketLakeContender):
    """Load, and upsert the same changes twice."""

    def upsert_again(self, data: DataSet, table: Path) -> None:
        """Upsert changes whose keys are all in the table."""
        self.upsert(data, table)


class SeveralGroups(BucketLake):
    """Fit the size of a file group to the rows of a load."""

    def __init__(
        self, spark: SparkSession, settings: Mapping[str, Any], index: bl.SimpleBucket, kind: str
    ) -> None:
        super().__init__(spark, settings, index, kind)
        self._group_count = settings["groups"]

    def load(self, data: DataSet, table: Path) -> None:
        rows_of_group = data.facts["rows"] / (
            data.facts["partitions"] * self._index.count * self._group_count
        )
        size = int(rows_of_group * row_bytes(data) * STORED_SHARE * SLACK)
        self._index = bl.SimpleBucket(self._index.count, max_file_size=size)
        super().load(data, table)


def row_bytes(data: DataSet) -> float:
    """Return the bytes in memory of a row and its key."""
    rows = pq.read_table(min(data.load.glob("*.parquet")))
    return (rows.nbytes + rows[KEY].nbytes) / rows.num_rows


def contenders(settings: Mapping[str, Any]) -> dict[str, BucketLake]:
    """Build what this process offers."""
    _, spark = start_bucketlake(settings)
    buckets, groups = settings["buckets"], settings["groups"]
    offered: dict[str, BucketLake] = {}
    for short, table_type in TABLE_TYPES.items():
        several = SeveralGroups(spark, settings, bl.SimpleBucket(buckets), table_type)
        several.settings["index"] = f"SimpleBucket({buckets}, max_file_size for {groups} groups)"
        simple = BucketLake(spark, settings, bl.SimpleBucket(buckets * groups), table_type)
        simple.settings["index"] = f"SimpleBucket({buckets * groups})"
        offered |= {f"{GROUPS}-{short}": several, f"{SIMPLE}-{short}": simple}
    return offered


if __name__ == "__main__":
    serve(contenders)
