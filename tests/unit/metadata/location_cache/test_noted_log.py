"""Notes of log files: they give what the log file gives, or nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.metadata.location_cache.key_codes import GroupNumbers
from bucketlake.metadata.location_cache.noted_log import forget_logs, note_log, noted_changes
from bucketlake.metadata.location_cache.shard_folder import ShardFolder
from bucketlake.metadata.record_index.entries_of_write import NewKeys, entries_of_shard
from bucketlake.metadata.slices.log_files import birth_file_name, log_file_name
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import DataFile

SHARD = FileId("record-index-ZXU=-0000-0")
FIRST = FileId("00000001-27f7-4628-9878-d51db8cd0617-0")
SECOND = FileId("00000002-27f7-4628-9878-d51db8cd0617-0")
INSTANT = InstantTime("20260102030405678")
SIZE = 321


def keys(*names: str) -> pa.Array:
    return pa.array(names, pa.string())


def log(instant: str = INSTANT, size_bytes: int = SIZE) -> DataFile:
    return DataFile("record_index", log_file_name(SHARD, InstantTime(instant)), size_bytes)


@pytest.fixture
def folder(tmp_path: Path) -> ShardFolder:
    made = ShardFolder(tmp_path / "shard")
    new = [NewKeys(keys("c", "a"), "eu", FIRST), NewKeys(keys("b"), "eu", SECOND)]
    entries = entries_of_shard(new, [keys("z")], 7)
    name = log().name.to_file_name()
    note_log(made, name, SIZE, entries, [("eu", FIRST), ("eu", SECOND)])
    return made


def test_note_has_the_groups_of_keys_and_the_removed_keys(folder: ShardFolder) -> None:
    numbers = GroupNumbers({("eu", SECOND): 0})
    birth = DataFile("record_index", birth_file_name(SHARD, INSTANT), 9)
    found = noted_changes(folder, [birth, log()], numbers)
    assert found is not None
    groups = [numbers.groups[code] for code in found.put.codes.tolist()]
    assert dict(zip(found.put.keys.to_pylist(), groups, strict=True)) == {
        "a": ("eu", FIRST),
        "b": ("eu", SECOND),
        "c": ("eu", FIRST),
    }
    assert found.removed.to_pylist() == ["z"]
    assert (found.put.codes.dtype, found.put.keys.type) == (np.uint32, pa.large_string())


def test_note_of_another_file_is_not_taken(folder: ShardFolder) -> None:
    for logs in ([log(size_bytes=SIZE + 1)], [log("20260102030405679")], [log(), log()], []):
        assert noted_changes(folder, logs, GroupNumbers()) is None


@pytest.mark.parametrize("at", [0, 70, -1])
def test_damaged_note_is_not_taken(folder: ShardFolder, at: int) -> None:
    [path] = folder.path.iterdir()
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert noted_changes(folder, [log()], GroupNumbers()) is None
    path.write_bytes(content[:50])
    assert noted_changes(folder, [log()], GroupNumbers()) is None


def test_notes_are_forgotten_by_their_files(folder: ShardFolder) -> None:
    forget_logs(folder, [log(), log("20260102030405679")])
    assert not [*folder.path.iterdir()]
