"""The record-level index of tables with a bucket index: what each write does to its entries."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    MetadataTableWarning,
)
from bucketlake.metadata.file_listing import list_partitions_as
from bucketlake.metadata.metadata_table import list_files_of
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.model.table_type import Operation
from bucketlake.storage.base import Subfolder
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.faulty_storage import Fault, FaultyStorage, Moment, SimulatedCrash
from tests.inside import upsert_once
from tests.meanwhile import meanwhile
from tests.spies import forbid, overtake

COW, MOR = "copy_on_write", "merge_on_read"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("at", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
NewPath = Callable[[], str]
TABLE_TYPES = pytest.mark.parametrize("table_type", [COW, MOR])
KINDS_OF_INDEX = pytest.mark.parametrize(
    "partitioned", [True, False], ids=["partitioned", "global"]
)


def make(path: str, *, partitioned: bool = True, **settings: Any) -> bl.Table:
    defaults: dict[str, Any] = {"partition_by": ["day"], "index": bl.SimpleBucket(2)}
    table = bl.create_table(path, schema=SCHEMA, record_key=["id"], **defaults | settings)
    table.rebuild_metadata_table(["record_index"], partitioned=partitioned)
    return table


def rows(*keys: str, at: int = 1, deleted: bool = False) -> pa.Table:
    """Return rows of keys such as ``a1``: the day is the first letter, the id the whole text."""
    return pa.Table.from_pylist(
        [{"id": key, "day": key[0], "at": at, "_hoodie_is_deleted": deleted} for key in keys],
        SCHEMA,
    )


def entries(table: bl.Table, *days: str) -> dict[str, str]:
    """Return the file group of each key in the index."""
    found = [entry for day in days for entry in table.record_locations(day).to_pylist()]
    return {entry["record_key"]: entry["file_id"] for entry in found}


def places(table: bl.Table) -> dict[str, str]:
    """Return the file group of each row."""
    found = table.to_arrow(columns=["_hoodie_record_key", "_hoodie_file_name"]).to_pylist()
    return {row["_hoodie_record_key"]: row["_hoodie_file_name"].partition("_")[0] for row in found}


def index_files(table: bl.Table, instant: str | None) -> list[str]:
    """Return the names of the log files of the index that a commit wrote."""
    inner = Subfolder(open_storage(table.path), ".hoodie/metadata")
    files = list_files_of(inner, "record_index")
    return [file.name.to_file_name() for file in files if file.name.instant == instant]


def has_index(table: bl.Table) -> bool:
    return "record_index" in read_table_config(open_storage(table.path)).metadata_partitions


@TABLE_TYPES
@KINDS_OF_INDEX
def test_each_operation_keeps_the_entries_of_its_keys(
    new_path: NewPath, table_type: str, partitioned: bool
) -> None:
    table = make(new_path(), partitioned=partitioned, table_type=table_type)
    table.bulk_insert(rows("a1", "a2", "a3"))
    table.insert(rows("b1", "b2"))
    table.upsert(rows("a1", "a4", at=2))
    assert entries(table, "a", "b") == places(table)
    table.delete(rows("a2", "b9").select(["id", "day"]))
    table.upsert(rows("b1", deleted=True))
    assert entries(table, "a", "b") == places(table)
    assert {*places(table)} == {"a1", "a3", "a4", "b2"}
    table.insert_overwrite(rows("a4", "a5"))
    assert entries(table, "a", "b") == places(table)
    table.insert_overwrite(rows("c1"), whole_table=True)
    assert entries(table, "a", "b", "c") == places(table) == entries(table, "c")
    table.delete_partitions("c")
    assert entries(table, "a", "b", "c") == {}
    table.upsert(rows("c1", "c2"))
    assert entries(table, "c") == places(table)
    table.insert_overwrite(rows()[:0], whole_table=True)
    assert entries(table, "a", "b", "c") == {}


@TABLE_TYPES
@KINDS_OF_INDEX
def test_an_upsert_of_stored_keys_writes_no_entry(
    new_path: NewPath, table_type: str, partitioned: bool
) -> None:
    table = make(new_path(), partitioned=partitioned, table_type=table_type)
    first = table.upsert(rows(*(f"a{n}" for n in range(50))))
    assert index_files(table, first.instant)
    again = table.upsert(rows(*(f"a{n}" for n in range(50)), at=2))
    assert index_files(table, again.instant) == []
    grown = table.upsert(rows("a1", "a51", at=3))
    assert len(index_files(table, grown.instant)) == 1
    assert entries(table, "a") == places(table)


def test_an_upsert_of_a_copy_on_write_table_looks_no_key_up_in_a_partitioned_index(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path())
    table.upsert(rows("a1", "a2"))

    with monkeypatch.context() as patched:
        forbid(patched, RecordIndexReader, "find_in")  # The merge knows which keys are new.
        table.upsert(rows("a1", "a3"))
        table.delete(rows("a2").select(["id", "day"]))
    assert entries(table, "a") == places(table)


@TABLE_TYPES
def test_tasks_of_one_shard_write_one_log_file(new_path: NewPath, table_type: str) -> None:
    table = make(new_path(), table_type=table_type, index=bl.SimpleBucket(64))
    done = table.upsert(rows(*(f"a{n}" for n in range(500)), *(f"b{n}" for n in range(500))))
    births = [name for name in index_files(table, done.instant) if name.endswith("0-0-0")]
    assert len(births) == 2
    assert len(index_files(table, done.instant)) == 4
    assert entries(table, "a", "b") == places(table)


@TABLE_TYPES
def test_a_delete_with_an_ordering_value_removes_an_entry_once_a_merge_has_decided_it(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), table_type=table_type, ordering="at")
    table.upsert(rows("a1", "a2", at=5))
    table.upsert(rows("a1", at=4, deleted=True))  # It loses.
    table.upsert(rows("a2", at=6, deleted=True))  # It wins.
    assert {*places(table)} == {"a1"}
    assert {*entries(table, "a")} == ({"a1"} if table_type == COW else {"a1", "a2"})


@TABLE_TYPES
def test_a_rollback_takes_the_entries_back(new_path: NewPath, table_type: str) -> None:
    table = make(new_path(), table_type=table_type)
    table.upsert(rows("a1", "a2"))
    before = entries(table, "a")
    undone = table.upsert(rows("a1", "a3", "b1", at=2))
    assert undone.instant is not None
    table.rollback(undone.instant)
    assert entries(table, "a", "b") == before == places(table)
    table.upsert(rows("b1"))
    assert entries(table, "a", "b") == places(table)


@TABLE_TYPES
def test_death_at_every_step_leaves_an_index_that_equals_the_rows(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), table_type=table_type)
    table.upsert(rows("a1", "a2", "a3"))
    stored = open_storage(table.path)
    objects = {found.path: stored.read(found.path) for found in stored.list("")}
    batch = pa.concat_tables([rows("a2", "a4", "b1", at=2), rows("a1", deleted=True)])
    seen: set[int] = set()
    for number in count(1):
        name = f"dying-{table_type}-{number}"
        inner = MemoryStorage(name)
        for path, data in objects.items():
            inner.put(path, data)
        storage = FaultyStorage(inner, [Fault(number, Moment.AFTER)], reads_count=False)
        died = True
        try:
            target = open_target(table_at(storage), None)
            write_records(target, Operation.UPSERT, ArrowSource(batch, threads=1))
            died = False
        except (SimulatedCrash, CommitOutcomeUnknownError):
            pass
        copy = bl.open_table(inner.root)
        seen.add(len(places(copy)))
        copy.upsert(rows("a2", "c1", at=3))  # It finishes or undoes the write that died.
        assert entries(copy, "a", "b", "c") == places(copy), storage.replay()
        forget(name)
        if not died:
            break
    assert seen == {3, 4}


# ---- Services -----------------------------------------------------------------------------------


@TABLE_TYPES
@KINDS_OF_INDEX
def test_a_resize_gives_each_key_the_entry_of_its_new_file_group(
    new_path: NewPath, table_type: str, partitioned: bool
) -> None:
    table = make(
        new_path(),
        partitioned=partitioned,
        table_type=table_type,
        index=bl.ConsistentBucket(2, max=8),
        ordering="at",
    )
    table.upsert(rows(*(f"a{n}" for n in range(30)), *(f"b{n}" for n in range(30))))
    table.upsert(rows("a3", "b4", at=2, deleted=True))
    before = {*places(table).values()}
    table.resize(max_file_size=1)
    after = {*places(table).values()}
    assert not before & after
    assert entries(table, "a", "b") == places(table)
    table.upsert(rows("a3", "a31", at=3))
    table.resize(max_file_size=10**9)
    assert {*places(table).values()} != after
    assert entries(table, "a", "b") == places(table)


@pytest.mark.parametrize(("old", "new"), [(2, 4), (2, 3)], ids=["in place", "by a shuffle"])
@TABLE_TYPES
@KINDS_OF_INDEX
def test_a_rescale_gives_each_key_the_entry_of_its_new_file_group(
    new_path: NewPath, table_type: str, partitioned: bool, old: int, new: int
) -> None:
    table = make(
        new_path(),
        partitioned=partitioned,
        table_type=table_type,
        index=bl.PartitionBucket({"a": old}, default=2),
    )
    table.upsert(rows(*(f"a{n}" for n in range(30)), *(f"b{n}" for n in range(30))))
    table.upsert(rows("a3", "b4", at=2, deleted=True))
    before = {*places(table).values()}
    table.rescale({"a": new}, default=2, dry_run=False)
    assert {*places(table).values()} != before
    assert entries(table, "a", "b") == places(table)


def test_a_write_beside_a_pending_resize_takes_the_index_off(new_path: NewPath) -> None:
    index = bl.ConsistentBucket(2, max=8)
    table = make(new_path(), table_type=MOR, index=index)
    table.upsert(rows(*(f"a{n}" for n in range(30))))
    table.resize(max_file_size=1, schedule_only=True)
    with pytest.warns(MetadataTableWarning, match="record_index"):
        table.upsert(rows("a1", "a31", at=2))
    assert not has_index(table)
    table.resize(max_file_size=1)
    table.rebuild_metadata_table(["record_index"])
    assert entries(table, "a") == places(table)


# ---- What cannot be maintained ------------------------------------------------------------------


@TABLE_TYPES
def test_a_key_in_two_partitions_takes_a_global_index_off_with_a_warning_that_names_it(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), partitioned=False, table_type=table_type)
    table.upsert(rows("a1", "a2"))
    moved = rows("b1", "a2").set_column(0, "id", pa.array(["a1", "a2"]))
    with pytest.warns(MetadataTableWarning) as told:
        table.upsert(moved)
    assert any("key 'a1' is in partition 'a'" in str(warning.message) for warning in told)
    assert not has_index(table)
    assert len(table.to_arrow()) == 3
    assert len(table.locate("a1")) == 2


@TABLE_TYPES
def test_a_key_moves_to_another_partition_of_a_global_index_by_a_delete_and_an_insert(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), partitioned=False, table_type=table_type)
    table.upsert(rows("a1", "a2"))
    table.delete(rows("a1").select(["id", "day"]))
    table.upsert(rows("b1").set_column(0, "id", pa.array(["a1"])))
    assert has_index(table)
    assert entries(table, "a", "b") == places(table)
    # The other partition does not have the key, so its delete leaves the entry.
    table.delete(rows("a1").select(["id", "day"]))
    assert entries(table, "a", "b") == places(table)


def test_an_overwrite_of_both_partitions_moves_a_key_in_a_global_index(new_path: NewPath) -> None:
    table = make(new_path(), partitioned=False)
    table.upsert(rows("a1", "a2", "b1"))
    moved = rows("b1", "a2").set_column(0, "id", pa.array(["a1", "a2"]))
    table.insert_overwrite(moved)
    assert has_index(table)
    assert entries(table, "a", "b") == places(table)


def test_a_partition_that_the_index_cannot_name_takes_it_off(new_path: NewPath) -> None:
    table = make(new_path())
    table.upsert(rows("a1"))
    dotted = rows("b1").set_column(1, "day", pa.array(["v1.2"]))
    with pytest.warns(MetadataTableWarning, match="record_index"):
        table.upsert(dotted)
    assert not has_index(table)


def test_an_index_that_was_built_again_meanwhile_is_a_conflict(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path())
    table.upsert(rows("a1"))
    meanwhile(monkeypatch, lambda: table.rebuild_metadata_table(["record_index"]))
    with pytest.raises(CommitConflictError, match="index was built again"):
        upsert_once(table, rows("a2"))
    assert entries(table, "a") == places(table)
    table.upsert(rows("a2"))
    assert entries(table, "a") == places(table)


def test_an_index_that_was_taken_off_meanwhile_is_not_written(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path())
    table.upsert(rows("a1"))
    storage = open_storage(table.path)
    meanwhile(monkeypatch, lambda: list_partitions_as(storage, lost=["record_index"]))
    upsert_once(table, rows("a2"))
    assert not has_index(table)
    assert {*places(table)} == {"a1", "a2"}


@TABLE_TYPES
def test_a_write_beside_the_build_of_an_index_is_in_it(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch, table_type: str
) -> None:
    table = make(new_path(), table_type=table_type)
    table.upsert(rows("a1", "a2", "a3"))
    from bucketlake.services.metadata import rebuild

    def write() -> None:
        table.upsert(rows("a2", "a4", "b1", at=2))
        table.delete(rows("a3").select(["id", "day"]))

    waiting = overtake(monkeypatch, rebuild, "build_index", write)
    table.rebuild_metadata_table(["record_index"])
    assert not waiting
    assert entries(table, "a", "b") == places(table)


@TABLE_TYPES
def test_a_task_reads_the_newest_files_of_the_index_if_a_clean_deleted_its_own(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch, table_type: str
) -> None:
    table = make(new_path(), partitioned=False, table_type=table_type)
    table.upsert(rows("a1", "a2"))
    find = RecordIndexReader.find_in
    failed = []

    def cleaned(self: RecordIndexReader, *given: Any) -> Any:
        if not failed:
            failed.append(True)
            raise CommitConflictError("20240101000000000", "a file was deleted")  # type: ignore[arg-type]
        return find(self, *given)

    monkeypatch.setattr(RecordIndexReader, "find_in", cleaned)
    upsert_once(table, rows("a2", "a3"))
    assert failed
    assert entries(table, "a") == places(table)
