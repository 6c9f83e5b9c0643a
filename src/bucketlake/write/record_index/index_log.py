"""Writing the entries of the record-level index from a task, which may run twice or late.

Each task writes one log file for each shard that it touches. If two tasks touch one shard, their
files differ in the write token. The same keys give the same bytes, so a repeated task finds its
files. The markers are in the metadata table; whether the write is still pending is known from the
data table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bucketlake.format.log_deletes import encode_birth_block
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.record_index.entries_of_write import GoneKeys, NewKeys, index_entries
from bucketlake.metadata.record_index.shards import IndexShards, Shard
from bucketlake.metadata.slices.log_files import (
    GroupEntries,
    birth_file_name,
    encode_log_file,
    log_file_name,
    log_file_stat,
)
from bucketlake.model.file_name import InstantTime, file_path
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Buffer, Storage
from bucketlake.timeline.data_file import put_data_file
from bucketlake.timeline.markers import Marker, MarkerType

_PARTITION = MetadataPartition.RECORD_INDEX


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
    shards : IndexShards
        The shards, including those of new data partitions.
    """

    storage: Storage
    metadata: Storage
    instant: InstantTime
    instant_ms: int
    inflight: str
    shards: IndexShards

    def open(self, shard: Shard) -> None:
        """Write the empty log file that opens a new shard."""
        name = birth_file_name(shard.file_id, self.instant).to_file_name()
        self._publish(name, encode_birth_block(self.instant))

    def write(
        self, task: int, new: Iterable[NewKeys], gone: Iterable[GoneKeys]
    ) -> tuple[WriteStat, ...]:
        """Write the log files of a task; return their statistics.

        Parameters
        ----------
        task : int
            Number of the task among those of the write, from 0. All attempts have the same number.
        new, gone
            See :func:`index_entries`.

        Raises
        ------
        CommitConflictError
            If the write was rolled back meanwhile.
        InputError
            If a key is too long for an entry.
        """
        found = index_entries(new, gone, self.shards, self.instant_ms)
        return tuple(at_once(self.metadata, lambda pair: self._put(task, *pair), found.items()))

    def _put(self, task: int, shard: Shard, entries: GroupEntries) -> WriteStat:
        name = log_file_name(shard.file_id, self.instant, f"{task}-0-1").to_file_name()
        data = encode_log_file(
            _PARTITION, entries, instant=self.instant, created_at_ms=self.instant_ms
        )
        size_bytes = len(data)
        if not self._publish(name, data):  # A resize that died may have seen other dead entries.
            stored = self.metadata.stat(file_path(_PARTITION, name))
            size_bytes = size_bytes if stored is None else stored.size_bytes
        return log_file_stat(
            _PARTITION,
            name,
            put_count=len(entries.keys),
            delete_count=len(entries.removed),
            size_bytes=size_bytes,
        )

    def _publish(self, file_name: str, data: Buffer) -> bool:
        marker = Marker(_PARTITION, file_name, MarkerType.CREATE)
        return put_data_file(
            self.storage, self.instant, self.inflight, marker, data, place=self.metadata
        )
