"""The log files of one action in the metadata table: their names, and which files are its own.

Since table version 8, the name of a log file has the instant of its action. In timeline layout 1 it
has the instant of its slice, and the token has the action. Hudi 1.2.0 gives its next file the token
of the one before, so there the blocks of a file decide whose it is.

An action may write its log files again: with another content, or because a compaction made new
slices meanwhile. Then the files of the earlier attempt are replaced or deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from bucketlake.metadata.log_files import COPY_TOKEN, log_file_name
from bucketlake.metadata.metadata_table import (
    MetadataTable,
    block_instants,
    files_of_instants,
    list_all_files,
    list_files_of,
)
from bucketlake.model.file_name import FileId, InstantTime, LogFileName, file_path
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.kept import kept_by_argument
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import OpenTable


@dataclass(frozen=True)
class OwnLogs:
    """The log files of an action.

    Attributes
    ----------
    metadata : MetadataTable
        The metadata table. In layout 1, no compaction is pending in it.
    instant : InstantTime
        Instant of the action.
    """

    metadata: MetadataTable
    instant: InstantTime

    def name(self, partition: str, file_id: FileId) -> LogFileName:
        """Return the name of the log file of a file group; the same for each attempt."""
        if not self._names_slices:
            return log_file_name(file_id, self.instant)
        held = self._slices(partition)[file_id]
        for file in held.log_files:
            name = file.name
            assert isinstance(name, LogFileName), file
            is_newest = name.instant == held.instant and name.writer == self.instant
            if is_newest and is_own(self.metadata.storage, file, self.instant):
                return name
        return held.next_log_file(self.instant)

    def in_newest_slice(self, stat: WriteStat) -> WriteStat:
        """Return a log file that a task wrote, in the newest slice of its file group.

        If a compaction made that slice meanwhile, the file is repeated there.
        """
        if not self._names_slices:
            return stat
        storage, partition = self.metadata.storage, stat.partition_path
        name = self.name(partition, stat.file_id)
        path = file_path(partition, name.to_file_name())
        if path == stat.path:
            return stat
        if storage.stat(path) is None:  # Otherwise an earlier attempt repeated it.
            storage.put(path, storage.read(self._source(stat)))
        return replace(stat, path=path, previous_commit=name.instant)

    def delete_others(self, partitions: Collection[str], stats: Collection[WriteStat]) -> None:
        """Delete files of earlier attempts that are not among the files of this attempt."""
        if not self._names_slices:
            return
        storage, kept = self.metadata.storage, {stat.path for stat in stats}
        for partition in partitions:
            for file in list_files_of(storage, partition):
                is_other = isinstance(file.name, LogFileName) and file.name.writer == self.instant
                if is_other and file.path not in kept and is_own(storage, file, self.instant):
                    storage.delete(file.path)

    def _source(self, stat: WriteStat) -> str:
        """Return the path of a file of a task, which an earlier attempt may have repeated."""
        storage = self.metadata.storage
        if storage.stat(stat.path) is not None:
            return stat.path
        files = list_files_of(storage, stat.partition_path, [stat.file_id])
        own = (file.path for file in files if is_own(storage, file, self.instant))
        return next(own, stat.path)

    @property
    def _names_slices(self) -> bool:
        return self.metadata.timeline.layout.logs_name_slices

    @kept_by_argument
    def _slices(self, partition: str) -> dict[FileId, FileSlice]:
        return {held.file_id: held for held in self.metadata.maintained_slices(partition)}


def is_own(storage: Storage, file: DataFile, instant: InstantTime) -> bool:
    """Return whether a log file of timeline layout 1 has only blocks of an instant.

    ``storage`` is that of the metadata table.
    """
    name = file.name
    if not isinstance(name, LogFileName):
        return False
    may_be = name.writer == instant or name.write_token == COPY_TOKEN
    return may_be and block_instants(storage, file) == {instant}


def files_of_action(inner: OpenTable, instant: InstantTime) -> list[DataFile]:
    """Return the files that an action wrote to a metadata table, to undo it."""
    if not inner.config.layout.logs_name_slices:
        return files_of_instants(inner.storage, {instant})
    named = {*_named_by_commit(inner, instant)}
    return [
        file
        for file in list_all_files(inner.storage)
        if is_own(inner.storage, file, instant)
        or (file.path in named and block_instants(inner.storage, file) == {instant})
    ]


def _named_by_commit(inner: OpenTable, instant: InstantTime) -> Iterator[str]:
    """Yield the log files that the delta commit of an action names; Hudi names them as it likes."""
    timeline = load_timeline(inner)
    commit = timeline.find_completed(instant)
    if commit is not None:
        for stat in timeline.read_commit(inner.storage, commit).stats:
            if stat.is_log:
                yield stat.path
