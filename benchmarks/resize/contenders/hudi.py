"""Hudi's merge-on-read tables with the consistent, the simple bucket and the Bloom index.

Settings, and why a Hudi engineer should agree with each:

- No metadata table, as it would have to be kept by every write and no bucket index reads it; the
  Bloom index reads the filters in the files then, which is its default, too.
- No compaction within a write, so that an upsert is timed alone.
- The consistent index may grow to many times its buckets: by default its largest number is the
  initial one, and nothing is ever split.
- The plan of the resize splits every bucket, as bucketlake's does here. A limit of 30 groups, the
  default, would leave some out.
- Dual write is Hudi's update strategy for this index; its default rejects writes to the buckets of
  a pending resize.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.common.hudi import (
    METADATA_ENABLE,
    NO_BLOOM_FILTER,
    SESSION,
    TABLE,
    HudiContender,
    bucket_index,
    metadata_table,
    procedure_options,
)
from benchmarks.common.process import serve
from benchmarks.common.rows import KEY, DataSet
from benchmarks.common.spark import start_session
from benchmarks.resize.steps import HUDI_BLOOM, HUDI_CONSISTENT, HUDI_SIMPLE

MERGE_ON_READ = {
    **TABLE,
    **metadata_table(False),
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": "false",
}
_CLUSTERING = "org.apache.hudi.client.clustering"
BUCKETS_MAX_FACTOR = 16


def consistent_index(buckets: int) -> dict[str, str]:
    """Options of the consistent hashing index, and of writes during its resize."""
    return {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.num.buckets": str(buckets),
        "hoodie.bucket.index.min.num.buckets": "1",
        "hoodie.bucket.index.max.num.buckets": str(BUCKETS_MAX_FACTOR * buckets),
        "hoodie.bucket.index.hash.field": KEY,
        "hoodie.clustering.updates.strategy": (
            f"{_CLUSTERING}.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
        ),
        **NO_BLOOM_FILTER,
    }


def resize_options(buckets: int) -> dict[str, str]:
    """Options of the clustering procedure, which learns nothing of the index from the table."""
    return {
        **consistent_index(buckets),
        **metadata_table(False),
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.clustering.plan.strategy.class": (
            f"{_CLUSTERING}.plan.strategy.SparkConsistentBucketClusteringPlanStrategy"
        ),
        "hoodie.clustering.execution.strategy.class": (
            f"{_CLUSTERING}.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
        ),
        "hoodie.clustering.plan.strategy.max.num.groups": "100000",
        "hoodie.bucket.index.split.threshold": "0",
    }


class HudiKind(HudiContender):
    """Upserts before and during a resize, and the resize."""

    def __init__(
        self, spark: SparkSession, index: Mapping[str, str], resize: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(spark, {**MERGE_ON_READ, **index})
        self._resize = procedure_options(resize or {})
        if resize:
            self.settings["options of the procedure"] = self._resize

    def schedule(self, _data: DataSet, table: Path) -> None:
        self._run_clustering("schedule", table)

    def upsert_twice(self, data: DataSet, table: Path) -> None:
        self.upsert(data, table)

    def complete(self, _data: DataSet, table: Path) -> None:
        self._run_clustering("execute", table)

    def _run_clustering(self, operation: str, table: Path) -> None:
        # The procedure reads the session's setting beside its own options, and answers no row.
        self.spark.conf.set(METADATA_ENABLE, self.options[METADATA_ENABLE])
        self.spark.sql(
            f"CALL run_clustering(path => '{table}', op => '{operation}', "
            f"options => '{self._resize}')"
        ).collect()


def contenders(settings: Mapping[str, Any]) -> dict[str, HudiKind]:
    """Build what this process offers."""
    spark = start_session("hudi", settings, SESSION)
    buckets = settings["buckets"]
    return {
        HUDI_CONSISTENT: HudiKind(spark, consistent_index(buckets), resize_options(buckets)),
        HUDI_SIMPLE: HudiKind(spark, bucket_index(buckets)),
        HUDI_BLOOM: HudiKind(spark, {"hoodie.index.type": "BLOOM"}),
    }


if __name__ == "__main__":
    serve(contenders)
