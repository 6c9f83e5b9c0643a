"""The file-system view: which file slice of each file group is live as of an instant.

Listings of partition folders meet the timeline here. Files of instants that are not completed are
dropped first, so that a stray file of a failed write cannot capture anything; then files are
grouped, replaced groups leave, and the newest slice of each group remains (Hudi's table format,
"file slices"). What a slice holds is the business of its readers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from bucketlake.config.layout import HOODIE_FOLDER
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.format.partition_metadata import PARTITION_METADATA_PREFIX
from bucketlake.model.file_name import BASE_FILE_EXTENSION, BaseFileName, FileId, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.storage.base import Storage, StoredObject
from bucketlake.timeline.active import Timeline


def list_partitions(storage: Storage) -> dict[str, list[DataFile]]:
    """List the whole table: the data files of each partition, by partition path.

    A folder is a partition where it holds a partition marker. The cost follows the table; a write
    lists only the partitions it touches, with :func:`list_partition`.
    """
    objects = [o for o in storage.list("", recursive=False) if "/" not in o.path]
    for folder in storage.list_folders(""):
        if folder != HOODIE_FOLDER:
            objects.extend(storage.list(folder))
    files: dict[str, list[DataFile]] = defaultdict(list)
    marked: set[str] = set()
    for stored in objects:
        folder, _, file_name = stored.path.rpartition("/")
        if file_name.startswith(PARTITION_METADATA_PREFIX):
            marked.add(folder)
        elif (data_file := _data_file(folder, file_name, stored)) is not None:
            files[folder].append(data_file)
    return {partition: files[partition] for partition in sorted(marked)}


def list_partition(storage: Storage, partition_path: str) -> list[DataFile]:
    """List the data files of one partition; empty where the partition does not exist."""
    return list(_data_files(storage.list(partition_path, recursive=False), partition_path))


def latest_slices(
    files: Iterable[DataFile], timeline: Timeline, replaced: Iterable[tuple[str, FileId]] = ()
) -> list[FileSlice]:
    """Return the live slice of each file group among ``files``, in order of file id.

    Parameters
    ----------
    files : iterable of DataFile
        Files of one or several partitions, as listed.
    timeline : Timeline
        What is completed; restrict it with ``Timeline.as_of`` for time travel.
    replaced : iterable of (partition path, file id)
        File groups that completed replace commits took out.
    """
    gone = set(replaced)
    groups: dict[tuple[str, FileId], list[DataFile]] = defaultdict(list)
    for file in files:
        key = (file.partition_path, file.name.file_id)
        if key not in gone and timeline.is_completed(file.name.instant):
            groups[key].append(file)
    slices = [
        _latest_slice(partition, file_id, group)
        for (partition, file_id), group in sorted(groups.items())
    ]
    return [s for s in slices if s is not None]


def require_base_files_only(slices: Iterable[FileSlice], table: str) -> None:
    """Refuse slices with log files, which need a merge while reading."""
    for file_slice in slices:
        if file_slice.log_files:
            raise UnsupportedFeatureError(
                f"reading log files ({file_slice.log_files[0].path})",
                table,
                "compact the table with Hudi first, or read it with Hudi",
            )


def _latest_slice(partition_path: str, file_id: FileId, files: list[DataFile]) -> FileSlice | None:
    bases = [f for f in files if isinstance(f.name, BaseFileName)]
    logs = [f for f in files if isinstance(f.name, LogFileName) and not f.name.suffix]
    base = max(bases, key=lambda f: f.name.instant, default=None)
    if base is not None:
        logs = [f for f in logs if f.name.instant >= base.name.instant]
    if base is None and not logs:
        return None
    instant = base.name.instant if base is not None else min(f.name.instant for f in logs)
    return FileSlice(partition_path, file_id, instant, base, tuple(logs))


def _data_files(objects: Iterable[StoredObject], partition_path: str) -> Iterator[DataFile]:
    for stored in objects:
        folder, _, file_name = stored.path.rpartition("/")
        if folder == partition_path:
            data_file = _data_file(partition_path, file_name, stored)
            if data_file is not None:
                yield data_file


def _data_file(folder: str, file_name: str, stored: StoredObject) -> DataFile | None:
    name = LogFileName.from_file_name(file_name) or BaseFileName.from_file_name(file_name)
    if name is None or (isinstance(name, BaseFileName) and name.extension != BASE_FILE_EXTENSION):
        return None
    return DataFile(folder, name, stored.size_bytes)
