"""Notes of log files: they give what the log file gives, or nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.metadata.location_cache import key_codes
from bucketlake.metadata.location_cache.key_codes import (
    GroupNumbers,
    forget_logs,
    note_logs,
    noted_changes,
)
from bucketlake.metadata.location_cache.shard_folder import ShardFolder
from bucketlake.metadata.log_files import (
    GroupEntries,
    birth_file_name,
    log_file_name,
    log_file_stat,
)
from bucketlake.metadata.record_index.entries_of_write import NewKeys, Noted, entries_of_shard
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import DataFile
from tests.bounds import set_bounds

SHARD = FileId("record-index-ZXU=-0000-0")
FIRST = FileId("00000001-27f7-4628-9878-d51db8cd0617-0")
SECOND = FileId("00000002-27f7-4628-9878-d51db8cd0617-0")
INSTANT = InstantTime("20260102030405678")
SIZE = 321


def keys(*names: str) -> pa.Array:
    return pa.array(names, pa.string())


def log(instant: str = INSTANT, size_bytes: int = SIZE) -> DataFile:
    return DataFile("record_index", log_file_name(SHARD, InstantTime(instant)), size_bytes)


def noted(shard: FileId, entries: GroupEntries, *groups: FileId) -> Noted:
    name = log_file_name(shard, INSTANT)
    codes = entries.values.indices.to_numpy()
    stat = log_file_stat(name, "record_index", entries, SIZE)
    return Noted(stat, entries.keys, codes, [("eu", group) for group in groups], entries.removed)


def written() -> list[Noted]:
    new = [NewKeys(keys("c", "a"), "eu", FIRST), NewKeys(keys("b"), "eu", SECOND)]
    others = [noted(FileId(f"other-{n}"), entries_of_shard(new[n:], [], 7)) for n in range(2)]
    own = noted(SHARD, entries_of_shard(new, [keys("z")], 7), FIRST, SECOND)
    return [others[0], own, others[1]]


@pytest.fixture(params=["shared", "own"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ShardFolder:
    if request.param == "own":
        set_bounds(monkeypatch, key_codes, _FEW_KEYS=3)
    [*_, (last, _)] = note_logs(tmp_path, "table", INSTANT, written())
    folder = ShardFolder.of(tmp_path, "table", SHARD)
    assert (last.path.name, folder.path.exists()) == ("notes", request.param == "own")
    return folder


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
    [path, *_] = [*folder.path.glob("*"), *folder.path.with_name("notes").iterdir()]
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert noted_changes(folder, [log()], GroupNumbers()) is None
    path.write_bytes(content[:50])
    assert noted_changes(folder, [log()], GroupNumbers()) is None


def test_notes_are_forgotten_by_their_files(folder: ShardFolder) -> None:
    forget_logs(folder, [log(), log("20260102030405679")])
    assert not [*folder.path.glob("*")]


def test_of_the_shared_notes_the_newest_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, key_codes, _SHARED_MAX=2)
    for instant in ("3", "1", "4", "2"):
        [(folder, _)] = note_logs(tmp_path, "table", instant, written())
    assert sorted(path.name[0] for path in folder.path.iterdir()) == ["3", "4"]
