"""Kinds of tables of the interop tests: one declaration, told to bucketlake and to real Hudi."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import bucketlake as bl
from bucketlake.config.table_version import NEWEST_VERSION, table_version
from bucketlake.index.hashing_config import CONFIGS_FOLDER
from bucketlake.index.setting import TableIndex

BUCKETS = 3

EVENT = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.int32()),
        ("note", pa.string()),
    ]
)
REGIONS = ("eu", "us", "日本")

KEYGEN = "hoodie.datasource.write.keygenerator.class"
OPERATION = "hoodie.datasource.write.operation"
METADATA_ENABLE = "hoodie.metadata.enable"


@dataclass(frozen=True)
class TableKind:
    """How a table is keyed, partitioned, ordered and indexed.

    Attributes
    ----------
    ordering : str or None
        The ordering field, or several between commas; None lets the later commit win.
    generator : str or None
        Hudi's key generator class, where it does not infer the right one.
    rules : tuple of (str, int)
        Bucket counts by partition; none for one count.
    merge_on_read : bool
        Whether updates go to log files; Hudi compacts where it is told to.
    max_file_size : int or None
        Bytes at which a bucket's next file group is opened; None for one group a bucket.
    partitioned_index : bool or None
        Whether the record-level index of both writers is partitioned; None for buckets.
    dynamic : bool
        Whether bucketlake takes the shards of a partitioned index for assigners of buckets.
    assigners : int or None
        Assigners of dynamic buckets; None for the rule by rows.
    version : int
        Version of the table.
    ring : bool
        Whether the buckets are those of a hash ring.
    metadata_table : bool
        Whether both writers maintain a metadata table; Hudi builds it where there is none.
    """

    schema: pa.Schema = EVENT
    record_key: tuple[str, ...] = ("id",)
    partition_by: tuple[str, ...] = ("region",)
    ordering: str | None = "ts"
    hash_fields: tuple[str, ...] | None = None
    hive_style: bool = False
    url_encode: bool = False
    timestamp: bl.TimestampPartition | None = None
    generator: str | None = None
    rules: tuple[tuple[str, int], ...] = ()
    merge_on_read: bool = False
    max_file_size: int | None = None
    partitioned_index: bool | None = None
    dynamic: bool = False
    assigners: int | None = 2
    version: int = NEWEST_VERSION
    ring: bool = False
    metadata_table: bool = False

    @property
    def index(self) -> TableIndex:
        """The index of both writers."""
        if self.dynamic:
            return bl.DynamicBucket(max_records=20, assigners=self.assigners)
        if self.partitioned_index is not None:
            return bl.RecordIndex(self.partitioned_index)
        if self.ring:
            return bl.ConsistentBucket(BUCKETS)
        fields, size = self.hash_fields, self.max_file_size
        if self.rules:
            return bl.PartitionBucket(self.rules, BUCKETS, hash_fields=fields, max_file_size=size)
        return bl.SimpleBucket(BUCKETS, fields, size)

    def create(self, path: Path) -> bl.Table:
        """Make an empty table of bucketlake's."""
        return bl.create_table(
            str(path),
            schema=self.schema,
            record_key=self.record_key,
            partition_by=self.partition_by,
            ordering=None if self.ordering is None else self.ordering.split(","),
            index=self.index,
            hive_style=self.hive_style,
            url_encode=self.url_encode,
            timestamp_partition=self.timestamp,
            table_type="merge_on_read" if self.merge_on_read else "copy_on_write",
            metadata_table=self.metadata_table,
            version=self.version,
        )

    def open(self, path: Path) -> bl.Table:
        """Open a table to write to it, whoever began it."""
        if self.rules and (path / CONFIGS_FOLDER).exists():
            return bl.open_table(str(path))  # The rules may have changed since the table was made.
        return bl.open_table(str(path), index=self.index)

    def rows(self, rows: list[dict[str, object]]) -> pa.Table:
        """Make a batch, its columns in the types of the table."""
        return pa.Table.from_pylist(rows, self.schema)

    def write_options(self, path: Path) -> dict[str, str]:
        """Tell Hudi to write such a table."""
        options = {
            "hoodie.table.name": path.name,
            "hoodie.datasource.write.recordkey.field": ",".join(self.record_key),
            "hoodie.datasource.write.partitionpath.field": ",".join(self.partition_by),
            "hoodie.datasource.write.hive_style_partitioning": str(self.hive_style).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": str(self.url_encode).lower(),
            METADATA_ENABLE: str(self.metadata_table).lower(),
            # The bloom filter in each base file's footer takes 430 kB and time by default.
            "hoodie.index.bloom.num_entries": "10",
            "hoodie.bloom.index.filter.dynamic.max.entries": "10",
        }
        if self.merge_on_read:
            options["hoodie.datasource.write.table.type"] = "MERGE_ON_READ"
            options["hoodie.compact.inline"] = "false"
        if self.version < NEWEST_VERSION:
            options["hoodie.write.table.version"] = str(self.version)
            if self.ordering is not None or table_version(self.version).has_names_of_hudi_1:
                options["hoodie.datasource.write.precombine.field"] = self.ordering or ""
        elif self.ordering is not None:
            options["hoodie.table.ordering.fields"] = self.ordering
        if not table_version(self.version).has_names_of_hudi_1 and self.ordering is not None:
            # Otherwise the later write wins, and a copy-on-write table does not tell.
            payload = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
            options["hoodie.datasource.write.payload.class"] = payload
        if self.generator is not None:
            options[KEYGEN] = f"org.apache.hudi.keygen.{self.generator}"
        if self.timestamp is not None:
            options |= _timestamp_options(self.timestamp)
        return options | self.bucket_options()

    def bucket_options(self) -> dict[str, str]:
        """Tell Hudi which index a table has: no table of Hudi's stores it.

        A reader of Hudi's prunes buckets only where it is told the hash fields too.
        """
        if self.partitioned_index is not None and self.version < NEWEST_VERSION:
            # The older name, which is that of a global index; newer releases know it, too.
            return {
                "hoodie.index.type": "RECORD_INDEX",
                "hoodie.metadata.record.index.enable": "true",
            }
        if self.partitioned_index is not None:
            return self.index.to_options()
        fields = ",".join(self.hash_fields or self.record_key)
        return self.index.to_options() | {"hoodie.bucket.index.hash.field": fields}


def _timestamp_options(timestamp: bl.TimestampPartition) -> dict[str, str]:
    return {
        "hoodie.keygen.timebased.timestamp.type": timestamp.timestamp_type,
        "hoodie.keygen.timebased.output.dateformat": timestamp.output_format,
        "hoodie.keygen.timebased.timezone": "UTC",
    }
