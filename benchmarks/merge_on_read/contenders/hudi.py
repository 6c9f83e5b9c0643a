"""Hudi's merge-on-read tables with the simple bucket index, with and without its metadata table.

Settings, and why a Hudi engineer should agree with each:

- No compaction within a write, so that an upsert is timed alone; the procedure compacts afterwards,
  as a job beside the writers would. One delta commit is enough for it.
- What the compaction writes is compressed as the table was, and without Bloom filters, by the
  procedure's own options, which do not follow from the table.
- Kind of log block and merge settings are Hudi's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.common.hudi import (
    SESSION,
    TABLE,
    HudiContender,
    bucket_index,
    metadata_table,
    procedure_options,
)
from benchmarks.common.process import serve
from benchmarks.common.rows import DataSet
from benchmarks.common.spark import start_session
from benchmarks.merge_on_read.contenders.merged_reads import MergedReads

MERGE_ON_READ = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": "false",
}
AFTER_ONE_COMMIT = {"hoodie.compact.inline.max.delta.commits": "1"}


class HudiMergeOnRead(HudiContender, MergedReads):
    """Upsert into log files, and compact them by the procedure."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, Any], *, metadata: bool) -> None:
        table_options = {**TABLE, **MERGE_ON_READ, **bucket_index(settings["buckets"])}
        super().__init__(spark, {**table_options, **metadata_table(metadata)})
        self._call_options = procedure_options({**AFTER_ONE_COMMIT, **metadata_table(metadata)})
        self.settings |= {
            "compact": "run_compaction: schedule, then execute",
            "options of the procedure": self._call_options,
        }

    def compact(self, _data: DataSet, table: Path) -> None:
        for operation in ("schedule", "execute"):
            self.call(
                "run_compaction", f"op => '{operation}', path => '{table}'", self._call_options
            )


def contenders(settings: Mapping[str, Any]) -> dict[str, HudiMergeOnRead]:
    """Build what this process offers."""
    spark = start_session("hudi", settings, SESSION)
    return {
        "hudi-mor": HudiMergeOnRead(spark, settings, metadata=True),
        "hudi-mor-nomdt": HudiMergeOnRead(spark, settings, metadata=False),
    }


if __name__ == "__main__":
    serve(contenders)
