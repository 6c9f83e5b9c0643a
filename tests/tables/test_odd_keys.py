"""Keys whose values have commas and colons, in tables that only Hudi 1 and bucketlake write.

Hudi hashes by the names of the fields, so a value such as ``,zz:q`` opens a field that is not
hashed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.index.layout import Layout
from bucketlake.index.setting import require_index
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.table_properties import table_at
from tests.hash_oracle import bucket_of
from tests.ring_oracle import ring_hash
from tests.ring_tables import SPLIT_ALL

SCHEMA = pa.schema({"id": pa.string(), "b": pa.string(), "n": pa.int64()})
VALUES = ["a:b,", "x,b:1", "p,zz:q", ",zz:q", "id:1,id:2", "10:30", "x,y", "plain", ",", ":", ",:"]
KINDS: dict[str, Any] = {
    "simple": bl.SimpleBucket(3),
    "partition": bl.PartitionBucket({"p": 3}, default=3),
    "consistent": bl.ConsistentBucket(3),
    "extendible": bl.ExtendibleBucket(4),
}
FIELDS = [["id"], ["id", "b"]]


def new_table(folder: Path, kind: str, key: list[str], **more: Any) -> bl.Table:
    index = more.pop("index", KINDS[kind])
    return bl.create_table(
        str(folder / "t"), schema=SCHEMA, record_key=key, index=index, **{"version": 9} | more
    )


def rows(values: list[str], n: int) -> pa.Table:
    others = [f"{value}!" for value in values]
    return pa.table({"id": values, "b": others, "n": [n] * len(values)}, schema=SCHEMA)


def keys_of(table: bl.Table) -> list[str]:
    return table.to_arrow(columns=["_hoodie_record_key"])["_hoodie_record_key"].to_pylist()


def layout_of(table: bl.Table) -> Layout:
    opened = table_at(open_storage(table.path))
    return require_index(opened, load_timeline(opened), None).layout()


def places(table: bl.Table) -> dict[str, int]:
    """Return the slot in which each key is stored."""
    layout, slots = layout_of(table), {}
    for key in keys_of(table):
        (found,) = table.locate(key)
        slot = layout.slot_of_group("", found.file_id)
        assert slot is not None
        slots[key] = slot
    return slots


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", FIELDS, ids=",".join)
def test_odd_keys_are_stored_found_and_kept_once(tmp_path: Path, kind: str, key: list[str]) -> None:
    table = new_table(tmp_path, kind, key)
    for n in (1, 2):
        table.upsert(rows(VALUES, n))
    assert table.to_arrow()["n"].to_pylist() == [2] * len(VALUES)
    for value in VALUES:
        where = " AND ".join(f"{name} = '{value}{'!' * (name == 'b')}'" for name in key)
        assert table.to_arrow(where=where)["id"].to_pylist() == [value]
    assert len(places(table)) == len(VALUES)
    if kind in ("consistent", "extendible"):
        table.resize(**SPLIT_ALL)
    if kind == "partition":
        table.rescale({"p": 5}, default=5)
    if kind == "simple":
        table.rescale({"p": 5}, default=7)
    table.upsert(rows(VALUES, 3))
    assert table.to_arrow()["n"].to_pylist() == [3] * len(VALUES)
    assert len(places(table)) == len(VALUES)
    assert not [found for found in table.doctor(check_keys=True) if "BUCKET" in found.kind.name]


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("key", FIELDS, ids=",".join)
def test_odd_keys_are_in_the_buckets_of_hudi_1(
    tmp_path: Path, key: list[str], version: int
) -> None:
    table = new_table(tmp_path, "simple", key, version=version)
    table.upsert(rows(VALUES, 1))
    assert places(table) == {text: bucket_of(text, 3, key) for text in keys_of(table)}
    if key == ["id"]:
        assert places(table)["a:b,"] == 1


@pytest.mark.parametrize("key", FIELDS, ids=",".join)
def test_odd_keys_are_on_the_nodes_of_hudi_1(tmp_path: Path, key: list[str]) -> None:
    table = new_table(tmp_path, "consistent", key)
    table.upsert(rows(VALUES, 1))
    ring = layout_of(table).state("").ring  # type: ignore[attr-defined]
    found = places(table)
    hashes = np.array([ring_hash(text, key) for text in found], np.int32)
    assert [*found.values()] == ring.locate(hashes).tolist()


def test_a_conversion_to_several_groups_keeps_odd_keys(tmp_path: Path) -> None:
    table = new_table(tmp_path, "simple", ["id", "b"])
    table.upsert(rows(VALUES, 1))
    for index in (bl.SimpleBucket(3, max_file_size=1 << 20), bl.SimpleBucket(3)):
        table.convert(index)
        table = bl.open_table(table.path)
        table.upsert(rows(VALUES, 2))
        assert table.count() == len(VALUES)
        assert len(places(table)) == len(VALUES)
