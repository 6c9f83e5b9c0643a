"""Compaction of the metadata table: readers see the same before, meanwhile and afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from bucketlake.actions import metadata_compaction
from bucketlake.actions.metadata_compaction import compact_metadata
from bucketlake.actions.metadata_withdrawal import is_compaction_due, withdraw_compactions
from bucketlake.config.table_keys import METADATA_PARTITIONS
from bucketlake.errors import BucketLakeError, CommitConflictError, FormatError
from bucketlake.format.clustering_plan import encode_compaction_plan
from bucketlake.format.commit_metadata import decode_commit_metadata
from bucketlake.metadata.changes import (
    MetadataChange,
    publish_change,
    undo_change,
    write_change,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Buffer
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.commit_order import last_turn, take_turn
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import (
    Action,
    Instant,
    InstantClock,
    State,
    instant_to_ms,
    shift_instant,
)
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.transitions import create_requested, to_inflight
from tests.bounds import set_bounds
from tests.choices import DEEP
from tests.fake_time import FakeTime
from tests.faulty_storage import (
    Effect,
    Fault,
    FaultyStorage,
    Moment,
    SimulatedCrash,
    distinct_deaths,
)
from tests.storages import objects_of, set_properties
from tests.unit.metadata.test_changes import statistics_in, stats_of
from tests.unit.metadata.test_creation import sizes_of
from tests.written_metadata import COLUMN_STATS, FILES, PARTITION_STATS, WrittenTable, at

COMMITS = 10
AFTER = 2 * COMMITS + 10  # The second at which the commits are over.


def table_of(commits: int = COMMITS, storage: MemoryStorage | None = None) -> WrittenTable:
    """Return a table with a file from each commit, of which every third replaces one."""
    table = WrittenTable(storage, [FILES, COLUMN_STATS, PARTITION_STATS]).create()
    for number in range(1, commits + 1):
        write(table, number)
    return table


def write(table: WrittenTable, number: int) -> InstantTime:
    """Commit a file, and remove an older one now and then."""
    partition, name = ("eu", "us")[number % 2], f"f{number}_0-0-1_1.parquet"
    removed = {partition: [f"f{number - 2}_0-0-1_1.parquet"]} if number % 3 == 0 else {}
    change = MetadataChange(
        {partition: {name: number}},
        removed,
        listed=[partition],
        statistics={partition: stats_of({name: {"id": (number, number + 1)}})},
        columns=["id"],
    )
    table.commit(at(2 * number), at(2 * number + 1), change)
    return at(2 * number)


def clock_at(seconds: float) -> InstantClock:
    return InstantClock("UTC", lambda: instant_to_ms(at(seconds), "UTC"))


def compact(table: WrittenTable, seconds: float = AFTER) -> InstantTime | None:
    clock = clock_at(seconds)
    return compact_metadata(OpenTable(table.storage, table.config, clock, NO_LOCK))


def seen(table: WrittenTable) -> tuple[object, ...]:
    """Return all that readers see."""
    statistics = (statistics_in(table, partition) for partition in (COLUMN_STATS, PARTITION_STATS))
    return (sizes_of(table), *statistics)


def pending_here(table: WrittenTable) -> list[Instant]:
    return list(load_timeline(table.inner).pending())


class Meanwhile(FaultyStorage):
    """A storage on which something happens once, after a change of a path."""

    def __init__(self, inner: MemoryStorage, part: str, happens: Callable[[], object]) -> None:
        super().__init__(inner, reads_count=False)
        self.part: str | None = part
        self.happens = happens

    def put_if_absent(self, path: str, data: Buffer) -> None:
        super().put_if_absent(path, data)
        self._after(path)

    def put(self, path: str, data: Buffer) -> None:
        super().put(path, data)
        self._after(path)

    def _after(self, path: str) -> None:
        if self.part is not None and self.part in path:
            self.part = None
            self.happens()


@pytest.fixture
def table() -> WrittenTable:
    return table_of()


def test_compaction_is_due_after_ten_delta_commits() -> None:
    table = table_of(COMMITS - 1)
    assert not is_compaction_due(opened_table(table.storage, table.config))
    assert compact(table) is None
    write(table, COMMITS)
    assert is_compaction_due(opened_table(table.storage, table.config))
    instant = compact(table)
    assert instant is not None
    assert not is_compaction_due(opened_table(table.storage, table.config))
    assert compact(table, AFTER + 1) is None


def test_readers_see_the_same_before_and_after(table: WrittenTable) -> None:
    before = seen(table)
    compact(table)
    assert seen(table) == before
    for partition, count in ((FILES, 1), (COLUMN_STATS, 2), (PARTITION_STATS, 1)):
        slices = table.open().slices(partition)
        assert len(slices) == count
        assert all(held.base_file is not None and not held.log_files for held in slices)


def test_later_commits_are_applied_to_the_new_base_files(table: WrittenTable) -> None:
    compact(table, 2 * COMMITS + 1.5)
    write(table, COMMITS + 1)
    expected = table_of(COMMITS + 1)
    assert seen(table) == seen(expected)
    (held,) = table.open().slices(FILES)
    assert [log.name.instant for log in held.log_files] == [at(2 * COMMITS + 2)]


def test_several_compactions_follow_each_other() -> None:
    table = table_of(0)
    for number in range(1, 35):
        write(table, number)
        compact(table, 2 * number + 1.5)
    assert seen(table) == seen(table_of(34))
    done = [i for i in table.open().timeline.completed() if i.action is Action.COMMIT]
    assert len(done) == 3


def test_compaction_is_described_as_one_of_hudi(table: WrittenTable) -> None:
    instant = compact(table)
    timeline = load_timeline(table.inner)
    (done,) = [i for i in timeline.completed() if i.action is Action.COMMIT]
    assert (done.requested_at, done.completed_at) > (instant, instant)
    path = timeline.path_of(done)
    commit = decode_commit_metadata(table.inner.storage.read(path), path)
    assert (commit.operation, commit.compacted) == ("COMPACT", True)
    assert commit.schema_json is not None
    assert {stat.path: stat.previous_commit for stat in commit.stats} == {
        f"files/files-0000-0_0-0-1_{instant}.hfile": "0" * 17,
        f"column_stats/col-stats-0000-0_0-0-1_{instant}.hfile": "null",
        f"column_stats/col-stats-0001-0_0-0-1_{instant}.hfile": "null",
        f"partition_stats/partition-stats-0000-0_0-0-1_{instant}.hfile": "null",
    }
    for stat in commit.stats:
        assert stat.file_size_bytes == len(table.inner.storage.read(stat.path))
    requested = Instant(done.requested_at, Action.COMPACTION, State.REQUESTED)
    planned = timeline.read_compaction_plan(table.inner.storage, requested)
    assert [(s.partition_path, s.file_id, len(s.log_files)) for s in planned] == [
        ("files", "files-0000-0", 11),  # With the log file that opened the group.
        ("column_stats", "col-stats-0000-0", planned_logs(table, "col-stats-0000-0")),
        ("column_stats", "col-stats-0001-0", planned_logs(table, "col-stats-0001-0")),
        ("partition_stats", "partition-stats-0000-0", 11),
    ]


def planned_logs(table: WrittenTable, file_id: str) -> int:
    return sum(f".{file_id}_" in path and ".log." in path for path in objects_of(table.storage))


def test_compaction_that_dies_at_any_step_leaves_readers_alone_and_is_ended_by_the_next() -> None:
    start = table_of()
    before, objects = seen(start), objects_of(start.storage)

    def fresh(*faults: Fault) -> tuple[WrittenTable, FaultyStorage]:
        inner = MemoryStorage.fresh()
        for path, data in objects.items():
            inner.put(path, data)
        return start.seen_by(inner), FaultyStorage(inner, faults, reads_count=False)

    _, done = fresh()
    assert compact(start.seen_by(done)) is not None
    for fault in distinct_deaths(done):
        alive, dying = fresh(fault)
        with pytest.raises(SimulatedCrash):
            compact(start.seen_by(dying))
        assert seen(alive) == before, fault
        compact(alive, AFTER + 300)
        assert seen(alive) == before, fault
        assert not pending_here(alive), fault
        assert not is_compaction_due(opened_table(alive.storage, alive.config)), fault
        write(alive, COMMITS + 200)
        assert len(sizes_of(alive)["eu"]) == len(before[0]["eu"]) + 1, fault  # type: ignore[index]


@pytest.mark.parametrize("turn", [0, 1] if DEEP else [0])
def test_storage_error_at_any_step_leaves_readers_alone(turn: int) -> None:
    """One step fails before it takes effect, the next one after it."""
    effects = (Effect.ERROR, Effect.ECHO)
    start = table_of()
    before, objects = seen(start), objects_of(start.storage)
    number = 0
    while True:
        number += 1
        inner = MemoryStorage.fresh()
        for path, data in objects.items():
            inner.put(path, data)
        lands = (number + turn) % 2 == 1
        fault = Fault(number, Moment.AFTER if lands else Moment.BEFORE, effects[lands])
        failing = FaultyStorage(inner, [fault], reads_count=False)
        with suppress(BucketLakeError):
            compact(start.seen_by(failing))
        alive = start.seen_by(inner)
        assert seen(alive) == before, number
        compact(alive, AFTER + 300)
        assert seen(alive) == before, number
        assert not pending_here(alive), number
        if failing.operations < number:
            break


def test_compaction_of_a_damaged_file_raises_an_error_and_withdraws_itself(
    table: WrittenTable,
) -> None:
    path = f"partition_stats/.partition-stats-0000-0_{at(6)}.log.1_0-0-1"
    content = table.inner.storage.read(path)
    table.inner.storage.put(path, content[:-9])
    with pytest.raises(FormatError, match="partition_stats"):
        compact(table)
    assert not pending_here(table)
    assert not [path for path in objects_of(table.storage) if path.endswith(f"{at(AFTER)}.hfile")]
    table.inner.storage.put(path, content)
    before = seen(table)
    assert compact(table, AFTER + 1) is not None
    assert seen(table) == before


# Beside other processes.


def test_only_one_process_compacts(table: WrittenTable) -> None:
    results = []
    busy = Meanwhile(table.storage, ".compaction.requested", lambda: results.append(compact(table)))  # type: ignore[arg-type]
    instant = compact(table.seen_by(busy))
    assert instant is not None
    assert results == [None]


def test_process_that_is_overtaken_by_another_compaction_fails_and_leaves_nothing(
    table: WrittenTable,
) -> None:
    before = seen(table)
    withdraw = lambda: withdraw_compactions(opened_table(table.storage, table.config))  # noqa: E731
    slow = Meanwhile(table.storage, ".compaction.inflight", withdraw)  # type: ignore[arg-type]
    with pytest.raises(CommitConflictError, match="withdrew this compaction"):
        compact(table.seen_by(slow))
    assert not [path for path in objects_of(table.storage) if path.endswith(f"{at(AFTER)}.hfile")]
    assert seen(table) == before
    assert not pending_here(table)
    assert compact(table, AFTER + 1) is not None
    assert seen(table) == before


def test_commit_that_completes_after_the_turn_stays_a_log_file(table: WrittenTable) -> None:
    """Its completion time is later than the compaction, because it saw the turn."""

    def commit() -> None:
        turn = last_turn(table.storage)
        assert turn is not None
        late = shift_instant(turn.instant, timedelta(milliseconds=1))
        change = MetadataChange({"asia": {"late_0-0-1_1.parquet": 1}}, listed=["asia"])
        table.commit(at(25), late, change)

    busy = Meanwhile(table.storage, "commit_order", commit)  # type: ignore[arg-type]
    compact(table.seen_by(busy))
    (held,) = table.open().slices(FILES)
    assert held.base_file is not None
    assert [log.name.instant for log in held.log_files] == [at(25)]
    assert sizes_of(table)["asia"] == {"late_0-0-1_1.parquet": 1}


def test_another_turn_meanwhile_makes_the_compaction_look_again(table: WrittenTable) -> None:
    class Overtaken(Meanwhile):
        def put_if_absent(self, path: str, data: Buffer) -> None:
            if self.part is not None and self.part in path:
                self.part = None
                self.happens()
            super().put_if_absent(path, data)

    def commit() -> None:
        change = MetadataChange({"asia": {"late_0-0-1_1.parquet": 1}}, listed=["asia"])
        table.commit(at(25), at(26), change)
        assert take_turn(table.storage, at(25), after=last_turn(table.storage))

    compact(table.seen_by(Overtaken(table.storage, "commit_order", commit)))  # type: ignore[arg-type]
    (held,) = table.open().slices(FILES)
    assert not held.log_files
    assert sizes_of(table)["asia"] == {"late_0-0-1_1.parquet": 1}


def test_compaction_waits_for_a_clean_that_has_log_files(
    table: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sizes_of(table)
    table.begin(at(25), Action.CLEAN)
    change = MetadataChange(deleted={"eu": ["f10_0-0-1_1.parquet"]})
    content = write_change(table.open(), at(25), change)
    set_bounds(monkeypatch, metadata_compaction, _WAIT_SECONDS_MAX=0.0)
    assert compact(table) is None
    assert not pending_here(table) or [i.requested_at for i in pending_here(table)] == [at(25)]

    def complete() -> None:
        publish_change(opened_table(table.storage, table.config), at(25), at(26), content)
        table.complete(at(25), at(26), Action.CLEAN)

    set_bounds(monkeypatch, metadata_compaction, _WAIT_SECONDS_MAX=10.0)
    FakeTime(complete).installed(monkeypatch)
    assert compact(table) is not None
    (held,) = table.open().slices(FILES)
    assert not held.log_files
    del before["eu"]["f10_0-0-1_1.parquet"]
    assert sizes_of(table) == before


def test_write_that_waits_for_its_turn_does_not_hold_the_compaction_up(table: WrittenTable) -> None:
    table.begin(at(25))
    change = MetadataChange({"asia": {"late_0-0-1_1.parquet": 1}}, listed=["asia"])
    content = write_change(table.open(), at(25), change)
    instant = compact(table)
    assert instant is not None
    completed_at = at(AFTER + 1)
    publish_change(opened_table(table.storage, table.config), at(25), completed_at, content)
    table.complete(at(25), completed_at)
    assert sizes_of(table)["asia"] == {"late_0-0-1_1.parquet": 1}


def test_commit_that_is_completed_only_here_defers_the_compaction(
    table: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Hudi writer died; Hudi can roll it back only if no compaction is later."""
    table.begin(at(25))
    change = MetadataChange({"asia": {"late_0-0-1_1.parquet": 1}}, listed=["asia"])
    content = write_change(table.open(), at(25), change)
    publish_change(opened_table(table.storage, table.config), at(25), at(26), content)
    set_bounds(monkeypatch, metadata_compaction, _WAIT_SECONDS_MAX=0.0)
    assert compact(table) is None
    undo_change(opened_table(table.storage, table.config), at(25))
    assert compact(table, AFTER + 1) is not None


# Beside rollbacks.


def test_no_compaction_is_planned_while_commits_are_undone(table: WrittenTable) -> None:
    table.begin(at(25), Action.ROLLBACK)
    assert compact(table) is None
    table.complete(at(25), at(26), Action.ROLLBACK)
    assert compact(table) is not None


def test_compaction_that_sees_a_rollback_after_its_plan_withdraws_itself(
    table: WrittenTable,
) -> None:
    before = seen(table)
    undo = lambda: table.begin(at(25), Action.ROLLBACK)  # noqa: E731
    busy = Meanwhile(table.storage, ".compaction.requested", undo)  # type: ignore[arg-type]
    assert compact(table.seen_by(busy)) is None
    assert not pending_here(table)
    assert seen(table) == before


def test_compaction_of_a_commit_that_was_undone_meanwhile_withdraws_itself(
    table: WrittenTable,
) -> None:
    def undo() -> None:
        undo_change(opened_table(table.storage, table.config), at(2 * COMMITS))
        for path in objects_of(table.storage):
            if path.startswith(f".hoodie/timeline/{at(2 * COMMITS)}"):
                table.storage.delete(path)

    busy = Meanwhile(table.storage, ".compaction.requested", undo)  # type: ignore[arg-type]
    assert compact(table.seen_by(busy)) is None
    assert not pending_here(table)
    assert seen(table) == seen(table_of(COMMITS - 1))


def test_rollback_completes_a_compaction_that_is_decided(table: WrittenTable) -> None:
    before = seen(table)
    objects = objects_of(table.storage)
    done = FaultyStorage(table.storage, reads_count=False)
    compact(table.seen_by(done))
    decided = next(n for n, s in enumerate(done.trace, 1) if "ext/outcome" in s.path)
    table = table.seen_by(MemoryStorage.fresh())
    for path, data in objects.items():
        table.storage.put(path, data)
    dying = FaultyStorage(table.storage, [Fault(decided + 1)], reads_count=False)
    with pytest.raises(SimulatedCrash):
        compact(table.seen_by(dying))
    assert pending_here(table)
    withdraw_compactions(opened_table(table.storage, table.config))
    assert not pending_here(table)
    assert seen(table) == before
    assert not is_compaction_due(opened_table(table.storage, table.config))


def test_partition_that_is_taken_off_meanwhile_withdraws_the_compaction(
    table: WrittenTable,
) -> None:
    """A build makes it anew; the base files of the compaction would be in its folder."""

    def take_off() -> None:
        set_properties(table.storage, {METADATA_PARTITIONS: "files"})

    busy = Meanwhile(table.storage, ".compaction.requested", take_off)  # type: ignore[arg-type]
    assert compact(table.seen_by(busy)) is None
    assert not pending_here(table)
    assert compact(table, AFTER + 1) is not None
    assert WrittenTable(table.storage, [FILES]).open().slices(FILES)[0].base_file is not None
    assert all(held.base_file is None for held in table.open().slices(COLUMN_STATS))


# Plans of others.


def test_plan_that_hudi_left_is_withdrawn(table: WrittenTable) -> None:
    before = seen(table)
    inner = table.inner
    plan = encode_compaction_plan([])
    create_requested(inner, at(25), Action.COMPACTION, plan)
    to_inflight(inner, at(25), Action.COMPACTION)
    half_written = f"files/files-0000-0_0-7-8_{at(25)}.hfile"
    inner.storage.put(half_written, b"half")
    assert compact(table) is not None
    assert inner.storage.stat(half_written) is None
    assert not pending_here(table)
    assert seen(table) == before


def test_plan_of_a_living_process_is_left_alone(table: WrittenTable) -> None:
    inner = table.inner
    with beating(inner.storage, at(25)):
        create_requested(inner, at(25), Action.COMPACTION, b"plan")
        assert compact(table) is None
    assert [pending.requested_at for pending in pending_here(table)] == [at(25)]
    assert compact(table) is not None
