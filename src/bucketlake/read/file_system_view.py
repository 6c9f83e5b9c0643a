"""The file-system view: which file slice of each file group is live at an instant.

This module combines listings of partition folders with the timeline. First it drops the files of
instants that are not completed, so that log files are not assigned to a base file of a failed
write. Then it groups files, drops replaced groups, and keeps the newest slice of each group (Hudi's
table format, "file slices"). ``read/slice_reader.py`` reads the content of a slice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from bucketlake.config.paths_of_table import HOODIE_FOLDER
from bucketlake.format.partition_metadata import PARTITION_METADATA_PREFIX
from bucketlake.model.file_name import (
    BaseFileName,
    FileId,
    InstantTime,
    LogFileName,
)
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Storage, StoredObject
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.log_completions import LogCompletions

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


def list_partition(storage: Storage, partition_path: str) -> list[DataFile]:
    """List the data files of one partition; empty if the partition does not exist."""
    return list(_data_files(storage.list(partition_path, recursive=False), partition_path))


def list_files(storage: Storage, partition_paths: Iterable[str]) -> list[DataFile]:
    """List the data files of several partitions, as many at once as the storage allows."""
    listed = at_once(storage, partial(list_partition, storage), partition_paths)
    return [file for held in listed for file in held]


def list_marked_files(storage: Storage, partition_paths: Iterable[str]) -> list[DataFile]:
    """List the data files of the folders that contain a partition marker."""

    def list_marked(path: str) -> list[DataFile]:
        objects = list(storage.list(path, recursive=False))
        names = (stored.path.rpartition("/")[2] for stored in objects)
        is_marked = any(name.startswith(PARTITION_METADATA_PREFIX) for name in names)
        return list(_data_files(objects, path)) if is_marked else []

    listed = at_once(storage, list_marked, partition_paths)
    return [file for held in listed for file in held]


def latest_slices(
    files: Iterable[DataFile],
    timeline: Timeline,
    completed: LogCompletions,
    replaced: Iterable[tuple[str, FileId]],
) -> list[FileSlice]:
    """Return the live slice of each file group among ``files``, in order of file id.

    Parameters
    ----------
    files : iterable of DataFile
        Listed files of one or several partitions.
    timeline : Timeline
        The timeline; restrict it with ``Timeline.as_of`` for time travel.
    completed : LogCompletions
        Asked if a log file may have been completed after a base file was requested.
    replaced : iterable of (partition path, file id)
        File groups that completed replace commits removed.
    """
    gone = set(replaced)
    slices = [
        newest_slice(group, held, completed)
        for group, held in sorted(group_files(files, timeline).items())
        if group not in gone
    ]
    return [s for s in slices if s is not None]


def group_files(
    files: Iterable[DataFile], timeline: Timeline
) -> dict[tuple[str, FileId], list[DataFile]]:
    """Return the files that readers see, by partition path and file id."""
    groups: dict[tuple[str, FileId], list[DataFile]] = defaultdict(list)
    for file in files:
        if _counts(file, timeline):
            groups[file.partition_path, file.name.file_id].append(file)
    return groups


def newest_slice(
    group: tuple[str, FileId], files: Iterable[DataFile], completed: LogCompletions
) -> FileSlice | None:
    """Return the newest slice among the files of one group; None if no file begins one."""
    held = [*files]
    bases = [f for f in held if isinstance(f.name, BaseFileName)]
    logs = sorted(
        (f for f in held if isinstance(f.name, LogFileName) and not f.name.suffix),
        key=lambda f: f.order,
    )
    base = max(bases, key=lambda f: f.name.instant, default=None)
    if base is not None:
        logs = [f for f in logs if completed.is_after(f.name.instant, base.name.instant)]
    if base is None and not logs:
        return None
    return FileSlice.of_files(*group, base, tuple(logs))


def file_versions(
    files: Iterable[DataFile], timeline: Timeline, completed: LogCompletions
) -> dict[tuple[str, FileId], list[FileVersion]]:
    """Return all versions of each file group, newest first, by partition path and file id.

    The parameters are those of :func:`latest_slices`; replaced groups are included.
    """
    groups = sorted(group_files(files, timeline).items())
    return {group: _versions(held, completed) for group, held in groups}


def _versions(files: list[DataFile], completed: LogCompletions) -> list[FileVersion]:
    """Group files by their base file; log files without a base file are the oldest version."""
    bases = sorted({f.name.instant for f in files if isinstance(f.name, BaseFileName)})[::-1]
    held: dict[InstantTime, list[DataFile]] = {instant: [] for instant in bases}
    for file in files:
        instant = file.name.instant
        if isinstance(file.name, LogFileName):
            instant = next((b for b in bases if completed.is_after(instant, b)), _BEFORE_BASES)
        held.setdefault(instant, []).append(file)
    return [
        FileVersion(instant or min(f.name.instant for f in version), tuple(version))
        for instant, version in held.items()
    ]


def _counts(file: DataFile, timeline: Timeline) -> bool:
    """Return whether readers see a file: its instant is completed, and its writer's."""
    if isinstance(file.name, LogFileName):
        if timeline.layout.logs_name_slices:  # Readers check each log block.
            return timeline.has_slice(file.name.instant)
        # The undo of a write deletes its copies one by one, some of them for a completed resize.
        writer = file.name.writer
        if writer is not None and not timeline.is_completed(writer):
            return False
    return timeline.is_completed(file.name.instant)


def _data_files(objects: Iterable[StoredObject], partition_path: str) -> Iterator[DataFile]:
    files = (data_file(stored) for stored in objects)
    return (file for file in files if file is not None and file.partition_path == partition_path)
