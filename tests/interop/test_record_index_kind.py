"""Tables under a record-level index that Hudi and bucketlake write in turns."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from tests.choices import combinations
from tests.indexed_tables import ROWS_OF_LARGE, shards_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, WITH_METADATA, SharedTable, rows
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop

KINDS = pytest.mark.parametrize(
    ("index", "merge_on_read", "we_begin"),
    combinations(
        ["partitioned", "global", "dynamic", "dynamic"],
        [False, True, False, True],
        [True, False],
    ),
    ids=str,
)


def keys_of(table: SharedTable, *regions: str) -> list[str]:
    """Return the keys in the index for some regions."""
    return sorted(
        key
        for region in regions
        for key in table.ours.record_locations(region)["record_key"].to_pylist()
    )


@KINDS
def test_hudi_and_bucketlake_upsert_delete_and_overwrite_in_turns(
    hudi: HudiPeer, tmp_path: Path, index: str, merge_on_read: bool, we_begin: bool
) -> None:
    kind = TableKind(
        merge_on_read=merge_on_read,
        partitioned_index=index != "global",
        dynamic=index == "dynamic",
        metadata_table=True,
    )
    table = SharedTable(hudi, tmp_path / "shared", kind)
    if we_begin:
        table.begin()
        table.upsert(BUCKETLAKE, rows(range(100), 1))
    table.upsert(HUDI, rows(range(50, 150), 2))
    table.upsert(BUCKETLAKE, rows(range(100, 200), 3))
    table.upsert(HUDI, rows(range(0, 200, 3), 4))
    table.delete(BUCKETLAKE, rows(range(0, 60, 5), 0))
    table.upsert(HUDI, rows(range(190, 230), 5))
    table.delete(HUDI, rows(range(1, 60, 6), 0))
    table.upsert(BUCKETLAKE, rows(range(0, 220, 4), 6))
    table.upsert(BUCKETLAKE, rows(range(300, 310), 6, ("日本",)))
    table.upsert(HUDI, rows(range(305, 315), 7, ("日本",)))
    table.assert_read_by_all(WITH_METADATA)
    table.overwrite(BUCKETLAKE, rows(range(0, 40, 2), 8))
    table.upsert(HUDI, rows(range(0, 60, 2), 9))
    table.overwrite(HUDI, rows(range(1, 41, 2), 10))
    table.upsert(BUCKETLAKE, rows(range(60), 11))
    table.delete_partitions(BUCKETLAKE, ["日本"])
    table.upsert(HUDI, rows(range(400, 404), 12, ("日本",)))
    table.upsert(BUCKETLAKE, rows(range(402, 408), 13, ("日本",)))
    if merge_on_read:
        table.ours.compact()
        table.upsert(HUDI, rows(range(70), 14))
    table.assert_read_by_all(WITH_METADATA)
    found = table.ours.to_arrow(columns=["id"])["id"].to_pylist()
    known = keys_of(table, "eu", "us", "日本")
    assert set(found) <= set(known)
    if not merge_on_read:
        assert sorted(found) == known


def test_hudi_writes_on_where_one_partition_has_one_shard_and_another_four(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    kind = TableKind(partitioned_index=True, dynamic=True, assigners=None, metadata_table=True)
    table = SharedTable(hudi, tmp_path / "shared", kind)
    table.begin()
    with mock.patch(ROWS_OF_LARGE, 60):
        table.upsert(BUCKETLAKE, [*rows(range(30), 1, ("us",)), *rows(range(100), 1, ("eu",))])
    began = {"us": 1, "eu": 4}
    assert shards_of(str(table.path)) == began
    table.upsert(HUDI, rows(range(150), 2))
    table.upsert(HUDI, rows(range(40), 2, ("日本",)))
    assert shards_of(str(table.path)) == began | {"日本": 1}, "Hudi opens the smallest number"
    table.upsert(BUCKETLAKE, rows(range(50, 200), 3, ("eu", "us", "日本")))
    table.delete(BUCKETLAKE, rows(range(0, 60, 5), 0))
    table.upsert(HUDI, rows(range(0, 220, 3), 4))
    table.delete(HUDI, rows(range(1, 60, 6), 0))
    table.overwrite(HUDI, rows(range(90), 5, ("us",)))
    table.upsert(BUCKETLAKE, rows(range(0, 240, 4), 6))
    table.assert_read_by_all(WITH_METADATA)
    assert shards_of(str(table.path)) == began | {"日本": 1}
    found = table.ours.to_arrow(columns=["id"])["id"].to_pylist()
    assert sorted(found) == keys_of(table, "eu", "us", "日本")


def test_keys_of_a_global_index_move_whoever_writes_them(hudi: HudiPeer, tmp_path: Path) -> None:
    kind = TableKind(partitioned_index=False, metadata_table=True)
    table = SharedTable(hudi, tmp_path / "shared", kind)
    table.begin()
    table.write(BUCKETLAKE, rows(range(10), 1, ("eu",)))
    table.write(HUDI, rows(range(3), 2, ("us",)))
    table.write(BUCKETLAKE, rows(range(2, 5), 3, ("us",)))
    table.write(HUDI, rows(range(4, 6), 4, ("eu",)))
    table.write(BUCKETLAKE, rows(range(1), 1, ("eu",)))  # It is older, and changes nothing.
    where = {row["id"]: row["region"] for row in table.ours.to_arrow().to_pylist()}
    assert where == {f"k{n}": "us" if n < 4 else "eu" for n in range(10)}
    found = hudi.read(table.path, WITH_METADATA)
    assert sorted((row["id"], row["region"]) for row in found.to_pylist()) == sorted(where.items())
    assert keys_of(table, "us") == ["k0", "k1", "k2", "k3"]
