"""The archived timeline."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import FormatError, ObjectNotFoundError, UnsupportedFeatureError
from bucketlake.format.archive_file import ArchivedInstant, decode_archive_file
from bucketlake.model.file_name import InstantTime
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.archive_reader import archived_completion_times, read_archive
from bucketlake.timeline.open_table import opened_table
from tests.storages import memory_of, objects_of

SPEC = KeySpec(("id",), (), KeyGenerator.NON_PARTITION)
CONFIG = TableConfig("trips", TableType.COPY_ON_WRITE, SPEC, MergeMode.COMMIT_TIME)
FOLDER = ".hoodie/timeline/history"

SCHEMA = pa.schema(
    {
        "instantTime": pa.string(),
        "completionTime": pa.string(),
        "action": pa.string(),
        "metadata": pa.binary(),
        "plan": pa.binary(),
        "version": pa.int32(),
    }
)


def _entry(number: int, action: str = "commit") -> ArchivedInstant:
    requested_at, completed_at = InstantTime(f"{number:017d}"), InstantTime(f"{number + 1:017d}")
    return ArchivedInstant(requested_at, completed_at, action, f"of {number}".encode())


def _file(entries: Iterable[ArchivedInstant]) -> bytes:
    rows = [
        {
            "instantTime": entry.requested_at,
            "completionTime": entry.completed_at,
            "action": entry.action,
            "metadata": entry.metadata,
            "version": 1,
        }
        for entry in entries
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), buffer)
    return buffer.getvalue()


def _put_file(storage: Storage, *entries: ArchivedInstant, layer: int = 0) -> str:
    name = f"{entries[0].requested_at}_{entries[-1].requested_at}_{layer}.parquet"
    storage.put(f"{FOLDER}/{name}", _file(entries))
    return name


def _put_manifest(storage: Storage, number: int, *names: str) -> None:
    files = [{"fileName": name, "fileLen": 1} for name in names]
    storage.put(f"{FOLDER}/manifest_{number}", json.dumps({"files": files}).encode())
    storage.put(f"{FOLDER}/_version_", str(number).encode())


def _archive() -> MemoryStorage:
    storage = memory_of()
    first = _put_file(storage, _entry(10), _entry(20, "deltacommit"))
    second = _put_file(storage, _entry(30, "clean"), _entry(40))
    _put_file(storage, _entry(50))  # Written, but in no manifest: not valid yet.
    _put_manifest(storage, 1, first)
    _put_manifest(storage, 2, second, first)
    return storage


def test_table_without_an_archive_has_no_archived_instants() -> None:
    assert read_archive(opened_table(memory_of(), CONFIG)) == []


def test_instants_of_the_newest_manifest_are_read_in_order() -> None:
    assert read_archive(opened_table(_archive(), CONFIG)) == [
        _entry(10),
        _entry(20, "deltacommit"),
        _entry(30, "clean"),
        _entry(40),
    ]


def test_content_of_the_files_is_left_out_where_not_asked_for() -> None:
    entries = read_archive(opened_table(_archive(), CONFIG), with_metadata=False)
    assert entries[0] == replace(_entry(10), metadata=None)


def test_range_leaves_out_instants_and_files_outside_of_it() -> None:
    storage = _archive()
    storage.put(f"{FOLDER}/{10:017d}_{20:017d}_0.parquet", b"not read")
    entries = read_archive(opened_table(storage, CONFIG), since=f"{30:017d}", until=f"{39:017d}")
    assert entries == [_entry(30, "clean")]


def test_instant_in_two_files_of_a_merge_counts_once() -> None:
    storage = memory_of()
    names = [_put_file(storage, _entry(10)), _put_file(storage, _entry(10), _entry(20), layer=1)]
    _put_manifest(storage, 1, *names)
    assert read_archive(opened_table(storage, CONFIG)) == [_entry(10), _entry(20)]


@pytest.mark.parametrize("version", [None, b"", b"two"])
def test_greatest_manifest_counts_without_a_readable_version(version: bytes | None) -> None:
    storage = _archive()
    storage.delete(f"{FOLDER}/_version_")
    if version is not None:
        storage.put(f"{FOLDER}/_version_", version)
    assert len(read_archive(opened_table(storage, CONFIG))) == 4


def test_completion_times_are_those_of_commits() -> None:
    storage = memory_of()
    savepoint = replace(_entry(10, "savepoint"), completed_at=InstantTime(f"{99:017d}"))
    name = _put_file(storage, _entry(10), savepoint, _entry(20, "clean"))
    _put_manifest(storage, 1, name)
    assert archived_completion_times(opened_table(storage, CONFIG)) == {
        _entry(10).requested_at: _entry(10).completed_at,
        _entry(20).requested_at: _entry(20).completed_at,
    }


def test_file_that_a_merge_took_away_is_looked_up_in_the_next_manifest() -> None:
    class Merging(MemoryStorage):
        """Another process merges the archive while it is read."""

        def read(self, path: str) -> bytes:
            if path.endswith("_0.parquet"):
                self.delete(path)
                _put_manifest(self, 3, _put_file(self, _entry(10), _entry(20), layer=1))
            return super().read(path)

    storage = Merging.fresh()
    for path, data in objects_of(_archive()).items():
        storage.put(path, data)
    assert read_archive(opened_table(storage, CONFIG)) == [_entry(10), _entry(20)]


def test_file_that_stays_missing_is_an_error() -> None:
    storage = _archive()
    storage.delete(f"{FOLDER}/{10:017d}_{20:017d}_0.parquet")
    with pytest.raises(ObjectNotFoundError, match=r"_0\.parquet"):
        read_archive(opened_table(storage, CONFIG))


@pytest.mark.parametrize("content", [b"garbage", b"[]", b'{"files": [{}]}'])
def test_broken_manifest_is_refused_by_its_name(content: bytes) -> None:
    storage = _archive()
    storage.put(f"{FOLDER}/manifest_2", content)
    with pytest.raises(FormatError, match="manifest_2"):
        read_archive(opened_table(storage, CONFIG))


@pytest.mark.parametrize("content", [b"", b"garbage", _file([])[:-4]])
def test_broken_file_is_refused_by_its_name(content: bytes) -> None:
    storage = _archive()
    path = f"{FOLDER}/{30:017d}_{40:017d}_0.parquet"
    storage.put(path, content)
    with pytest.raises(FormatError, match=path):
        read_archive(opened_table(storage, CONFIG))


def test_file_with_a_damaged_byte_is_refused_by_its_name_or_read() -> None:
    data, refused = _file([_entry(30)]), []
    for at in range(0, len(data), 6):
        damaged = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        try:
            decode_archive_file(damaged, "30_30_0.parquet")
        except FormatError as error:
            refused.append(error.path)
    assert len(refused) > 100
    assert {*refused} == {"30_30_0.parquet"}


def test_file_without_the_columns_of_an_archive_is_refused_by_its_name() -> None:
    storage = _archive()
    buffer = io.BytesIO()
    pq.write_table(pa.table({"instantTime": ["1"]}), buffer)
    path = f"{FOLDER}/{30:017d}_{40:017d}_0.parquet"
    storage.put(path, buffer.getvalue())
    with pytest.raises(FormatError, match=path):
        read_archive(opened_table(storage, CONFIG))


def test_archive_in_the_old_form_is_refused_by_name() -> None:
    old = replace(CONFIG, version=6, layout_version=1, archive_folder="archived")
    assert read_archive(opened_table(memory_of(), old)) == []
    storage = memory_of({".hoodie/archived/.commits_.archive.1_1-0-1": b"#HUDI#"})
    with pytest.raises(UnsupportedFeatureError, match=r"\.commits_\.archive\.1_1-0-1"):
        read_archive(opened_table(storage, old))
