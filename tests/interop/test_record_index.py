"""The record-level index: built by either, used by the other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import bucketlake as bl
from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.metadata_record.record_schema import IndexedLocation, decode_locations
from bucketlake.storage.location import open_storage
from tests.choices import combinations
from tests.indexed_tables import add_record_index
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, WITH_METADATA, SharedTable, rows
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop

ENABLED = {
    True: {"hoodie.metadata.record.level.index.enable": "true"},
    False: {"hoodie.metadata.global.record.level.index.enable": "true"},
}
INDEX_TYPE = {True: "RECORD_LEVEL_INDEX", False: "GLOBAL_RECORD_LEVEL_INDEX"}
KINDS = pytest.mark.parametrize(
    ("is_partitioned", "merge_on_read"),
    combinations([True, False], [False, True]),
    ids=str,
)


def entries_of(path: Path) -> dict[tuple[str, str], IndexedLocation]:
    """Return the locations in the base files of the index, by shard and key."""
    storage = open_storage(str(path))
    found = {}
    for stored in storage.list(".hoodie/metadata/record_index"):
        if not stored.path.endswith(".hfile"):
            continue
        hfile = HFileReader.open(storage, stored.path, stored.size_bytes).read()
        values = decode_locations(hfile.values, stored.path)
        shard = stored.path.rpartition("/")[2].split("_")[0]
        for key, code in zip(hfile.keys.to_pylist(), values.indices.to_pylist(), strict=True):
            found[shard, key.decode()] = values.locations[code]
    return found


@KINDS
def test_index_that_we_build_is_the_index_that_hudi_builds(
    hudi: HudiPeer, tmp_path: Path, is_partitioned: bool, merge_on_read: bool
) -> None:
    table = SharedTable(hudi, tmp_path / "hudi", TableKind(merge_on_read=merge_on_read))
    table.upsert(HUDI, rows(range(300), 1))
    table.upsert(HUDI, rows(range(200, 400), 2))
    table.delete(HUDI, rows(range(0, 400, 7), 0))
    shutil.copytree(table.path, ours := tmp_path / "ours")
    add_record_index(
        open_storage(str(ours)), is_partitioned=is_partitioned, shards=1 if is_partitioned else 10
    )
    # Hudi builds the index before its own commit.
    table.write(HUDI, rows(range(2, 3), 3), {**WITH_METADATA, **ENABLED[is_partitioned]})
    built, of_hudi = entries_of(ours), entries_of(table.path)
    assert len(of_hudi) > 300
    assert {place: built[place] for place in of_hudi} == of_hudi
    # An index that writes maintain has keys that only log files delete, and so has ours.
    deleted = {f"k{i}" for i in range(0, 400, 7)} if merge_on_read else set()
    assert {key for _, key in built.keys() - of_hudi.keys()} == deleted


@KINDS
def test_hudi_upserts_through_the_index_that_we_build(
    hudi: HudiPeer, tmp_path: Path, is_partitioned: bool, merge_on_read: bool
) -> None:
    # Hudi opens file groups as it likes, not one for each bucket.
    kind = TableKind(merge_on_read=merge_on_read, max_file_size=10_000)
    table = SharedTable(hudi, tmp_path / "shared", kind)
    simple = {"hoodie.index.type": "SIMPLE"}
    table.upsert(HUDI, rows(range(300), 1), simple)
    table.upsert(HUDI, rows(range(100, 400), 2), simple)
    add_record_index(open_storage(str(table.path)), is_partitioned=is_partitioned, shards=3)
    ours = bl.open_table(str(table.path))
    groups = {bucket.file_id for bucket in ours.buckets()}
    options = {
        **WITH_METADATA,
        **ENABLED[is_partitioned],
        "hoodie.index.type": INDEX_TYPE[is_partitioned],
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
    }
    table.upsert(HUDI, rows(range(0, 400, 3), 5), options)
    assert {bucket.file_id for bucket in ours.buckets()} == groups
    table.upsert(HUDI, rows(range(390, 500), 6), options)
    table.delete(HUDI, rows(range(7, 8), 0), options)
    table.assert_read_by_all(options)
    for number in (0, 3, 200, 399, 450):
        (found,) = ours.locate(f"k{number}")
        where = f"id = 'k{number}'"
        assert ours.to_arrow(where=where)["id"].to_pylist() == [f"k{number}"]
        assert ours.explain(where).file_groups_kept == 1
        assert found.partition_path == ("eu", "us")[number % 2]
    assert ours.locate("k7") == ours.locate("absent") == []
    assert ours.explain("id IN ('k7', 'absent')").file_groups_kept == 0
    assert len(ours.record_locations("eu")) == 250


@KINDS
def test_hudi_uses_the_index_that_writes_of_a_bucket_index_maintain(
    hudi: HudiPeer, tmp_path: Path, is_partitioned: bool, merge_on_read: bool
) -> None:
    table = SharedTable(hudi, tmp_path / "shared", TableKind(merge_on_read=merge_on_read))
    table.begin()
    table.ours.rebuild_metadata_table(["record_index"], partitioned=is_partitioned)
    table.upsert(BUCKETLAKE, rows(range(200), 1))
    table.upsert(BUCKETLAKE, rows(range(100, 300), 2))
    table.delete(BUCKETLAKE, rows(range(0, 300, 7), 0))
    groups = table.file_groups()
    options = {
        **WITH_METADATA,
        **ENABLED[is_partitioned],
        "hoodie.index.type": INDEX_TYPE[is_partitioned],
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
    }
    # The index names the file group of each key, so Hudi opens no other.
    stored = [row for row in rows(range(0, 300, 3), 5) if int(str(row["id"])[1:]) % 7]
    table.upsert(HUDI, stored, options)
    assert table.file_groups() == groups
    table.upsert(BUCKETLAKE, rows(range(250, 320), 6))
    table.assert_read_by_all(options)
    for number, is_there in ((3, True), (7, False), (252, True), (319, True), (400, False)):
        found = hudi.read(table.path, options, ["id"], where=f"id = 'k{number}'")
        assert found["id"].to_pylist() == [f"k{number}"] * is_there
    keys = {row["id"] for row in table.ours.to_arrow(columns=["id"]).to_pylist()}
    located = [table.ours.record_locations(region) for region in ("eu", "us")]
    assert {key for held in located for key in held["record_key"].to_pylist()} == keys
