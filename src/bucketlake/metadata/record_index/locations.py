"""Lookups in the record-level index: the file groups of record keys, without reading the table.

A lookup reads only the shards of its keys, and of their base files only the blocks that can hold a
key. The newest entry of a key counts (``metadata/entry_reader.py``). Locations are columns:
a file group is a number for each key, and its facts are stored once. An entry may point to a file
group that is no longer live, or that no longer holds the key; the caller checks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import FormatError
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import IndexedLocation, decode_locations
from bucketlake.metadata.entry_reader import (
    EVERYTHING,
    SliceEntries,
    Wanted,
    read_slices,
    wanted_of_shards,
)
from bucketlake.metadata.metadata_table import MetadataTable, open_metadata_table
from bucketlake.metadata.record_index.shards import IndexShards
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.kept import kept_property
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.table_properties import table_at

NOT_FOUND = -1

_KEYS = pa.field("record_key", pa.string())


@dataclass(frozen=True, slots=True, eq=False)
class KeyLocations:
    """Record keys and their file groups.

    Attributes
    ----------
    keys : pa.StringArray, shape (n_keys,)
        Record keys.
    codes : ndarray of int32, shape (n_keys,)
        For each key, the position of its location in ``locations``; ``NOT_FOUND`` without an entry.
    locations : tuple of IndexedLocation
        The distinct locations.
    """

    keys: pa.Array
    codes: npt.NDArray[np.int32]
    locations: tuple[IndexedLocation, ...]

    @classmethod
    def concat(cls, parts: Sequence[KeyLocations]) -> KeyLocations:
        """Put the entries of several shards together; equal locations get one number."""
        numbers: dict[IndexedLocation, int] = {}
        codes = [np.empty(0, np.int32)]
        for part in parts:
            own = [numbers.setdefault(each, len(numbers)) for each in part.locations]
            codes.append(np.array(own, np.int32)[part.codes])
        keys = pa.concat_arrays([pa.array([], pa.string()), *(part.keys for part in parts)])
        return cls(keys, np.concatenate(codes), tuple(numbers))

    def of_partition(self, data_partition: str) -> KeyLocations:
        """Return the same keys without the locations in other data partitions."""
        is_own = [location.partition_path == data_partition for location in self.locations]
        own = np.append(np.where(is_own, np.arange(len(is_own)), NOT_FOUND), NOT_FOUND)
        return KeyLocations(self.keys, own[self.codes].astype(np.int32), self.locations)

    def take(self, rows: npt.NDArray[np.int64]) -> KeyLocations:
        """Return some rows."""
        return KeyLocations(self.keys.take(pa.array(rows)), self.codes[rows], self.locations)

    @property
    def found(self) -> KeyLocations:
        """The keys that have an entry."""
        rows = np.flatnonzero(self.codes != NOT_FOUND)
        if len(rows) == len(self.codes):
            return self
        return self.take(rows)

    def to_table(self) -> pa.Table:
        """Return a row for each key; all columns but the key are null for a key without an entry.

        Returns
        -------
        pa.Table
            ``record_key``; ``partition_path`` and ``file_id`` as dictionaries; and ``inserted_at``,
            the time of the commit that inserted the key into the file group.
        """
        codes = pa.array(self.codes, mask=self.codes == NOT_FOUND)
        paths = [location.partition_path for location in self.locations]
        file_ids = [location.file_id for location in self.locations]
        times = [location.instant_ms for location in self.locations]
        columns = {
            _KEYS.name: self.keys,
            "partition_path": _taken(paths, codes),
            "file_id": _taken(file_ids, codes),
            "inserted_at": pa.array(times, pa.timestamp("ms", tz="UTC")).take(codes),
        }
        return pa.table(columns)


@dataclass(frozen=True)
class RecordIndexReader:
    """The record-level index of a pinned table.

    Parameters
    ----------
    table : MetadataTable
        The metadata table, whose properties list the index.
    data_partitions : collection of str or None
        Data partitions in which keys are looked up; None for any. With a partitioned index, only
        the files of these partitions are looked for.
    """

    table: MetadataTable
    data_partitions: frozenset[str] | None = None

    @kept_property
    def shards(self) -> IndexShards:
        """The shards; raises IndexStateError if there are shards of both kinds of index."""
        file_ids = [held.file_id for slices in self.slices.values() for held in slices]
        return IndexShards.of_file_ids(file_ids, self.table.storage.outer.root)

    def require_shards(self, data_partitions: Iterable[str]) -> None:
        """Raise MetadataTableError if a data partition with file groups has no shards.

        Else its keys would seem to be new. The first write to a data partition opens its shards,
        and nothing closes them.
        """
        lacking = set(data_partitions) - self.shards.counts.keys()
        if self.shards.is_partitioned and lacking:
            name = MetadataPartition.RECORD_INDEX
            raise self.table.damaged(
                f"its partition {name} has no shards of data partition {min(lacking)!r}, which has "
                "file groups",
                name,
            )

    def find_everywhere(
        self, keys: pa.Array, data_partitions: Iterable[str] | None = None
    ) -> list[KeyLocations]:
        """Look up keys in several data partitions.

        Parameters
        ----------
        keys : pa.StringArray
            Keys, in any order.
        data_partitions : iterable of str, optional
            Data partitions of a partitioned index; by default all. A lookup in a global index
            always returns entries of all data partitions.

        Returns
        -------
        list of KeyLocations
            In a global index, one item with a row for each key. In a partitioned index the same for
            each data partition that has one of the keys.

        Raises
        ------
        MetadataTableError
            If a file of the index is damaged; the error names file and byte.
        """
        if not self.shards.is_partitioned:
            return [self._located(keys, self._asked(keys, ""))]
        paths = self.shards.counts if data_partitions is None else data_partitions
        asked = [self._asked(keys, path) for path in paths]
        read = iter(self._read(list(chain.from_iterable(asked))))
        located = (
            _aligned(keys, KeyLocations.concat([next(read) for _ in pairs])) for pairs in asked
        )
        return [each for each in located if (each.codes != NOT_FOUND).any()]

    def find_in(self, held: FileSlice, keys: pa.Array) -> KeyLocations:
        """Look up keys in a slice of one shard, without listing the index."""
        return self._located(keys, [(held, Wanted.of_keys(keys))])

    def read_slice(self, held: FileSlice) -> KeyLocations:
        """Return all entries of a slice of one shard, in any order, without listing the index."""
        return KeyLocations.concat(self._read([(held, EVERYTHING)]))

    def read_partition(self, data_partition: str) -> KeyLocations:
        """Return all entries of a data partition; the order of the keys is undefined."""
        if not self.shards.is_partitioned:
            everything = KeyLocations.concat(
                self._read([(held, EVERYTHING) for held in self.slices[None]])
            )
            return everything.of_partition(data_partition).found
        held = self.slices.get(data_partition, [])
        return KeyLocations.concat(self._read([(each, EVERYTHING) for each in held]))

    @kept_property
    def slices(self) -> dict[str | None, list[FileSlice]]:
        """Slices of the shards by data partition, in order; None in a global index."""
        return self.table.index_shards(self.data_partitions)

    def newest(self) -> RecordIndexReader:
        """Return the index as it is now."""
        opened = table_at(self.table.storage.outer)
        table = open_metadata_table(opened, load_timeline(opened))
        return RecordIndexReader(table, self.data_partitions)

    def _asked(self, keys: pa.Array, data_partition: str) -> list[tuple[FileSlice, Wanted]]:
        """Return the slices that can have the entries of keys."""
        path = data_partition if self.shards.is_partitioned else None
        return wanted_of_shards(self.slices.get(path, []), keys)

    def _located(self, keys: pa.Array, asked: Sequence[tuple[FileSlice, Wanted]]) -> KeyLocations:
        return _aligned(keys, KeyLocations.concat(self._read(asked)))

    def _read(self, asked: Iterable[tuple[FileSlice, Wanted]]) -> list[KeyLocations]:
        try:
            return [_decoded(entries) for entries in read_slices(self.table, asked)]
        except FormatError as error:
            raise self.table.damaged(error.problem, MetadataPartition.RECORD_INDEX) from error


def _decoded(entries: SliceEntries) -> KeyLocations:
    newest = entries.newest()
    found = decode_locations(newest.values, entries.where)
    codes = found.indices.to_numpy(zero_copy_only=False)
    return KeyLocations(newest.keys.cast(pa.string()), codes, found.locations)


def _aligned(keys: pa.Array, found: KeyLocations) -> KeyLocations:
    """Return the found locations in the order of the wanted keys."""
    rows = pc.index_in(keys, value_set=found.keys).fill_null(NOT_FOUND).to_numpy()
    codes = np.append(found.codes, np.int32(NOT_FOUND))[rows]
    return KeyLocations(keys, codes, found.locations)


def _taken(texts: Sequence[str], codes: pa.Array) -> pa.DictionaryArray:
    """Return a text for each code; each distinct text is stored once."""
    encoded = pa.array(texts, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(codes), encoded.dictionary)
