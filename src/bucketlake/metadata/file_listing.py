"""The files of partitions as the metadata table lists them, in place of listings of folders.

A record has the changes that a commit made to a partition: files with their sizes, and files that a
clean removed. The newest change of a file wins. Its size is the greatest since the file was last
removed, because a log file only grows. One more record has the partitions in the same way. So an
entry does not replace an older entry with its key: its map adds files to the older map, or removes
files from it (Hudi's table format, "merge rules").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.config import table_keys as keys
from bucketlake.config.paths_of_table import (
    INDEX_DEFINITIONS_FILE,
    require_data_names,
    require_data_partition,
)
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import FormatError
from bucketlake.format.hfile.reader import Entries
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import (
    ALL_PARTITIONS,
    FILE_MAP,
    FILES_KINDS,
    RecordKind,
    decode_file_maps,
    encode_file_maps,
    partition_key,
)
from bucketlake.metadata.entry_reader import SliceEntries, read_all, read_keys
from bucketlake.metadata.log_files import GroupEntries
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.model.arrays import Ints
from bucketlake.model.file_slice import DataFile
from bucketlake.storage.base import Storage
from bucketlake.timeline.table_properties import update_table_properties

FileSizes = Mapping[str, Mapping[str, int]]
"""Sizes of files by name, by data partition."""

FileNames = Mapping[str, Collection[str]]
"""Names of files by data partition."""

_NOT_PARTITIONED = partition_key("")


@dataclass(frozen=True, slots=True, eq=False)
class FileChanges:
    """Changes of files, oldest first.

    Parameters
    ----------
    places : ndarray of int, shape (n_changes,)
        The partition of each change, as a number.
    names : pyarrow.StringArray
        Names of files.
    sizes_bytes : ndarray of int64
        Sizes; 0 for a removal.
    is_removed : ndarray of bool
        Whether the change is a removal.
    """

    places: npt.NDArray[np.integer]
    names: pa.StringArray
    sizes_bytes: npt.NDArray[np.int64]
    is_removed: npt.NDArray[np.bool_]

    def live(self) -> FileChanges:
        """Return the files that are left, each once with its size, by partition."""
        if len(self.names) == 0:
            return self
        codes = self.names.dictionary_encode().indices.to_numpy().astype(np.int64)
        files = self.places.astype(np.int64) * (int(codes.max()) + 1) + codes
        order = np.argsort(files, kind="stable")
        starts = np.flatnonzero(np.diff(files[order], prepend=-1))
        removed = self.is_removed[order]
        removals = np.where(removed, np.arange(len(order)), -1)
        counts = np.diff(starts, append=len(order))
        is_valid = np.arange(len(order)) > np.repeat(np.maximum.reduceat(removals, starts), counts)
        sizes = np.where(is_valid, self.sizes_bytes[order], 0)
        lasts = starts + counts - 1
        is_live = ~removed[lasts]
        rows = order[lasts[is_live]]
        return FileChanges(
            self.places[rows],
            self.names.take(pa.array(rows)),
            np.maximum.reduceat(sizes, starts)[is_live],
            np.zeros(len(rows), np.bool_),
        )


def lists_files(config: TableConfig) -> bool:
    """Return whether a table has a metadata table, and readers may use its list of files."""
    return MetadataPartition.FILES in config.metadata_partitions


def listed_partitions(table: MetadataTable) -> list[str]:
    """Return the partition paths of the data table, sorted; ``[""]`` without partitions.

    Raises
    ------
    MetadataTableError
        If the record of the partitions is missing.
    """
    found = _read(table, [ALL_PARTITIONS])
    return sorted(_partitions_in(table, found))


def listed_files(table: MetadataTable, partitions: Iterable[str] | None = None) -> list[DataFile]:
    """Return the base and log files of some partitions, or of all partitions.

    Parameters
    ----------
    table : MetadataTable
    partitions : iterable of str, optional
        Partition paths; only their records are read. A partition without a record has no files.

    Returns
    -------
    list of DataFile
        Without files of instants that do not count, and without files that a clean removed.
    """
    if partitions is not None:
        return _files_in(_read(table, {partition_key(path) for path in partitions}))
    found = _read(table, None)
    live = _partitions_in(table, found)
    return [file for file in _files_in(found) if file.partition_path in live]


@dataclass(frozen=True, slots=True, eq=False)
class FileRecords:
    """Decoded records of a file group, oldest first.

    Parameters
    ----------
    where : str
        The file group, for messages.
    keys : pyarrow.BinaryArray
        The keys; a key may occur several times.
    kinds : ndarray of int64
        The kind of each record.
    maps : pyarrow.MapArray
        The map of each record, of type ``FILE_MAP``.
    """

    where: str
    keys: pa.BinaryArray
    kinds: Ints
    maps: pa.MapArray

    @classmethod
    def of(cls, entries: SliceEntries) -> Self:
        """Decode entries of a slice."""
        kinds, maps = decode_file_maps(entries.values, entries.where)
        return cls(entries.where, entries.keys, kinds, maps)

    def of_kind(self, kind: RecordKind) -> tuple[list[str], FileChanges]:
        """Return the keys of the records of a kind, and their changes; places are positions."""
        rows = pa.array(np.flatnonzero(self.kinds == kind))
        encoded = self.keys.take(rows).dictionary_encode()
        try:
            keys = encoded.dictionary.cast(pa.string()).to_pylist()
        except pa.ArrowInvalid as error:
            raise FormatError(self.where, "keys in UTF-8", str(error)) from error
        maps = self.maps.take(rows)
        sizes, removed = (maps.items.field(name) for name in ("size_bytes", "is_deleted"))
        changes = FileChanges(
            np.repeat(encoded.indices.to_numpy(), np.diff(maps.offsets.to_numpy())),
            maps.keys,
            sizes.to_numpy(),
            removed.to_numpy(zero_copy_only=False),
        )
        return keys, changes


def _read(table: MetadataTable, keys: Iterable[str] | None) -> list[FileRecords]:
    """Read the records of some keys, or all."""
    if keys is None:
        entries = read_all(table, MetadataPartition.FILES)
    else:
        entries = read_keys(table, MetadataPartition.FILES, pa.array(sorted(keys), pa.string()))
    return [FileRecords.of(found) for found in entries]


def _partitions_in(table: MetadataTable, found: Sequence[FileRecords]) -> set[str]:
    lists = [(records.where, *records.of_kind(RecordKind.PARTITION_LIST)) for records in found]
    if not any(keys for _, keys, _ in lists):
        raise table.damaged(f"its partition {MetadataPartition.FILES} does not list the partitions")
    paths = set()
    for where, _, changes in lists:
        for name in changes.live().names.to_pylist():
            require_data_partition(_partition_path(name), where)
            paths.add(_partition_path(name))
    return paths


def _files_in(found: Sequence[FileRecords]) -> list[DataFile]:
    files: list[DataFile | None] = []
    for records in found:
        keys, changes = records.of_kind(RecordKind.FILES)
        live = changes.live()
        paths = [_partition_path(key) for key in keys]
        columns = live.places.tolist(), live.names.to_pylist(), live.sizes_bytes.tolist()
        for path in paths:
            require_data_partition(path, records.where)
        require_data_names({"": columns[1]}, records.where)
        files += [DataFile.of_name(paths[p], n, s) for p, n, s in zip(*columns, strict=True)]
    return [file for file in files if file is not None]


def _partition_path(key: str) -> str:
    return "" if key == _NOT_PARTITIONED else key


def merge_file_entries(entries: SliceEntries) -> Entries:
    """Return one entry for each key; a removal of a file that is not there says nothing."""
    records = FileRecords.of(entries)
    keys, values = [], []
    for kind in FILES_KINDS:
        names, changes = records.of_kind(kind)
        live = changes.live()
        counts = np.bincount(live.places, minlength=len(names))
        ends = np.concatenate([[0], np.cumsum(counts)])
        keys.append(pa.array(names, pa.string()).cast(pa.binary()))
        values.append(_values(kind, ends, live.names, live.sizes_bytes, live.is_removed))
    return Entries(pa.concat_arrays(keys), pa.concat_arrays(values))


_FileMap: TypeAlias = tuple[Mapping[str, int], Collection[str]]
# The map of one entry: sizes of files that are added, and names of files that are removed.


def entries_of_files(
    added: FileSizes, removed: FileNames, listed: Iterable[str] | None, emptied: Collection[str]
) -> GroupEntries:
    """Return the entries that an action brings.

    Parameters
    ----------
    added : mapping
        Files that the action wrote.
    removed : mapping
        Files that the action deleted.
    listed : iterable of str or None
        Data partitions for the list of partitions; None leaves the list as it is.
    emptied : collection of str
        Data partitions that have no files any more: they leave the list, and their entries are
        removed.
    """
    gone = set(emptied)
    maps: dict[str, _FileMap] = {}
    for partition in sorted({*added, *removed} - gone):
        maps[partition_key(partition)] = added.get(partition, {}), removed.get(partition, ())
    keys = list(maps)
    values = [_encode(RecordKind.FILES, list(maps.values()))]
    if listed is not None or gone:
        named = {partition_key(path): 0 for path in sorted({*(listed or ())} - gone)}
        keys.append(ALL_PARTITIONS)
        of_list = named, sorted(partition_key(path) for path in gone)
        values.append(_encode(RecordKind.PARTITION_LIST, [of_list]))
    return GroupEntries.of(
        pa.array(keys, pa.string()),
        pa.concat_arrays(values),
        pa.array(sorted(partition_key(path) for path in gone), pa.string()),
    )


def entries_of_table(files: FileSizes) -> GroupEntries:
    """Return all entries for the files of a table."""
    return entries_of_files(files, {}, files, ())


def _encode(kind: RecordKind, maps: Collection[_FileMap]) -> pa.BinaryArray:
    names: list[str] = []
    sizes: list[int] = []
    is_removed: list[bool] = []
    ends = [0]
    for added, removed in maps:
        names += [*added, *removed]
        sizes += [*added.values(), *[0] * len(removed)]
        is_removed += [False] * len(added) + [True] * len(removed)
        ends.append(len(names))
    return _values(kind, ends, pa.array(names, pa.string()), sizes, is_removed)


def _values(
    kind: RecordKind,
    ends: npt.ArrayLike,
    names: pa.StringArray,
    sizes: npt.ArrayLike,
    is_removed: npt.ArrayLike,
) -> pa.BinaryArray:
    """Encode maps whose files lie one after another; ``ends`` begins with 0."""
    columns = pa.array(sizes, pa.int64()), pa.array(is_removed, pa.bool_())
    infos = pa.StructArray.from_arrays(columns, fields=[*FILE_MAP.item_type])
    offsets = pa.array(ends, pa.int32())
    return encode_file_maps(kind, pa.MapArray.from_arrays(offsets, names, infos, type=FILE_MAP))


# ---- The lists of partitions of the metadata table, in the properties of the data table ----------
#
# Readers use the valid partitions only. Writers maintain those that are being built as well.


def list_partitions_as(
    storage: Storage,
    *,
    valid: Collection[str] = (),
    building: Collection[str] = (),
    lost: Collection[str] = (),
    check: Callable[[Collection[str]], None] = lambda _: None,
) -> tuple[str, ...]:
    """Move partitions of the metadata table into a list, or take them off both lists.

    Parameters
    ----------
    storage : Storage
        The data table.
    valid, building, lost : collection of str
        Partitions that are valid from now on, that are being built, and that do not count any more.
        All others stay in their list.
    check : callable
        Gets the partitions of both lists, and raises an error if nothing may change.

    Returns
    -------
    tuple of str
        The valid partitions after the change, in order.

    Raises
    ------
    AlreadyExistsError, StorageError
        As ``update_table_properties``.
    """
    moved = {*valid, *building, *lost}

    def change(entries: dict[str, str]) -> dict[str, str]:
        lists = keys.METADATA_PARTITIONS, keys.METADATA_PARTITIONS_INFLIGHT
        check({name for key in lists for name in _names(entries.get(key, ""))})
        for key, added in (
            (keys.METADATA_PARTITIONS, valid),
            (keys.METADATA_PARTITIONS_INFLIGHT, building),
        ):
            names = (_names(entries.pop(key, "")) - moved) | {*added}
            if names:
                entries[key] = ",".join(sorted(names))
                entries.setdefault(keys.INDEX_DEFINITIONS_PATH, INDEX_DEFINITIONS_FILE)
        return entries

    entries = update_table_properties(storage, change)
    return TableConfig.from_properties(entries).metadata_partitions


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",")} - {""}
