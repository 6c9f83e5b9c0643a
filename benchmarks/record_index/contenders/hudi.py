"""Hudi's record-level index, partitioned or global, copy-on-write and merge-on-read.

Settings, and why a Hudi engineer should agree with each:

- The table is loaded by `bulk_insert` without the index, and the rows of a partition go to one
  task. So each partition has one file, as bucketlake's has, and neither system rewrites more files.
- The index is built by `CREATE INDEX`, which reads the keys of the loaded table and does nothing
  else. It needs a lock provider; the one within the process costs nothing.
- Writes name the index in both ways that Hudi needs, so that they use it and keep it.
- A merge-on-read table is not compacted within a write, so that an upsert is timed alone.
- Files need no Bloom filters where the index looks keys up.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.common.hudi import (
    NO_BLOOM_FILTER,
    SESSION,
    TABLE,
    HudiContender,
    metadata_table,
)
from benchmarks.common.process import serve
from benchmarks.common.rows import KEY, DataSet
from benchmarks.common.spark import start_session
from benchmarks.record_index.contenders.index_files import index_facts
from benchmarks.record_index.contenders.one_row import one_row
from benchmarks.record_index.steps import BUILD

PARTITIONED = {
    "hoodie.index.type": "RECORD_LEVEL_INDEX",
    "hoodie.metadata.record.level.index.enable": "true",
}
GLOBAL = {
    "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
    "hoodie.metadata.global.record.level.index.enable": "true",
}
ONE_FILE_A_PARTITION = {"hoodie.bulkinsert.sort.mode": "PARTITION_PATH_REPARTITION"}
TYPES = {
    "copy_on_write": {},
    "merge_on_read": {
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.compact.inline": "false",
    },
}
LOCK_KEY = "hoodie.write.lock.provider"
LOCK = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"


class HudiRecordIndex(HudiContender):
    """Build the index, and upsert through it."""

    def __init__(self, spark: SparkSession, table_type: str, *, partitioned: bool = True) -> None:
        own = {**NO_BLOOM_FILTER, **metadata_table(True), **TYPES[table_type]}
        index = PARTITIONED if partitioned else GLOBAL
        super().__init__(spark, {**TABLE, **own, **index}, "bulk_insert")
        self._partitioned = partitioned
        self._load_options = {**TABLE, **own, **ONE_FILE_A_PARTITION}
        self._table_type = table_type
        self._registered = 0
        self.settings |= ONE_FILE_A_PARTITION | {"build": "CREATE INDEX record_index"}

    def load(self, data: DataSet, table: Path) -> None:
        rows = self.spark.read.parquet(str(data.load))
        options = {**self._load_options, "hoodie.datasource.write.operation": "bulk_insert"}
        rows.write.format("hudi").options(**options).mode("overwrite").save(str(table))
        self._registered += 1
        self.spark.sql(f"CREATE TABLE {self._table_name} USING hudi LOCATION '{table}'")

    def build(self, _data: DataSet, _table: Path) -> None:
        self.spark.sql(f"SET {LOCK_KEY}={LOCK}")
        options = " OPTIONS(isPartitioned='true')" if self._partitioned else ""
        self.spark.sql(f"CREATE INDEX record_index ON {self._table_name} ({KEY}){options}")
        self.spark.sql(f"RESET {LOCK_KEY}")

    def upsert_row(self, data: DataSet, table: Path) -> None:
        options = {**self.options, "hoodie.datasource.write.operation": "upsert"}
        writer = one_row(self.spark, data).write.format("hudi").options(**options)
        writer.mode("append").save(str(table))

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        seen = super().observe(step, table)
        return seen | index_facts(table) if step == BUILD else seen

    @property
    def _table_name(self) -> str:
        """A name in the catalog that was never used before."""
        kind = "partitioned" if self._partitioned else "global"
        return f"orders_{kind}_{self._table_type}_{self._registered}"


def contenders(settings: Mapping[str, Any]) -> dict[str, HudiRecordIndex]:
    """Build what this process offers."""
    spark = start_session("hudi", settings, SESSION)
    return {
        "hudi-cow": HudiRecordIndex(spark, "copy_on_write"),
        "hudi-mor": HudiRecordIndex(spark, "merge_on_read"),
    }


if __name__ == "__main__":
    serve(contenders)
