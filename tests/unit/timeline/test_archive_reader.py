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
from bucketlake.errors import FormatError, ObjectNotFoundError
from bucketlake.format.archive_file import (
    ArchivedInstant,
    ArchivedState,
    archive_log_name,
    decode_archive_file,
    encode_archive_log,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.archive_reader import (
    archived_completion_times,
    has_archive,
    newest_archived,
    read_archive,
    visit_archived,
)
from bucketlake.timeline.open_table import opened_table
from tests.faulty_storage import FaultyStorage
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


OLD = replace(CONFIG, version=6, layout_version=1, archive_folder="archived")


def _put_log(storage: Storage, number: int, *entries: ArchivedInstant) -> None:
    states = [
        ArchivedState(entry.requested_at, entry.action, "COMPLETED", entry.completed_at, b"")
        for entry in entries
    ]
    storage.put(f".hoodie/archived/{archive_log_name(number)}", encode_archive_log(states))


def _orders(entries: Iterable[ArchivedInstant]) -> list[tuple[str, str]]:
    return [entry.order for entry in entries]


def test_log_files_of_the_old_form_are_read_as_one_archive_in_order() -> None:
    storage = memory_of()
    old = opened_table(storage, OLD)
    assert read_archive(old) == []
    assert not has_archive(old)
    _put_log(storage, 1, _entry(10), _entry(30))
    _put_log(storage, 2, _entry(20, "clean"), _entry(30))  # Hudi repeats instants after a death.
    storage.put(".hoodie/archived/mergeArchivePlan", b"")
    expected = [_entry(10).order, _entry(20, "clean").order, _entry(30).order]
    assert _orders(read_archive(old)) == expected
    assert has_archive(old)
    assert archived_completion_times(old)[_entry(20).requested_at] == _entry(20).requested_at
    assert _orders(read_archive(old, since=f"{11:017d}", until=f"{29:017d}")) == expected[1:2]
    visited: list[ArchivedInstant] = []
    visit_archived(old, "clean", f"{20:017d}", visited.append)
    assert _orders(visited) == expected[1:2]


def test_only_log_files_of_the_old_form_that_hold_the_range_are_read_again() -> None:
    storage = FaultyStorage(memory_of())
    for number in (1, 2, 3):
        _put_log(storage, number, _entry(10 * number))
    old = opened_table(storage, OLD)
    read_archive(old, with_metadata=False)
    storage.trace.clear()
    assert _orders(read_archive(old, since=f"{20:017d}", until=f"{20:017d}")) == [_entry(20).order]
    read = [step.path for step in storage.trace if step.operation == "read"]
    assert read == [f".hoodie/archived/{archive_log_name(2)}"]


def test_a_log_file_of_the_old_form_that_grew_is_read_again() -> None:
    """Hudi appends where the file system can."""
    storage = memory_of()
    old = opened_table(storage, OLD)
    _put_log(storage, 1, _entry(10))
    assert len(read_archive(old, with_metadata=False)) == 1
    path = f".hoodie/archived/{archive_log_name(1)}"
    first = storage.read(path)
    _put_log(storage, 1, _entry(20))
    storage.put(path, first + storage.read(path))
    assert len(read_archive(old, with_metadata=False)) == 2


def test_newest_instant_of_the_old_form_is_found_where_files_overlap() -> None:
    """Hudi archives cleans and commits at different times."""
    storage = memory_of()
    _put_log(storage, 1, _entry(10), _entry(90, "clean"))
    _put_log(storage, 2, _entry(50), _entry(70))
    found = newest_archived(storage, ".hoodie/archived", None, lambda e: e.action == "commit")
    assert found is not None
    assert found.order == _entry(70).order
    early = newest_archived(
        storage, ".hoodie/archived", f"{40:017d}", lambda e: e.action == "commit"
    )
    assert early is not None
    assert early.order == _entry(10).order
