"""Tables whose kind needs a record-level index get it back, whatever took it off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import (
    BucketLakeError,
    CommitConflictError,
    KeyTwiceError,
    MetadataTableWarning,
)
from bucketlake.metadata.file_listing import list_partitions_as
from bucketlake.services.check.findings import FindingKind, Severity
from bucketlake.services.metadata import needed_index, rebuild
from bucketlake.services.undo.savepoints import restore
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.commit_order import last_turn, take_turn
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from tests.bounds import set_bounds
from tests.broken_tables import later, newest
from tests.choices import some
from tests.faulty_storage import Effect, Fault, FaultyStorage, SimulatedCrash, distinct_deaths
from tests.spies import breaks

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("at", pa.int64())])
NewPath = Callable[[], str]
KINDS = pytest.mark.parametrize(
    "index",
    [
        bl.DynamicBucket(max_records=4, assigners=2),
        bl.RecordIndex(),
        bl.RecordIndex(partitioned=False),
    ],
    ids=["dynamic", "record_index", "global"],
)
TYPES = pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])


def make(path: str, index: bl.DynamicBucket | bl.RecordIndex, table_type: str) -> bl.Table:
    return bl.create_table(
        path,
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        ordering="at",
        index=index,
        table_type=table_type,
    )


def rows(*numbers: int, at: int = 1) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{n}", "day": "ab"[n % 2], "at": at} for n in numbers], SCHEMA
    )


def held(table: bl.Table) -> dict[str, int]:
    found = table.to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "no key is stored twice"
    return {row["id"]: row["at"] for row in found}


def upsert_many(table: bl.Table, count: int = 10) -> None:
    """Upsert and delete so often that the metadata table is compacted."""
    for n in range(count):
        table.upsert(rows(n, n + 1, at=2))
    table.delete(rows(0).select(["id", "day"]))


def sound(table: bl.Table) -> bool:
    return table.doctor(check_keys=True, min_age_seconds=0) == []


@KINDS
@TYPES
def test_a_restore_over_compactions_of_the_metadata_table_keeps_the_index(
    new_path: NewPath, index: bl.DynamicBucket | bl.RecordIndex, table_type: str
) -> None:
    table = make(new_path(), index, table_type)
    table.upsert(rows(0, 1, 2, 3))
    then = table.savepoint()
    upsert_many(table)
    table.restore(then)
    assert held(table) == {"k0": 1, "k1": 1, "k2": 1, "k3": 1}
    assert sound(table)
    table.upsert(rows(0, 7, at=3))
    assert held(table) == {"k0": 3, "k1": 1, "k2": 1, "k3": 1, "k7": 3}
    assert sound(table)


@KINDS
def test_a_rollback_of_many_commits_keeps_the_index(
    new_path: NewPath, index: bl.DynamicBucket | bl.RecordIndex
) -> None:
    table = make(new_path(), index, "copy_on_write")
    table.upsert(rows(0, 1))
    first = table.upsert(rows(0, at=2)).instant
    assert first is not None
    upsert_many(table)
    table.rollback(first, cascade=True)
    assert sound(table)
    table.upsert(rows(0, 1, 2, at=3))
    assert held(table) == {"k0": 3, "k1": 3, "k2": 3}
    assert sound(table)


@pytest.mark.filterwarnings("ignore::bucketlake.errors.MetadataTableWarning")
def test_a_restore_that_dies_at_any_step_is_ended_by_the_next_write() -> None:
    name = "restore-deaths"
    made = make(f"memory://{name}", bl.DynamicBucket(max_records=4, assigners=2), "copy_on_write")
    made.upsert(rows(0, 1, 2, 3))
    then = made.savepoint()
    upsert_many(made)
    objects = {one.path: MemoryStorage(name).read(one.path) for one in MemoryStorage(name).list("")}
    before = held(made)

    def fresh() -> MemoryStorage:
        forget(name)
        storage = MemoryStorage(name)
        for path, data in objects.items():
            storage.put(path, data)
        return storage

    done = FaultyStorage(fresh(), reads_count=False)
    restore(table_at(done), then)
    deaths = distinct_deaths(done)
    assert any("record_index" in step.path for step in done.trace), "the index is built again"
    restored = {"k0": 1, "k1": 1, "k2": 1, "k3": 1}
    for death in some(deaths, 12):
        storage = fresh()
        faulty = FaultyStorage(
            storage, [Fault(death.operation, death.moment, Effect.DIE)], reads_count=False
        )
        with suppress(SimulatedCrash, BucketLakeError):
            restore(opened_table(faulty, read_table_config(storage)), then)
        table = bl.open_table(f"memory://{name}")
        table.upsert(rows(2, 20, at=5))
        changed = {"k2": 5, "k20": 5}
        assert held(table) in (before | changed, restored | changed), faulty.replay()
        found = [one for one in table.doctor(check_keys=True) if one.severity is not Severity.NOTE]
        assert found == [], faulty.replay()
    forget(name)


@KINDS
@TYPES
def test_the_next_write_ends_a_build_of_a_dead_process(
    new_path: NewPath,
    index: bl.DynamicBucket | bl.RecordIndex,
    table_type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = make(new_path(), index, table_type)
    table.upsert(rows(0, 1, 2, 3))

    breaks(monkeypatch, rebuild, "build_index", SimulatedCrash())
    with pytest.raises(SimulatedCrash):
        table.rebuild_metadata_table(["record_index"])
    monkeypatch.undo()
    [found] = table.doctor(check_keys=True, min_age_seconds=0)
    assert found.kind is FindingKind.INDEX_MISSING
    with pytest.warns(MetadataTableWarning, match="was missing; this write builds it"):
        table.upsert(rows(0, 5, at=2))
    assert held(table) == {"k0": 2, "k1": 1, "k2": 1, "k3": 1, "k5": 2}
    assert sound(table)


@contextmanager
def building(table: bl.Table) -> Iterator[None]:
    """Build the index as a process that is at work."""
    storage, turn = open_storage(table.path), None
    turn = last_turn(storage)
    instant = later(newest(table), 10)
    with beating(storage, instant):
        assert take_turn(storage, instant, after=turn, changes_metadata=True)
        list_partitions_as(storage, building=["record_index"])
        yield


@pytest.mark.filterwarnings("ignore::bucketlake.errors.MetadataTableWarning")
def test_a_build_of_a_living_process_is_left_alone(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, needed_index, _WAIT_SECONDS=0.2)
    table = make(new_path(), bl.RecordIndex(), "copy_on_write")
    table.upsert(rows(0))
    with building(table):
        listed = table.config()
        with pytest.raises(CommitConflictError, match=r"another process is building.*write again"):
            table.upsert(rows(1))
        assert table.doctor(check_keys=True, min_age_seconds=0) == []
        table.repair(check_keys=True, min_age_seconds=0)
        assert table.config() == listed
    table.upsert(rows(1))
    assert held(table) == {"k0": 1, "k1": 1}


@pytest.mark.filterwarnings("ignore::bucketlake.errors.MetadataTableWarning")
def test_a_table_without_its_metadata_table_gets_it_with_the_next_write(new_path: NewPath) -> None:
    table = make(new_path(), bl.DynamicBucket(max_records=4), "merge_on_read")
    table.upsert(rows(0, 1))
    table.drop_metadata_table()
    table.upsert(rows(1, 2, at=2))
    assert held(table) == {"k0": 1, "k1": 2, "k2": 2}
    assert sound(table)


def test_a_dead_build_of_an_index_that_the_kind_does_not_need_is_found_and_repaired(
    new_path: NewPath,
) -> None:
    table = bl.create_table(
        new_path(),
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        index=bl.SimpleBucket(2),
    )
    table.upsert(rows(0, 1))
    table.rebuild_metadata_table(["record_index"])
    list_partitions_as(open_storage(table.path), building=["record_index"])
    [found] = table.doctor()
    assert found.kind is FindingKind.METADATA_BUILD_DEAD
    assert table.repair().left == ()
    assert table.doctor(check_keys=True) == []
    assert "record_index" in table.config().metadata_partitions


def test_a_global_index_of_keys_in_two_partitions_is_taken_off_where_the_kind_allows_them(
    new_path: NewPath,
) -> None:
    table = bl.create_table(
        new_path(),
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        index=bl.SimpleBucket(2),
    )
    table.upsert(rows(0, 1))
    other = pa.Table.from_pylist([{"id": "k0", "day": "b", "at": 1}], SCHEMA)
    table.upsert(other)
    with pytest.raises(KeyTwiceError, match=r"partitioned=True"):
        table.rebuild_metadata_table(["record_index"], partitioned=False)
    assert table.repair(check_keys=True).left == ()
    table.upsert(rows(0, at=2))
    assert table.doctor(check_keys=True) == []
    table.rebuild_metadata_table(["record_index"], partitioned=True)
    assert table.doctor(check_keys=True) == []
