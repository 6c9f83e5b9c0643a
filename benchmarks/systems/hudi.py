"""Apache Hudi's own Spark writer on Spark 3.5.

Settings, and why a Hudi engineer should agree with each:

- All contenders of a benchmark share one session, so one heap, warmed by all of them.
- A bucket index looks nothing up, so its files need no Bloom filters; nor do those of a table whose
  record-level index looks keys up.
- A merge-on-read table is not compacted within a write, so that an upsert is timed alone. The
  procedure compacts afterwards, as a job beside the writers would; one delta commit is enough for
  it. Kind of log block and merge settings are Hudi's defaults.
- What a procedure writes is compressed as the table was, and without Bloom filters, by the
  procedure's own options, which do not follow from the table.
- A partition-level table is loaded by `upsert`, whose files are the smaller ones to read, and
  becomes a partition-level one by a first call of the procedure, because only the procedure writes
  down the rules. That call changes no count, so it rewrites nothing. The table is in the catalog
  before the clock, as a user's table would be.
- A consistent index may grow to many times its buckets: by default its largest number is the
  initial one, and nothing is ever split. The plan of a resize splits every bucket, as bucketlake's
  does here; a limit of 30 groups, the default, would leave some out. Dual write is Hudi's update
  strategy for this index; its default rejects writes to the buckets of a pending resize.
- A table with a record-level index is loaded by `bulk_insert` without the index, and the rows of a
  partition go to one task. So each partition has one file, as bucketlake's has, and neither system
  rewrites more files. The index is built by `CREATE INDEX`, which reads the keys of the loaded
  table and does nothing else. It needs a lock provider; the one within the process costs nothing.
  Writes name the index in both ways that Hudi needs, so that they use it and keep it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row

from benchmarks.common.benchmark import Contender, Settings
from benchmarks.common.rows import CHOSEN_PATTERN, KEY, ORDERING, PARTITION, DataSet
from benchmarks.systems.order_tables import index_files
from benchmarks.systems.spark import MERGE_ON_READ, SparkSystem, one_row

Options = Mapping[str, str]

COORDINATES = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
SESSION = {
    "spark.jars.packages": COORDINATES,
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.shuffle.partitions": "4",
}
METADATA_ENABLE = "hoodie.metadata.enable"
OPERATION = "hoodie.datasource.write.operation"
CODEC = {"hoodie.parquet.compression.codec": "zstd"}
NO_BLOOM_FILTER = {"hoodie.parquet.bloom.filter.enabled": "false"}
TABLE = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.datasource.write.partitionpath.field": PARTITION,
    "hoodie.table.ordering.fields": ORDERING,
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    **CODEC,
}
LOCK_KEY = "hoodie.write.lock.provider"
LOCK = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
_CLUSTERING = "org.apache.hudi.client.clustering"

BLOOM = {"hoodie.index.type": "BLOOM"}
RECORD_LEVEL = {
    **NO_BLOOM_FILTER,
    "hoodie.index.type": "RECORD_LEVEL_INDEX",
    "hoodie.metadata.record.level.index.enable": "true",
}
GLOBAL_RECORD_LEVEL = {
    **NO_BLOOM_FILTER,
    "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
    "hoodie.metadata.global.record.level.index.enable": "true",
}


def simple_bucket(buckets: int) -> dict[str, str]:
    """Options of the simple bucket index."""
    return {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        "hoodie.bucket.index.num.buckets": str(buckets),
        **NO_BLOOM_FILTER,
    }


def partition_bucket(buckets: int) -> dict[str, str]:
    """Options of the partition-level bucket index, which has a rule for one partition."""
    return {
        **simple_bucket(buckets),
        "hoodie.bucket.index.partition.rule.type": "regex",
        "hoodie.bucket.index.partition.expressions": f"{CHOSEN_PATTERN},{buckets}",
    }


def consistent_bucket(buckets: int) -> dict[str, str]:
    """Options of the consistent hashing index, and of writes during its resize."""
    return {
        **simple_bucket(buckets),
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.min.num.buckets": "1",
        "hoodie.bucket.index.max.num.buckets": str(16 * buckets),
        "hoodie.bucket.index.hash.field": KEY,
        "hoodie.clustering.updates.strategy": (
            f"{_CLUSTERING}.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
        ),
    }


RESIZE = {
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
COMPACTION = {"hoodie.compact.inline.max.delta.commits": "1"}


class Hudi(SparkSystem):
    """A table under one index.

    Parameters
    ----------
    settings : mapping
        Those of the run.
    index : mapping
        The options of the index.
    table_type : str
        ``copy_on_write`` or ``merge_on_read``.
    metadata_table : bool
        Whether the table has one.
    load : str
        The operation of the load.
    procedure : mapping, optional
        Options of the procedures that the steps call, besides those of all.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        index: Options,
        table_type: str = "copy_on_write",
        *,
        metadata_table: bool = True,
        load: str = "upsert",
        procedure: Options | None = None,
    ) -> None:
        super().__init__(settings, SESSION)
        self.versions = {"hudi": COORDINATES}
        kind = {"hoodie.datasource.write.table.type": table_type.upper()}
        if table_type == MERGE_ON_READ:
            kind["hoodie.compact.inline"] = "false"
        metadata = {METADATA_ENABLE: str(metadata_table).lower()}
        self._options = {**TABLE, **kind, **index, **metadata}
        self._load_options = {**self._options, OPERATION: load}
        called = {**CODEC, **NO_BLOOM_FILTER, **(procedure or {}), **metadata}
        self._procedure = ",".join(f"{key}={value}" for key, value in called.items())
        self._new_count = settings.get("new_buckets", 0)
        self._registered = 0
        self.settings |= self._options | {"load": load}
        if procedure is not None:
            self.settings["options of the procedure"] = self._procedure

    # ---- steps ----------------------------------------------------------------------------------

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows into a new table."""
        rows = self.spark.read.parquet(str(data.load))
        rows.write.format("hudi").options(**self._load_options).mode("overwrite").save(str(table))

    def upsert(self, data: DataSet, table: Path) -> None:
        """Write the changes."""
        self._append(self.spark.read.parquet(str(data.changes)), table)

    upsert_twice = upsert

    def append(self, data: DataSet, table: Path) -> None:
        """Write the changes, all of which have new keys."""
        self._append(self.spark.read.parquet(str(data.changes)), table, "insert")

    def upsert_row(self, data: DataSet, table: Path) -> None:
        """Write one row, which is stored already."""
        self._append(one_row(self.spark, data), table)

    def compact(self, _data: DataSet, table: Path) -> None:
        """Merge log files into base files."""
        for operation in ("schedule", "execute"):
            self._call("run_compaction", f"op => '{operation}', path => '{table}'")

    def schedule(self, _data: DataSet, table: Path) -> None:
        """Plan a resize that splits every bucket."""
        self._call("run_clustering", f"path => '{table}', op => 'schedule'")

    def complete(self, _data: DataSet, table: Path) -> None:
        """Carry the pending resize out."""
        self._call("run_clustering", f"path => '{table}', op => 'execute'")

    def prepare(self, _data: DataSet, table: Path) -> None:
        """Put the table into the catalog under a name that was never used, as nothing of it is."""
        self._registered += 1
        self.spark.sql(f"CREATE TABLE {self._table_name} USING hudi LOCATION '{table}'")

    # ---- what the steps share -------------------------------------------------------------------

    def frame(self, table: Path, columns: Sequence[str] | None = None) -> DataFrame:
        """Read all columns of the table, or those that are named."""
        value = self._options[METADATA_ENABLE]
        rows = self.spark.read.format("hudi").option(METADATA_ENABLE, value).load(str(table))
        return rows if columns is None else rows.select(*columns)

    @property
    def _table_name(self) -> str:
        return f"orders_{id(self)}_{self._registered}"

    def _append(self, rows: DataFrame, table: Path, operation: str = "upsert") -> None:
        options = {**self._options, OPERATION: operation}
        rows.write.format("hudi").options(**options).mode("append").save(str(table))

    def _call(self, procedure: str, arguments: str) -> list[Row]:
        # Procedures read the session's setting beside their own options.
        self.spark.conf.set(METADATA_ENABLE, self._options[METADATA_ENABLE])
        call = f"CALL {procedure}({arguments}, options => '{self._procedure}')"
        return self.spark.sql(call).collect()


class HudiPartitionBucket(Hudi):
    """A table with the partition-level bucket index, rescaled by the procedure."""

    def __init__(self, settings: Mapping[str, Any], *, metadata_table: bool) -> None:
        old = settings["buckets"]
        index = partition_bucket(old)
        super().__init__(settings, index, metadata_table=metadata_table, procedure={})
        self._old_count = old

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows, and have the rules written down."""
        super().load(data, table)
        self.prepare(data, table)
        self._manage(_overwrite(CHOSEN_PATTERN, self._old_count))

    def rescale_partition(self, _data: DataSet, _table: Path) -> None:
        """Give one partition its new number of buckets."""
        self._manage(f"add => '{CHOSEN_PATTERN},{self._new_count}'")

    def rescale_table(self, _data: DataSet, _table: Path) -> None:
        """Give all partitions their new number of buckets."""
        self._manage(_overwrite(".*", self._new_count))

    def _manage(self, operation: str) -> None:
        arguments = f"table => '{self._table_name}', {operation}, dry_run => false"
        [row] = self._call("partition_bucket_index_manager", arguments)
        if row.result != "SUCCESS":
            raise RuntimeError(f"the procedure answered {row}")


def _overwrite(pattern: str, count: int) -> str:
    return f"overwrite => '{pattern},{count}', bucket_number => {count}"


class HudiRecordIndex(Hudi):
    """A table with a record-level index, partitioned or global.

    With ``is_built`` the load builds the index, too; otherwise the step `build` does.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        table_type: str,
        *,
        index: Options = RECORD_LEVEL,
        is_built: bool = False,
    ) -> None:
        super().__init__(settings, index, table_type, load="bulk_insert")
        one_file = {"hoodie.bulkinsert.sort.mode": "PARTITION_PATH_REPARTITION"}
        without = {key: value for key, value in self._load_options.items() if key not in index}
        self._load_options = {**without, **NO_BLOOM_FILTER, **one_file}
        self._is_partitioned, self._is_built = index is RECORD_LEVEL, is_built
        self.settings |= {**one_file, "build": "CREATE INDEX record_index"}

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows without the index."""
        super().load(data, table)
        self.prepare(data, table)
        if self._is_built:
            self.build(data, table)

    def build(self, _data: DataSet, _table: Path) -> None:
        """Build the index from the keys of the whole table."""
        self.spark.sql(f"SET {LOCK_KEY}={LOCK}")
        options = " OPTIONS(isPartitioned='true')" if self._is_partitioned else ""
        self.spark.sql(f"CREATE INDEX record_index ON {self._table_name} ({KEY}){options}")
        self.spark.sql(f"RESET {LOCK_KEY}")

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        """Return also the size of the index."""
        seen = super().observe(step, table)
        return seen | index_files(table) if step == "build" else seen


def bucket_contender(
    name: str, table_type: str = "copy_on_write", *, metadata_table: bool = True, **own: Any
) -> Contender:
    """Return a contender with simple buckets; ``own`` are further arguments of `Hudi`."""

    def make(settings: Settings) -> Hudi:
        index = simple_bucket(settings["buckets"])
        return Hudi(settings, index, table_type, metadata_table=metadata_table, **own)

    return Contender(name, make, "hudi", spark35=True)
