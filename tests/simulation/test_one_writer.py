"""One writer, storage that fails at each step, and late tasks."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.merge_entries import MergeSettings
from bucketlake.errors import AlreadyExistsError
from bucketlake.model.file_name import InstantTime
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.retention import CleanPolicy, Retention
from bucketlake.model.table_type import Operation
from bucketlake.services.cleaning import clean
from bucketlake.services.compaction import CompactionLimits, compact
from bucketlake.services.undo.rollback_commits import roll_back
from bucketlake.services.undo.savepoints import delete_savepoint, make_savepoint, restore
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline import archive_writer
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import Action, State
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.create import make_table, new_config, plan_table
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.bounds import set_bounds
from tests.choices import some
from tests.faulty_storage import (
    FaultyStorage,
    SimulatedCrash,
    crash_points,
    distinct_deaths,
)
from tests.simulation.world import ONE_BY_ONE, PARTITIONS, SCHEMA, World, rescale

STEPS = 10
TWO = bl.SimpleBucket(2)

# Its writers' clocks are moved, and a warning is no fault.
pytestmark = pytest.mark.filterwarnings("ignore::bucketlake.ClockWarning")


def test_no_committed_row_is_lost_or_doubled_whatever_fails(
    seed: int, kind_name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, archive_writer, MERGED_FILES=2)
    world = World(seed, kind_name=kind_name)
    try:
        for _ in range(STEPS):
            world.step()
        world.fault_rate = 0
        world.upsert()
        world.check()
    finally:
        world.close()


def test_archival_among_all_steps_loses_nothing(
    seed: int, kind_name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, archive_writer, MERGED_FILES=2)
    world = World(seed, fault_rate=0.3, archival_rate=0.7, kind_name=kind_name)
    try:
        for _ in range(STEPS):
            world.step()
        world.fault_rate = 0
        world.upsert()
        world.archive()
        world.check()
        world.check_nothing_is_left_over()
    finally:
        world.close()


def test_worlds_archive_every_kind_of_commit() -> None:
    """Show that the test above can fail."""
    wanted = {"commit", "deltacommit", "replacecommit"}
    for seed in range(18):
        world = World(seed, fault_rate=0, archival_rate=0.7)
        for _ in range(STEPS):
            world.step()
        wanted -= world.archived_actions()
        world.close()
        if not wanted:
            return
    pytest.fail(f"no world archived {sorted(wanted)}")


def rows(values: range, v: int) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{i}", "p": "ab"[i % 2], "v": v, "ts": 1} for i in values], SCHEMA
    )


def fresh_table(name: str, table_type: str = "copy_on_write") -> MemoryStorage:
    forget(name)
    table = bl.create_table(
        f"memory://{name}",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["p"],
        ordering="ts",
        index=TWO,
        table_type=table_type,
    )
    table.upsert(rows(range(4), 1))
    return MemoryStorage(name)


def upsert(
    storage: FaultyStorage | MemoryStorage,
    v: int,
    index: bl.SimpleBucket | bl.PartitionBucket | None = TWO,
) -> None:
    target = open_target(table_at(storage), index)
    write_records(target, Operation.UPSERT, ArrowSource(rows(range(2, 6), v), threads=1))


def values_of(name: str) -> dict[str, int]:
    table = bl.open_table(f"memory://{name}").to_arrow()
    assert table.num_rows == len(set(table["id"].to_pylist()))
    return dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


BEFORE = {f"k{i}": 1 for i in range(4)}
AFTER = {f"k{i}": 1 for i in range(2)} | {f"k{i}": 2 for i in range(2, 6)}
LATER = {f"k{i}": 1 for i in range(2)} | {f"k{i}": 3 for i in range(2, 6)}


@pytest.mark.slow
def test_death_at_every_step_of_a_rescale_leaves_rows_and_rules_of_before_or_after() -> None:
    rules = {"a": 3}

    def run(storage: FaultyStorage | MemoryStorage) -> None:
        target = open_target(table_at(storage), TWO)
        rescale(target, rules, 2, None)

    counting = FaultyStorage(fresh_table("count"), reads_count=False)
    run(counting)
    assert counting.operations >= 9
    seen = set()
    for fault in crash_points(counting.operations):
        storage = FaultyStorage(fresh_table("crash"), [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            run(storage)
        assert values_of("crash") == BEFORE, storage.replay()
        index = bl.open_table("memory://crash").index
        assert index in (TWO, bl.PartitionBucket(rules, 2)), storage.replay()
        seen.add(type(index))
        upsert(MemoryStorage("crash"), 3)
        table = bl.open_table("memory://crash")
        assert values_of("crash") == LATER, storage.replay()
        for key in LATER:
            assert len(table.locate(key)) == 1, storage.replay()
    assert seen == {bl.SimpleBucket, bl.PartitionBucket}


@pytest.mark.slow
def test_death_at_every_step_of_a_rollback_is_made_good_by_the_next_write() -> None:
    """The rollback undoes a rescale: rows stay, and rules always match the buckets."""

    def rescaled(name: str) -> tuple[MemoryStorage, InstantTime]:
        storage = fresh_table(name)
        target = open_target(table_at(storage), TWO)
        instant = rescale(target, {"a": 3}, 2, None).instant
        assert instant is not None
        return storage, instant

    def run(storage: FaultyStorage | MemoryStorage, instant: InstantTime) -> None:
        roll_back(table_at(storage), None, instant)

    storage, instant = rescaled("count")
    counting = FaultyStorage(storage, reads_count=False)
    run(counting, instant)
    assert counting.operations >= 12
    seen = set()
    for fault in crash_points(counting.operations):
        storage, instant = rescaled("crash")
        faulty = FaultyStorage(storage, [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            run(faulty, instant)
        assert values_of("crash") == BEFORE, faulty.replay()
        seen.add(type(bl.open_table("memory://crash").index))
        upsert(MemoryStorage("crash"), 3)
        table = bl.open_table("memory://crash")
        assert values_of("crash") == LATER, faulty.replay()
        for key in LATER:
            assert len(table.locate(key)) == 1, faulty.replay()
        assert all(i.state is State.COMPLETED for i in table.timeline()), faulty.replay()
    assert seen == {bl.SimpleBucket, bl.PartitionBucket}


@pytest.mark.slow
def test_death_at_every_step_of_a_clean_keeps_the_rows_and_the_next_clean_ends_it() -> None:
    def upserted(name: str) -> MemoryStorage:
        storage = fresh_table(name)
        for _ in range(2):
            upsert(storage, 2)
        return storage

    def run(storage: FaultyStorage | MemoryStorage) -> None:
        clean(table_at(storage), Retention(count=1))

    def files(storage: MemoryStorage) -> set[str]:
        return {o.path for p in PARTITIONS for o in storage.list(p) if "parquet" in o.path}

    storage = upserted("count")
    before = files(storage)
    counting = FaultyStorage(storage, reads_count=False)
    run(counting)
    after = len(files(storage))
    assert after < len(before)
    for fault in crash_points(counting.operations):
        storage = upserted("crash")
        faulty = FaultyStorage(storage, [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            run(faulty)
        assert values_of("crash") == AFTER, faulty.replay()
        upsert(storage, 3)  # A write while a clean is pending.
        run(storage)
        assert values_of("crash") == LATER, faulty.replay()
        timeline = bl.open_table("memory://crash").timeline()
        assert all(i.state is State.COMPLETED for i in timeline), faulty.replay()
        assert len(files(storage)) == after, faulty.replay()


@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_death_at_every_step_of_a_restore_is_made_good_by_the_next_write(table_type: str) -> None:
    """The restore undoes a rescale, an upsert and compactions; reads see the rows of a time."""

    def written(name: str) -> tuple[MemoryStorage, InstantTime]:
        storage = fresh_table(name, table_type)
        upsert(storage, 2)
        then = make_savepoint(opened_table(storage, config))
        rescale(open_target(opened_table(storage, config), TWO), {"a": 3}, 2, None)
        target = open_target(opened_table(storage, config), None)
        write_records(target, Operation.UPSERT, ArrowSource(rows(range(2, 8), 3), threads=1))
        if table_type == "merge_on_read":
            compact(opened_table(storage, config), CompactionLimits(), ONE_BY_ONE)
            upsert(storage, 3, bl.PartitionBucket({"a": 3}, 2))
            compact(
                opened_table(storage, config), CompactionLimits(), ONE_BY_ONE, schedule_only=True
            )
        return storage, then

    def run(storage: FaultyStorage | MemoryStorage, then: InstantTime) -> None:
        restore(opened_table(storage, config), then)

    fresh_table("count", table_type)
    config = read_table_config(MemoryStorage("count"))
    storage, then = written("count")
    held = {stored.path: storage.read(stored.path) for stored in storage.list("")}
    counting = FaultyStorage(storage, reads_count=False)
    run(counting, then)
    assert values_of("count") == AFTER
    states = [AFTER, values_with(AFTER, range(2, 8), 3)]
    seen = set()
    for fault in some([*distinct_deaths(counting)], 20):
        forget("crash")
        storage = MemoryStorage("crash")
        for path, content in held.items():
            storage.put(path, content)
        faulty = FaultyStorage(storage, [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            run(faulty, then)
        assert values_of("crash") in states, faulty.replay()
        upsert(MemoryStorage("crash"), 4, None)
        restored = [values_with(state, range(2, 6), 4) for state in states]
        assert values_of("crash") in restored, faulty.replay()
        seen.add(restored.index(values_of("crash")))
        table = bl.open_table("memory://crash")
        for key in values_of("crash"):
            assert len(table.locate(key)) == 1, faulty.replay()
        pending = [i for i in table.timeline() if i.state is not State.COMPLETED]
        assert all(i.action is Action.COMPACTION for i in pending), faulty.replay()
        run(storage, then)
        assert values_of("crash") == AFTER, faulty.replay()
        assert bl.open_table("memory://crash").index == TWO, faulty.replay()
        upsert(storage, 3)
        assert values_of("crash") == LATER, faulty.replay()
    assert seen == {0, 1}


def values_with(state: dict[str, int], numbers: range, v: int) -> dict[str, int]:
    return state | {f"k{i}": v for i in numbers}


@pytest.mark.slow
def test_death_at_every_step_of_a_savepoint_leaves_one_or_none_that_holds_its_files() -> None:
    storage = fresh_table("count")
    config = read_table_config(storage)
    counting = FaultyStorage(storage, reads_count=False)
    make_savepoint(opened_table(counting, config))
    for fault in crash_points(counting.operations):
        storage = fresh_table("crash")
        faulty = FaultyStorage(storage, [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            make_savepoint(opened_table(faulty, config))
        then = load_timeline(opened_table(storage, config)).completed_commits()[-1].requested_at
        is_held = any(
            i.action is Action.SAVEPOINT
            for i in load_timeline(opened_table(storage, config)).instants
        )
        upsert(storage, 2)
        clean(opened_table(storage, config), Retention(CleanPolicy.VERSIONS, 1))
        if is_held:  # A pending savepoint kept its files, so it can be made again.
            assert make_savepoint(opened_table(storage, config), then) == then
            restore(opened_table(storage, config), then)
            assert values_of("crash") == BEFORE, faulty.replay()
            delete_savepoint(opened_table(storage, config), then)
        else:
            assert values_of("crash") == AFTER, faulty.replay()
        timeline = load_timeline(opened_table(storage, config))
        assert all(i.state is State.COMPLETED for i in timeline.instants), faulty.replay()


def make(storage: FaultyStorage | MemoryStorage, index: bl.PartitionBucket) -> None:
    spec = KeySpec(("id",), ("p",), KeyGenerator.SIMPLE)
    config = new_config(spec, MergeSettings(("ts",)), name="made")
    planned = plan_table("made", SCHEMA, config, index)
    make_table(storage, planned)


def test_death_at_every_step_of_making_a_table_leaves_none_or_one_with_its_rules() -> None:
    index = bl.PartitionBucket({"a": 3}, 2)
    forget("made")
    counting = FaultyStorage(MemoryStorage("made"), reads_count=False)
    make(counting, index)
    for fault in crash_points(counting.operations):
        forget("made")
        storage = FaultyStorage(MemoryStorage("made"), [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            make(storage, index)
        with suppress(AlreadyExistsError):
            make(MemoryStorage("made"), index)
        assert bl.open_table("memory://made").index == index, storage.replay()
        upsert(MemoryStorage("made"), 1, index)
        assert bl.open_table("memory://made").to_arrow().num_rows == 4, storage.replay()
    forget("made")
