"""What actions change in the metadata table, and what stays of an action that is undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from bucketlake.errors import CommitConflictError, StorageError
from bucketlake.format.commit_metadata import decode_commit_metadata
from bucketlake.format.metadata_record.bounds import StoredType, ValueType, unwrap_bounds
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import (
    RecordKind,
    column_stats_keys,
    decode_column_stats,
    partition_stats_key,
)
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.metadata.changes import (
    MetadataChange,
    publish_change,
    undo_change,
    write_change,
)
from bucketlake.metadata.creation import delete_metadata_table
from bucketlake.metadata.entry_reader import SliceEntries, read_all
from bucketlake.metadata.file_listing import listed_files, listed_partitions
from bucketlake.metadata.log_files import (
    EntryEncoder,
    GroupEntries,
    log_file_name,
    open_file_group,
    put_log_file,
)
from bucketlake.metadata.rewrite import merge_of
from bucketlake.metadata.statistics.of_file import ColumnRange, FileStatistics, NamedStatistics
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.storage.base import Buffer
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.instant import Action
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.outcome import claim_rollback
from tests.faulty_storage import (
    Effect,
    Fault,
    FaultyStorage,
    Moment,
    SimulatedCrash,
    distinct_deaths,
)
from tests.storages import objects_of
from tests.unit.metadata.test_creation import sizes_of
from tests.written_metadata import (
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    WrittenTable,
    at,
)

A, B, C = (f"{name}_0-0-1_1.parquet" for name in "abc")


@pytest.fixture
def table() -> WrittenTable:
    """A table with a file in each of two partitions, committed at second 1."""
    made = WrittenTable().create()
    made.write_files(1, {"eu": {A: 10}, "us": {B: 20}})
    return made


@pytest.fixture
def with_stats() -> WrittenTable:
    """A table whose metadata table has statistics; nothing is committed."""
    return WrittenTable(partitions=[FILES, COLUMN_STATS, PARTITION_STATS]).create()


def stats_of(files: Mapping[str, Mapping[str, tuple[int, int]]]) -> list[NamedStatistics]:
    """Return statistics: bounds by file and column."""
    stored = StoredType.of_column(pa.int64())
    return [
        (
            name,
            FileStatistics({c: (stored, ColumnRange(10, 0, *b, 10, 10)) for c, b in held.items()}),
        )
        for name, held in files.items()
    ]


def statistics_in(table: WrittenTable, partition: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the bounds that a partition of the metadata table holds, by name and column."""
    found = {}
    for entries in read_all(table.open(), partition):
        merged = merge_of(MetadataPartition(partition))(entries)
        _, stats = decode_column_stats(merged.values, "f")
        names = zip(stats.names.to_pylist(), stats.columns.to_pylist(), strict=True)
        bounds = ([*parts.parts.values()] for parts in (stats.minima, stats.maxima))
        lows, highs = (held[0][1].to_pylist() if held else [] for held in bounds)
        found.update(zip(names, zip(lows, highs, strict=True), strict=True))
    return found


def test_commit_adds_its_files_and_partitions(table: WrittenTable) -> None:
    table.write_files(3, {"us": {C: 30}, "asia": {A: 5}})
    assert sizes_of(table) == {"eu": {A: 10}, "us": {B: 20, C: 30}, "asia": {A: 5}}


def test_change_of_a_commit_has_the_names_and_sizes_of_its_statistics() -> None:
    stats = {
        "eu": (
            WriteStat(FileId("a"), f"eu/{A}", "eu", file_size_bytes=7),
            WriteStat(FileId("l"), "eu/.l_2.log.1_0-0-1", "eu", file_size_bytes=8),
        ),
        "": (WriteStat(FileId("b"), B, "", file_size_bytes=9),),
    }
    change = MetadataChange.of_commit(CommitMetadata("UPSERT", stats))
    assert change.written == {"eu": {A: 7, ".l_2.log.1_0-0-1": 8}, "": {B: 9}}
    assert change.listed == ["eu", ""]


def test_clean_removes_files_and_leaves_the_partition(table: WrittenTable) -> None:
    table.commit(at(3), at(4), MetadataChange(deleted={"eu": [A]}), Action.CLEAN)
    assert sizes_of(table) == {"eu": {}, "us": {B: 20}}


def test_clean_of_the_last_file_of_a_partition_removes_the_partition(table: WrittenTable) -> None:
    change = MetadataChange(deleted={"eu": [A]}, emptied=["eu"])
    table.commit(at(3), at(4), change, Action.CLEAN)
    assert sizes_of(table) == {"us": {B: 20}}
    assert listed_partitions(table.open()) == ["us"]
    table.write_files(5, {"eu": {C: 1}})
    assert sizes_of(table) == {"eu": {C: 1}, "us": {B: 20}}


def test_deletion_of_partitions_changes_no_file(table: WrittenTable) -> None:
    """Its commit writes no file; a later clean removes the files."""
    commit = CommitMetadata("DELETE_PARTITION", {}, replaced_file_ids={"eu": (FileId("a"),)})
    table.commit(at(3), at(4), MetadataChange.of_commit(commit), Action.REPLACE_COMMIT)
    assert sizes_of(table) == {"eu": {A: 10}, "us": {B: 20}}
    content = completed_commit(table, at(3), at(4))
    assert [stat.record_count for stat in content.stats] == [1]


def completed_commit(
    table: WrittenTable, instant: InstantTime, completed_at: InstantTime
) -> CommitMetadata:
    path = f".hoodie/timeline/{instant}_{completed_at}.deltacommit"
    return decode_commit_metadata(table.inner.storage.read(path), path)


def test_completed_delta_commit_describes_its_log_files(table: WrittenTable) -> None:
    commit = completed_commit(table, at(1), at(2))
    (stat,) = commit.stats
    assert commit.operation == "UPSERT_PREPPED"
    assert commit.schema_json is not None
    assert "_hoodie_record_key" not in commit.schema_json
    path = f"files/.files-0000-0_{at(1)}.log.1_0-0-1"
    assert (stat.path, stat.record_count, stat.previous_commit) == (path, 3, at(1))
    assert stat.file_size_bytes == len(table.inner.storage.read(path))


def test_files_are_not_seen_before_the_data_table_agrees(table: WrittenTable) -> None:
    before = sizes_of(table)
    table.begin(at(3))
    content = write_change(table.open(), at(3), MetadataChange({"eu": {C: 1}}, listed=["eu"]))
    assert sizes_of(table) == before
    publish_change(opened_table(table.storage, table.config), at(3), at(4), content)
    assert sizes_of(table) == before
    table.complete(at(3), at(4))
    assert sizes_of(table) == {"eu": {A: 10, C: 1}, "us": {B: 20}}


def test_repeated_write_may_change_its_mind(table: WrittenTable) -> None:
    table.begin(at(3))
    write_change(table.open(), at(3), MetadataChange({"eu": {C: 1}}, listed=["eu"]))
    content = write_change(table.open(), at(3), MetadataChange({"us": {C: 2}}, listed=["us"]))
    publish_change(opened_table(table.storage, table.config), at(3), at(4), content)
    table.complete(at(3), at(4))
    assert sizes_of(table) == {"eu": {A: 10}, "us": {B: 20, C: 2}}


def test_partition_that_is_being_built_is_maintained(table: WrittenTable) -> None:
    building = WrittenTable(table.storage, [FILES, COLUMN_STATS]).create()
    stats = {"eu": stats_of({C: {"id": (1, 2)}})}
    change = MetadataChange({"eu": {C: 1}}, listed=["eu"], statistics=stats)
    table.begin(at(3))
    content = write_change(table.open(), at(3), change, inflight=[COLUMN_STATS])
    publish_change(opened_table(table.storage, table.config), at(3), at(4), content)
    table.complete(at(3), at(4))
    assert statistics_in(building, COLUMN_STATS) == {(C, "id"): (1, 2)}


def test_statistics_of_files_are_in_the_file_group_of_their_key(with_stats: WrittenTable) -> None:
    files = {f"f{n}_0-0-1_1.parquet": {"id": (n, n + 1), "v": (0, n)} for n in range(20)}
    change = MetadataChange(
        {"eu": dict.fromkeys(files, 1)}, listed=["eu"], statistics={"eu": stats_of(files)}
    )
    with_stats.commit(at(1), at(2), change)
    wanted = {(f, c): bounds for f, columns in files.items() for c, bounds in columns.items()}
    assert statistics_in(with_stats, COLUMN_STATS) == wanted
    for shard, entries in enumerate(read_all(with_stats.open(), COLUMN_STATS)):
        keys = entries.keys.cast(pa.string())
        assert len(keys) > 5
        assert set(shards_of_keys(keys, 2).tolist()) == {shard}
    every = {key for e in read_all(with_stats.open(), COLUMN_STATS) for key in e.keys.to_pylist()}
    assert every == {
        key for c in ("id", "v") for key in column_stats_keys(c, "eu", files).to_pylist()
    }


def test_clean_removes_the_statistics_of_its_files(with_stats: WrittenTable) -> None:
    files = {A: {"id": (1, 2), "v": (3, 4)}, B: {"id": (5, 6), "v": (7, 8)}}
    change = MetadataChange({"eu": {A: 1, B: 1}}, listed=["eu"], statistics={"eu": stats_of(files)})
    with_stats.commit(at(1), at(2), change)
    gone = MetadataChange(deleted={"eu": [A]}, columns=["id", "v", "never indexed"])
    with_stats.commit(at(3), at(4), gone, Action.CLEAN)
    assert statistics_in(with_stats, COLUMN_STATS) == {(B, "id"): (5, 6), (B, "v"): (7, 8)}


def test_statistics_of_a_partition_unite_those_of_its_files_and_are_loose(
    with_stats: WrittenTable,
) -> None:
    eu = stats_of({A: {"id": (5, 6), "v": (0, 9)}, B: {"id": (1, 2), "v": (3, 4)}})
    us = stats_of({C: {"id": (7, 8)}})
    change = MetadataChange(
        {"eu": {A: 1, B: 1}, "us": {C: 1}}, listed=["eu", "us"], statistics={"eu": eu, "us": us}
    )
    with_stats.commit(at(1), at(2), change)
    assert statistics_in(with_stats, PARTITION_STATS) == {
        ("eu", "id"): (1, 6),
        ("eu", "v"): (0, 9),
        ("us", "id"): (7, 8),
    }
    (entries,) = read_all(with_stats.open(), PARTITION_STATS)
    keys = [partition_stats_key(c, p) for c, p in (("id", "eu"), ("v", "eu"), ("id", "us"))]
    assert entries.keys.to_pylist() == sorted(keys)
    kinds, stats = decode_column_stats(entries.values, "f")
    assert set(kinds.tolist()) == {RecordKind.PARTITION_STATS}
    assert stats.is_tight_bound.to_pylist() == [False] * 3


def test_column_that_was_widened_has_bounds_of_its_widest_type(with_stats: WrittenTable) -> None:
    kinds = {A: pa.int32(), B: pa.float64(), C: pa.int64()}
    bounds = {A: (-(2**31), 4), B: (-1.5, 2.5), C: (0, 2**53 + 1)}
    ranges = {name: ColumnRange(10, 0, *held, 10, 10) for name, held in bounds.items()}
    statistics = [
        (name, FileStatistics({"n": (StoredType.of_column(kind), ranges[name])}))
        for name, kind in kinds.items()
    ]
    deletes = FileStatistics({"n": (StoredType(ValueType.NULL), ColumnRange())})
    change = MetadataChange(
        {"eu": dict.fromkeys(kinds, 1)},
        listed=["eu"],
        statistics={"eu": [(".deletes", deletes), *statistics]},
    )
    with_stats.commit(at(1), at(2), change)
    (entries,) = read_all(with_stats.open(), PARTITION_STATS)
    _, stats = decode_column_stats(entries.values, "f")
    assert stats.names.to_pylist() == ["eu"]
    assert stats.value_counts.to_pylist() == [30]
    low, high = (
        unwrap_bounds(held, stats.value_types, pa.float64(), "f", is_minimum=is_low)[0].as_py()
        for held, is_low in ((stats.minima, True), (stats.maxima, False))
    )
    assert (low, high) == (-(2.0**31), 2.0**53 + 2)


def test_log_files_of_tasks_belong_to_the_commit(table: WrittenTable) -> None:
    indexed = WrittenTable(table.storage, [FILES, RECORD_INDEX])
    group = FileId("record-index-0000-0")
    table.begin(at(3))
    open_file_group(table.inner.storage, RECORD_INDEX, group, at(3))
    entries = GroupEntries.of(pa.array(["k"]), pa.array([b"v"], pa.binary()))
    side = put_log_file(
        table.inner.storage,
        RECORD_INDEX,
        log_file_name(group, at(3), "7-0-1"),
        entries,
        EntryEncoder(at(3), 0),
    )
    change = MetadataChange({"eu": {C: 1}}, listed=["eu"], side_files=[side])
    content = write_change(table.open(), at(3), change)
    publish_change(opened_table(table.storage, table.config), at(3), at(4), content)
    table.complete(at(3), at(4))
    commit = completed_commit(table, at(3), at(4))
    assert commit.write_stats[RECORD_INDEX] == (side,)
    (found,) = read_all(indexed.open(), RECORD_INDEX)
    assert found.keys.to_pylist() == [b"k"]
    undo_change(opened_table(table.storage, table.config), at(3))
    assert not [path for path in objects_of(table.inner.storage) if RECORD_INDEX in path]


# Publishing again.


def test_publishing_twice_leaves_one_delta_commit(table: WrittenTable) -> None:
    table.begin(at(3))
    content = write_change(table.open(), at(3), MetadataChange({"eu": {C: 1}}, listed=["eu"]))
    for _ in range(2):
        publish_change(opened_table(table.storage, table.config), at(3), at(4), content)
    names = [path for path in objects_of(table.inner.storage) if str(at(3)) in path]
    assert len([name for name in names if name.endswith(".deltacommit")]) == 1


def test_publishing_after_an_undo_recreates_nothing(table: WrittenTable) -> None:
    table.begin(at(3))
    content = write_change(table.open(), at(3), MetadataChange({"eu": {C: 1}}, listed=["eu"]))
    undo_change(opened_table(table.storage, table.config), at(3))
    before = objects_of(table.inner.storage)
    with pytest.raises(CommitConflictError, match="rolled this write back"):
        publish_change(opened_table(table.storage, table.config), at(3), at(4), content)
    assert objects_of(table.inner.storage) == before


def test_publishing_after_the_metadata_table_was_deleted_recreates_nothing(
    table: WrittenTable,
) -> None:
    table.begin(at(3))
    content = write_change(table.open(), at(3), MetadataChange({"eu": {C: 1}}, listed=["eu"]))
    delete_metadata_table(table.storage)
    with pytest.raises(CommitConflictError):
        publish_change(opened_table(table.storage, table.config), at(3), at(4), content)
    assert not objects_of(table.inner.storage)


def test_publication_that_an_undo_overtakes_is_deleted_again(table: WrittenTable) -> None:
    """The publisher looked for the inflight file before; the outcome in the data table decides."""
    table.begin(at(3))
    content = write_change(table.open(), at(3), MetadataChange({"eu": {C: 1}}, listed=["eu"]))

    class Overtaken(FaultyStorage):
        def put_if_absent(self, path: str, data: Buffer) -> None:
            claim_rollback(table.storage, at(3))
            undo_change(opened_table(table.storage, table.config), at(3))
            super().put_if_absent(path, data)

    slow = Overtaken(table.storage)
    publish_change(opened_table(slow, table.config), at(3), at(4), content)
    assert traces(table, at(3)) == []


def test_storage_error_while_publishing_is_retried_once(table: WrittenTable) -> None:
    table.begin(at(3))
    content = write_change(table.open(), at(3), MetadataChange({"eu": {C: 1}}, listed=["eu"]))
    once = FaultyStorage(table.storage, [Fault(1, Moment.AFTER, Effect.ERROR)], reads_count=False)
    publish_change(opened_table(once, table.config), at(3), at(4), content)
    always = [Fault(n, Moment.BEFORE, Effect.ERROR) for n in range(1, 9)]
    table.begin(at(5))
    content = write_change(table.open(), at(5), MetadataChange({"eu": {C: 1}}, listed=["eu"]))
    failing = FaultyStorage(table.storage, always, reads_count=False)
    with pytest.raises(StorageError):
        publish_change(opened_table(failing, table.config), at(5), at(6), content)


def test_action_with_a_time_before_the_timeline_is_refused(table: WrittenTable) -> None:
    for path in objects_of(table.inner.storage):
        if path.startswith(".hoodie/timeline/0"):
            table.inner.storage.delete(path)
    change = MetadataChange({"eu": {C: 1}}, listed=["eu"])
    with pytest.raises(CommitConflictError, match="older than the timeline of the metadata table"):
        write_change(table.open(), at(0.5), change)
    assert traces(table, at(0.5)) == []


# Undoing.


def traces(table: WrittenTable, instant: InstantTime) -> list[str]:
    """Return the objects of an instant in the metadata table."""
    return [path for path in objects_of(table.inner.storage) if str(instant) in path]


@pytest.mark.parametrize("stage", ["written", "published", "completed"])
def test_undone_action_leaves_nothing(table: WrittenTable, stage: str) -> None:
    before = sizes_of(table)
    table.begin(at(3))
    content = write_change(table.open(), at(3), MetadataChange({"eu": {C: 1}}, listed=["eu"]))
    if stage != "written":
        publish_change(opened_table(table.storage, table.config), at(3), at(4), content)
    if stage == "completed":
        table.complete(at(3), at(4))
        table.begin(at(3))
        table.storage.delete(f".hoodie/timeline/{at(3)}_{at(4)}.commit")
    undo_change(opened_table(table.storage, table.config), at(3))
    assert traces(table, at(3)) == []
    undo_change(opened_table(table.storage, table.config), at(3))
    assert sizes_of(table) == before


def test_undoing_an_unknown_instant_changes_nothing(table: WrittenTable) -> None:
    before = objects_of(table.storage)
    undo_change(opened_table(table.storage, table.config), at(9))
    assert objects_of(table.storage) == before


def test_change_that_dies_at_any_step_can_be_undone_or_repeated(table: WrittenTable) -> None:
    start = objects_of(table.storage)
    before = sizes_of(table)
    change = MetadataChange({"eu": {C: 1}}, {"us": [B]}, listed=["eu"])

    def carry_out(seen: WrittenTable) -> None:
        content = write_change(seen.open(), at(3), change)
        publish_change(opened_table(seen.storage, seen.config), at(3), at(4), content)

    def fresh(*faults: Fault) -> tuple[WrittenTable, FaultyStorage]:
        inner = MemoryStorage.fresh()
        for path, data in start.items():
            inner.put(path, data)
        table.seen_by(inner).begin(at(3))
        return table.seen_by(inner), FaultyStorage(inner, faults, reads_count=False)

    _, done = fresh()
    carry_out(table.seen_by(done))
    for fault in distinct_deaths(done):
        for is_undone in (True, False):
            alive, dying = fresh(fault)
            with pytest.raises(SimulatedCrash):
                carry_out(table.seen_by(dying))
            if is_undone:
                undo_change(opened_table(alive.storage, alive.config), at(3))
                assert traces(alive, at(3)) == [], fault
                assert sizes_of(alive) == before, fault
            else:
                carry_out(alive)
                alive.complete(at(3), at(4))
                assert sizes_of(alive) == {"eu": {A: 10, C: 1}, "us": {}}, fault


def test_undo_that_dies_at_any_step_is_finished_by_another(table: WrittenTable) -> None:
    before = sizes_of(table)
    table.begin(at(3))
    content = write_change(table.open(), at(3), MetadataChange({"eu": {C: 1}}, listed=["eu"]))
    publish_change(opened_table(table.storage, table.config), at(3), at(4), content)
    start = objects_of(table.storage)

    def fresh(*faults: Fault) -> FaultyStorage:
        inner = MemoryStorage.fresh()
        for path, data in start.items():
            inner.put(path, data)
        return FaultyStorage(inner, faults, reads_count=False)

    done = fresh()
    undo_change(opened_table(done, table.config), at(3))
    for fault in distinct_deaths(done):
        dying = fresh(fault)
        with pytest.raises(SimulatedCrash):
            undo_change(opened_table(dying, table.config), at(3))
        alive = table.seen_by(dying.inner)
        assert sizes_of(alive) == before, fault
        undo_change(opened_table(alive.storage, alive.config), at(3))
        assert traces(alive, at(3)) == [], fault


def test_log_file_of_a_late_task_is_found_by_its_name(table: WrittenTable) -> None:
    table.begin(at(3))
    write_change(table.open(), at(3), MetadataChange({"eu": {C: 1}}, listed=["eu"]))
    undo_change(opened_table(table.storage, table.config), at(3))
    late = f"files/.files-0000-0_{at(3)}.log.1_0-0-1"
    table.inner.storage.put(late, b"late")
    undo_change(opened_table(table.storage, table.config), at(3))
    assert table.inner.storage.stat(late) is None


def entries_at(found: Sequence[SliceEntries]) -> list[bytes]:
    return [key for entries in found for key in entries.keys.to_pylist()]


def test_size_of_a_file_is_that_of_the_data_table(table: WrittenTable) -> None:
    assert {file.size_bytes for file in listed_files(table.open(), ["eu"])} == {10}
    assert entries_at(read_all(table.open(), FILES)).count(b"eu") == 1
