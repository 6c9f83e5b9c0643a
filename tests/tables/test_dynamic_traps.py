"""The traps of a dynamic bucket index: ways in which a key could be doubled or lost (18514).

The numbers are those of ``docs/spec/dynamic-bucket.md``. The traps of a cache are in the tests of
the cache, and those that every kind has (tasks that run twice, input that changes) in
``tests/conformance``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.table_keys import METADATA_PARTITIONS
from bucketlake.errors import CommitConflictError, InputError, MetadataTableWarning
from bucketlake.hashing.index_key import hash_strings
from bucketlake.index.conflict_keys import ChangedShards
from bucketlake.index.groups_for_new_keys import bucket_of_group
from bucketlake.model.table_type import Operation
from bucketlake.storage.location import open_storage
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.record_index.index_upkeep import IndexUpkeep
from bucketlake.write.target import open_target
from tests.meanwhile import meanwhile
from tests.storages import set_properties

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("at", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
NewPath = Callable[[], str]
TYPES = pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])


def make(path: str, table_type: str = "copy_on_write", records: int = 4) -> bl.Table:
    return bl.create_table(
        path,
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        ordering="at",
        index=bl.DynamicBucket(max_records=records, assigners=2),
        table_type=table_type,
    )


def rows(*ids: str, at: int = 1, day: str = "a", deleted: bool = False) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": id_, "day": day, "at": at, "_hoodie_is_deleted": deleted} for id_ in ids], SCHEMA
    )


def held(table: bl.Table) -> dict[tuple[str, str], int]:
    found = table.to_arrow().to_pylist()
    keys = [(row["day"], row["id"]) for row in found]
    assert len({*keys}) == len(keys), "no key is stored twice"
    return {key: row["at"] for key, row in zip(keys, found, strict=True)}


def entries(table: bl.Table, day: str = "a") -> dict[str, str]:
    return {e["record_key"]: e["file_id"] for e in table.record_locations(day).to_pylist()}


def write_once(table: bl.Table, batch: pa.Table, operation: Operation = Operation.UPSERT) -> None:
    """Write without a retry after a conflict."""
    storage = open_storage(table.path)
    target = open_target(table_at(storage), None)
    write_records(target, operation, ArrowSource(batch))


@TYPES
def test_2_new_keys_with_one_hash_are_different_keys(new_path: NewPath, table_type: str) -> None:
    table = make(new_path(), table_type)
    alike = ["AaAa", "AaBB", "BBAa", "BBBB"]
    assert len({*hash_strings(pa.array(alike)).tolist()}) == 1
    table.upsert(rows(*alike[:2]))
    table.upsert(rows(*alike, at=2))
    assert held(table) == {("a", key): 2 for key in alike}
    assert {*entries(table)} == {*alike}


def test_6_writers_that_add_one_key_or_open_one_bucket_conflict_and_the_later_one_succeeds(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path(), records=1)
    meanwhile(monkeypatch, lambda: table.upsert(rows("x", at=1)))
    with pytest.raises(CommitConflictError):
        write_once(table, rows("x", at=2))
    meanwhile(monkeypatch, lambda: table.upsert(rows("x", "y", "z", at=2)))
    table.upsert(rows("x", "y", "w", at=3))
    assert held(table) == {("a", "x"): 3, ("a", "y"): 3, ("a", "w"): 3, ("a", "z"): 2}
    numbers = [bucket_of_group(group.file_id) for group in table.buckets()]  # type: ignore[arg-type]
    assert len({*numbers}) == len(numbers), "no two groups of a partition have one number"


def test_6_writers_of_different_buckets_do_not_conflict(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path(), records=1)
    table.upsert(rows("x", "y"))
    assert len({*entries(table).values()}) == 2
    meanwhile(monkeypatch, lambda: table.upsert(rows("x", at=2)))
    write_once(table, rows("y", at=2))
    assert held(table) == {("a", "x"): 2, ("a", "y"): 2}


@TYPES
def test_8_compaction_gives_room_for_deleted_rows(new_path: NewPath, table_type: str) -> None:
    table = make(new_path(), table_type)
    table.upsert(rows("k0", "k2", "k4", "k6", "k8", "k10"))
    count = len({*entries(table).values()})
    table.delete(rows("k0", "k2", "k4", "k6", "k8", "k10").select(["id", "day"]))
    if table_type == "merge_on_read":
        table.compact()
    table.upsert(rows("n0", "n2", "n4", "n6", "n8", "n10"))
    assert len({*table.to_arrow(columns=["_hoodie_file_name"])[0].to_pylist()}) <= count + 1
    assert len(held(table)) == 6


def test_9_entries_with_groups_that_are_gone_are_replaced(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:

    table = make(new_path())
    table.upsert(rows("x", "y"))
    with monkeypatch.context() as patch:  # As Hudi's writers leave the entries.
        patch.setattr(IndexUpkeep, "remove", lambda *_: ((), ChangedShards()))
        table.delete_partitions("a")
    stale = entries(table)
    assert {*stale} == {"x", "y"}
    table.upsert(rows("x", "z", at=2))
    assert held(table) == {("a", "x"): 2, ("a", "z"): 2}
    assert entries(table)["x"] != stale["x"]
    live = {group.file_id for group in table.buckets()}
    assert {entries(table)[key] for key in ("x", "z")} <= live
    assert not live & {*stale.values()}, "a new bucket has a new number"


@TYPES
def test_11_a_key_several_times_in_one_batch_gets_one_bucket(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), table_type)
    twice = pa.concat_tables([rows("x", at=1), rows("x", at=3), rows("x", at=2)])
    table.upsert(twice)
    assert held(table) == {("a", "x"): 3}
    gone = pa.concat_tables([rows("y", at=1), rows("y", at=2, deleted=True)])
    back = pa.concat_tables([rows("z", at=2), rows("z", at=1, deleted=True)])
    table.upsert(pa.concat_tables([gone, back]))
    assert held(table) == {("a", "x"): 3, ("a", "z"): 2}
    table.delete(rows("nobody").select(["id", "day"]))
    assert {"x", "z"} <= {*entries(table)}
    assert "nobody" not in entries(table), "a delete of an unknown key is assigned to no bucket"


def test_12_a_key_with_another_partition_is_another_key(new_path: NewPath) -> None:
    table = make(new_path())
    table.upsert(rows("x", day="a"))
    table.upsert(rows("x", day="b", at=2))
    assert held(table) == {("a", "x"): 1, ("b", "x"): 2}


@TYPES
def test_13_a_write_builds_a_missing_index_which_has_keys_of_log_files(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), table_type)
    table.upsert(rows("x", "y"))
    table.upsert(rows("y", "z", at=2))
    before = entries(table)
    storage = open_storage(table.path)
    names = read_table_config(storage).metadata_partitions
    left = [name for name in names if name != "record_index"]
    set_properties(storage, {METADATA_PARTITIONS: ",".join(left)})
    with pytest.warns(MetadataTableWarning, match="was missing; this write builds it"):
        table.upsert(rows("x", "z", at=3))
    assert entries(table) == before
    assert held(table) == {("a", "x"): 3, ("a", "y"): 2, ("a", "z"): 3}


def test_14_the_shards_of_a_partition_count_and_not_the_setting(new_path: NewPath) -> None:
    """Hudi opens the shards of a new partition by its own options."""
    table = make(new_path())
    table.upsert(rows("old", day="b"))
    as_hudi = bl.RecordIndex()  # One shard for a new partition.
    storage = open_storage(table.path)
    target = open_target(table_at(storage), None)

    foreign = replace(
        target,
        index=as_hudi,
        stored=replace(target.stored, index=as_hudi),  # type: ignore[type-var]
    )
    write_records(foreign, Operation.UPSERT, ArrowSource(rows("k1", "k2", "k3")))
    before = entries(table)
    table.upsert(rows("k1", "k2", "k3", "k4", "k5", at=2))
    assert held(table) == {("b", "old"): 1} | {("a", f"k{n}"): 2 for n in range(1, 6)}
    assert before.items() <= entries(table).items()
    pinned = open_target(table_at(storage), None).pinned_index(["a"])
    assert pinned.shards.count("a") == 1


def test_10_and_16_a_batch_is_written_once_and_again_after_its_commit_was_undone(
    new_path: NewPath,
) -> None:
    table = make(new_path())
    upsert = table.upsert_batch(query_name="orders")
    upsert(rows("x", at=1), 0)
    first = table.savepoint()
    upsert(rows("x", "y", at=2), 1)
    assert upsert(rows("x", "y", at=9), 1).instant is None, "it was written before"
    with pytest.raises(InputError, match="checkpoint was reset"):
        upsert(rows("x", at=9), 0)
    table.restore(first)
    assert held(table) == {("a", "x"): 1}
    assert upsert(rows("x", "y", at=3), 1).instant is not None
    assert held(table) == {("a", "x"): 3, ("a", "y"): 3}
    assert {"x", "y"} <= {*entries(table)}


def test_17_a_bucket_number_is_no_hash(new_path: NewPath) -> None:
    table = make(new_path(), records=1)
    keys = [f"k{n}" for n in range(12)]
    table.upsert(rows(*keys))
    for key in keys:
        (found,) = table.locate(key, "a")
        assert found.file_id == entries(table)[key]
        read = table.to_arrow(where=f"id = '{key}' AND day = 'a'")
        assert read["id"].to_pylist() == [key]


OTHERS = [f"n{number}" for number in range(12)]  # Enough to fill the bucket of x.
KEPT = {("a", key): 1 for key in OTHERS}


def deleted_then_rebuilt(path: str) -> tuple[bl.Table, str]:
    """Return a table whose index was rebuilt while a log file deletes a key."""
    table = make(path, "merge_on_read", records=2)
    table.upsert(rows("x", *OTHERS))
    delete = table.upsert(rows("x", at=5, deleted=True)).instant
    assert delete is not None
    table.rebuild_metadata_table(["record_index"])
    return table, delete


def test_an_older_record_after_a_delete_is_dropped_while_the_index_has_the_entry(
    new_path: NewPath,
) -> None:
    table = make(new_path(), "merge_on_read", records=2)
    table.upsert(rows("x", *OTHERS))
    table.upsert(rows("x", at=5, deleted=True))
    table.upsert(rows("x", at=3))
    assert held(table) == KEPT


def test_an_older_record_after_a_delete_and_a_rebuild_is_dropped(new_path: NewPath) -> None:
    table, _ = deleted_then_rebuilt(new_path())
    table.upsert(rows("x", at=3))
    assert held(table) == KEPT


def test_a_rollback_of_a_delete_before_a_rebuild_doubles_no_key(new_path: NewPath) -> None:
    table, delete = deleted_then_rebuilt(new_path())
    table.upsert(rows("x", at=6))
    table.rollback(delete, cascade=True)  # The index was built after the delete: it is built again.
    assert held(table) == KEPT | {("a", "x"): 1}
    assert "x" in entries(table)
    table.upsert(rows("x", at=7))
    assert held(table) == KEPT | {("a", "x"): 7}


def test_a_record_after_a_delete_and_a_rebuild_is_there_once(new_path: NewPath) -> None:
    table, _ = deleted_then_rebuilt(new_path())
    for at in (6, 7):
        table.upsert(rows("x", at=at))
    assert held(table) == KEPT | {("a", "x"): 7}
    table.compact()
    assert held(table) == KEPT | {("a", "x"): 7}
