"""Cleaning the metadata table: files and timeline stay few, and readers see all."""

from __future__ import annotations

import pytest

from bucketlake.actions.metadata_compaction import KEPT_COMMITS, KEPT_MS, clean_metadata
from bucketlake.metadata.changes import MetadataChange, undo_change, write_change
from bucketlake.metadata.entry_reader import read_all
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.archive_reader import read_archive
from bucketlake.timeline.instant import Action
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.markers import Marker, MarkerType, write_markers
from bucketlake.timeline.open_table import OpenTable, opened_table
from tests.choices import DEEP
from tests.faulty_storage import Fault, FaultyStorage, SimulatedCrash, distinct_deaths
from tests.storages import objects_of
from tests.unit.actions.test_metadata_compaction import (
    clock_at,
    compact,
    seen,
    table_of,
    write,
)
from tests.unit.metadata.test_creation import sizes_of
from tests.written_metadata import FILES, WrittenTable, at

LATER = KEPT_MS / 1000 + 10


def clean(table: WrittenTable, seconds: float) -> None:
    clean_metadata(OpenTable(table.storage, table.config, clock_at(seconds), NO_LOCK))


def files_in(table: WrittenTable, partition: str = "files") -> list[str]:
    paths = objects_of(table.inner.storage)
    return sorted(path for path in paths if path.startswith(f"{partition}/"))


def active(table: WrittenTable) -> list[InstantTime]:
    return [instant.requested_at for instant in table.open().timeline.instants]


@pytest.fixture(scope="module")
def long_objects() -> dict[str, bytes]:
    """A table with 50 commits and five compactions, none of them cleaned."""
    table = table_of(0)
    for number in range(1, 51):
        write(table, number)
        compact(table, 2 * number + 1.5)
    return objects_of(table.storage)


@pytest.fixture
def long(long_objects: dict[str, bytes]) -> WrittenTable:
    table = table_of(0)
    for path, data in long_objects.items():
        table.storage.put(path, data)
    return table


def test_old_slices_are_deleted_and_readers_see_the_same(long: WrittenTable) -> None:
    before = seen(long)
    bases = [path for path in files_in(long) if path.endswith(".hfile")]
    assert len(bases) == 6
    clean(long, 101 + LATER)
    assert seen(long) == before
    left = [path for path in files_in(long) if path.endswith(".hfile")]
    assert left == bases[-3:]  # The commits that stay began in the slice of the first of them.
    logs = [path for path in files_in(long) if ".log." in path]
    assert len(logs) == 20


def test_slices_that_were_replaced_a_moment_ago_stay(long: WrittenTable) -> None:
    before = files_in(long)
    clean(long, 102)
    assert files_in(long) == before


def test_slices_of_few_commits_stay() -> None:
    table = table_of()
    compact(table)
    before = files_in(table)
    clean(table, 50 + LATER)
    assert files_in(table) == before
    assert len(table.open().timeline.completed_commits()) < KEPT_COMMITS


def test_reader_that_listed_the_files_before_a_clean_still_reads_them(long: WrittenTable) -> None:
    reader = long.open()
    slices = reader.slices(FILES)
    assert slices
    clean(long, 101 + LATER)
    assert len(read_all(reader, FILES)) == 1


def test_old_instants_are_archived(long: WrittenTable) -> None:
    before = seen(long)
    all_instants = active(long)
    clean(long, 101 + LATER)
    left = active(long)
    archived = read_archive(long.inner)
    assert [entry.requested_at for entry in archived] + left == all_instants
    assert 20 <= len(left) <= 22  # A compaction is among them.
    assert seen(long) == before
    write(long, 51)
    assert sizes_of(long)["us"]["f51_0-0-1_1.parquet"] == 51


def test_instants_since_a_pending_instant_of_the_data_stay(long: WrittenTable) -> None:
    long.begin(at(41))
    clean(long, 101 + LATER)
    assert active(long)[0] == at(40)
    change = MetadataChange({"eu": {"late_0-0-1_1.parquet": 1}}, listed=["eu"])
    assert write_change(long.open(), at(41), change)


def test_instants_since_the_last_compaction_stay() -> None:
    table = table_of(45)  # Without a compaction.
    before = active(table)
    clean(table, 95 + LATER)
    assert active(table) == before


def test_files_of_undone_actions_are_deleted_whenever_they_come(long: WrittenTable) -> None:
    before = seen(long)
    long.begin(at(102))
    change = MetadataChange({"eu": {"x_0-0-1_1.parquet": 1}}, listed=["eu"])
    write_change(long.open(), at(102), change)
    clean(long, 103)
    held = f"files/.files-0000-0_{at(102)}.log.1_0-0-1"
    assert held in files_in(long)
    undo_change(opened_table(long.storage, long.config), at(102))
    for path in objects_of(long.storage):
        if path.startswith(f".hoodie/timeline/{at(102)}"):
            long.storage.delete(path)
    long.inner.storage.put(held, b"from a late task")
    marker = Marker("files", held.rpartition("/")[2], MarkerType.CREATE)
    write_markers(long.inner.storage, at(102), [marker])
    clean(long, 104)
    assert held not in files_in(long)
    assert not [path for path in objects_of(long.inner.storage) if "/.temp/" in path]
    assert seen(long) == before


def test_markers_of_a_pending_action_stay(long: WrittenTable) -> None:
    long.begin(at(102))
    write_markers(long.inner.storage, at(102), [Marker("files", "a", MarkerType.CREATE)])
    clean(long, 103)
    assert [path for path in objects_of(long.inner.storage) if "/.temp/" in path]


def test_base_file_of_a_withdrawn_compaction_is_deleted(long: WrittenTable) -> None:
    orphan = f"files/files-0000-0_0-0-1_{at(102)}.hfile"
    long.inner.storage.put(orphan, b"late")
    clean(long, 103)
    assert orphan not in files_in(long)


def test_clean_that_dies_at_any_step_is_finished_by_the_next(long: WrittenTable) -> None:
    before, start = seen(long), objects_of(long.storage)
    clean(long, 101 + LATER)
    expected = objects_of(long.storage).keys()

    def fresh(*faults: Fault) -> tuple[WrittenTable, FaultyStorage]:
        inner = MemoryStorage.fresh()
        for path, data in start.items():
            inner.put(path, data)
        return long.seen_by(inner), FaultyStorage(inner, faults, reads_count=False)

    _, done = fresh()
    clean(long.seen_by(done), 101 + LATER)
    deaths = distinct_deaths(done)
    for fault in deaths if DEEP else deaths[:: max(1, len(deaths) // 25)]:
        alive, dying = fresh(fault)
        with pytest.raises(SimulatedCrash):
            clean(long.seen_by(dying), 101 + LATER)
        assert seen(alive) == before, fault
        clean(alive, 101 + LATER)
        assert seen(alive) == before, fault
        # An archival that died while it deleted instants is finished by the next archival.
        more = objects_of(alive.storage).keys() - expected
        assert all("/timeline/" in path or "/outcome/" in path for path in more), fault
        assert not expected - objects_of(alive.storage).keys(), fault


def test_files_and_timeline_stay_few_over_hundreds_of_commits() -> None:
    """A commit every 15 seconds, and the services after it: more than are kept of either."""
    table = WrittenTable().create()
    most_files = most_objects = 0
    expected = {}
    for number in range(1, 1001 if DEEP else 301):
        name = f"f{number}_0-0-1_1.parquet"
        deleted = {"eu": [f"f{number - 5}_0-0-1_1.parquet"]} if number > 5 else {}
        expected[name] = number
        expected.pop(f"f{number - 5}_0-0-1_1.parquet", None)
        change = MetadataChange({"eu": {name: number}}, deleted, listed=["eu"])
        seconds = 15 * number
        table.commit(at(seconds), at(seconds + 1), change)
        if compact(table, seconds + 2) is not None:
            most_files = max(most_files, len(files_in(table)))
            most_objects = max(most_objects, len(objects_of(table.inner.storage)))
            clean(table, seconds + 3)
            drop_old_instants(table)
    assert sizes_of(table) == {"eu": expected}
    assert most_files <= 50
    assert most_objects <= 220


def drop_old_instants(table: WrittenTable) -> None:
    """Do what an archival of the data table does to its timeline."""
    instants = [i for i in table.timeline.completed() if i.action is Action.COMMIT]
    for instant in instants[:-30]:
        for path in [o.path for o in table.storage.list(".hoodie/timeline", recursive=False)]:
            if instant.requested_at in path.split("_")[0]:
                table.storage.delete(path)
