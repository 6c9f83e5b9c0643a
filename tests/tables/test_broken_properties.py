"""Properties that were cut off or edited: an error for reads and writes, and a repair."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER, PROPERTIES_FILE
from bucketlake.config.recorded_entries import RECORDED
from bucketlake.errors import FormatError
from bucketlake.services.check.findings import FindingKind
from bucketlake.storage.memory import forget
from tests.bounds import set_bounds
from tests.broken_tables import (
    commit_by_hand,
    data_of,
    later,
    newest,
    rows,
    sound_table,
    storage_of,
)
from tests.inside import let_commits_forget


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(request: pytest.FixtureRequest) -> Iterator[bl.Table]:
    with sound_table(request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    set_bounds(monkeypatch, "bucketlake.timeline.table_properties", _READ_SECONDS_MAX=0)


def change(table: bl.Table, key: str, value: str | None) -> None:
    """Set an entry by hand; None removes its line."""
    storage = storage_of(table)
    lines = storage.read(PROPERTIES_FILE).decode().splitlines()
    kept = [line for line in lines if not line.startswith(f"{key}=")]
    added = [] if value is None else [f"{key}={value}"]
    storage.put(PROPERTIES_FILE, "\n".join([*kept, *added, ""]).encode())


EDITS = [
    ("hoodie.table.recordkey.fields", "v"),
    ("hoodie.table.partition.fields", "id"),
    ("hoodie.table.keygenerator.type", "NON_PARTITION"),
    ("hoodie.table.keygenerator.type", "COMPLEX"),
    ("hoodie.table.ordering.fields", "v"),
    ("hoodie.table.ordering.fields", None),
    ("hoodie.datasource.write.hive_style_partitioning", "true"),
    ("hoodie.record.merge.mode", "COMMIT_TIME_ORDERING"),
    ("bucketlake.ordering.groups", '{"v": "ts"}'),
]


@pytest.mark.parametrize(("key", "value"), EDITS)
def test_entry_on_which_rows_depend_cannot_be_changed_by_hand(
    table: bl.Table, key: str, value: str | None
) -> None:
    before = data_of(table)
    change(table, key, value)
    with pytest.raises(FormatError, match=rf"properties: expected {key} = .* the last commit"):
        table.to_arrow()
    with pytest.raises(FormatError, match=rf"properties: expected {key} = "):
        table.upsert(rows(range(3), 2))
    [found] = table.doctor()
    assert (found.kind, found.files) == (FindingKind.PROPERTIES_BROKEN, (PROPERTIES_FILE,))
    assert table.repair(dry_run=False).left == ()
    assert data_of(table) == before
    table.upsert(rows(range(3), 2))


def test_file_that_was_cut_off_before_the_ordering_fields_is_an_error_on_open(
    table: bl.Table,
) -> None:
    before, storage = data_of(table), storage_of(table)
    change(table, "hoodie.table.checksum", None)
    data = storage.read(PROPERTIES_FILE)
    storage.put(PROPERTIES_FILE, data[: data.index(b"hoodie.table.ordering.fields")])
    with pytest.raises(FormatError, match="no checksum, which every table has: the file was cut"):
        bl.open_table(table.path)
    with pytest.raises(FormatError, match="no checksum"):
        table.upsert(rows(range(3), 0))
    table.repair(dry_run=False)
    assert data_of(bl.open_table(table.path)) == before
    table.upsert(rows(range(40), 0))  # Older rows, which lose by their ordering value.
    assert data_of(table) == before


def test_repair_of_a_file_without_its_list_removes_the_metadata_table(table: bl.Table) -> None:
    before, storage = data_of(table), storage_of(table)
    storage.put(PROPERTIES_FILE, storage.read(PROPERTIES_FILE)[:60])
    table.repair(dry_run=False)
    assert table.config().metadata_partitions == ()
    assert list(storage.list(METADATA_TABLE_FOLDER)) == []
    assert table.doctor(min_age_seconds=0) == []
    assert data_of(table) == before


def test_table_that_another_program_wrote_last_is_not_checked(table: bl.Table) -> None:
    """Hudi records no properties, and may have a reason to change them."""
    schema = table.timeline() and table.config().create_schema
    commit_by_hand(table, later(newest(table), 10), extra={"schema": schema or ""})
    change(table, "hoodie.table.ordering.fields", "v")
    table.to_arrow()


def test_repair_leaves_a_file_whose_entries_no_commit_records(table: bl.Table) -> None:
    let_commits_forget(table, RECORDED)
    change(table, "hoodie.table.checksum", None)
    before = storage_of(table).read(PROPERTIES_FILE)
    [left] = table.repair(dry_run=False).left
    assert left.kind is FindingKind.PROPERTIES_BROKEN
    assert storage_of(table).read(PROPERTIES_FILE) == before


def test_properties_of_a_table_of_version_6_are_mended_by_what_its_commits_record() -> None:
    path = "memory://broken-version-6"
    made = bl.create_table(
        path, schema=rows(range(1)).schema, record_key="id", partition_by="day", ordering="at",
        index=bl.SimpleBucket(2), version=6, metadata_table=False,
    )  # fmt: skip
    try:
        made.upsert(rows(range(10)))
        before = data_of(made)
        change(made, "hoodie.table.recordkey.fields", "v")
        with pytest.raises(FormatError, match=r"properties: expected hoodie\.table\.recordkey"):
            made.to_arrow()
        assert made.repair(dry_run=False).left == ()
        assert data_of(made) == before
    finally:
        forget("broken-version-6")
