"""The files of partitions as the metadata table lists them, in place of listings of folders.

A record has the changes that a commit made to a partition: files with their sizes, and files that a
clean removed. The newest change of a file wins. Its size is the greatest since the file was last
removed, because a log file only grows. One more record has the partitions in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import FormatError
from bucketlake.format.avro.cursor import Ints
from bucketlake.format.metadata_record.entry_keys import ALL_PARTITIONS, partition_key
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.file_records import decode_file_maps
from bucketlake.format.metadata_record.record_schema import RecordKind
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.slices.entry_reader import SliceEntries, read_all, read_keys
from bucketlake.model.file_slice import DataFile

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


def list_partitions(table: MetadataTable) -> list[str]:
    """Return the partition paths of the data table, sorted; ``[""]`` without partitions.

    Raises
    ------
    MetadataTableError
        If the record of the partitions is missing.
    """
    found = _read(table, [ALL_PARTITIONS])
    return sorted(_partitions_in(table, found))


def list_files(table: MetadataTable, partitions: Iterable[str] | None = None) -> list[DataFile]:
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
    lists = [records.of_kind(RecordKind.PARTITION_LIST) for records in found]
    if not any(keys for keys, _ in lists):
        raise table.damaged(f"its partition {MetadataPartition.FILES} does not list the partitions")
    names = [name for _, changes in lists for name in changes.live().names.to_pylist()]
    return {_partition_path(name) for name in names}


def _files_in(found: Sequence[FileRecords]) -> list[DataFile]:
    files: list[DataFile | None] = []
    for records in found:
        keys, changes = records.of_kind(RecordKind.FILES)
        live = changes.live()
        paths = [_partition_path(key) for key in keys]
        columns = live.places.tolist(), live.names.to_pylist(), live.sizes_bytes.tolist()
        files += [DataFile.of_name(paths[p], n, s) for p, n, s in zip(*columns, strict=True)]
    return [file for file in files if file is not None]


def _partition_path(key: str) -> str:
    return "" if key == _NOT_PARTITIONED else key
