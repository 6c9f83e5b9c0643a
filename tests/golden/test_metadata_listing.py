"""Real Hudi's metadata tables list what its storage has, and tables are read through them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.errors import FormatError, MetadataTableError
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import decode_column_stats, decode_locations
from bucketlake.metadata import file_listing
from bucketlake.metadata.entry_reader import (
    SliceEntries,
    Wanted,
    read_all,
    read_keys,
    read_slices,
)
from bucketlake.metadata.metadata_table import MetadataTable, open_metadata_table, skipped_commits
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.model.file_name import log_instant
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.check.doctor import diagnose
from bucketlake.slices import file_system_view
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config
from tests.golden.objects import objects_of_table
from tests.golden.rows import plain_rows
from tests.golden.test_metadata_records import TABLES
from tests.golden.test_tables import expected_rows
from tests.spies import forbid, spy
from tests.storages import memory_of

INDEXED = [name for name in TABLES if "rli" in name or "record_index" in name]


def metadata_table_of(storage: MemoryStorage) -> MetadataTable:
    config = read_table_config(storage)
    return open_metadata_table(
        opened_table(storage, config), load_timeline(opened_table(storage, config))
    )


@pytest.fixture(params=TABLES)
def storage(request: pytest.FixtureRequest) -> MemoryStorage:
    return memory_of(objects_of_table(request.param))


def test_partitions_and_files_are_those_of_storage(storage: MemoryStorage) -> None:
    table = metadata_table_of(storage)
    stored = file_system_view.list_partitions(storage)
    assert file_listing.listed_partitions(table) == list(stored)
    files = [file for held in stored.values() for file in held]
    assert set(file_listing.listed_files(table)) == set(files)
    for partition, held in stored.items():
        assert set(file_listing.listed_files(table, [partition])) == set(held)


def test_slices_at_every_commit_are_those_of_storage(storage: MemoryStorage) -> None:
    config = read_table_config(storage)
    table = opened_table(storage, config)
    timeline = load_timeline(table)
    for commit in timeline.completed_commits():
        then = timeline.as_of(commit.requested_at)
        by_list, by_storage = (
            {path for found in snapshot.all_slices() for path in found.paths}
            for snapshot in (
                load_snapshot(table, then, lists_storage=flag) for flag in (False, True)
            )
        )
        if not config.layout.has_tree_archive:
            # Storage has later log files of a slice, too; readers skip their blocks.
            by_storage = {p for p in by_storage if p in by_list or not is_log(p)}
        assert by_list == by_storage
        assert by_list


def is_log(path: str) -> bool:
    return log_instant(path) is not None


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_read_without_a_listing_of_storage(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = memory_of(objects_of_table(name))
    listed = spy(monkeypatch, MemoryStorage, "list", lambda _, folder, **__: folder)
    forbid(monkeypatch, MemoryStorage, "list_folders")
    got, expected = bl.open_table(storage.root).to_arrow(), expected_rows(name)
    assert plain_rows(got, expected.column_names) == plain_rows(expected, expected.column_names)
    assert all(folder.startswith(".hoodie") for folder in listed), listed


def test_every_partition_has_its_entries_by_key(storage: MemoryStorage) -> None:
    table = metadata_table_of(storage)
    for partition in table.partitions:
        for data_partition, slices in table.shards(partition).items():
            every = [e for e in read_all(table, partition) if _is_of(e.where, data_partition)]
            assert len(every) == len(slices)
            keys = pa.concat_arrays([entries.newest().keys for entries in every])
            texts = keys.cast(pa.string())
            if data_partition is None:
                found = read_keys(table, partition, texts)
            else:
                found = read_slices(table, ((held, Wanted.of_keys(texts)) for held in slices))
            assert _pairs(found) == _pairs(every)


def _is_of(where: str, data_partition: str | None) -> bool:
    return data_partition is None or f"record-index-{data_partition}-" in where


def _pairs(found: list[SliceEntries]) -> set[tuple[bytes, bytes]]:
    newest = [entries.newest() for entries in found]
    return {
        pair
        for held in newest
        for pair in zip(held.keys.to_pylist(), held.values.to_pylist(), strict=True)
    }


@pytest.mark.parametrize("name", INDEXED)
def test_index_knows_the_file_group_of_every_row(name: str) -> None:
    storage = memory_of(objects_of_table(name))
    table = metadata_table_of(storage)
    columns = ["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"]
    rows = bl.open_table(storage.root).to_arrow(columns=columns)
    partitions = sorted(pc.unique(rows["_hoodie_partition_path"]).to_pylist())
    assert sorted(table.shards("record_index"), key=str) == partitions
    for partition in partitions:
        own = rows.filter(pc.field("_hoodie_partition_path") == partition)
        keys = own["_hoodie_record_key"].combine_chunks()
        (located,) = RecordIndexReader(table).find_everywhere(keys, [partition])
        rows_found = located.found.to_table().to_pylist()
        found = {row["record_key"]: row["file_id"] for row in rows_found}
        expected = {row["_hoodie_record_key"]: row["_hoodie_file_name"] for row in own.to_pylist()}
        assert found.keys() == expected.keys()
        assert all(expected[key].startswith(file_id) for key, file_id in found.items())
        total = sum(
            len(entries.newest().keys)
            for entries in read_all(table, "record_index")
            if _is_of(entries.where, partition)
        )
        assert total == len(found)  # Deleted keys are not in the index.


def test_no_commit_is_missing(storage: MemoryStorage) -> None:
    assert skipped_commits(metadata_table_of(storage)) == []


# Damage.


def test_damaged_list_of_files_names_file_and_byte(storage: MemoryStorage) -> None:
    (only,) = metadata_table_of(storage).slices("files")
    path = f"{METADATA_TABLE_FOLDER}/{only.files[0].path}"
    content = bytearray(storage.read(path))
    content[50] ^= 0xFF
    storage.put(path, bytes(content))
    with pytest.raises(FormatError, match=f": {path} at byte ") as caught:
        bl.open_table(storage.root).to_arrow()
    assert caught.value.offset_bytes is not None


def test_missing_folder_of_the_list_of_files_is_an_error(storage: MemoryStorage) -> None:
    storage.delete_folder(f"{METADATA_TABLE_FOLDER}/files")
    with pytest.raises(MetadataTableError, match="its partition files has no file groups"):
        bl.open_table(storage.root).to_arrow()


def test_missing_metadata_table_is_an_error(storage: MemoryStorage) -> None:
    storage.delete_folder(METADATA_TABLE_FOLDER)
    with pytest.raises(MetadataTableError, match=r"rebuild it with table\.rebuild_metadata_table"):
        bl.open_table(storage.root).to_arrow()


def test_metadata_table_of_hudi_1_0_2_is_read_by_the_schema_of_its_records() -> None:
    storage = memory_of(objects_of_table("mor_of_1_0_2"))
    table = metadata_table_of(storage)
    stored = file_system_view.list_partitions(storage)
    files = [file for held in stored.values() for file in held]
    assert set(file_listing.listed_files(table)) == set(files)
    (stats,) = read_all(table, MetadataPartition.COLUMN_STATS)
    _, found = decode_column_stats(stats.values, stats.where)
    assert set(found.columns.to_pylist()) >= {"ts"}
    assert found.value_types.null_count == len(found)
    keys = expected_rows("mor_of_1_0_2")["id"].combine_chunks()
    (located,) = read_keys(table, MetadataPartition.RECORD_INDEX, keys)
    locations = decode_locations(located.values, located.where).locations
    assert {place.file_id for place in locations} <= {file.name.file_id for file in files}
    assert set(keys.to_pylist()) <= {key.decode() for key in located.keys.to_pylist()}
    assert diagnose(storage, None, keys=True, files=True, min_age_seconds=0) == []
