"""Slices of the metadata table: layers of entries, deletes, lookups, and damage."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.errors import CommitConflictError, FormatError, UnsupportedFeatureError
from bucketlake.format.hfile.writer import encode_hfile
from bucketlake.format.log_block import BlockKind, HeaderKey, encode_block
from bucketlake.format.log_deletes import encode_birth_block
from bucketlake.format.object_file import WHOLE_BYTES_MAX
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.metadata.entry_reader import (
    EVERYTHING,
    SliceEntries,
    Wanted,
    read_all,
    read_keys,
    read_slices,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.memory import MemoryStorage
from tests.metadata_tables import FIRST, MadeTable, at, data_block, delete_block
from tests.spies import spy

INDEX_ID = "record-index-0000-0"


@pytest.fixture
def made() -> MadeTable:
    """A table with a record-level index of one shard; its base file has keys a to e."""
    table = MadeTable().with_partitions("record_index")
    table.commit(FIRST, at(1), partitions=("record_index",))
    table.base(FIRST, entries("a b c d e", "base"), INDEX_ID, folder="record_index")
    return table


def entries(keys: str, value: str) -> dict[str, bytes]:
    return dict.fromkeys(keys.split(), value.encode())


def commit(made: MadeTable, number: int, *blocks: bytes, completed: int | None = None) -> None:
    made.both(at(number), at(completed or number + 5))
    made.log(at(number), *blocks, file_id=INDEX_ID, folder="record_index")


def puts(number: int, keys: str, *replaces: InstantTime) -> bytes:
    return data_block(entries(keys, str(number)), at(number), replaces)


def deletes(number: int, keys: str) -> bytes:
    return delete_block(keys.split(), at(number), "record_index")


def newest(found: list[SliceEntries]) -> dict[str, str]:
    """Return key and value of the newest entries, as text."""
    (only,) = found
    held = only.newest()
    pairs = zip(held.keys.to_pylist(), held.values.to_pylist(), strict=True)
    return {key.decode(): value.decode() for key, value in pairs}


def stored(made: MadeTable) -> dict[str, str]:
    """Return the newest entries of the index, which are those of lookups too."""
    found = newest(read_all(made.open(), "record_index"))
    keys = pa.array([*"abcdefghij"])
    assert newest(read_keys(made.open(), "record_index", keys)) == found
    return found


def test_newer_entries_are_above_older_ones(made: MadeTable) -> None:
    commit(made, 10, puts(10, "b f"))
    commit(made, 20, puts(20, "b g"))
    assert stored(made) == {
        "a": "base",
        "b": "20",
        "c": "base",
        "d": "base",
        "e": "base",
        "f": "10",
        "g": "20",
    }
    (only,) = read_keys(made.open(), "record_index", pa.array(["b"]))
    assert only.values.to_pylist() == [b"base", b"10", b"20"]
    assert only.layers.tolist() == [0, 1, 2]


def test_delete_removes_what_is_below_and_not_what_is_above(made: MadeTable) -> None:
    commit(made, 10, puts(10, "b f"), deletes(10, "a"))
    commit(made, 20, deletes(20, "b c f x"))
    commit(made, 30, puts(30, "c"))
    assert stored(made) == {"c": "30", "d": "base", "e": "base"}


def test_log_file_that_opens_a_group_has_no_entry(made: MadeTable) -> None:
    commit(made, 10, encode_birth_block(at(10)))
    assert len(stored(made)) == 5


def test_slice_without_a_base_file_has_the_entries_of_its_logs() -> None:
    made = MadeTable().with_partitions("record_index")
    made.commit(FIRST, at(1), partitions=("record_index",))
    commit(made, 10, encode_birth_block(at(10)), puts(10, "b"))
    assert stored(made) == {"b": "10"}
    assert newest(read_keys(made.open(), "record_index", pa.array(["x"]))) == {}


def test_order_is_that_of_completion(made: MadeTable) -> None:
    commit(made, 10, puts(10, "b"), completed=40)
    commit(made, 20, puts(20, "b"), completed=30)
    assert stored(made)["b"] == "10"


def test_block_of_an_instant_that_does_not_count_is_skipped(made: MadeTable) -> None:
    commit(made, 10, puts(10, "b"), puts(11, "c"), deletes(12, "d"))
    made.data(at(12))
    made.commit(at(12), at(18))
    assert stored(made) == entries_as_text("a c d e", "base") | {"b": "10"}


def entries_as_text(keys: str, value: str) -> dict[str, str]:
    return dict.fromkeys(keys.split(), value)


def test_log_compaction_replaces_the_blocks_that_it_names(made: MadeTable) -> None:
    commit(made, 10, puts(10, "b c"))
    commit(made, 20, puts(20, "c"), deletes(20, "a"))
    made.commit(at(30), at(35), action="logcompaction", operation="LOG_COMPACT")
    replaced = at(10), at(20)
    compacted = data_block({"b": b"30", "c": b"30"}, at(30), replaced)
    made.log(at(30), compacted, deletes(30, "a"), file_id=INDEX_ID, folder="record_index")
    assert stored(made) == {"b": "30", "c": "30", "d": "base", "e": "base"}
    (only,) = read_keys(made.open(), "record_index", pa.array(["c"]))
    assert only.values.to_pylist() == [b"base", b"30"]


def test_commit_beside_a_log_compaction_stays_above_it(made: MadeTable) -> None:
    commit(made, 10, puts(10, "b"))
    commit(made, 20, puts(20, "b"))
    made.commit(at(30), at(35), action="logcompaction", operation="LOG_COMPACT")
    compacted = data_block({"b": b"30"}, at(30), [at(10)])
    made.log(at(30), compacted, file_id=INDEX_ID, folder="record_index")
    assert stored(made)["b"] == "20"


def test_pending_log_compaction_replaces_nothing(made: MadeTable) -> None:
    commit(made, 10, puts(10, "b"))
    made.commit(at(30), action="logcompaction")
    compacted = data_block({"b": b"30"}, at(30), [at(10)])
    made.log(at(30), compacted, file_id=INDEX_ID, folder="record_index")
    assert stored(made)["b"] == "10"


def test_rollback_block_cancels_the_blocks_of_its_target(made: MadeTable) -> None:
    commit(made, 10, puts(10, "b"))
    headers = {
        HeaderKey.INSTANT_TIME: at(20),
        HeaderKey.TARGET_INSTANT_TIME: at(10),
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
    }
    commit(made, 20, encode_block(BlockKind.COMMAND, headers))
    assert stored(made)["b"] == "base"


def test_pending_compaction_is_read_as_if_it_were_not_there(made: MadeTable) -> None:
    commit(made, 10, puts(10, "b"))
    made.commit(at(20), action="compaction")
    made.base(at(20), entries("z", "wrong"), INDEX_ID, folder="record_index")
    commit(made, 30, puts(30, "c"))
    assert stored(made) == entries_as_text("a d e", "base") | {"b": "10", "c": "30"}


# Lookups.


def test_keys_are_looked_up_in_their_shards() -> None:
    made = MadeTable().with_partitions("record_index")
    made.commit(FIRST, at(1), partitions=("record_index",))
    keys = [f"k{i}" for i in range(50)]
    shards = shards_of_keys(pa.array(keys), 4).tolist()
    for shard in range(4):
        held = {key: key.encode() for key, own in zip(keys, shards, strict=True) if own == shard}
        made.base(FIRST, held, f"record-index-{shard:04d}-0", folder="record_index")
    table = made.open()
    found = read_keys(table, "record_index", pa.array(["k7", "nothing", "k31", "k8"]))
    assert sorted(v for held in found for v in held.values.to_pylist()) == [b"k31", b"k7", b"k8"]
    assert len(found) == len(set(shards_of_keys(pa.array(["k7", "nothing", "k31", "k8"]), 4)))
    assert sum(len(held.keys) for held in read_all(table, "record_index")) == 50


def test_lookup_of_no_keys_reads_no_shard(made: MadeTable) -> None:
    assert read_keys(made.open(), "record_index", pa.array([], pa.string())) == []


def test_slices_are_read_each_with_its_own_wish(made: MadeTable) -> None:
    made.base(FIRST, entries("f g", "base"), "record-index-0001-0", folder="record_index")
    first, second = made.open().slices("record_index")
    wishes = [(first, Wanted.of_keys(pa.array(["d", "b"]))), (second, EVERYTHING)]
    found = [held.keys.to_pylist() for held in read_slices(made.open(), wishes)]
    assert found == [[b"b", b"d"], [b"f", b"g"]]


def test_lookup_reads_a_small_part_of_a_large_base_file(
    made: MadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, value_bytes = 9_000, 1_000
    noise = np.random.default_rng(7).bytes(count * value_bytes)
    values = [noise[i * value_bytes : (i + 1) * value_bytes] for i in range(count)]
    keys = [f"k{i:07}" for i in range(count)]
    path = made.base(FIRST, dict(zip(keys, values, strict=True)), INDEX_ID, folder="record_index")
    whole = len(made.storage.read(f"{METADATA_TABLE_FOLDER}/{path}"))
    assert whole > WHOLE_BYTES_MAX
    read = spy(monkeypatch, MemoryStorage, "read_range", lambda *given: given[3])
    (only,) = read_keys(made.open(), "record_index", pa.array([keys[4000]]))
    assert only.values.to_pylist() == [values[4000]]
    assert sum(read) < whole / 20


# Damage.


def test_damaged_base_file_names_file_and_byte(made: MadeTable) -> None:
    path = f"{METADATA_TABLE_FOLDER}/record_index/{INDEX_ID}_1-0-1_{FIRST}.hfile"
    content = bytearray(made.storage.read(path))
    content[50] ^= 0xFF
    made.storage.put(path, bytes(content))
    with pytest.raises(FormatError, match=rf"^{path} at byte 0: ") as caught:
        read_all(made.open(), "record_index")
    assert caught.value.path == path


def test_damaged_log_file_names_file_and_byte(made: MadeTable) -> None:
    commit(made, 10, puts(10, "b"))
    path = f"{METADATA_TABLE_FOLDER}/record_index/.{INDEX_ID}_{at(10)}.log.1_1-0-1"
    whole = made.storage.read(path)
    made.storage.put(path, whole[:-10])
    with pytest.raises(FormatError, match=rf"^\{path} at byte 6: expected a whole log block"):
        read_all(made.open(), "record_index")


def test_file_that_was_deleted_since_the_listing_is_a_conflict(made: MadeTable) -> None:
    commit(made, 10, puts(10, "b"))
    table = made.open()
    table.slices("record_index")
    made.storage.delete_folder(f"{METADATA_TABLE_FOLDER}/record_index")
    with pytest.raises(CommitConflictError, match="was deleted since the table was pinned"):
        read_all(table, "record_index")


def test_block_of_another_kind_is_refused(made: MadeTable) -> None:
    headers = {HeaderKey.INSTANT_TIME: at(10), HeaderKey.SCHEMA: "{}"}
    commit(made, 10, encode_block(BlockKind.AVRO_DATA, headers, b""))
    with pytest.raises(UnsupportedFeatureError, match="a log block of kind AVRO_DATA in the"):
        read_all(made.open(), "record_index")


def test_records_of_another_schema_are_refused(made: MadeTable) -> None:
    keys, values = pa.array([b"k"]), pa.array([b"v"])
    content = encode_hfile(keys, values, '"string"', created_at_ms=0)
    path = f"record_index/{INDEX_ID}_1-0-1_{FIRST}.hfile"
    made.storage.put(f"{METADATA_TABLE_FOLDER}/{path}", content)
    with pytest.raises(FormatError, match="an Avro schema of records of the metadata table"):
        read_all(made.open(), "record_index")
