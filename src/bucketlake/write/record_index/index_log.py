"""Writing the entries of the record-level index from a task, which may run twice or late.

A task writes one log file for each shard that it owns. The same keys give the same bytes, so a
repeated task finds its files. The markers are in the metadata table; whether the write is still
pending is known from the data table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import KeyTwiceError
from bucketlake.format.log_deletes import encode_birth_block
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.record_index.entries_of_write import NewKeys, entries_of_shard
from bucketlake.metadata.record_index.shards import Shard
from bucketlake.metadata.slices.log_files import (
    GroupEntries,
    birth_file_name,
    encode_log_file,
    log_file_name,
    log_file_stat,
)
from bucketlake.model.file_name import FileId, InstantTime, LogFileName, file_path
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.base import Buffer, Storage
from bucketlake.timeline.data_file import put_data_file
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
        ``metadata/slices/own_logs.py``.
    """

    storage: Storage
    metadata: Storage
    instant: InstantTime
    instant_ms: int
    inflight: str
    cache: LocationCache | None = None
    has_value_types: bool = True
    names: Mapping[FileId, LogFileName] = field(default_factory=dict)

    def open(self, shard: Shard) -> None:
        """Write the empty log file that opens a new shard."""
        name = birth_file_name(shard.file_id, self.instant).to_file_name()
        self._publish(name, encode_birth_block(self.instant))

    def write(
        self, shard: Shard, new: Sequence[NewKeys], gone: Sequence[pa.Array]
    ) -> WriteStat | None:
        """Write the log file of a shard, or none if no entry changes; return its statistics.

        Parameters
        ----------
        shard : Shard
            The shard.
        new, gone
            See :func:`entries_of_shard`.

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
        name = self.names.get(shard.file_id, usual).to_file_name()
        data = encode_log_file(
            _PARTITION,
            entries,
            instant=self.instant,
            created_at_ms=self.instant_ms,
            has_value_types=self.has_value_types,
        )
        size_bytes = len(data)
        is_written = self._publish(name, data)
        if not is_written:  # A resize that died may have seen other dead entries.
            stored = self.metadata.stat(file_path(_PARTITION, name))
            size_bytes = size_bytes if stored is None else stored.size_bytes
        stat = log_file_stat(
            _PARTITION,
            name,
            put_count=len(entries.keys),
            delete_count=len(entries.removed),
            size_bytes=size_bytes,
        )
        if self.cache is not None and is_written:  # A note has what the stored file has.
            groups = [(group.partition_path, group.file_id) for group in new]
            self.cache.note(self.storage.root, stat, entries, groups)
        return stat

    def _publish(self, file_name: str, data: Buffer) -> bool:
        marker = Marker(_PARTITION, file_name, MarkerType.CREATE)
        return put_data_file(
            self.storage, self.instant, self.inflight, marker, data, place=self.metadata
        )


def _require_one_place(entries: GroupEntries, root: str) -> None:
    """Raise an error for a key with two entries; only a table of another kind can have such."""
    keys = entries.keys
    row = pc.index(pc.equal(keys[1:], keys[:-1]), True).as_py() if len(keys) > 1 else -1
    if row >= 0:
        raise KeyTwiceError(
            root,
            str(keys[row].as_py()),
            "two data partitions",
            "drop the index with table.drop_metadata_table() (bucketlake metadata --drop --run); "
            "table.rebuild_metadata_table() (bucketlake metadata --rebuild --run) then builds the "
            "others",
        )
