"""Hudi's own procedure, `partition_bucket_index_manager`, with and without its metadata table.

Settings, and why a Hudi engineer should agree with each:

- The table is loaded by `upsert`, whose files are the smaller ones to read, and becomes a
  partition-level one by a first call of the procedure, because only the procedure writes down the
  rules. That call changes no count, so it rewrites nothing.
- What the procedure writes is compressed as the table was, by its `options`. They take the Bloom
  filters off too, which a bucket index does not need; Hudi 1.2.0 writes them all the same.
- The table is in Spark's catalog before the clock, as a user's table would be.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.common.hudi import (
    METADATA_ENABLE,
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
from benchmarks.rescale.counts import ANY_PATTERN, CHOSEN_PATTERN


class HudiRescale(HudiContender):
    """Give one partition, or all, their new count."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, Any], *, metadata: bool) -> None:
        old, new = settings["buckets"], settings["new_buckets"]
        rules = {
            "hoodie.bucket.index.partition.rule.type": "regex",
            "hoodie.bucket.index.partition.expressions": f"{CHOSEN_PATTERN},{old}",
        }
        super().__init__(spark, {**TABLE, **bucket_index(old), **rules, **metadata_table(metadata)})
        self._make_partition_level = _overwrite(CHOSEN_PATTERN, old)
        self._one, self._all = f"add => '{CHOSEN_PATTERN},{new}'", _overwrite(ANY_PATTERN, new)
        self._call_options = procedure_options(metadata_table(metadata))
        self._registered = 0
        self.settings |= {
            "one partition": self._one,
            "whole table": self._all,
            "options of the procedure": self._call_options,
        }

    def load(self, data: DataSet, table: Path) -> None:
        super().load(data, table)
        self.prepare(data, table)
        self._call(self._make_partition_level)

    def prepare(self, _data: DataSet, table: Path) -> None:
        """Put the table into the catalog under a name that was never used, as nothing of it is."""
        self._registered += 1
        self.spark.sql(f"CREATE TABLE {self._table_name} USING hudi LOCATION '{table}'")

    def rescale_partition(self, _data: DataSet, _table: Path) -> None:
        self._call(self._one)

    def rescale_table(self, _data: DataSet, _table: Path) -> None:
        self._call(self._all)

    @property
    def _table_name(self) -> str:
        kind = "mdt" if self.options[METADATA_ENABLE] == "true" else "nomdt"
        return f"orders_{kind}_{self._registered}"

    def _call(self, operation: str) -> None:
        row = self.call(
            "partition_bucket_index_manager",
            f"table => '{self._table_name}', {operation}, dry_run => false",
            self._call_options,
        )
        if row.result != "SUCCESS":
            raise RuntimeError(f"the procedure answered {row}")


def _overwrite(pattern: str, count: int) -> str:
    return f"overwrite => '{pattern},{count}', bucket_number => {count}"


def contenders(settings: Mapping[str, Any]) -> dict[str, HudiRescale]:
    """Build what this process offers."""
    spark = start_session("hudi", settings, SESSION)
    return {
        "hudi-procedure": HudiRescale(spark, settings, metadata=True),
        "hudi-procedure-nomdt": HudiRescale(spark, settings, metadata=False),
    }


if __name__ == "__main__":
    serve(contenders)
