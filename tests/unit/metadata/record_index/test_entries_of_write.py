"""Entries of the record-level index that a write brings."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from bucketlake.errors import CommitConflictError, InputError
from bucketlake.format.log_block import BlockKind, read_log_blocks
from bucketlake.format.log_data import open_hfile_block
from bucketlake.format.log_deletes import decode_delete_block
from bucketlake.format.metadata_record.record_index import IndexedLocation, decode_locations
from bucketlake.metadata.record_index.entries_of_write import GoneKeys, NewKeys, index_entries
from bucketlake.metadata.record_index.shards import IndexShards, Shard
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.outcome import claim_rollback
from bucketlake.write.record_index.index_log import IndexLogWriter
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
    shards = IndexShards(None, {"eu": 1, "us": 1})
    written = [new("b", "c"), new("ä", "a", file_id=OTHER), new("a", partition="us")]
    found = index_entries(written, [GoneKeys(keys("z", "y"), "eu")], shards, AT_MS)
    assert list(found) == [Shard(0, "eu"), Shard(0, "us")]
    entries = found[Shard(0, "eu")]
    assert entries.keys.to_pylist() == ["a", "b", "c", "ä"]
    assert entries.removed.to_pylist() == ["y", "z"]
    located = decode_locations(entries.values, "f")
    assert [located.locations[i] for i in located.indices.to_pylist()] == [
        IndexedLocation("eu", file_id, AT_MS) for file_id in (OTHER, FILE, FILE, OTHER)
    ]


def test_every_key_comes_into_its_shard() -> None:
    shards = IndexShards(7)
    names = [f"k{number}" for number in range(100)]
    found = index_entries([new(*names)], [GoneKeys(keys("gone"), "us")], shards, AT_MS)
    assert sum(len(entries) for entries in found.values()) == 101
    for shard, entries in found.items():
        for column in (entries.keys, entries.removed):
            assert set(shards.numbers_of(column, "").tolist()) <= {shard.number}


def test_key_that_moves_to_another_data_partition_is_put_and_not_removed() -> None:
    moved = [GoneKeys(keys("k", "l"), "eu")]
    found = index_entries([new("k", partition="us")], moved, IndexShards(1), AT_MS)
    entries = found[Shard(0)]
    assert (entries.keys.to_pylist(), entries.removed.to_pylist()) == (["k"], ["l"])
    by_partition = IndexShards(None, {"eu": 1, "us": 1})
    found = index_entries([new("k", partition="us")], moved, by_partition, AT_MS)
    assert found[Shard(0, "eu")].removed.to_pylist() == ["k", "l"]
    assert found[Shard(0, "us")].keys.to_pylist() == ["k"]


def test_keys_gone_from_a_data_partition_without_shards_have_no_entries() -> None:
    shards = IndexShards(None, {"eu": 1})
    assert index_entries([new()], [GoneKeys(keys("k"), "us")], shards, AT_MS) == {}


def test_file_id_that_is_no_uuid_is_stored_as_text() -> None:
    group = new("k", file_id=FileId("00000000000000"))
    (entries,) = index_entries([group], [], IndexShards(1), AT_MS).values()
    assert decode_locations(entries.values, "f").locations[0].file_id == "00000000000000"


def writer(shards: IndexShards, metadata: MemoryStorage) -> IndexLogWriter:
    storage = MemoryStorage.fresh()
    storage.put(INFLIGHT, b"")
    return IndexLogWriter(storage, metadata, INSTANT, AT_MS, INFLIGHT, shards)


def test_repeated_task_writes_the_same_bytes_whatever_the_order_of_its_keys() -> None:
    shards, contents = IndexShards(3), []
    for names in (["a", "b", "c", "d"], ["d", "b", "a", "c"]):
        metadata = MemoryStorage.fresh()
        stats = writer(shards, metadata).write(5, [new(*names)], [GoneKeys(keys("x"), "eu")])
        contents.append(objects_of(metadata))
        for stat in stats:
            assert stat.path.endswith(f"_{INSTANT}.log.1_5-0-1")
            assert stat.file_size_bytes == len(metadata.read(stat.path))
        marked = {marker.data_path for marker in read_markers(metadata, INSTANT)}
        assert marked == {stat.path for stat in stats}
        assert sum(stat.record_count for stat in stats) == 4
        assert sum(stat.delete_count for stat in stats) == 1
    assert contents[0] == contents[1]


def test_log_file_has_entries_and_then_removals() -> None:
    metadata = MemoryStorage.fresh()
    driver = writer(IndexShards(1), metadata)
    task: IndexLogWriter = pickle.loads(pickle.dumps(driver))
    (stat,) = task.write(0, [new("k")], [GoneKeys(keys("x"), "eu")])
    puts, deletes = read_log_blocks(metadata, stat.path)
    assert (puts.kind, deletes.kind) == (BlockKind.HFILE_DATA, BlockKind.DELETE)
    assert {puts.instant, deletes.instant} == {INSTANT}
    assert open_hfile_block(puts).read().keys.to_pylist() == [b"k"]
    assert decode_delete_block(deletes).record_keys.to_pylist() == ["x"]
    assert decode_delete_block(deletes).partition_paths.to_pylist() == ["record_index"]


def test_two_tasks_that_touch_one_shard_write_two_files() -> None:
    metadata = MemoryStorage.fresh()
    tasks = writer(IndexShards(1), metadata)
    paths = {
        stat.path for number in (0, 1) for stat in tasks.write(number, [new(f"k{number}")], [])
    }
    assert len(paths) == 2


def test_task_of_a_write_that_was_rolled_back_leaves_no_file() -> None:
    metadata = MemoryStorage.fresh()
    task = writer(IndexShards(1), metadata)
    claim_rollback(task.storage, INSTANT)
    with pytest.raises(CommitConflictError, match="rolled back"):
        task.write(0, [new("k")], [])
    assert not [path for path in objects_of(metadata) if path.startswith("record_index/")]


def test_key_beyond_the_limit_of_an_entry_is_refused() -> None:
    task = writer(IndexShards(1), MemoryStorage.fresh())
    with pytest.raises(InputError, match="32767 bytes"):
        task.write(0, [new("k" * 40_000)], [])
