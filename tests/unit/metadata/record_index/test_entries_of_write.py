"""Entries of a shard of the record-level index that a write brings."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from bucketlake.errors import CommitConflictError, InputError
from bucketlake.format.hfile import writer as cells
from bucketlake.format.log_block import BlockKind, read_log_blocks
from bucketlake.format.log_data import open_hfile_block
from bucketlake.format.log_deletes import decode_delete_block
from bucketlake.format.metadata_record.record_schema import IndexedLocation, decode_locations
from bucketlake.metadata.location_cache.cache import LocationCache
from bucketlake.metadata.log_files import EntryEncoder
from bucketlake.metadata.record_index.entries_of_write import NewKeys, entries_of_shard
from bucketlake.metadata.record_index.shards import Shard
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.outcome import claim_rollback
from bucketlake.write.record_index.index_writer import IndexWriter
from tests.storages import objects_of

INSTANT, AT_MS = InstantTime("20240102030405678"), 1704164645678
FILE = FileId("00000003-27f7-4628-9878-d51db8cd0617-0")
OTHER = FileId("00000001-27f7-4628-9878-d51db8cd0617-0")
INFLIGHT = ".hoodie/timeline/inflight"


def keys(*names: str) -> pa.Array:
    return pa.array(names, pa.string())


def new(*names: str, partition: str = "eu", file_id: FileId = FILE) -> NewKeys:
    return NewKeys(keys(*names), partition, file_id)


def test_entries_of_a_shard_are_sorted_and_point_to_their_file_groups() -> None:
    written = [new("b", "c"), new("ä", "a", file_id=OTHER)]
    entries = entries_of_shard(written, [keys("z"), keys("y", "z")], AT_MS)
    assert entries.keys.to_pylist() == ["a", "b", "c", "ä"]
    assert entries.removed.to_pylist() == ["y", "z"]
    located = decode_locations(entries.values, "f")
    assert [located.locations[i] for i in located.indices.to_pylist()] == [
        IndexedLocation("eu", file_id, AT_MS) for file_id in (OTHER, FILE, FILE, OTHER)
    ]


def test_key_that_moves_to_another_data_partition_is_put_and_not_removed() -> None:
    entries = entries_of_shard([new("k", partition="us")], [keys("k", "l")], AT_MS)
    assert (entries.keys.to_pylist(), entries.removed.to_pylist()) == (["k"], ["l"])


def test_file_id_that_is_no_uuid_is_stored_as_text() -> None:
    entries = entries_of_shard([new("k", file_id=FileId("00000000000000"))], [], AT_MS)
    assert decode_locations(entries.values, "f").locations[0].file_id == "00000000000000"


def writer(metadata: MemoryStorage) -> IndexWriter:
    storage = MemoryStorage.fresh()
    storage.put(INFLIGHT, b"")
    index: Any = SimpleNamespace(table=SimpleNamespace(storage=metadata))
    return IndexWriter(index, storage, EntryEncoder(INSTANT, AT_MS), INFLIGHT)


def write(task: IndexWriter, *what: Any) -> WriteStat | None:
    files = task.files()
    stat = task.write_log(*what, files)
    files.publish()
    return stat


def test_repeated_task_writes_the_same_bytes_whatever_the_order_of_its_keys() -> None:
    contents = []
    for names in (["a", "b", "c", "d"], ["d", "b", "a", "c"]):
        metadata = MemoryStorage.fresh()
        stat = write(writer(metadata), Shard(5), [new(*names)], [keys("x")])
        contents.append(objects_of(metadata))
        assert stat is not None
        assert stat.path.endswith(f"_{INSTANT}.log.1_1-0-1")
        assert stat.file_size_bytes == len(metadata.read(stat.path))
        marked = {marker.data_path for marker in read_markers(metadata, INSTANT)}
        assert marked == {stat.path}
        assert (stat.record_count, stat.delete_count) == (4, 1)
    assert contents[0] == contents[1]


def test_shard_whose_entries_do_not_change_gets_no_file() -> None:
    metadata = MemoryStorage.fresh()
    assert write(writer(metadata), Shard(0), [new()], [keys()]) is None
    assert not objects_of(metadata)


def test_only_the_attempt_that_writes_the_log_file_notes_its_keys(tmp_path: Path) -> None:
    cached = replace(writer(MemoryStorage.fresh()), cache=LocationCache(str(tmp_path)))
    for notes in (1, 0):
        write(cached, Shard(0), [new("k")], [])
        found = [*tmp_path.glob("*/*/*.note")]
        assert len(found) == notes
        for note in found:
            note.unlink()


def test_log_file_has_entries_and_then_removals() -> None:
    metadata = MemoryStorage.fresh()
    driver = writer(metadata)
    task: IndexWriter = pickle.loads(pickle.dumps(driver))
    stat = write(task, Shard(0), [new("k")], [keys("x")])
    assert stat is not None
    puts, deletes = read_log_blocks(metadata, stat.path)
    assert (puts.kind, deletes.kind) == (BlockKind.HFILE_DATA, BlockKind.DELETE)
    assert {puts.instant, deletes.instant} == {INSTANT}
    assert open_hfile_block(puts).read().keys.to_pylist() == [b"k"]
    assert decode_delete_block(deletes).record_keys.to_pylist() == ["x"]
    assert decode_delete_block(deletes).partition_paths.to_pylist() == ["record_index"]


def test_task_of_a_write_that_was_rolled_back_leaves_no_file() -> None:
    metadata = MemoryStorage.fresh()
    task = writer(metadata)
    claim_rollback(task.storage, INSTANT)
    with pytest.raises(CommitConflictError, match="rolled back"):
        write(task, Shard(0), [new("k")], [])
    assert not [path for path in objects_of(metadata) if path.startswith("record_index/")]


def test_key_beyond_the_limit_of_an_entry_is_refused() -> None:
    task = writer(MemoryStorage.fresh())
    with pytest.raises(InputError, match="32767 bytes"):
        write(task, Shard(0), [new("k" * 40_000)], [])


@pytest.mark.parametrize("count", [3, 12])
def test_first_entries_of_shards_are_made_in_one_pass_and_noted_once(
    count: int, tmp_path: Path
) -> None:
    shards = [
        (Shard(0, f"d{n}"), [new(f"k{n}", "a", partition=f"d{n}"), new("b", file_id=OTHER)])
        for n in range(count)
    ]
    alone, together = MemoryStorage.fresh(), MemoryStorage.fresh()
    for shard in shards:
        files = writer(alone).files()
        list(writer(alone).begin([shard], files))
        files.publish()
    task = replace(writer(together), cache=LocationCache(str(tmp_path)))
    with mock.patch.object(cells, "encode_cells", wraps=cells.encode_cells) as encoded:
        files = task.files()
        stats = list(task.begin(shards, files))
        files.publish()
    assert (encoded.call_count, len([*tmp_path.rglob("*.note")])) == (1, 1)
    assert [stat.record_count for stat in stats] == [3] * count
    made = [
        {path: data for path, data in objects_of(held).items() if path.endswith(".hfile")}
        for held in (alone, together)
    ]
    assert len(made[0]) == count
    assert made[0] == made[1]
