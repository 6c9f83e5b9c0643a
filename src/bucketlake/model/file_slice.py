"""File slices: the files of a file group at one instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from bucketlake.model.file_name import (
    BASE_FILE_EXTENSION,
    BaseFileName,
    FileId,
    Group,
    InstantTime,
    LogFileName,
    file_path,
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A base or log file of a partition, from a listing."""

    partition_path: str
    name: BaseFileName | LogFileName
    size_bytes: int

    @classmethod
    def of_name(cls, partition_path: str, file_name: str, size_bytes: int) -> Self | None:
        """Return a file with a name; None if it is no base file or log file of a data table."""
        if file_name.startswith("."):  # There may be a million names.
            log = LogFileName.from_file_name(file_name)
            return None if log is None else cls(partition_path, log, size_bytes)
        base = BaseFileName.from_file_name(file_name)
        if base is None or base.extension != BASE_FILE_EXTENSION:
            return None
        return cls(partition_path, base, size_bytes)

    @property
    def path(self) -> str:
        """Path relative to the table."""
        return file_path(self.partition_path, self.name.to_file_name())

    @property
    def order(self) -> tuple[str, int, str]:
        """Sort key of log files: instant, version, write token."""
        version = self.name.version if isinstance(self.name, LogFileName) else 0
        return self.name.instant, version, self.name.write_token or ""


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: a base file, log files, or both.

    Attributes
    ----------
    partition_path, file_id
        The file group.
    instant : InstantTime
        Instant of the base file, or of the first log file if there is no base file.
    base_file : DataFile or None
        The base file.
    log_files : tuple of DataFile
        Log files, in the order in which they are merged.
    compaction : InstantTime or None
        A pending compaction of the slice. In timeline layout 1, new log files belong to the slice
        that it will make. Only set where a write needs it.
    """

    partition_path: str
    file_id: FileId
    instant: InstantTime
    base_file: DataFile | None
    log_files: tuple[DataFile, ...] = ()
    compaction: InstantTime | None = None

    @classmethod
    def of_files(
        cls,
        partition_path: str,
        file_id: FileId,
        base_file: DataFile | None,
        log_files: tuple[DataFile, ...],
    ) -> Self:
        """Return the slice of a base file or log files, of which there are some."""
        first = base_file or min(log_files, key=lambda file: file.name.instant)
        return cls(partition_path, file_id, first.name.instant, base_file, log_files)

    @property
    def group(self) -> Group:
        """The file group."""
        return self.partition_path, self.file_id

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The base file and the log files."""
        return self.log_files if self.base_file is None else (self.base_file, *self.log_files)

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the base file and the log files, relative to the table."""
        return tuple(file.path for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Size of the base file and the log files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def log_bytes(self) -> int:
        """Size of the log files."""
        return sum(file.size_bytes for file in self.log_files)

    def next_log_file(self, writer: InstantTime, number: int = 1) -> LogFileName:
        """Return the name of the next log file of the slice in timeline layout 1.

        ``number`` counts the log files of a writer in a slice; in the metadata table it has one.
        """
        instant = self.compaction or self.instant
        names = (file.name for file in self.log_files if file.name.instant == instant)
        versions = (name.version for name in names if isinstance(name, LogFileName))
        version = max(versions, default=0) + 1
        return LogFileName.in_slice(self.file_id, instant, version, writer, number)
