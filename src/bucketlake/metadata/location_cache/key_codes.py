"""What the location cache takes from the metadata table: keys and a code for each.

A code is the number of a file group among those of the cached shard, or ``REMOVED`` for a key whose
entry a log file removed. Base files are read some blocks at a time; log files are read whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.hfile.reader import Entries
from bucketlake.format.metadata_record.record_index import IndexedLocation, decode_locations
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.slices.entry_reader import open_whole_base_file, read_log_changes
from bucketlake.model.file_name import Group
from bucketlake.model.file_slice import DataFile, FileSlice

"""Data partition and id of a file group."""


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
        See ``metadata/slices/entry_reader.py``.
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


def read_changes(
    table: MetadataTable, held: FileSlice, logs: Sequence[DataFile], numbers: GroupNumbers
) -> ShardChanges:
    """Read what log files of a slice change; errors are those of a lookup."""
    found = read_log_changes(table, replace(held, base_file=None, log_files=tuple(logs)))
    put = numbers.coded(found.entries.newest(), found.entries.where)
    removed = found.removed.cast(pa.large_string())
    gone = removed.filter(pc.invert(pc.is_in(removed, value_set=put.keys)))
    return ShardChanges(put, gone, found.reaches_back)
