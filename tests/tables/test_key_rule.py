"""Tables of version 6 whose keys have colons: Hudi 0.14 and 0.15 hash another text than Hudi 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import EXTENSION_FOLDER
from bucketlake.errors import ConfigError, IndexStateError
from bucketlake.index.stored_setting import store_key_rule
from bucketlake.services.check.findings import FindingKind
from bucketlake.storage.location import open_storage
from bucketlake.write import key_rule_check, slot_stage
from tests.ring_tables import SPLIT_ALL
from tests.spies import forbid

SCHEMA = pa.schema({"id": pa.string(), "n": pa.int64()})
KEYS = ["k395c:d", "a:b", ":", "id:x,y", "plain", "x,y", "a:b,c:d"]
KINDS = [bl.SimpleBucket, bl.ConsistentBucket]
TYPES = ["copy_on_write", "merge_on_read"]
SETTING = f"{EXTENSION_FOLDER}/index.json"


def rows(keys: list[str], n: int) -> pa.Table:
    return pa.table({"id": keys, "n": [n] * len(keys)}, schema=SCHEMA)


def new_table(folder: Path, kind: Any = bl.SimpleBucket, **more: Any) -> bl.Table:
    split_keys = more.pop("split_keys", None)
    of_table = {"schema": SCHEMA, "record_key": "id", "version": 6} | more
    return bl.create_table(str(folder / "t"), index=kind(8, split_keys=split_keys), **of_table)


def as_made_by_others(folder: Path, kind: Any = bl.SimpleBucket, **more: Any) -> bl.Table:
    """Forget the setting, as if only Hudi had written to the table."""
    (folder / "t" / SETTING).unlink()
    return bl.open_table(str(folder / "t"), index=kind(8, **more))


def stored_rule(folder: Path) -> bool | None:
    found: bool | None = json.loads((folder / "t" / SETTING).read_text()).get("splitKeys")
    return found


def buckets_of(folder: Path, pattern: str = "*.parquet") -> set[int]:
    return {int(path.name.lstrip(".")[:8]) for path in (folder / "t").glob(pattern)}


@pytest.mark.parametrize(("kind", "table_type"), [*zip(KINDS, TYPES, strict=True)])
@pytest.mark.parametrize("split_keys", [None, False])
def test_keys_with_colons_are_written_found_and_deleted_once(
    tmp_path: Path, kind: Any, table_type: str, split_keys: bool | None
) -> None:
    table = new_table(tmp_path, kind, table_type=table_type, split_keys=split_keys)
    table.upsert(rows(KEYS, 1))
    bl.open_table(table.path).upsert(rows(KEYS[::2], 2))
    assert stored_rule(tmp_path) is (split_keys is None)
    found = {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}
    assert found == {key: 2 if key in KEYS[::2] else 1 for key in KEYS}
    for key in KEYS:
        assert table.to_arrow(where=f"id = '{key}'").num_rows == 1
        assert table.locate(key) is not None
    assert not table.doctor(check_keys=True)
    table.delete(pa.table({"id": KEYS[:2]}))
    assert sorted(table.to_arrow()["id"].to_pylist()) == sorted(KEYS[2:])


def test_a_new_table_splits_keys_as_hudi_0_15(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows(["k395c:d", "a:b", "2024-01-01 10:00:00"], 1))
    assert buckets_of(tmp_path) == {1}
    assert table.index == bl.SimpleBucket(8)
    assert table.index.split_keys is True


@pytest.mark.parametrize("version", [8, 9])
def test_newer_tables_hash_keys_whole(tmp_path: Path, version: int) -> None:
    table = new_table(tmp_path, version=version)
    table.upsert(rows(["k395c:d", "a:b"], 1))
    assert 1 not in buckets_of(tmp_path)
    assert stored_rule(tmp_path) is None
    with pytest.raises(ConfigError, match="split_keys = True cannot be used"):
        new_table(tmp_path / "other", version=version, split_keys=True)


@pytest.mark.parametrize(("kind", "table_type"), [*zip(KINDS, TYPES, strict=True)])
@pytest.mark.parametrize("split_keys", [True, False])
def test_a_table_that_stores_no_rule_is_followed_as_its_files_show(
    tmp_path: Path, kind: Any, table_type: str, split_keys: bool
) -> None:
    made = new_table(tmp_path, kind, table_type=table_type, split_keys=split_keys)
    made.upsert(rows(KEYS, 1))
    table = as_made_by_others(tmp_path, kind)
    assert table.to_arrow(where="id = 'a:b'").num_rows == 1
    assert not table.doctor(check_keys=True)
    table.upsert(rows(["plain"], 2))
    assert stored_rule(tmp_path) is None
    table.upsert(rows([*KEYS, "new:one"], 3))
    assert stored_rule(tmp_path) is split_keys
    assert sorted(table.to_arrow()["id"].to_pylist()) == sorted([*KEYS, "new:one"])
    assert set(table.to_arrow()["n"].to_pylist()) == {3}
    assert not table.doctor(check_keys=True)


def test_a_setting_of_an_earlier_release_hashes_keys_whole(tmp_path: Path) -> None:
    new_table(tmp_path, split_keys=False)
    path = tmp_path / "t" / SETTING
    stored = json.loads(path.read_text())
    del stored["splitKeys"], stored["checksum"]
    path.write_text(json.dumps(stored))
    table = bl.open_table(str(tmp_path / "t"))
    table.upsert(rows(["a:b"], 1))
    assert stored_rule(tmp_path) is False
    assert buckets_of(tmp_path) == {0}


def test_the_caller_decides_where_the_files_show_nothing(tmp_path: Path) -> None:
    new_table(tmp_path).upsert(rows(["plain"], 1))
    table = as_made_by_others(tmp_path, split_keys=False)
    table.upsert(rows(["a:b"], 1))
    assert stored_rule(tmp_path) is False
    with pytest.raises(IndexStateError, match="has split_keys=False"):
        bl.open_table(table.path, index=bl.SimpleBucket(8, split_keys=True)).upsert(rows(["a"], 1))


def mixed_table(folder: Path, kind: Any, table_type: str, *, split_keys: bool) -> bl.Table:
    """Make a table of a rule that a writer of the other rule has written to."""
    table = new_table(folder, kind, table_type=table_type, split_keys=split_keys)
    table.upsert(rows(["a:b", "plain"], 1))
    storage = open_storage(table.path)
    store_key_rule(storage, not split_keys)
    bl.open_table(table.path).upsert(rows(["u:v"], 1))
    store_key_rule(storage, split_keys)
    return table


@pytest.mark.parametrize(("kind", "table_type"), [*zip(KINDS, TYPES, strict=True)])
@pytest.mark.parametrize("split_keys", [True, False])
def test_a_key_in_a_bucket_of_the_other_rule_is_refused_with_both_rules(
    tmp_path: Path, kind: Any, table_type: str, split_keys: bool
) -> None:
    table = mixed_table(tmp_path, kind, table_type, split_keys=split_keys)
    before = table.to_arrow().sort_by("id").to_pylist()
    for write in (
        lambda: table.upsert(rows(["u:v", "w:x"], 2)),
        lambda: table.insert(rows(["u:v"], 2)),
        lambda: table.delete(pa.table({"id": ["u:v"]})),
        lambda: table.update({"n": "n + 1"}, where="id = 'u:v'"),
        lambda: table.merge(rows(["u:v"], 2), "t.id = s.id").when_matched_delete().execute(),
    ):
        with pytest.raises(IndexStateError) as error:
            write()
        text = str(error.value)
        assert "'u:v'" in text
        assert "Hudi 0.14 and 0.15" in text
        assert "Hudi 1 does" in text
        assert "repair" in text
        assert table.path in text or ".parquet" in text or ".log." in text
    assert table.to_arrow().sort_by("id").to_pylist() == before
    assert table.to_arrow(where="id = 'u:v'").num_rows == 1
    (finding,) = table.doctor(check_keys=True)
    assert finding.kind is FindingKind.KEYS_IN_WRONG_BUCKET
    assert "'u:v'" in finding.meaning
    assert "Hudi 1 does" in finding.meaning
    table.repair(check_keys=True)
    assert not table.doctor(check_keys=True)
    table.upsert(rows(["u:v"], 5))
    assert table.to_arrow(where="id = 'u:v'")["n"].to_pylist() == [5]


def test_a_write_without_such_keys_looks_at_no_other_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_table(tmp_path).upsert(rows(KEYS, 1))
    table = as_made_by_others(tmp_path)

    forbid(monkeypatch, key_rule_check, "telling_keys")
    forbid(monkeypatch, slot_stage, "require_one_rule")
    table.upsert(rows(["plain", "x,y"], 2))
    assert stored_rule(tmp_path) is None
    with pytest.raises(AssertionError, match="telling_keys"):
        table.upsert(rows(["a:b"], 2))


@pytest.mark.parametrize("hash_fields", [None, ["g"]])
@pytest.mark.parametrize("split_keys", [True, False])
def test_keys_of_several_fields_are_pruned_by_the_rule_of_the_table(
    tmp_path: Path, hash_fields: list[str] | None, split_keys: bool
) -> None:
    schema = pa.schema({"g": pa.string(), "id": pa.string()})
    values = ["p", "p:q", "p,q", "p,q:r", "", "p,id:z", ":"]
    data = pa.Table.from_pylist(
        [{"g": g, "id": i} for g in values for i in values if g or i], schema=schema
    )
    table = bl.create_table(
        str(tmp_path / "t"),
        schema=schema,
        record_key=["g", "id"],
        index=bl.SimpleBucket(8, hash_fields, split_keys=split_keys),
        version=6,
    )
    for _ in range(2):
        table.upsert(data)
        everything = table.to_arrow()
        assert len(everything) == len(data)
    for g in values:
        wanted = everything.filter(pc.equal(everything["g"], g))
        assert table.to_arrow(where=f"g = '{g}'").num_rows == len(wanted)
        assert table.to_arrow(where=f"g = '{g}' AND id = 'p:q'").num_rows == 1
    assert {f.kind for f in table.doctor(check_keys=True)} <= {FindingKind.KEYS_AMBIGUOUS}


@pytest.mark.parametrize("split_keys", [True, False, None])
def test_an_upgrade_is_refused_if_hudi_1_would_not_find_the_keys(
    tmp_path: Path, split_keys: bool | None
) -> None:
    table = new_table(tmp_path, split_keys=split_keys)
    table.upsert(rows(["a:b", "plain"], 1))
    if split_keys is None:
        table = as_made_by_others(tmp_path)
    if split_keys is not False:
        with pytest.raises(ConfigError, match=r"holds record key 'a:b'.*Hudi 0.14 and 0.15"):
            table.upgrade(to=9)
        table.delete(pa.table({"id": ["a:b"]}))
    table.upgrade(to=9)
    assert stored_rule(tmp_path) is None
    table.upsert(rows(["a:b"], 2))
    assert 1 not in buckets_of(tmp_path, "00000001*[!_]*.parquet") - {1}
    table.downgrade(to=6)
    table = bl.open_table(table.path)
    table.upsert(rows(["a:b", "c:d"], 3))
    assert stored_rule(tmp_path) is False
    assert sorted(table.to_arrow()["id"].to_pylist()) == ["a:b", "c:d", "plain"]


def test_a_job_with_an_option_of_hudi_1_hashes_keys_whole(tmp_path: Path) -> None:
    write = "hoodie.datasource.write."
    options = {
        "hoodie.table.name": "t",
        f"{write}recordkey.field": "id",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "8",
        "hoodie.write.table.version": "6",
    }
    for n in (1, 2):
        bl.save(rows(["a:b"], n), str(tmp_path / "t"), options=options)
    assert stored_rule(tmp_path) is False
    assert buckets_of(tmp_path) == {0}
    del options["hoodie.write.table.version"]
    bl.save(rows(["a:b", "c:d"], 3), str(tmp_path / "t"), options=options)
    assert bl.open_table(str(tmp_path / "t")).count() == 2


@pytest.mark.parametrize("split_keys", [True, False])
def test_a_resize_keeps_the_rule(tmp_path: Path, split_keys: bool) -> None:
    table = new_table(tmp_path, bl.ConsistentBucket, split_keys=split_keys)
    keys = [f"{n}:{n}" for n in range(20)] + [f"k{n}" for n in range(40)]
    table.upsert(rows(keys, 1))
    table = as_made_by_others(tmp_path, bl.ConsistentBucket)
    table.resize(**SPLIT_ALL)
    assert not table.doctor(check_keys=True)
    table.upsert(rows(keys, 2))
    assert table.count() == len(keys)
    assert not table.doctor(check_keys=True)
