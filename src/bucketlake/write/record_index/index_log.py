"""Writing the entries of the record-level index from a task, which may run twice or late.

A task writes one log file for each shard that it owns. The same keys give the same bytes, so a
repeated task finds its files. The markers are in the metadata table; whether the write is still
pending is known from the data table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import KeyTwiceError
from bucketlake.format.log_deletes import encode_birth_block
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.log_files import (
    EntryEncoder,
    GroupEntries,
    base_file_stat,
    birth_file_name,
    first_base_file_name,
    log_file_name,
    log_file_stat,
)
from bucketlake.metadata.record_index.entries_of_write import (
    NewKeys,
    Noted,
    entries_of_shard,
    entries_of_shards,
)
from bucketlake.metadata.record_index.shards import Shard
from bucketlake.model.file_name import FileId, Group, InstantTime, LogFileName
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.base import Storage
from bucketlake.timeline.data_file import DataFiles
from bucketlake.timeline.markers import Marker, MarkerType

if TYPE_CHECKING:  # Only tables with dynamic buckets have a cache.
    from bucketlake.metadata.location_cache.cache import LocationCache

_PARTITION = MetadataPartition.RECORD_INDEX
_TOKEN = "1-0-1"  # Files that the driver writes have another.


@dataclass(frozen=True, slots=True)
class IndexLogWriter:
    """The values that all tasks of one write share; small and picklable.

    Attributes
    ----------
    storage : Storage
        The data table's storage.
    metadata : Storage
        The metadata table's storage.
    instant : InstantTime
        Instant of the write.
    instant_ms : int
        The instant in milliseconds since 1970-01-01 UTC, in the time zone of the timeline.
    inflight : str
        Path of the inflight file in the data table, which exists while the write is pending.
    cache : LocationCache or None
        The cache of the host, which gets what the task writes.
    has_value_types : bool
        As for ``TableVersion``.
    names : mapping of FileId to LogFileName
        Names of the log files of shards, where they depend on the slices; see
        ``metadata/own_logs.py``.
    begins_with_base : bool
        Whether a base file may have the first entries of a shard: not in timeline layout 1.
    """

    storage: Storage
    metadata: Storage
    instant: InstantTime
    instant_ms: int
    inflight: str
    cache: LocationCache | None = None
    has_value_types: bool = True
    names: Mapping[FileId, LogFileName] = field(default_factory=dict)
    begins_with_base: bool = False

    @property
    def _encoder(self) -> EntryEncoder:
        return EntryEncoder(self.instant, self.instant_ms, self.has_value_types)

    def files(self) -> DataFiles:
        """Return what collects the log files of a task."""
        pinned = self.storage, self.instant, self.inflight
        return DataFiles(*pinned, place=self.metadata, written=self._note)

    def open(self, shard: Shard, files: DataFiles) -> None:
        """Write the empty log file that opens a new shard."""
        name = birth_file_name(shard.file_id, self.instant).to_file_name()
        files.add(_marker(name), encode_birth_block(self.instant))

    def begin(
        self, shards: Sequence[tuple[Shard, Sequence[NewKeys]]], files: DataFiles
    ) -> Iterator[WriteStat]:
        """Write the entries of new shards as base files, which no compaction need write again.

        Yields their statistics. Only a write that conflicts with any other to these shards may do
        this: of two base files, one counts.
        """
        every = [new for _, new in shards]
        entries, bounds = entries_of_shards(every, self.instant_ms)
        _require_one_place(entries, self.storage.root, bounds)
        made = self._encoder.base_files(_PARTITION, entries.keys, entries.values, bounds)
        codes, first_code = entries.values.indices.to_numpy(), 0
        for (shard, new), data, (first, end) in zip(shards, made, pairwise(bounds), strict=True):
            name = first_base_file_name(shard.file_id, self.instant)
            marker = _marker(name.to_file_name())
            stat = base_file_stat(name, _PARTITION, end - first, self._size_bytes(marker, data))
            own = entries.keys.slice(first, end - first), codes[first:end] - first_code
            files.add(marker, data, Noted(stat, *own, _groups(new)))
            first_code += len(new)
            yield stat

    def write(
        self, shard: Shard, new: Sequence[NewKeys], gone: Sequence[pa.Array], files: DataFiles
    ) -> WriteStat | None:
        """Write the log file of a shard, or none if no entry changes; return its statistics.

        Parameters
        ----------
        shard : Shard
            The shard.
        new, gone
            See :func:`entries_of_shard`.
        files : DataFiles
            Gets the log file; the caller publishes it.

        Raises
        ------
        CommitConflictError
            If the write was rolled back meanwhile.
        InputError
            If a key is too long for an entry.
        KeyTwiceError
            If a key is in two data partitions, and the index is one for the whole table.
        """
        entries = entries_of_shard(new, gone, self.instant_ms)
        if not len(entries):
            return None
        _require_one_place(entries, self.storage.root)
        usual = log_file_name(shard.file_id, self.instant, _TOKEN)
        name = self.names.get(shard.file_id, usual)
        data = self._encoder.log_file(_PARTITION, entries)
        marker = _marker(name.to_file_name())
        stat = log_file_stat(name, _PARTITION, entries, self._size_bytes(marker, data))
        codes = entries.values.indices.to_numpy()
        files.add(marker, data, Noted(stat, entries.keys, codes, _groups(new), entries.removed))
        return stat

    def _size_bytes(self, marker: Marker, data: bytes) -> int:
        """Return the size of a file: a resize that died may have seen other dead entries."""
        stored = self.metadata.stat(marker.data_path)
        return len(data) if stored is None else stored.size_bytes

    def _note(self, written: Sequence[Noted]) -> None:
        """Give the cache the entries that were written: a note has what the stored files have."""
        if self.cache is not None and written:
            self.cache.note(self.storage.root, self.instant, written)


def _groups(new: Sequence[NewKeys]) -> list[Group]:
    return [(group.partition_path, group.file_id) for group in new]


def _marker(file_name: str) -> Marker:
    return Marker(_PARTITION, file_name, MarkerType.CREATE)


def _require_one_place(entries: GroupEntries, root: str, bounds: Sequence[int] = ()) -> None:
    """Raise an error for a key with two entries; only a table of another kind can have such.

    A key may be in several shards; ``bounds`` are those of shards.
    """
    keys = entries.keys
    if len(keys) < 2 or len(entries.values.dictionary) < 2:  # Keys of one group are distinct.
        return
    is_repeated = np.append(pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False), False)
    is_repeated[[end - 1 for end in bounds if end]] = False
    for row in np.flatnonzero(is_repeated).tolist():
        raise KeyTwiceError(
            root,
            str(keys[row].as_py()),
            "two data partitions",
            "drop the index with table.drop_metadata_table() (bucketlake metadata --drop --run); "
            "table.rebuild_metadata_table() (bucketlake metadata --rebuild --run) then builds the "
            "others",
        )
