"""How many rows a file group has, and how long a row is, as the plan of new keys estimates it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.format.base_file import encode_base_file
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.schema import META_NAMES
from bucketlake.storage.base import Storage
from bucketlake.write.record_index.by_shard import rows_of_group
from bucketlake.write.record_index.group_plan import weight_of_rows
from bucketlake.write.record_index.indexed_write import IndexedWrite

T = InstantTime("20260101000000000")
SCHEMA = pa.schema([("id", pa.string())])
PACKED: Any = SimpleNamespace(size_bytes=800)


@pytest.fixture
def write(storage: Storage) -> Any:
    """A write of which only the storage is asked."""
    given: dict[str, Any] = dict.fromkeys(IndexedWrite.__dataclass_fields__)
    begun = SimpleNamespace(target=SimpleNamespace(storage=storage))
    return IndexedWrite(**{**given, "begun": begun, "packed": PACKED, "records": {"p": 4}})


def group(storage: Storage, name: str, rows: int, *log_bytes: int) -> FileSlice:
    """Put a base file with so many rows; name log files of given sizes, which nobody reads."""
    file_id = FileId(name)
    texts = pa.array([f"k{n}" for n in range(rows)], pa.string())
    table = pa.table(dict.fromkeys((*META_NAMES, "id"), texts))
    data = encode_base_file([table], SCHEMA).data
    base = DataFile("p", BaseFileName(file_id, "1-0-1", T), len(data))
    storage.put(base.path, data)
    logs = tuple(
        DataFile("p", LogFileName(file_id, T, version, "1-0-1"), size)
        for version, size in enumerate(log_bytes, 1)
    )
    return FileSlice("p", file_id, T, base, logs)


def size_of(held: FileSlice) -> int:
    assert held.base_file is not None
    return held.base_file.size_bytes


def test_rows_of_a_base_file_are_counted_and_those_of_log_files_estimated_by_their_bytes(
    storage: Storage,
) -> None:
    """Without the estimate the new keys of each write would go into a bucket that is full."""
    size = size_of(group(storage, "a", 40))
    assert rows_of_group(storage, group(storage, "a", 40)) == 40
    assert rows_of_group(storage, group(storage, "a", 40, size)) == 80
    assert rows_of_group(storage, group(storage, "a", 40, size // 2, size)) in (99, 100)
    assert rows_of_group(storage, group(storage, "a", 40, 1)) == 40
    only_logs = FileSlice("p", FileId("a"), T, None, group(storage, "a", 1, size).log_files)
    assert rows_of_group(storage, only_logs) == 0


def test_the_length_of_a_row_is_that_of_the_largest_base_file(storage: Storage, write: Any) -> None:
    small, large = group(storage, "s", 10), group(storage, "l", 5000)
    assert size_of(small) < size_of(large)
    only_logs = FileSlice("p", FileId("o"), T, None, group(storage, "x", 1, 10**9).log_files)
    live = {("p", held.file_id): held for held in (small, large, only_logs)}
    assert write._row_bytes(live) == max(1.0, size_of(large) / 5000)
    assert write._row_bytes({("p", small.file_id): small}) == size_of(small) / 10


def test_the_length_of_a_row_is_guessed_without_a_base_file_with_rows(
    storage: Storage, write: Any
) -> None:
    empty = group(storage, "e", 0)
    for live in ({}, {("p", empty.file_id): empty}):
        assert write._row_bytes(live) == weight_of_rows(800, 4) == 100.0
