"""Tables broken on purpose and repaired: no committed row is lost, and nothing of a live writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import PROPERTIES_BACKUP_FILE, PROPERTIES_FILE
from bucketlake.format.properties import parse_properties
from bucketlake.index.stored_setting import SETTING_FILE
from bucketlake.model.file_name import InstantTime
from bucketlake.services.check.findings import FindingKind
from bucketlake.services.check.repair import RepairReport, repair
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.instant import Action
from bucketlake.timeline.locks import FILE_LOCK
from bucketlake.timeline.outcome import Publication, claim_commit
from tests.broken_tables import (
    SCHEMA,
    base_file,
    commit_by_hand,
    copied,
    data_of,
    double_a_bucket,
    later,
    newest,
    objects,
    rows,
    sound_table,
    storage_of,
    write_with_other_count,
)
from tests.choices import some
from tests.faulty_storage import FaultyStorage, Moment, SimulatedCrash, crash_points

_NUMBERS = count()


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(request: pytest.FixtureRequest) -> Iterator[bl.Table]:
    """A sound table of either type."""
    with sound_table(request.param) as made:
        yield made


def repaired(table: bl.Table, *, keys: bool = False) -> RepairReport:
    """Repair a table after a dry run, and look that all is well then."""
    before = objects(table)
    planned = table.repair(dry_run=True, check_keys=keys, min_age_seconds=0)
    assert objects(table) == before, "the dry run changed something"
    done = table.repair(dry_run=False, check_keys=keys, min_age_seconds=0)
    assert set(done.repaired) >= set(planned.repaired)
    assert done.left == planned.left == ()
    assert table.doctor(check_keys=True, check_files=True, min_age_seconds=0) == []
    return done


def assert_keys(table: bl.Table, keys: int = 40) -> None:
    """Every key is there once, and the next write finds it."""
    found = data_of(table)
    assert {row["id"] for row in found} == {f"k{n}" for n in range(keys)}
    assert len(found) == keys
    done = table.upsert(pa.Table.from_pylist(found, SCHEMA))
    assert (done.written, done.inserted or 0) == (keys, 0)  # Log files do not tell inserts.


def test_a_sound_table_is_left_as_it_is(table: bl.Table) -> None:
    before = objects(table)
    report = table.repair(dry_run=False, check_keys=True, check_files=True, min_age_seconds=0)
    assert report == RepairReport((), (), checked=report.checked)
    assert "files" in report.checked
    assert objects(table) == before


def test_files_of_no_commit_go_to_quarantine_whole(table: bl.Table) -> None:
    before, held = data_of(table), base_file(table)
    orphan, _ = copied(table, held, instant=later(newest(table)))
    shown, _ = copied(
        table, held, instant=InstantTime("20200101000000000"),
        file_id="00000002-0000-4000-8000-00000000000a-0",
    )  # fmt: skip
    content = objects(table)
    report = repaired(table)
    assert report.quarantine is not None
    now = objects(table)
    for path in (orphan, shown):
        assert now[f"{report.quarantine}/{path}"] == content[path]
        assert path not in now
    assert data_of(table) == before
    assert_keys(table)


def test_a_partition_is_marked_again(table: bl.Table) -> None:
    before, marker = data_of(table), "a/.hoodie_partition_metadata"
    storage_of(table).delete(marker)
    repaired(table)
    assert parse_properties(storage_of(table).read(marker))["partitionDepth"] == "1"
    assert data_of(table) == before


def test_what_was_left_behind_is_deleted_and_nothing_else(table: bl.Table) -> None:
    before, storage = objects(table), storage_of(table)
    storage.put(FILE_LOCK, b"")
    storage.put(f".hoodie/.temp/{newest(table)}/a/x_0-0-0_1.parquet.marker.CREATE", b"")
    storage.put(".hoodie/.temp/20200101000000000/a/y_0-0-0_1.parquet.marker.CREATE", b"")
    storage.put(f".hoodie/.heartbeat/{newest(table)}", b"{}")
    old = InstantTime("20200101000000000")
    claim_commit(storage, old, Publication(later(old), Action.COMMIT, b""))
    assert len(repaired(table).repaired) == 5
    assert objects(table) == before


def test_a_dead_write_is_rolled_back_by_its_markers(table: bl.Table) -> None:
    before, instant = objects(table), later(newest(table))
    action = "commit" if "COPY" in table.config().table_type.value else "deltacommit"
    path, _ = copied(table, base_file(table), instant=instant)
    storage = storage_of(table)
    storage.put(f".hoodie/timeline/{instant}.{action}.requested", b"")
    storage.put(f".hoodie/timeline/{instant}.{'' if action == 'commit' else action + '.'}inflight",
                b"")  # fmt: skip
    storage.put(f".hoodie/.temp/{instant}/{path}.marker.MERGE", b"")
    repaired(table)
    assert {p for p in objects(table) if "/ext/" not in p} == {
        p for p in before if "/ext/" not in p
    }


def test_a_dead_write_without_markers_leaves_its_files_to_quarantine(table: bl.Table) -> None:
    before, instant = data_of(table), later(newest(table))
    action = "commit" if "COPY" in table.config().table_type.value else "deltacommit"
    path, _ = copied(table, base_file(table), instant=instant)
    storage_of(table).put(f".hoodie/timeline/{instant}.{action}.requested", b"")
    report = repaired(table)
    assert {one.kind for one in report.repaired} >= {FindingKind.PENDING_DEAD}
    assert f"{report.quarantine}/{path}" in objects(table)
    assert data_of(table) == before


def test_a_backup_of_the_properties_takes_their_place(table: bl.Table) -> None:
    storage = storage_of(table)
    content = storage.read(PROPERTIES_FILE)
    storage.put(PROPERTIES_BACKUP_FILE, content)
    storage.put(PROPERTIES_FILE, content[:40])
    repaired(table)
    assert storage.read(PROPERTIES_FILE) == content
    assert storage.stat(PROPERTIES_BACKUP_FILE) is None


def test_file_groups_of_another_count_are_written_into_the_buckets(table: bl.Table) -> None:
    write_with_other_count(table, 16)
    report = repaired(table)
    assert len(report.commits) == 2
    assert_keys(table)
    values = {row["id"]: row["at"] for row in data_of(table)}
    assert {values[f"k{n}"] for n in range(20)} == {2}
    assert {values[f"k{n}"] for n in range(20, 40)} == {0}


def test_keys_in_wrong_buckets_are_moved_and_the_greatest_ordering_value_stays(
    table: bl.Table,
) -> None:
    write_with_other_count(table, 7, below=4)
    newer = {row["id"] for row in data_of(table) if row["at"] == 2}
    assert newer
    repaired(table, keys=True)
    assert_keys(table)
    assert {row["id"] for row in data_of(table) if row["at"] == 2} == newer


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_without_ordering_the_row_that_was_committed_last_stays(table_type: str) -> None:
    with sound_table(table_type, ordering=None) as table:
        write_with_other_count(table, 16)
        repaired(table)
        assert_keys(table)
        values = {row["id"]: row["at"] for row in data_of(table)}
        assert {values[f"k{n}"] for n in range(20)} == {2}


def test_a_table_without_a_stored_setting_is_repaired_by_the_index_given(table: bl.Table) -> None:
    double_a_bucket(table)
    storage_of(table).delete(SETTING_FILE)
    opened = bl.Table(table.path, bl.SimpleBucket(4))
    assert len(opened.repair(dry_run=False, min_age_seconds=0).commits) == 1
    assert_keys(opened)


def test_without_an_index_keys_that_are_there_twice_are_left(table: bl.Table) -> None:
    double_a_bucket(table)
    storage_of(table).delete(SETTING_FILE)
    before = objects(table)
    report = bl.Table(table.path).repair(dry_run=False, check_keys=True, min_age_seconds=0)
    assert [one.kind for one in report.left] == [FindingKind.KEYS_TWICE]
    assert objects(table) == before


def test_a_damaged_file_that_nobody_looked_for_is_not_written_anew(table: bl.Table) -> None:
    held, _ = double_a_bucket(table)
    storage_of(table).put(held, b"\0" * len(storage_of(table).read(held)))
    before = objects(table)
    report = table.repair(dry_run=False, min_age_seconds=0)
    assert [one.kind for one in report.left] == [FindingKind.BUCKET_TWICE]
    assert objects(table) == before


def test_a_partition_that_lacks_a_file_is_not_written_anew(table: bl.Table) -> None:
    held, _ = double_a_bucket(table)
    other = next(
        b.path for b in table.buckets() if b.partition_path == "a" and b.path and
        b.path[:10] != held[:10]
    )  # fmt: skip
    storage_of(table).delete(other)
    before = objects(table)
    report = table.repair(dry_run=False, min_age_seconds=0)
    assert report.repaired == ()
    assert {one.kind for one in report.left} == {
        FindingKind.FILE_MISSING,
        FindingKind.BUCKET_TWICE,
    }
    assert objects(table) == before


def test_rows_of_another_partition_keep_theirs_from_being_written_anew(table: bl.Table) -> None:
    held = next(b.path for b in table.buckets() if b.partition_path == "b" and b.path)
    instant = later(newest(table), 10)
    bucket = held.rpartition("/")[2][:8]
    path, stat = copied(
        table, held, instant=instant, file_id=f"{bucket}-0000-4000-8000-00000000000a-0"
    )
    storage = storage_of(table)
    strayed = f"a/{path.rpartition('/')[2]}"
    storage.put(strayed, storage.read(path))
    storage.delete(path)
    commit_by_hand(table, instant, replace(stat, path=strayed, partition_path="a"))
    before = objects(table)
    report = table.repair(dry_run=False, min_age_seconds=0)
    assert FindingKind.BUCKET_TWICE in {one.kind for one in report.left}
    assert report.commits == ()
    assert {p for p in objects(table) if p.startswith(("a/", "b/"))} == {
        p for p in before if p.startswith(("a/", "b/"))
    }


def test_what_is_young_is_left_alone(tmp_path: Path) -> None:
    with sound_table("merge_on_read", path=str(tmp_path / "t")) as table:
        storage, instant = storage_of(table), later(newest(table))
        copied(table, base_file(table), instant=instant)
        storage.put(FILE_LOCK, b"")
        storage.put(f".hoodie/.temp/{instant}/a/x_0-0-0_1.parquet.marker.CREATE", b"")
        before = objects(table)
        table.repair(dry_run=False)
        assert objects(table) == before


def test_a_young_pending_write_without_a_heartbeat_keeps_partitions_from_being_written_anew(
    tmp_path: Path,
) -> None:
    with sound_table("merge_on_read", path=str(tmp_path / "t")) as table:
        double_a_bucket(table)
        instant = later(newest(table), 20)
        storage_of(table).put(f".hoodie/timeline/{instant}.deltacommit.requested", b"")
        before = objects(table)
        report = table.repair(dry_run=False)
        assert [one.kind for one in report.left] == [FindingKind.BUCKET_TWICE]
        assert objects(table) == before


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_a_repair_that_dies_at_any_step_loses_nothing_and_is_ended_by_the_next(
    table_type: str,
) -> None:
    with sound_table(table_type) as table:
        before = data_of(table)
        orphan, _ = copied(table, base_file(table), instant=later(newest(table)))
        content = storage_of(table).read(orphan)
        double_a_bucket(table)
        storage_of(table).delete("b/.hoodie_partition_metadata")
        broken = objects(table)
    whole = FaultyStorage(_filled("whole", broken), reads_count=False)
    repair(whole, None, min_age_seconds=0, dry_run=False)
    steps = len(whole.trace)
    assert steps > 10
    for fault in some([*crash_points(steps)], 12):
        if fault.moment is Moment.HALFWAY:
            continue
        name = f"repair-{next(_NUMBERS)}"
        faulty = FaultyStorage(_filled(name, broken), [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            repair(faulty, None, min_age_seconds=0, dry_run=False)
        again = bl.Table(f"memory://{name}")
        again.repair(dry_run=False, check_keys=True, min_age_seconds=0)
        assert again.doctor(check_keys=True, check_files=True, min_age_seconds=0) == [], fault
        assert data_of(again) == before, fault
        kept = [data for path, data in objects(again).items() if "/quarantine/" in path]
        assert content in kept, fault
        forget(name)
    forget("whole")


def _filled(name: str, content: Mapping[str, bytes]) -> MemoryStorage:
    storage = MemoryStorage(name)
    for path, data in content.items():
        storage.put(path, data)
    return storage


@pytest.mark.parametrize("is_archived", [False, True])
def test_markers_of_a_completed_instant_go_with_the_next_write(is_archived: bool) -> None:
    with sound_table("copy_on_write") as table:
        instant = newest(table)
        for at in range(2, 8):
            table.upsert(rows(range(3), at))
        if is_archived:
            table.archive(keep_min=2, keep_max=3)
        assert is_archived == (instant not in {i.requested_at for i in table.timeline()})
        marker = f".hoodie/.temp/{instant}/a/x_0-0-0_1.parquet.marker.CREATE"
        storage_of(table).put(marker, b"")
        table.upsert(rows(range(3), 9))
        assert not list(storage_of(table).list(".hoodie/.temp"))
