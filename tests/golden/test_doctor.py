"""Tables that real Hudi wrote are sound: the doctor finds nothing that is not so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.config.support import check_readable
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.format.properties import partition_marker_path
from bucketlake.model.file_name import BaseFileName, InstantTime
from bucketlake.services.check.doctor import diagnose
from bucketlake.services.check.findings import FindingKind, Remedy
from bucketlake.services.check.repair import repair
from bucketlake.slices.file_system_view import list_objects
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.archive_reader import read_archive
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from tests.golden.objects import TABLES_FOLDER, objects_of_table, table_names
from tests.golden.test_bucket_tables import _index

NAMES = sorted(
    name
    for folder in (TABLES_FOLDER, TABLES_FOLDER / "more", TABLES_FOLDER / "mor")
    for name in table_names(folder)
)
PENDING = {"cow_pending_commit", "mor_pending_delta_commit"}  # As their names say.


@pytest.fixture
def storage(name: str) -> Iterator[MemoryStorage]:
    """The table, in memory."""
    held = MemoryStorage(f"doctor-{name}")
    for path, data in objects_of_table(name).items():
        held.put(path, data)
    yield held
    forget(f"doctor-{name}")


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_table_of_hudi_has_no_finding(storage: MemoryStorage, name: str) -> None:
    try:
        check_readable(read_table_config(storage), name)
    except UnsupportedFeatureError as error:
        with pytest.raises(UnsupportedFeatureError, match=error.feature.split("(")[0]):
            diagnose(storage, _index(name))
        return
    found = diagnose(storage, _index(name), keys=True, files=True, min_age_seconds=0)
    expected = [FindingKind.PENDING_DEAD] if name in PENDING else []
    assert [one.kind for one in found] == expected


@pytest.mark.parametrize("name", ["cow_metadata_table"])
def test_a_metadata_table_that_a_commit_skipped_is_found_and_taken_off(
    storage: MemoryStorage,
) -> None:
    config = read_table_config(storage)
    newest = load_timeline(opened_table(storage, config)).completed_commits()[-1]
    path = f"{config.timeline_folder}/{newest.to_file_name(config.layout)}"
    later = str(int(newest.requested_at) + 5000)
    storage.put(f"{config.timeline_folder}/{later}_{later}.commit", storage.read(path))
    [found] = diagnose(storage, None, min_age_seconds=0)
    assert found.kind is FindingKind.METADATA_TABLE_SKIPPED
    assert later in found.meaning
    report = repair(storage, None, min_age_seconds=0, dry_run=False)
    assert report.repaired == (found,)
    assert report.left == ()
    assert not read_table_config(storage).metadata_partitions
    assert list(storage.list(METADATA_TABLE_FOLDER)) == []


@pytest.mark.parametrize("name", ["cow_archived", "cow_simple", "mor_archived"])
def test_partitions_without_markers_are_found(storage: MemoryStorage) -> None:
    markers = [o.path for o in list_objects(storage) if ".hoodie_partition_metadata" in o.path]
    for path in markers:
        storage.delete(path)
    found = diagnose(storage, None, keys=True, files=True, min_age_seconds=0)
    assert {one.kind for one in found} == {FindingKind.PARTITION_NOT_MARKED}
    assert {partition_marker_path(one.partition or "") for one in found} == set(markers)


@pytest.mark.parametrize("name", ["cow_archived", "mor_archived"])
def test_only_what_the_archive_would_know_is_taken_for_an_orphan(storage: MemoryStorage) -> None:
    config = read_table_config(storage)
    archived = [
        one.requested_at for one in read_archive(opened_table(storage, config), with_metadata=False)
    ]
    held = next(o.path for o in list_objects(storage) if o.path.endswith(".parquet"))
    folder, _, file_name = held.rpartition("/")
    name = BaseFileName.from_file_name(file_name)
    assert name is not None

    def with_instant(instant: str) -> str:
        path = f"{folder}/{replace(name, instant=InstantTime(instant)).to_file_name()}"
        storage.put(path, storage.read(held))
        return path

    with_instant(str(int(min(archived)) - 1))  # Perhaps of a commit that the archive has dropped.
    orphan = with_instant(str(int(min(archived)) + 1))
    [found] = diagnose(storage, None, min_age_seconds=0)
    assert (found.kind, found.files) == (FindingKind.ORPHAN_SHOWN, (orphan,))


@pytest.mark.parametrize("name", ["damaged_by_merge"])
def test_rows_that_a_merge_of_hudi_wrote_without_key_columns_are_found(
    storage: MemoryStorage,
) -> None:
    assert diagnose(storage, None, min_age_seconds=0) == []
    [found] = diagnose(storage, None, keys=True, min_age_seconds=0)
    assert found.kind is FindingKind.KEYS_UNLIKE_COLUMNS
    assert (found.partition, found.remedy) == ("eu", Remedy.NOTHING)
    assert "1 records" in found.meaning
    assert "'e20'" in found.meaning
    report = repair(storage, None, keys=True, min_age_seconds=0, dry_run=False)
    assert (report.repaired, report.left) == ((), (found,))


@pytest.mark.parametrize("name", ["damaged_by_update"])
def test_log_file_of_hudi_with_the_instant_of_an_earlier_commit_is_found(
    storage: MemoryStorage,
) -> None:
    [found] = diagnose(storage, None, min_age_seconds=0)
    assert found.kind is FindingKind.LOG_OF_OTHER_COMMIT
    timeline = load_timeline(table_at(storage))
    first, update = timeline.completed_commits()
    assert f"instant {update.requested_at} committed" in found.meaning
    assert all(f"_{first.requested_at}.log." in path for path in found.files)
    report = repair(storage, None, min_age_seconds=0, dry_run=False)
    assert (report.repaired, report.left) == ((), (found,))
