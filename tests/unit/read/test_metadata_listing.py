"""Reads of a table through its metadata table: commits that it lacks, cleans, and missing files.

The table is one of real Hudi: copy-on-write, four commits, three partitions.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_keys import METADATA_PARTITIONS
from bucketlake.errors import (
    CommitConflictError,
    MetadataTableError,
    MissingFileError,
    TimelineError,
)
from bucketlake.format.clean_metadata import CleanPlan, encode_clean, encode_clean_plan
from bucketlake.model.file_name import InstantTime
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.check.doctor import diagnose
from bucketlake.services.check.findings import FindingKind
from bucketlake.services.check.repair import repair
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config
from tests.faulty_storage import FaultyStorage
from tests.golden.objects import objects_of_table
from tests.meanwhile import LOOKS, meanwhile
from tests.metadata_tables import data_block, put_instant, sizes_of
from tests.pinned import snapshot_as_of
from tests.storages import memory_of, set_properties

GROUP = "00000002-8d9c-4c2b-a82f-d207f79f8ce6-0"
OLDEST = f"apac/{GROUP}_5-23-30_20261120235856701.parquet"
NEWEST = f"apac/{GROUP}_5-70-188_20261120235914200.parquet"
FIRST_COMMIT = "20261120235856701"
CLEAN, CLEANED_AT = InstantTime("20261120235920000"), InstantTime("20261120235921000")


@pytest.fixture
def storage() -> MemoryStorage:
    return memory_of(objects_of_table("cow_simple"))


def config_of(storage: MemoryStorage) -> TableConfig:
    return read_table_config(storage)


def snapshot_of(storage: MemoryStorage, as_of: str | None = None) -> Snapshot:
    return snapshot_as_of(opened_table(storage, config_of(storage)), as_of)


def paths_of(snapshot: Snapshot) -> set[str]:
    return {path for found in snapshot.all_slices() for path in found.paths}


def put_clean(storage: MemoryStorage, *paths: str, completed: bool = True) -> None:
    """Delete files by a clean, which the metadata table knows if it is completed."""
    names = tuple(path.rpartition("/")[2] for path in paths)
    plan = CleanPlan("KEEP_LATEST_COMMITS", {"apac": names})
    end = CLEANED_AT if completed else None
    content = encode_clean(plan, started_at=CLEAN, duration_ms=1)
    requested = encode_clean_plan(plan, storage.root)
    if completed:
        put_instant(storage, f"{METADATA_TABLE_FOLDER}/.hoodie", CLEAN, end, "deltacommit")
        log = f"{METADATA_TABLE_FOLDER}/files/.files-0000-0_{CLEAN}.log.1_1-0-1"
        gone = sizes_of("apac", dict.fromkeys(names))
        storage.put(log, data_block(gone, CLEAN))
    put_instant(storage, ".hoodie", CLEAN, end, "clean", content, requested)
    for path in paths:
        storage.delete(path)


# Commits that are missing.


def test_read_of_a_table_with_a_commit_beside_the_metadata_table_names_the_commit(
    storage: MemoryStorage,
) -> None:
    later = InstantTime("20261120235930000")
    put_instant(storage, ".hoodie", later, InstantTime("20261120235931000"), "commit")
    with pytest.raises(MetadataTableError, match=f"1 commits from {later} on are missing in it"):
        bl.open_table(storage.root).to_arrow()
    assert bl.open_table(storage.root).to_arrow(as_of=FIRST_COMMIT).num_rows > 0


def test_metadata_table_that_was_turned_off_since_the_properties_were_read_is_not_asked(
    storage: MemoryStorage,
) -> None:
    snapshot = snapshot_of(storage)
    expected = paths_of(snapshot)
    stale = replace(snapshot)
    set_properties(storage, {METADATA_PARTITIONS: ""})
    storage.delete_folder(METADATA_TABLE_FOLDER)
    assert paths_of(stale) == expected


def test_metadata_table_whose_files_are_being_deleted_is_not_believed(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The properties changed first; some log files are gone, and the rest looks whole."""
    snapshot = snapshot_of(storage)
    expected = paths_of(replace(snapshot))
    folder = f"{METADATA_TABLE_FOLDER}/files"

    def delete() -> None:
        set_properties(storage, {METADATA_PARTITIONS: ""})
        storage.delete(max(o.path for o in storage.list(folder) if ".log." in o.path))

    waiting = meanwhile(monkeypatch, delete, LOOKS, folder)
    assert paths_of(snapshot) == expected
    assert not waiting


def test_damaged_metadata_table_is_never_replaced_by_storage(storage: MemoryStorage) -> None:
    snapshot = snapshot_of(storage)
    storage.delete_folder(METADATA_TABLE_FOLDER)
    with pytest.raises(MetadataTableError, match="metadata is none: there is nothing"):
        snapshot.all_slices()
    with pytest.raises(MetadataTableError):
        snapshot.partition_slices(["apac"])
    with pytest.raises(MetadataTableError):
        snapshot.marked_slices(["apac"])


def test_services_that_need_the_truth_list_storage(storage: MemoryStorage) -> None:
    storage.delete_folder(METADATA_TABLE_FOLDER)
    snapshot = load_snapshot(opened_table(storage, config_of(storage)), lists_storage=True)
    assert NEWEST in paths_of(snapshot)


# Missing files.


def test_file_that_only_the_metadata_table_has_is_an_error_that_names_it(
    storage: MemoryStorage,
) -> None:
    storage.delete(NEWEST)
    with pytest.raises(MissingFileError, match=f"{NEWEST} is missing: the metadata table lists it"):
        bl.open_table(storage.root).to_arrow()
    with pytest.raises(MissingFileError, match=f"{NEWEST} is missing: instant .* committed it"):
        load_snapshot(opened_table(storage, config_of(storage)), lists_storage=True).all_slices()


def test_file_that_a_pending_clean_deleted_after_the_plan_is_a_conflict(
    storage: MemoryStorage,
) -> None:
    """A clean deletes files first; the metadata table lists them until the clean completes."""
    snapshot = snapshot_of(storage)
    (found,) = (held for held in snapshot.all_slices() if NEWEST in held.paths)
    put_clean(storage, NEWEST, completed=False)
    with pytest.raises(CommitConflictError, match=f"{NEWEST} was deleted since the"):
        list(SliceReader.of_snapshot(snapshot).read(found, ["id"]))


def test_time_travel_to_files_that_a_clean_deleted_names_the_clean(
    storage: MemoryStorage,
) -> None:
    put_clean(storage, OLDEST)
    with pytest.raises(TimelineError, match=f"{CLEAN}: this clean deleted {OLDEST}, which the"):
        snapshot_of(storage, FIRST_COMMIT).all_slices()
    assert NEWEST in paths_of(snapshot_of(storage))
    assert len(snapshot_of(storage, FIRST_COMMIT).partition_slices(["us"])) == 3


def test_time_travel_is_possible_while_a_pending_clean_has_not_deleted_its_files(
    storage: MemoryStorage,
) -> None:
    content = storage.read(OLDEST)
    put_clean(storage, OLDEST, completed=False)
    storage.put(OLDEST, content)
    assert OLDEST in paths_of(snapshot_of(storage, FIRST_COMMIT))


def test_snapshot_that_was_pinned_before_a_clean_reports_it(storage: MemoryStorage) -> None:
    pinned = snapshot_of(storage)
    put_clean(storage, NEWEST)
    with pytest.raises(CommitConflictError, match=f"this clean deleted {NEWEST} since the table"):
        pinned.all_slices()


def test_pinned_snapshot_lists_the_files_of_its_time(storage: MemoryStorage) -> None:
    newest = load_timeline(opened_table(storage, config_of(storage)))
    last = newest.completed_commits()[-1].requested_at
    undone = replace(snapshot_of(storage), timeline=newest.without([last]))
    assert NEWEST not in paths_of(undone)
    assert f"apac/{GROUP}_5-55-142_20261120235910718.parquet" in paths_of(undone)


# Cost.


def test_listing_of_a_partition_asks_only_for_the_metadata_table(storage: MemoryStorage) -> None:
    watched = FaultyStorage(storage)
    snapshot = load_snapshot(opened_table(watched, config_of(storage)))
    before = watched.operations
    snapshot.partition_slices(["apac", "eu", "us"])
    steps = [step.operation for step in watched.trace[before:]]
    # Its properties; a base file and five log files; the properties of the table. Timeline and
    # folder of the metadata table; the timeline of the data table, to look for cleans.
    assert (steps.count("read"), steps.count("list"), len(steps)) == (8, 3, 11)
    before = watched.operations
    snapshot.partition_slices(["apac"])
    again = [step.operation for step in watched.trace[before:]]
    assert (again.count("read"), again.count("list"), len(again)) == (7, 1, 8)


# The doctor.


def test_doctor_does_not_blame_the_metadata_table_for_a_committed_file_that_is_missing(
    storage: MemoryStorage,
) -> None:
    """Without it, readers would take an older version of the file."""
    storage.delete(NEWEST)
    (found,) = diagnose(storage, None, min_age_seconds=0)
    assert (found.kind, found.files) == (FindingKind.FILE_MISSING, (NEWEST,))


def test_missing_metadata_table_is_found_and_turned_off(storage: MemoryStorage) -> None:
    storage.delete_folder(METADATA_TABLE_FOLDER)
    (found,) = diagnose(storage, None, min_age_seconds=0)
    assert found.kind is FindingKind.METADATA_TABLE_BROKEN
    report = repair(storage, None, min_age_seconds=0, dry_run=False)
    assert report.repaired == (found,)
    assert bl.open_table(storage.root).to_arrow().num_rows > 0
