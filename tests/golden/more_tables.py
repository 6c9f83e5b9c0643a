"""Which tables ``make_more_tables.py`` writes: options and steps of each, with what it is for.

All are small: a handful of events, two buckets, no metadata table unless the table is about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from tests.interop.peer.client import HUDI_VERSION

KEY = "hoodie.datasource.write.recordkey.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
ORDERING = "hoodie.table.ordering.fields"
OPERATION = "hoodie.datasource.write.operation"
KEYGEN = "hoodie.datasource.write.keygenerator.class"
HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
MERGE_MODE = "hoodie.write.record.merge.mode"
METADATA = "hoodie.metadata.enable"
TIMESTAMP_TYPE = "hoodie.keygen.timebased.timestamp.type"
OUTPUT_FORMAT = "hoodie.keygen.timebased.output.dateformat"
TIME_ZONE = "hoodie.keygen.timebased.timezone"
COMPLEX = "org.apache.hudi.keygen.ComplexKeyGenerator"
CUSTOM = "org.apache.hudi.keygen.CustomKeyGenerator"
TIMESTAMP = "org.apache.hudi.keygen.TimestampBasedKeyGenerator"
NON_PARTITIONED = "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
IS_DELETED = "_hoodie_is_deleted"  # A column of the data, although it is named like a meta column.

BASE_OPTIONS = {
    KEY: "id",
    PARTITION: "region",
    ORDERING: "ts",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    METADATA: "false",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.parquet.compression.codec": "zstd",
    # The bloom filter in each base file's footer takes 430 kB by default.
    "hoodie.index.bloom.num_entries": "10",
    "hoodie.bloom.index.filter.dynamic.max.entries": "10",
}

# Hudi makes this check after it wrote the data and before it commits; new rows fail it.
FAILING_CHECK = {
    "hoodie.precommit.validators": (
        "org.apache.hudi.client.validator.SqlQueryEqualityPreCommitValidator"
    ),
    "hoodie.precommit.validators.equality.sql.queries": "SELECT count(*) FROM <TABLE_NAME>",
}


class Maker(Protocol):
    """What the steps of a table are told to."""

    def write(
        self, rows: pa.Table, operation: str = ..., options: Mapping[str, str] | None = ...
    ) -> None:
        """Write rows with an operation of Hudi's."""

    def fail_to_write(self, rows: pa.Table) -> None:
        """Begin an upsert that fails before its commit."""

    def call(self, procedure: str) -> list[dict[str, Any]]:
        """Run one of Hudi's procedures and return its rows."""

    def sql(self, statement: str) -> None:
        """Run a statement; ``{table}`` in it stands for the table's name in a catalog."""

    def newest_commit(self) -> str:
        """Return the requested time of the newest completed commit."""


@dataclass(frozen=True, slots=True)
class MoreTable:
    """A table to be made."""

    name: str
    options: Mapping[str, str]
    steps: Callable[[Maker], None]
    has_history: bool = False  # Whether its time travel is looked at as well.
    version: str = HUDI_VERSION  # The release of Hudi that writes it.
    is_readable: bool = True  # Whether Hudi itself can read it.


# ---- rows ---------------------------------------------------------------------------------------

EVENT = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("qty", pa.int32()),
        ("note", pa.string()),
    ]
)
ODD_REGIONS = ("a/b", "k=v", "a b", "ä", "日本", "100%", "x:y", "{z}", "", None)


def events(
    numbers: range, ts: int, regions: tuple[str | None, ...] = ("eu", "us"), qty: int = 10
) -> pa.Table:
    """Rows of the events with these numbers; the region follows from the number."""
    rows = [
        {
            "id": f"e{n}",
            "region": regions[n % len(regions)],
            "ts": ts,
            "qty": qty * n,
            "note": None if n % 5 == 0 else f"at {ts}",
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(rows, EVENT)


def with_column(rows: pa.Table, name: str, kind: pa.DataType, values: list[Any]) -> pa.Table:
    return rows.append_column(pa.field(name, kind), pa.array(values, kind))


def cycled(values: list[Any], length: int) -> list[Any]:
    return [values[n % len(values)] for n in range(length)]


# ---- steps --------------------------------------------------------------------------------------


def two_upserts(maker: Maker) -> None:
    maker.write(events(range(8), ts=1))
    maker.write(events(range(6, 11), ts=2))


def odd_regions(maker: Maker) -> None:
    maker.write(events(range(20), ts=1, regions=ODD_REGIONS))
    maker.write(events(range(10, 25), ts=2, regions=ODD_REGIONS))


def odd_regions_as_they_are(maker: Maker) -> None:
    """A slash makes a folder of its own; a colon cannot be written (Hadoop's paths refuse it)."""
    regions = tuple(region for region in ODD_REGIONS if region != "x:y")
    maker.write(events(range(18), ts=1, regions=regions))
    maker.write(events(range(9, 23), ts=2, regions=regions))


def two_partition_fields(maker: Maker) -> None:
    for numbers, ts in ((range(12), 1), (range(8, 16), 2)):
        kinds = cycled(["web", "app", None], len(numbers))
        maker.write(with_column(events(numbers, ts=ts), "kind", pa.string(), kinds))


def days_of_milliseconds(maker: Maker) -> None:
    """The last millisecond of a leap day, the first after it, before 1970, and none."""
    moments = [1_709_251_199_999, 1_709_251_200_000, -1, 0, None]
    for numbers, ts in ((range(10), 1), (range(5, 15), 2)):
        rows = with_column(
            events(numbers, ts=ts), "at_ms", pa.int64(), cycled(moments, len(numbers))
        )
        maker.write(rows)


def late_rows_win(maker: Maker) -> None:
    """The second write is older by ``ts``, and wins since the commit time decides."""
    maker.write(events(range(8), ts=9))
    maker.write(events(range(6, 11), ts=2))


def overwritten_partition(maker: Maker) -> None:
    two_upserts(maker)
    maker.write(events(range(20, 24), ts=3, regions=("eu",)), "insert_overwrite")
    maker.write(events(range(22, 26), ts=4), "upsert")


def overwritten_table(maker: Maker) -> None:
    two_upserts(maker)
    maker.write(events(range(20, 24), ts=3, regions=("asia", "eu")), "insert_overwrite_table")


def deleted_partition(maker: Maker) -> None:
    """Partition us goes; eu goes and comes back with one row."""
    two_upserts(maker)
    for region in ("us", "eu"):
        chosen = {"hoodie.datasource.write.partitions.to.delete": region}
        maker.write(events(range(0), ts=3), "delete_partition", chosen)
    maker.write(events(range(30, 31), ts=4, regions=("eu",)))


def crash_left_behind(maker: Maker) -> None:
    maker.write(events(range(8), ts=1))
    maker.fail_to_write(events(range(6, 30), ts=2))


def crash_rolled_back(maker: Maker) -> None:
    crash_left_behind(maker)
    maker.write(events(range(7, 10), ts=3))


def savepointed(maker: Maker) -> None:
    maker.write(events(range(8), ts=1))
    maker.call("create_savepoint(path => '{path}', commit_time => '')")
    maker.write(events(range(6, 11), ts=2))


def restored(maker: Maker) -> None:
    savepointed(maker)
    (savepoint,) = maker.call("show_savepoints(path => '{path}')")
    instant = savepoint["savepoint_time"]
    maker.call(f"rollback_to_savepoint(path => '{{path}}', instant_time => '{instant}')")
    maker.write(events(range(5, 7), ts=3))


def clustered(maker: Maker) -> None:
    two_upserts(maker)
    maker.call("run_clustering(path => '{path}', order => 'qty')")
    maker.write(events(range(5, 7), ts=3))


def many_commits(maker: Maker) -> None:
    for n in range(9):
        maker.write(events(range(n, n + 3), ts=n))


def columns_come_and_widen(maker: Maker) -> None:
    """Partition us keeps files of the first schema: no extra column, qty of 32 bits."""
    maker.write(events(range(8), ts=1))
    extra = with_column(
        events(range(4), ts=2, regions=("eu",)), "extra", pa.string(), ["x", None, "y", "z"]
    )
    maker.write(extra)
    position = extra.schema.get_field_index("qty")
    wide = pa.array([2**40, None, 7, -1], pa.int64())
    maker.write(extra.set_column(position, pa.field("qty", pa.int64()), wide))


def bulk_inserted(maker: Maker) -> None:
    by_rows = {"hoodie.datasource.write.row.writer.enable": "true"}
    maker.write(events(range(8), ts=1), "bulk_insert", by_rows)
    maker.write(events(range(6, 11), ts=2))


def bulk_inserted_only(maker: Maker) -> None:
    by_rows = {"hoodie.datasource.write.row.writer.enable": "true"}
    maker.write(events(range(8), ts=1), "bulk_insert", by_rows)


def deleted_by_flag(maker: Maker) -> None:
    """The flag deletes e6 and e8; e7 loses, since its row is older than the stored one."""
    maker.write(with_column(events(range(10), ts=5), IS_DELETED, pa.bool_(), [False] * 10))
    going = with_column(events(range(6, 9), ts=6), IS_DELETED, pa.bool_(), [True, None, True])
    maker.write(going)
    maker.write(with_column(events(range(7, 8), ts=1), IS_DELETED, pa.bool_(), [True]))


def keys_with_nulls(maker: Maker) -> None:
    """Second key field: a value, null and the empty string, which the record key tells apart."""
    for numbers, ts in ((range(9), 1), (range(6, 12), 2)):
        parts = cycled(["p", None, ""], len(numbers))
        maker.write(with_column(events(numbers, ts=ts), "part", pa.string(), parts))


def deletes(maker: Maker) -> None:
    two_upserts(maker)
    maker.write(events(range(2, 5), ts=3), "delete")


ARCHIVING = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}


def of_version(version: int) -> dict[str, str]:
    return {
        "hoodie.write.table.version": str(version),
        "hoodie.write.auto.upgrade": "false",
    }


HEADER = pa.struct([("eid", pa.int64()), ("day", pa.string()), ("ts", pa.int64())])
NESTED_KEYS = {
    KEY: "header.eid,other",
    PARTITION: "header.day",
    ORDERING: "header.ts",
    "hoodie.bucket.index.hash.field": "header.eid",
}


def under_headers(*rows: tuple[int, str | None, int | None, int]) -> pa.Table:
    """Rows whose key, partition and ordering value are inside a struct: eid, day, ts and v."""
    headers = [{"eid": eid, "day": day, "ts": ts} for eid, day, ts, _ in rows]
    others = [f"x{eid % 3}" for eid, *_ in rows]
    columns = [pa.array(headers, HEADER), pa.array(others), pa.array([v for *_, v in rows])]
    return pa.table(columns, ["header", "other", "v"])


def nested_keys(table: Maker) -> None:
    table.write(under_headers(*[(n, "ab"[n % 2], 5, n) for n in range(6)], (6, None, None, 6)))
    # Late, newer, of equal time, and new. Hudi fails where only one of two rows has a long.
    rows = [(0, "a", 4, 10), (1, "b", 6, 11), (2, "a", 5, 12), (7, "b", 1, 17)]
    table.write(under_headers(*rows))


def nested_keys_and_deletes(table: Maker) -> None:
    nested_keys(table)
    table.write(under_headers((2, "a", 5, 0), (3, "b", 9, 0)), "delete")
    table.write(under_headers((3, "b", 8, 23), (4, "a", 8, 24)))


MORE_TABLES = (
    MoreTable("cow_nested_keys", {**NESTED_KEYS, HIVE_STYLE: "true"}, nested_keys_and_deletes),
    MoreTable(
        "cow_nested_key",
        {
            KEY: "header.eid",
            PARTITION: "header.day:SIMPLE",
            ORDERING: "header.ts",
            KEYGEN: CUSTOM,
        },
        nested_keys,
    ),
    MoreTable("cow_hive_encoded", {HIVE_STYLE: "true", URL_ENCODE: "true"}, odd_regions),
    MoreTable("cow_plain_partitions", {}, odd_regions_as_they_are),
    MoreTable(
        "cow_two_partition_fields",
        {PARTITION: "region,kind", KEYGEN: COMPLEX, HIVE_STYLE: "true"},
        two_partition_fields,
    ),
    MoreTable(
        "cow_timestamp_partitions",
        {
            PARTITION: "at_ms",
            KEYGEN: TIMESTAMP,
            TIMESTAMP_TYPE: "EPOCHMILLISECONDS",
            OUTPUT_FORMAT: "yyyy/MM/dd",
            TIME_ZONE: "UTC",
        },
        days_of_milliseconds,
    ),
    MoreTable("cow_commit_time", {ORDERING: "", MERGE_MODE: "COMMIT_TIME_ORDERING"}, late_rows_win),
    MoreTable("cow_insert_overwrite", {}, overwritten_partition),
    MoreTable("cow_insert_overwrite_table", {}, overwritten_table),
    MoreTable("cow_delete_partition", {}, deleted_partition),
    MoreTable("cow_deletes", {}, deletes),
    MoreTable("cow_pending_commit", {}, crash_left_behind),
    MoreTable("cow_rolled_back", {}, crash_rolled_back),
    MoreTable("cow_savepoint", {}, savepointed),
    MoreTable("cow_restored", {}, restored),
    MoreTable("cow_archived", ARCHIVING, many_commits),
    MoreTable("cow_metadata_table", {METADATA: "true"}, two_upserts),
    MoreTable("cow_schema_evolution", {}, columns_come_and_widen),
    MoreTable("cow_v6", of_version(6), deletes),
    MoreTable("cow_v6_archived", of_version(6) | ARCHIVING, many_commits),
    MoreTable("cow_v8", of_version(8), deletes),
    MoreTable("cow_v8_insert_overwrite", of_version(8), overwritten_partition),
    MoreTable("cow_bulk_insert", {}, bulk_inserted),
    MoreTable("cow_bulk_insert_only", {}, bulk_inserted_only),
    MoreTable("cow_deleted_by_flag", {}, deleted_by_flag),
    MoreTable(
        "cow_keys_with_nulls",
        {KEY: "id,part", KEYGEN: COMPLEX},
        keys_with_nulls,
    ),
    MoreTable("cow_utc_timeline", {"hoodie.table.timeline.timezone": "UTC"}, two_upserts),
    MoreTable(
        "cow_parquet_metafile", {"hoodie.partition.metafile.use.base.format": "true"}, two_upserts
    ),
    MoreTable(
        "cow_dropped_partition_columns",
        {"hoodie.datasource.write.drop.partition.columns": "true"},
        two_upserts,
    ),
    MoreTable("cow_without_meta_fields", {"hoodie.populate.meta.fields": "false"}, two_upserts),
    MoreTable("cow_cdc", {"hoodie.table.cdc.enabled": "true"}, two_upserts),
    MoreTable("cow_no_bucket_index", {"hoodie.index.type": "SIMPLE"}, two_upserts),
    MoreTable("cow_clustered", {"hoodie.index.type": "SIMPLE"}, clustered),
)
