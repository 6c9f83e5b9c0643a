"""A committed file that is missing is an error for every read and write, and never an older row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import CommitConflictError, MissingFileError
from bucketlake.index.setting import TableIndex
from bucketlake.model.file_name import InstantTime
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.check.findings import FindingKind
from bucketlake.storage.memory import forget
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import opened_table
from tests.broken_tables import SCHEMA
from tests.inside import opened, storage_of, values_of

TYPES = ("copy_on_write", "merge_on_read")
ONE_BUCKET = bl.SimpleBucket(1)


@pytest.fixture(params=TYPES)
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["listed in storage", "metadata table"])
def has_metadata_table(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def table(table_type: str, has_metadata_table: bool) -> Iterator[bl.Table]:
    """A table of three versions: keys 0 to 3 in the days a and b, with 1, 2 and 3 as values."""
    yield from _made(table_type, has_metadata_table=has_metadata_table)


@pytest.fixture
def bare(table_type: str) -> Iterator[bl.Table]:
    """The same table without a metadata table."""
    yield from _made(table_type, has_metadata_table=False)


def _made(
    table_type: str, *, has_metadata_table: bool, index: TableIndex = ONE_BUCKET
) -> Iterator[bl.Table]:
    name = f"missing-{table_type}-{has_metadata_table}"
    forget(name)
    made = bl.create_table(
        f"memory://{name}",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        ordering="at",
        index=index,
        table_type=table_type,
        metadata_table=has_metadata_table,
    )
    for value in (1, 2, 3):
        made.upsert(rows(value))
    yield made
    forget(name)


def rows(value: int, numbers: range = range(4)) -> pa.Table:
    held = [{"id": f"k{n}", "day": "ab"[n % 2], "v": value, "at": value} for n in numbers]
    return pa.Table.from_pylist(held, SCHEMA)


def instants(table: bl.Table) -> list[InstantTime]:
    return [i.requested_at for i in load_timeline(opened(table)).instants]


def delete_version(table: bl.Table, number: int, partition: str = "a") -> str:
    """Delete the file of a version in a partition; return its path."""
    instant = instants(table)[number]
    [path] = [
        found.path
        for found in storage_of(table).list(partition)
        if instant in found.path and ("parquet" in found.path or ".log." in found.path)
    ]
    storage_of(table).delete(path)
    return path


READS: tuple[Callable[[bl.Table], object], ...] = (
    lambda table: table.to_arrow(),
    lambda table: table.to_arrow(where="day = 'a'"),
    lambda table: table.to_arrow(where="id = 'k0' AND day = 'a'"),
    lambda table: table.to_arrow(as_of=max(instants(table))),
)


@pytest.mark.parametrize("read", READS)
def test_missing_newest_file_is_an_error_for_reads(
    table: bl.Table, read: Callable[[bl.Table], object]
) -> None:
    path = delete_version(table, 2)
    with pytest.raises(MissingFileError, match=f"{path} is missing"):
        read(table)


def test_missing_newest_file_is_an_error_for_the_next_upsert(bare: bl.Table) -> None:
    path = delete_version(bare, 2)
    before = instants(bare)
    with pytest.raises(MissingFileError, match=f"{path} is missing: instant {before[2]} committed"):
        bare.upsert(rows(4))
    assert instants(bare) == before, "the failed write left its instant"


def test_missing_only_version_is_an_error_and_not_an_empty_partition(bare: bl.Table) -> None:
    for version in range(3):
        delete_version(bare, version)
    with pytest.raises(MissingFileError):
        bare.to_arrow()
    with pytest.raises(MissingFileError):
        bare.upsert(rows(4))


def test_missing_first_file_of_a_merge_on_read_slice_is_an_error() -> None:
    for table in _made("merge_on_read", has_metadata_table=False):
        delete_version(table, 0)
        with pytest.raises(MissingFileError):
            table.to_arrow()
        with pytest.raises(MissingFileError):
            table.compact()


def test_missing_file_of_an_older_version_is_no_error() -> None:
    for table in _made("copy_on_write", has_metadata_table=False):
        delete_version(table, 1)
        assert set(values_of(table).values()) == {3}
        table.upsert(rows(4))


def test_missing_file_in_another_partition_is_no_error(bare: bl.Table) -> None:
    delete_version(bare, 2)
    assert set(values_of(bare, where="day = 'b'").values()) == {3}
    bare.upsert(rows(4, range(1, 4, 2)))
    assert set(values_of(bare, where="day = 'b'").values()) == {4}


def test_time_before_the_missing_file_can_be_read(bare: bl.Table) -> None:
    delete_version(bare, 2)
    assert set(values_of(bare, as_of=instants(bare)[1]).values()) == {2}


def test_rolling_back_the_commit_of_the_missing_file_is_a_way_out(bare: bl.Table) -> None:
    delete_version(bare, 2)
    bare.rollback(instants(bare)[2])
    assert set(values_of(bare).values()) == {2}
    bare.upsert(rows(4))
    assert set(values_of(bare).values()) == {4}
    assert bare.doctor(min_age_seconds=0) == []


def test_cleaned_versions_are_not_missing(bare: bl.Table) -> None:
    for value in range(4, 9):
        bare.upsert(rows(value))
    if "MERGE" in bare.config().table_type.value:
        bare.compact()
        bare.upsert(rows(9))
        bare.compact()
    bare.clean(retain_commits=1)
    newest = max(values_of(bare).values())
    bare.upsert(rows(20))
    assert set(values_of(bare).values()) == {20}
    assert newest in (8, 9)


def test_files_of_replaced_groups_that_a_clean_deleted_are_not_missing(bare: bl.Table) -> None:
    bare.insert_overwrite(rows(4))
    bare.upsert(rows(5))
    bare.upsert(rows(6))
    bare.clean(retain_commits=1)
    assert set(values_of(bare).values()) == {6}
    for value in range(7, 14):
        bare.upsert(rows(value))
        bare.archive(keep_min=2, keep_max=3)
        assert set(values_of(bare).values()) == {value}


def test_commit_that_was_rolled_back_after_the_pin_is_a_conflict_and_no_missing_file(
    bare: bl.Table,
) -> None:
    storage, config = storage_of(bare), bare.config()
    pinned = load_snapshot(opened_table(storage, config))
    bare.rollback(instants(bare)[2])
    with pytest.raises(CommitConflictError, match="rolled back since the table was pinned"):
        pinned.all_slices()


def test_doctor_finds_a_missing_file_also_after_commits_to_other_partitions(
    table: bl.Table,
) -> None:
    path = delete_version(table, 2)
    for value in range(4, 7):
        table.upsert(rows(value, range(1, 4, 2)))
    found = table.doctor(min_age_seconds=0)
    assert [(one.kind, one.files) for one in found] == [(FindingKind.FILE_MISSING, (path,))]


def test_doctor_finds_a_missing_file_of_an_archived_commit(table: bl.Table) -> None:
    path = delete_version(table, 2)
    for value in range(4, 12):
        table.upsert(rows(value, range(1, 4, 2)))
    table.archive(keep_min=2, keep_max=3)
    found = table.doctor(min_age_seconds=0)
    assert [(one.kind, one.files) for one in found] == [(FindingKind.FILE_MISSING, (path,))]


@pytest.mark.parametrize("kept", [0, 2])
def test_overwriting_the_partition_of_a_missing_file_is_a_way_out(
    table: bl.Table, kept: int
) -> None:
    for version in range(kept, 3):
        delete_version(table, version)
    table.insert_overwrite(rows(4, range(0, 4, 2)))
    assert values_of(table) == {"k0": 4, "k1": 3, "k2": 4, "k3": 3}
    table.repair(dry_run=False, min_age_seconds=0)  # The metadata table still lists the file.
    assert table.doctor(min_age_seconds=0) == []


def test_deleting_the_partition_of_a_missing_file_is_a_way_out(table: bl.Table) -> None:
    for version in range(3):
        delete_version(table, version)
    table.delete_partitions(["a"])
    assert values_of(table) == {"k1": 3, "k3": 3}
    table.repair(dry_run=False, min_age_seconds=0)  # The metadata table still lists the file.
    assert table.doctor(min_age_seconds=0) == []


def test_metadata_table_is_not_built_without_a_missing_file(table: bl.Table) -> None:
    path = delete_version(table, 2)
    with pytest.raises(MissingFileError, match=path):
        table.rebuild_metadata_table()


@pytest.mark.parametrize("table_type", ["merge_on_read"], indirect=True)
@pytest.mark.parametrize("version", [0, 2], ids=["base file", "log file"])
def test_compaction_of_a_missing_file_is_not_planned(table: bl.Table, version: int) -> None:
    """A plan that nobody can execute would keep its commits from being rolled back."""
    path = delete_version(table, version)
    before = instants(table)
    for dry_run in (True, False):
        with pytest.raises(MissingFileError, match=f"{path} is missing"):
            table.compact(dry_run=dry_run)
    assert instants(table) == before
    table.insert_overwrite(rows(7, range(0, 4, 2)))
    table.upsert(rows(8))
    table.compact()
    assert values_of(table) == dict.fromkeys(["k0", "k1", "k2", "k3"], 8)


def test_doctor_finds_a_missing_base_file_that_a_commit_without_this_check_skipped(
    bare: bl.Table, table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a commit of Hudi without the metadata table, or of an earlier version."""
    is_merged = table_type == "merge_on_read"  # The log files still have the rows.
    for value in (4, 5):
        if is_merged:
            bare.compact()
        bare.upsert(rows(value))
    if is_merged:
        bare.compact()
    held = [file.path for file in storage_of(bare).list("a") if file.path.endswith(".parquet")]
    path = max(held, key=lambda held: held.rpartition("_")[2])
    storage_of(bare).delete(path)
    assert [found.files for found in bare.doctor(min_age_seconds=0)] == [(path,)]
    with monkeypatch.context() as patch:
        patch.setattr("bucketlake.read.clean_guard.require_committed_files", lambda *_: None)
        bare.upsert(rows(6, range(1)))
        if is_merged:
            bare.compact()
    assert values_of(bare) == {"k0": 6, "k1": 5, "k2": 5 if is_merged else 4, "k3": 5}
    found = bare.doctor(min_age_seconds=0)
    if not is_merged:
        assert [(one.kind, one.files) for one in found] == [(FindingKind.FILE_MISSING, (path,))]
        assert "was written without its rows" in found[0].meaning
        bare.insert_overwrite(rows(7, range(0, 4, 2)))
        found = bare.doctor(min_age_seconds=0)
    assert found == []


def test_resize_of_a_missing_file_is_not_planned(table_type: str, has_metadata_table: bool) -> None:
    index = bl.ConsistentBucket(1, 1, 8)
    made = contextmanager(_made)
    with made(table_type, has_metadata_table=has_metadata_table, index=index) as table:
        path = delete_version(table, 2)
        before = instants(table)
        for dry_run in (True, False):
            with pytest.raises(MissingFileError, match=f"{path} is missing"):
                table.resize(max_file_size=500, dry_run=dry_run)
        assert instants(table) == before


def test_conversion_that_needs_the_keys_of_a_missing_file_is_an_error(table: bl.Table) -> None:
    path = delete_version(table, 2)
    with pytest.raises(MissingFileError, match=f"{path} is missing"):
        bl.convert(table.path, index=bl.DynamicBucket())
