"""The file-system view: which file slice of each file group is live at an instant.

This module combines listings of partition folders with the timeline. First it drops the files of
instants that are not completed, so that log files are not assigned to a base file of a failed
write. Then it groups files, drops replaced groups, and keeps the newest slice of each group (Hudi's
table format, "file slices"). ``read/slice_reader.py`` reads the content of a slice.

It serves the data table and the metadata table. What differs between them is handed in: the names
of their files, and which files count in which order (:class:`SeenFiles`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from bucketlake.config.paths_of_table import HOODIE_FOLDER
from bucketlake.errors import FormatError
from bucketlake.format.log_block import BlockKind, LogBlock, read_log_blocks
from bucketlake.format.log_order import blocks_to_merge
from bucketlake.format.properties import PARTITION_METADATA_PREFIX
from bucketlake.model.file_name import BaseFileName, Group, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.grouping import grouped
from bucketlake.storage.base import Storage, StoredObject, at_once
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.open_table import OpenTable

ParseFile: TypeAlias = Callable[[str, str, int], DataFile | None]
"""Returns the file of a partition with a name and a size; None if the name is of another file."""

_BEFORE_BASES = InstantTime("")


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A version of a file group: a base file and the log files that belong to it.

    Attributes
    ----------
    instant : InstantTime
        Instant of the base file, or of the first log file if there is no base file.
    files : tuple of DataFile
        All files of the version, including change data capture.
    """

    instant: InstantTime
    files: tuple[DataFile, ...]


def list_partitions(storage: Storage) -> dict[str, list[DataFile]]:
    """List the whole table: the data files of each partition, by partition path.

    A folder is a partition if it contains a partition marker. The cost grows with the table; a
    write lists only the partitions that it touches, with :func:`list_partition`.
    """
    files: dict[str, list[DataFile]] = defaultdict(list)
    marked: set[str] = set()
    for stored in list_objects(storage):
        folder, _, file_name = stored.path.rpartition("/")
        if file_name.startswith(PARTITION_METADATA_PREFIX):
            marked.add(folder)
        elif (file := data_file(stored)) is not None:
            files[folder].append(file)
    return {partition: files[partition] for partition in sorted(marked)}


def list_objects(storage: Storage) -> list[StoredObject]:
    """List all objects of a table outside its ``.hoodie`` folder."""
    objects = [o for o in storage.list("", recursive=False) if "/" not in o.path]
    folders = [folder for folder in storage.list_folders("") if folder != HOODIE_FOLDER]
    listed = at_once(storage, lambda folder: list(storage.list(folder)), folders)
    return objects + [stored for held in listed for stored in held]


def data_file(stored: StoredObject) -> DataFile | None:
    """Return an object as a base or log file; None if it is neither."""
    folder, _, file_name = stored.path.rpartition("/")
    return DataFile.of_name(folder, file_name, stored.size_bytes)


def list_partition(
    storage: Storage, partition_path: str, parse: ParseFile = DataFile.of_name
) -> list[DataFile]:
    """List the files of one partition, by default data files; empty if it does not exist."""
    return list(data_files(storage.list(partition_path, recursive=False), partition_path, parse))


def list_files(
    storage: Storage, partition_paths: Iterable[str], parse: ParseFile = DataFile.of_name
) -> list[DataFile]:
    """List the files of several partitions, as many at once as the storage allows."""
    listed = at_once(storage, partial(list_partition, storage, parse=parse), partition_paths)
    return [file for files in listed for file in files]


def list_marked_files(storage: Storage, partition_paths: Iterable[str]) -> list[DataFile]:
    """List the data files of the folders that contain a partition marker."""

    def list_marked(path: str) -> list[DataFile]:
        objects = list(storage.list(path, recursive=False))
        is_marked = any(stored.name.startswith(PARTITION_METADATA_PREFIX) for stored in objects)
        return list(data_files(objects, path)) if is_marked else []

    listed = at_once(storage, list_marked, partition_paths)
    return [file for held in listed for file in held]


class SeenFiles:
    """Which files of a table readers see, and to which file slice a log file belongs.

    A log file belongs to the newest base file that was requested before the log file's instant
    completed (Hudi's table format, "file slices"). The timeline knows most completion times; those
    of archived instants are read from the archive, and only if they matter.

    Parameters
    ----------
    table : OpenTable
        The table, whose archive may be read.
    timeline : Timeline
        Its timeline; restrict it with ``Timeline.as_of`` for time travel.
    """

    def __init__(self, table: OpenTable, timeline: Timeline) -> None:
        self._table, self.timeline = table, timeline
        # What was read, and from which instant on: one value, because threads share the object.
        self._known: tuple[InstantTime, Mapping[InstantTime, InstantTime]] | None = None

    def counts(self, file: DataFile) -> bool:
        """Return whether readers see a file: its instant is completed, and its writer's."""
        if isinstance(file.name, LogFileName):
            if self.timeline.layout.logs_name_slices:  # Readers check each log block.
                return self.timeline.has_slice(file.name.instant)
            # The undo of a write deletes its copies one by one, some for a completed resize.
            writer = file.name.writer
            if writer is not None and not self.timeline.is_completed(writer):
                return False
        return self.timeline.is_completed(file.name.instant)

    def is_after(self, instant: InstantTime, base: InstantTime) -> bool:
        """Return whether a log file's instant completed after the base file was requested."""
        if instant >= base:
            return True
        if self.timeline.layout.logs_name_slices:
            return False  # The name of a log file then has the instant of its slice.
        completed_at = self.time(instant)
        return completed_at is not None and completed_at >= base

    def order(self, log: DataFile) -> tuple[str | int, ...]:
        """Return the sort key of a log file in its slice."""
        return log.order

    def time(self, instant: InstantTime) -> InstantTime | None:
        """Return when an instant completed; None if neither timeline nor archive says it."""
        return self.timeline.completion_time(instant) or self._archived_time(instant)

    def _archived_time(self, instant: InstantTime) -> InstantTime | None:
        from bucketlake.timeline.archive_reader import archived_completion_times

        start = self.timeline.start
        if start is None or instant >= start:
            return None
        known = self._known
        if known is None or instant < known[0]:
            times = archived_completion_times(self._table, since=instant, until=start)
            known = self._known = instant, times
        return known[1].get(instant)


def latest_slices(
    files: Iterable[DataFile], seen: SeenFiles, replaced: Iterable[Group] = ()
) -> list[FileSlice]:
    """Return the live slice of each file group among ``files``, in order of file id.

    Parameters
    ----------
    files : iterable of DataFile
        Listed files of one or several partitions.
    seen : SeenFiles
        Which of them count.
    replaced : iterable of (partition path, file id)
        File groups that completed replace commits removed.
    """
    gone = set(replaced)
    slices = [
        newest_slice(group, of_group, seen)
        for group, of_group in sorted(group_files(files, seen).items())
        if group not in gone
    ]
    return [s for s in slices if s is not None]


def group_files(files: Iterable[DataFile], seen: SeenFiles) -> dict[Group, list[DataFile]]:
    """Return the files that readers see, by partition path and file id."""
    counted = filter(seen.counts, files)
    return grouped(((file.partition_path, file.name.file_id), file) for file in counted)


def newest_slice(group: Group, files: Sequence[DataFile], seen: SeenFiles) -> FileSlice | None:
    """Return the newest slice among the files of one group; None if no file begins one."""
    bases = [f for f in files if isinstance(f.name, BaseFileName)]
    logs = [f for f in files if isinstance(f.name, LogFileName) and not f.name.suffix]
    base = max(bases, key=lambda f: f.name.instant, default=None)
    if base is not None:
        logs = [f for f in logs if seen.is_after(f.name.instant, base.name.instant)]
    if base is None and not logs:
        return None
    return FileSlice.of_files(*group, base, tuple(sorted(logs, key=seen.order)))


def file_versions(files: Iterable[DataFile], seen: SeenFiles) -> dict[Group, list[FileVersion]]:
    """Return all versions of each file group, newest first, by partition path and file id.

    The parameters are those of :func:`latest_slices`; replaced groups are included.
    """
    groups = sorted(group_files(files, seen).items())
    return {group: _versions(of_group, seen) for group, of_group in groups}


def _versions(files: list[DataFile], seen: SeenFiles) -> list[FileVersion]:
    """Group files by their base file; log files without a base file are the oldest version."""
    bases = sorted({f.name.instant for f in files if isinstance(f.name, BaseFileName)})[::-1]
    by_base: dict[InstantTime, list[DataFile]] = {instant: [] for instant in bases}
    for file in files:
        instant = file.name.instant
        if isinstance(file.name, LogFileName):
            instant = next((b for b in bases if seen.is_after(instant, b)), _BEFORE_BASES)
        by_base.setdefault(instant, []).append(file)
    return [
        FileVersion(instant or min(f.name.instant for f in version), tuple(version))
        for instant, version in by_base.items()
    ]


def data_files(
    objects: Iterable[StoredObject], partition_path: str, parse: ParseFile = DataFile.of_name
) -> Iterator[DataFile]:
    """Yield the data files among the objects of a partition; ``parse`` knows their names."""
    for stored in objects:
        folder, _, file_name = stored.path.rpartition("/")
        file = parse(folder, file_name, stored.size_bytes)
        if file is not None and folder == partition_path:
            yield file


# ---- The valid log blocks of a file slice, in the order in which they are merged -----------------
#
# ``format/log_order.py`` orders the blocks. Up to table version 6 a log file holds blocks of many
# instants, so each block is checked for a committed instant. Since table version 8 the instant in
# the file name was checked before, and a block of another instant is an error: its header is
# damaged.

_DATA = frozenset(
    {BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA, BlockKind.HFILE_DATA, BlockKind.DELETE}
)


def counted_blocks(storage: Storage, file_slice: FileSlice, timeline: Timeline) -> list[LogBlock]:
    """Return the blocks of a slice, oldest first.

    Raises
    ------
    FormatError
        If a log file is damaged (Hudi's readers would omit its records), or if log compactions
        replace each other in a circle.
    UnsupportedFeatureError
        If a block has an unknown kind, or is an unknown command.
    """
    return blocks_to_merge(_counted(storage, file_slice, timeline))


def _counted(storage: Storage, file_slice: FileSlice, timeline: Timeline) -> Iterator[LogBlock]:
    opens_group = file_slice.base_file is None  # The first block of the first file.
    for file in file_slice.log_files:
        for block in read_log_blocks(storage, file.path, file.size_bytes):
            is_data = block.kind in _DATA and _is_committed(
                block, file, file_slice, timeline, opens_group=opens_group
            )
            opens_group = False
            if is_data or block.kind is BlockKind.COMMAND:
                yield block


def _is_committed(
    block: LogBlock,
    file: DataFile,
    file_slice: FileSlice,
    timeline: Timeline,
    *,
    opens_group: bool,
) -> bool:
    name = file.name
    assert isinstance(name, LogFileName), file.path
    writer = name.writer or name.instant
    if not timeline.layout.logs_name_slices and block.instant == writer:
        return True
    if timeline.is_completed(block.instant):
        return True
    # Log files from before an upgrade have the instant of their base file in their names, and
    # blocks of later instants. But the block that opened a group has the instant in the name.
    is_of_base = name.instant == file_slice.instant and block.instant > name.instant
    is_of_base = is_of_base and not opens_group
    if not timeline.layout.logs_name_slices and not is_of_base:
        expected = f"blocks of instant {writer}, which is in the name"
        raise FormatError(file.path, expected, f"a block of instant {block.instant}")
    return False
