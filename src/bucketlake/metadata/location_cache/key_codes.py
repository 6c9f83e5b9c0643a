"""What the location cache takes from the metadata table: keys and a code for each.

A code is the number of a file group among those of the cached shard, or ``REMOVED`` for a key whose
entry a log file removed. Base files are read some blocks at a time; log files are read whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from bucketlake.format.hfile.reader import Entries
from bucketlake.format.metadata_record.record_schema import IndexedLocation, decode_locations
from bucketlake.metadata.entry_reader import open_whole_base_file, read_log_changes
from bucketlake.metadata.location_cache.part import write_whole
from bucketlake.metadata.location_cache.shard_folder import ShardFolder
from bucketlake.metadata.log_files import is_birth_log
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.record_index.entries_of_write import Noted
from bucketlake.model.file_name import FileId, Group
from bucketlake.model.file_slice import DataFile, FileSlice


@dataclass(frozen=True, slots=True)
class GroupNumbers:
    """Numbers of file groups, in the order in which they were met."""

    numbers: dict[Group, int] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The file groups, by number."""
        return tuple(self.numbers)

    def coded(self, entries: Entries, where: str) -> KeyCodes:
        """Return the keys of entries and the numbers of their file groups.

        Raises
        ------
        FormatError
            If a value is malformed; ``where`` is for the message.
        """
        found = decode_locations(entries.values, where)
        own = self.of_locations(found.locations).astype(np.uint32)
        codes = own[found.indices.to_numpy(zero_copy_only=False)]
        return KeyCodes(entries.keys.cast(pa.large_string()), codes)

    def of_locations(self, locations: Sequence[IndexedLocation]) -> npt.NDArray[np.int32]:
        """Return the numbers of the file groups of some locations."""
        return self.of_groups((each.partition_path, each.file_id) for each in locations)

    def of_groups(self, groups: Iterable[Group]) -> npt.NDArray[np.int32]:
        """Return the numbers of file groups."""
        own = [self.numbers.setdefault(group, len(self.numbers)) for group in groups]
        return np.array(own, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class KeyCodes:
    """Keys and the number of the file group of each."""

    keys: pa.LargeStringArray
    codes: npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class ShardChanges:
    """What log files change in a shard.

    Attributes
    ----------
    put : KeyCodes
        Keys with a new entry, each once.
    removed : pa.LargeStringArray
        Keys without an entry from then on, each once.
    reaches_back : bool
        See ``metadata/entry_reader.py``.
    """

    put: KeyCodes
    removed: pa.LargeStringArray
    reaches_back: bool

    @property
    def count(self) -> int:
        """How many keys they change."""
        return len(self.put.keys) + len(self.removed)


def read_base(
    table: MetadataTable, file: DataFile, numbers: GroupNumbers
) -> tuple[int, Iterator[KeyCodes]]:
    """Return how many entries a base file has, and yield them; errors are those of a lookup."""
    reader = open_whole_base_file(table, file)
    path = table.path_of(file)
    return reader.entry_count, (numbers.coded(batch, path) for batch in reader.batches())


def read_key_changes(
    table: MetadataTable, held: FileSlice, logs: Sequence[DataFile], numbers: GroupNumbers
) -> ShardChanges:
    """Read what log files of a slice change; errors are those of a lookup."""
    found = read_log_changes(table, replace(held, base_file=None, log_files=tuple(logs)))
    put = numbers.coded(found.entries.newest(), found.entries.where)
    removed = found.removed.cast(pa.large_string())
    gone = removed.filter(pc.invert(pc.is_in(removed, value_set=put.keys)))
    return ShardChanges(put, gone, found.reaches_back)


# ---- Notes of log files --------------------------------------------------------------------------
#
# A task that writes a log file has its keys at hand. It notes them in the folder of the shard, so
# that the next lookup on this host need not read the log file. Log files with few keys share a note
# in a folder of the table. A note has the names and the sizes of its files. It counts only once a
# pinned slice has such a file, so notes of writes that were rolled back are never read. Notes
# without a reader are deleted with their shard, or some minutes later when the shard changes; of
# the shared notes, the newest stay.

_SUFFIX = ".note"
_VERSION = "2"
_REMOVED = -1
_HEADER_BYTES = 64
_FEW_KEYS = 1024
_SHARED_MAX = 128
_SHARED_FOLDER = "notes"


def note_logs(
    root: Path, table_root: str, instant: str, written: Sequence[Noted]
) -> list[tuple[ShardFolder, int]]:
    """Note the entries of log files; return the folders of the notes, and their sizes.

    Parameters
    ----------
    root : Path
        The root of the cache.
    table_root : str
        Address of the data table.
    instant : str
        The instant that wrote the files.
    written : sequence of Noted
        The files, and what they have.

    Raises
    ------
    OSError
        If a note cannot be written.
    """
    notes, few = [], list[Noted]()
    for each in written:
        if len(each.keys) + len(each.removed) <= _FEW_KEYS:
            few.append(each)
            continue
        folder = ShardFolder.of(root, table_root, each.file.file_id)
        notes.append((folder, _write_note(folder, each.file_name + _SUFFIX, [each])))
    if few:
        folder = _shared(ShardFolder.of(root, table_root, few[0].file.file_id))
        name = f"{instant}-{os.urandom(6).hex()}{_SUFFIX}"
        notes.append((folder, _write_note(folder, name, few)))
        for old in sorted(folder.path.iterdir())[:-_SHARED_MAX]:  # Names begin with instants.
            old.unlink(missing_ok=True)
    return notes


def _shared(folder: ShardFolder) -> ShardFolder:
    """Return the folder of notes beside that of a shard."""
    return ShardFolder(folder.path.with_name(_SHARED_FOLDER))


def _write_note(folder: ShardFolder, name: str, written: Sequence[Noted]) -> int:
    keys = [part for each in written for part in (each.keys, each.removed)]
    codes = [
        part
        for each in written
        for part in (each.codes, np.full(len(each.removed), _REMOVED, np.int32))
    ]
    files = [
        (each.file_name, each.file.file_size_bytes, len(each.keys) + len(each.removed), each.groups)
        for each in written
    ]
    facts = {"version": _VERSION, "files": json.dumps(files)}
    schema = pa.schema([("key", pa.string()), ("group", pa.int32())], facts)
    if len(written) > 1:
        keys, codes = [pa.concat_arrays(keys)], [np.concatenate(codes)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for columns in zip(keys, map(pa.array, codes), strict=True):
            stream.write_batch(pa.RecordBatch.from_arrays([*columns], schema=schema))
    content = memoryview(sink.getvalue())
    folder.path.mkdir(parents=True, exist_ok=True)
    header = isal_zlib.crc32(content).to_bytes(_HEADER_BYTES, "little")
    return write_whole(folder.path / name, [header, content])


def noted_changes(
    folder: ShardFolder, logs: Sequence[DataFile], numbers: GroupNumbers
) -> ShardChanges | None:
    """Return what log files, or a first base file, change in a shard; None if one is not noted."""
    logs = [log for log in logs if not is_birth_log(log.name)]
    if len(logs) != 1:  # Several would have to be merged; this is rare.
        return None
    (log,) = logs
    name = log.name.to_file_name()
    own, shared = folder.path / (name + _SUFFIX), _shared(folder).path
    with suppress(OSError):
        found = _files_of_note(own) if own.exists() else {}
        if not found:
            found = _files_of_notes(shared, log.name.instant, shared.stat().st_mtime_ns)
        held = found.get(name)
        if held is not None and held.size_bytes == log.size_bytes:
            return held.changes(numbers)
    return None


@dataclass(frozen=True, slots=True)
class _NotedFile:
    """A file of a note: its size, its rows in the note, and its file groups."""

    note: Path
    size_bytes: int
    first: int
    count: int
    groups: list[Group]

    def changes(self, numbers: GroupNumbers) -> ShardChanges:
        with pa.memory_map(str(self.note)) as source:
            source.seek(_HEADER_BYTES)
            found = pa.ipc.open_stream(source).read_all().slice(self.first, self.count)
        own = numbers.of_groups((partition, FileId(file_id)) for partition, file_id in self.groups)
        keys = found["key"].cast(pa.large_string()).combine_chunks()
        codes = found["group"].to_numpy()
        put = len(codes) - int(np.count_nonzero(codes == _REMOVED))
        put_codes = own[codes[:put]].astype(np.uint32)
        return ShardChanges(KeyCodes(keys[:put], put_codes), keys[put:], False)


@lru_cache(maxsize=16)  # The shards of a write look into the same notes.
def _files_of_notes(folder: Path, instant: str, changed_ns: int) -> dict[str, _NotedFile]:
    """Return the files of all shared notes of an instant, as long as the folder has no others."""
    assert changed_ns, "the time of the folder tells its states apart"
    files: dict[str, _NotedFile] = {}
    for path in folder.glob(f"{instant}-*{_SUFFIX}"):
        files |= _files_of_note(path)
    return files


def _files_of_note(path: Path) -> dict[str, _NotedFile]:
    """Return the files of a note by name; none if it is damaged, or of another version."""
    content = path.read_bytes()
    whole = memoryview(content)[_HEADER_BYTES:]
    if isal_zlib.crc32(whole) != int.from_bytes(content[:_HEADER_BYTES], "little"):
        return {}
    facts = pa.ipc.open_stream(pa.py_buffer(whole)).schema.metadata
    if facts[b"version"] != _VERSION.encode():
        return {}
    files, first = {}, 0
    for name, file_bytes, count, groups in json.loads(facts[b"files"]):
        files[name] = _NotedFile(path, file_bytes, first, count, groups)
        first += count
    return files


def forget_logs(folder: ShardFolder, logs: Sequence[DataFile]) -> None:
    """Delete the notes of log files whose entries are cached."""
    for log in logs:
        with suppress(OSError):
            (folder.path / (log.name.to_file_name() + _SUFFIX)).unlink()
