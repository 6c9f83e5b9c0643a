"""Writes of dynamic buckets shard by shard, and where they take the general way instead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from unittest import mock

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.conflict import retried
from bucketlake.metadata.record_index.shards import ShardsBySize
from bucketlake.model.result import WriteResult
from bucketlake.model.table_type import Operation
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.ingest import rewrite_partitions, write_records
from bucketlake.write.pack import ArrowSource, PackedRecords
from bucketlake.write.record_index import indexed_write
from bucketlake.write.record_index.new_partitions import SHARED_FOLDER
from bucketlake.write.target import open_target
from tests.bounds import set_bounds
from tests.choices import some
from tests.conformance.cases import filled_storage
from tests.faulty_storage import Fault, FaultyStorage, SimulatedCrash, distinct_deaths
from tests.indexed_tables import ROWS_OF_LARGE, shards_of
from tests.spies import spy
from tests.storages import objects_of

_NUMBERS = count()
NewPath = Callable[[], str]
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("at", pa.int64())])
DYNAMIC = bl.DynamicBucket(max_records=20, assigners=4)


def rows(start: int, end: int, at: int = 1, day: str = "a") -> pa.Table:
    ids = [f"k{number}" for number in range(start, end)]
    return pa.table({"id": ids, "day": [day] * len(ids), "at": [at] * len(ids)}, SCHEMA)


def make(path: str, index: object = DYNAMIC, table_type: str = "copy_on_write") -> bl.Table:
    return bl.create_table(
        path,
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        ordering="at",
        index=index,  # type: ignore[arg-type]
        table_type=table_type,
    )


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note how each write goes."""
    noted: list[str] = []
    spy(monkeypatch, PackedRecords, "locate", lambda *_: noted.append("general"))
    spy(
        monkeypatch,
        indexed_write.IndexedWrite,
        "_run_by_shard",
        lambda *_: noted.append("by shard"),
    )
    return noted


def notes(table: bl.Table) -> list[str]:
    storage = open_storage(table.path)
    return [storage.read(stored.path).decode() for stored in storage.list(SHARED_FOLDER)]


def values(table: bl.Table) -> dict[str, int]:
    found = table.to_arrow()
    assert len(found) == len(set(found["id"].to_pylist())), "no key is there twice"
    return dict(zip(found["id"].to_pylist(), found["at"].to_pylist(), strict=True))


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_writes_of_our_own_go_shard_by_shard(
    new_path: NewPath, stages: list[str], table_type: str
) -> None:
    table = make(new_path(), table_type=table_type)
    table.insert(rows(0, 100))
    result = table.upsert(rows(50, 200, at=2))
    assert (result.inserted, result.updated) == (100, 50)
    table.delete(rows(0, 10, at=3))
    table.insert_overwrite(rows(150, 160, at=3))
    table.upsert(rows(155, 170, at=4))
    assert stages == ["by shard"] * 5
    assert values(table) == {
        **{f"k{number}": 3 for number in range(150, 155)},
        **{f"k{number}": 4 for number in range(155, 170)},
    }
    assert notes(table) == []
    assert table.doctor(check_keys=True) == []


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_a_key_in_a_bucket_of_another_shard_takes_the_general_way_and_is_noted(
    new_path: NewPath, stages: list[str], table_type: str
) -> None:
    table = make(new_path(), bl.SimpleBucket(3), table_type)
    table.upsert(rows(0, 60))
    table.convert(DYNAMIC, dry_run=False)
    table = bl.open_table(table.path)
    before = len(table.timeline())
    table.upsert(rows(30, 90, at=2))
    assert stages == ["by shard", "general"]
    assert notes(table) == ["a"]
    assert len(table.timeline()) == before + 1, "the first attempt left nothing"
    table.upsert(rows(80, 100, at=3))
    assert stages == ["by shard", "general", "general"]
    expected = {f"k{number}": 1 for number in range(30)}
    expected |= {f"k{number}": 2 for number in range(30, 80)}
    expected |= {f"k{number}": 3 for number in range(80, 100)}
    assert values(table) == expected
    assert table.doctor(check_keys=True) == []


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_a_death_at_any_step_of_a_write_that_begins_again_loses_and_doubles_nothing(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), bl.SimpleBucket(3), table_type)
    table.upsert(rows(0, 9))
    table.convert(DYNAMIC, dry_run=False)
    held = objects_of(open_storage(table.path))
    before = {f"k{number}": 1 for number in range(9)}
    after = before | {f"k{number}": 2 for number in range(5, 14)}

    def upserted(inner: MemoryStorage, *faults: Fault) -> FaultyStorage:
        faulty = FaultyStorage(inner, faults, reads_count=False)

        def write() -> WriteResult:
            target = open_target(table_at(faulty), None)
            source = ArrowSource(rows(5, 14, at=2), threads=1)
            return write_records(target, Operation.UPSERT, source)

        retried(write)
        return faulty

    counting = upserted(filled_storage(f"{table_type}-{next(_NUMBERS)}", held))
    seen = []
    for death in some(distinct_deaths(counting), 14):
        inner = filled_storage(f"{table_type}-{next(_NUMBERS)}", held)
        with suppress(SimulatedCrash):
            upserted(inner, death)
        opened = bl.open_table(inner.root)
        found = values(opened)
        assert found in (before, after), death
        seen.append(found == after)
        opened.upsert(rows(3, 20, at=3))
        assert values(opened) == found | {f"k{number}": 3 for number in range(3, 20)}, death
        forget(inner.root.removeprefix("memory://"))
    assert False in seen


def test_a_shard_with_more_records_than_a_task_should_hold_takes_the_general_way(
    new_path: NewPath, stages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, indexed_write, BYTES_MAX=500)
    table = make(new_path())
    table.upsert(rows(0, 100))
    table.upsert(rows(90, 110))
    assert stages == ["general", "by shard"]
    assert len(values(table)) == 110


def test_both_ways_give_new_keys_the_same_buckets(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []
    for bytes_max in (1 << 28, 0):
        set_bounds(monkeypatch, indexed_write, BYTES_MAX=bytes_max)
        table = make(new_path())
        table.upsert(rows(0, 100))
        table.upsert(rows(50, 170, at=2))
        table.delete(rows(0, 30, at=3))
        table.upsert(rows(160, 300, at=4))
        held = table.to_arrow(columns=["id", "_hoodie_file_name"]).to_pylist()
        places.append(sorted((row["id"], row["_hoodie_file_name"][:8]) for row in held))
    assert places[0] == places[1]


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_partitions_with_one_and_with_four_shards_are_written_in_one_stage(
    new_path: NewPath, stages: list[str], table_type: str
) -> None:
    table = make(new_path(), bl.DynamicBucket(max_records=20), table_type)
    with mock.patch(ROWS_OF_LARGE, 50):
        batch = pa.concat_tables([rows(0, 30), rows(0, 90, day="b")])
        table.insert(batch)
        assert shards_of(table.path) == {"a": 1, "b": 4}
        table.upsert(pa.concat_tables([rows(20, 70, at=2), rows(80, 170, at=2, day="b")]))
    assert stages == ["by shard"] * 2
    found = {(row["day"], row["id"]): row["at"] for row in table.to_arrow().to_pylist()}
    expected = {("a", f"k{n}"): 1 + (n >= 20) for n in range(70)}
    assert found == expected | {("b", f"k{n}"): 1 + (n >= 80) for n in range(170)}
    assert table.doctor(check_keys=True) == []


def test_a_table_with_more_assigners_writes_a_partition_with_fewer_in_one_stage(
    new_path: NewPath, stages: list[str]
) -> None:
    """Hudi opens the shards of a new partition by its own options."""
    table = make(new_path(), bl.DynamicBucket(max_records=20, assigners=6))
    for day, shards in (("a", 2), ("b", 4)):
        with mock.patch.object(bl.DynamicBucket, "shard_limits", ShardsBySize(shards, shards)):
            bl.open_table(table.path).upsert(rows(0, 30, day=day))
    assert shards_of(table.path) == {"a": 2, "b": 4}
    stages.clear()
    table.upsert(rows(10, 60, at=2))
    table.upsert(rows(10, 60, at=2, day="b"))
    assert stages == ["by shard", "general"], "six tags do not divide among four shards"
    assert len(table.to_arrow()) == 120
    assert table.doctor(check_keys=True) == []


@pytest.mark.parametrize(
    ("table_type", "way"), [("copy_on_write", "general"), ("merge_on_read", "by shard")]
)
def test_a_shard_whose_buckets_one_task_should_not_rewrite_takes_the_general_way(
    new_path: NewPath,
    stages: list[str],
    monkeypatch: pytest.MonkeyPatch,
    table_type: str,
    way: str,
) -> None:
    table = make(new_path(), bl.DynamicBucket(max_records=20), table_type)
    table.upsert(rows(0, 60))
    table.upsert(rows(0, 10, day="b"))
    size = sum(bucket.size_bytes for bucket in table.buckets() if bucket.partition_path == "a")
    set_bounds(monkeypatch, indexed_write, STORED_BYTES_MAX=size)
    table.upsert(rows(0, 60, at=2))
    set_bounds(monkeypatch, indexed_write, STORED_BYTES_MAX=1)
    table.upsert(rows(0, 10, at=3))
    table.upsert(rows(0, 10, at=3, day="b"))
    table.insert_overwrite(rows(0, 50, at=4))
    assert stages[2:] == ["by shard", way, "by shard", "by shard"], "one file is one task anyway"
    found = {(row["day"], row["id"]): row["at"] for row in table.to_arrow().to_pylist()}
    expected = {("a", f"k{n}"): 4 for n in range(50)}
    assert found == expected | {("b", f"k{n}"): 3 for n in range(10)}


def test_a_delete_of_keys_that_are_nowhere_writes_nothing(
    new_path: NewPath, stages: list[str]
) -> None:
    table = make(new_path())
    table.upsert(rows(0, 2))
    result = table.delete(rows(100, 120))
    assert (result.instant, result.deleted) == (None, 0)
    assert stages == ["by shard"] * 2
    assert len(values(table)) == 2


def test_a_repair_that_rewrites_a_partition_goes_by_shard_too(
    new_path: NewPath, stages: list[str]
) -> None:
    """Its rows are tagged as those of every write."""
    table = make(new_path())
    table.upsert(rows(0, 100))
    storage = open_storage(table.path)
    config = read_table_config(storage)
    target = open_target(opened_table(storage, config), None)
    result = rewrite_partitions(target, ["a"], ArrowSource(rows(0, 100, at=2)))
    assert result.instant is not None
    assert stages == ["by shard"] * 2
    table.upsert(rows(50, 120, at=3))
    assert len(values(table)) == 120
    assert table.doctor(check_keys=True) == []
