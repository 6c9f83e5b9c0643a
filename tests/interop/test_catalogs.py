"""One entry of a Hive Metastore, kept by Hudi's sync and by ours in turns, and read by its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.catalogs.catalog import KeyValues, TableEntry
from bucketlake.catalogs.hive import HiveMetastore
from bucketlake.catalogs.table_sync import entries_in_database
from tests.hive_metastore import hive_metastore
from tests.interop.conftest import start_hudi
from tests.interop.peer.client import HudiPeer

pytestmark = [pytest.mark.interop, pytest.mark.every_case]


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with hive_metastore() as address:
        yield address


@pytest.fixture(scope="module")
def hudi_with_hive(uri: str) -> Iterator[HudiPeer]:
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.sql.hive.metastore.version": "2.3.9",
    }
    with start_hudi(settings=settings) as peer:
        yield peer


def rows(number: int, *regions: str) -> pa.Table:
    ids = [f"{region}-{number}" for region in regions]
    return pa.table({"id": ids, "region": [*regions], "v": [number] * len(regions)})


OURS = ("numFiles", "totalSize", "transient_lastDdlTime", "spark.sql.create.version")
"""What the metastore sets, or each Spark in its own words."""


def entry_of(uri: str, name: str) -> tuple[TableEntry, dict[KeyValues, str]]:
    catalog = HiveMetastore(uri)
    found = catalog.table(*name.split("."))
    assert found is not None
    places = catalog.locations(found, sorted(catalog.values(found)))
    catalog.close()
    return found, places


def told(entry: TableEntry) -> dict[str, object]:
    parameters = {k: v for k, v in entry.parameters.items() if k not in OURS}
    columns = [(c.name, c.type) for c in (*entry.columns, *entry.keys)]
    return {"columns": columns, "parameters": parameters, "serde": {**entry.serde}}


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_ours_and_that_of_hudi_take_turns(
    uri: str, hudi_with_hive: HudiPeer, tmp_path: Path, table_type: str
) -> None:
    hudi, path, database = hudi_with_hive, tmp_path / "orders", f"db_{table_type}"
    table = bl.create_table(
        str(path),
        rows(0, "eu", "us"),
        record_key="id",
        partition_by="region",
        index=bl.SimpleBucket(2),
        table_type=table_type,  # type: ignore[arg-type]
        name="orders",
    )
    names = ["orders"] if table_type == "copy_on_write" else ["orders", "orders_ro", "orders_rt"]
    options = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "region",
        "hoodie.datasource.write.table.type": table_type.upper(),
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.datasource.hive_sync.enable": "true",
        "hoodie.datasource.hive_sync.mode": "hms",
        "hoodie.datasource.hive_sync.database": database,
        "hoodie.datasource.hive_sync.table": "orders",
    }

    def count(name: str) -> int:
        (found,) = hudi.sql(f"SELECT count(*) AS n FROM {database}.{name}")
        return int(found["n"])

    bl.sync(table, uri, f"{database}.orders")
    assert [count(name) for name in names] == [2] * len(names)
    listed = entries_in_database(uri, database)
    assert {each.name: each.is_read_optimized for each in listed} == {
        name: name.endswith("_ro") or len(names) == 1 for name in names
    }
    hudi.write(path, rows(1, "asia", "eu"), options)  # Hudi's turn: a partition more.
    for name in names:
        entry, places = entry_of(uri, f"{database}.{name}")
        assert {*places} == {("eu",), ("us",), ("asia",)}
        before = told(entry)
        assert bl.sync(table, uri, f"{database}.orders").entries[0].action == "unchanged"
        assert told(entry_of(uri, f"{database}.{name}")[0]) == before
    table.upsert(rows(2, "africa", "us"))
    table.delete_partitions(["asia"])
    bl.sync(table, uri, f"{database}.orders")
    for name in names:
        assert {*entry_of(uri, f"{database}.{name}")[1]} == {("eu",), ("us",), ("africa",)}
    ours = {name: told(entry_of(uri, f"{database}.{name}")[0]) for name in names}
    hudi.write(path, rows(3, "eu"), options)
    for name in names:  # Hudi's sync changes the last commit alone.
        entry, places = entry_of(uri, f"{database}.{name}")
        assert {*places} == {("eu",), ("us",), ("africa",)}
        found = told(entry)
        for key in ("last_commit_time_sync", "last_commit_completion_time_sync"):
            found["parameters"].pop(key)  # type: ignore[attr-defined]
            ours[name]["parameters"].pop(key)  # type: ignore[attr-defined]
        assert found == ours[name]
    assert count(names[-1]) == table.count() == 6
    assert bl.open_table(f"{database}.orders", catalog=uri).count() == 6


KINDS = {
    "partition": bl.PartitionBucket((("^eu$", 3),), 2),
    "consistent": bl.ConsistentBucket(2),
    "extendible": bl.ExtendibleBucket(2),
    "dynamic": bl.DynamicBucket(max_records=20, assigners=2),
    "record": bl.RecordIndex(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_found_and_read_by_its_name(
    uri: str, hudi_with_hive: HudiPeer, tmp_path: Path, kind: str
) -> None:
    hudi, database = hudi_with_hive, f"db_of_{kind}"

    def ids(name: str) -> list[str]:
        return sorted(row["id"] for row in hudi.sql(f"SELECT id FROM {database}.{name}"))

    for table_type in ("copy_on_write", "merge_on_read"):
        name = f"orders_{table_type}"
        table = bl.create_table(
            str(tmp_path / name),
            rows(0, "eu", "us"),
            record_key="id",
            partition_by="region",
            index=KINDS[kind],
            table_type=table_type,  # type: ignore[arg-type]
            name=name,
        )
        table.upsert(rows(1, "asia", "eu"))
        table.upsert(rows(1, "eu"))  # To a log file, where there are some.
        bl.sync(table, uri, f"{database}.{name}")
        every = ["asia-1", "eu-0", "eu-1", "us-0"]
        assert ids(name) == every
        if table_type == "merge_on_read":
            assert ids(f"{name}_rt") == every
            assert {*ids(f"{name}_ro")} <= {*every}
            table.compact()
            hudi.sql(f"REFRESH TABLE {database}.{name}_ro")  # Spark keeps the files of a table.
            assert ids(f"{name}_ro") == every
