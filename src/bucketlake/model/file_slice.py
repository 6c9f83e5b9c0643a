"""File slices: what a file group holds as of one instant."""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName


@dataclass(frozen=True, slots=True)
class DataFile:
    """A base or log file of a partition, as a listing shows it."""

    partition_path: str
    name: BaseFileName | LogFileName
    size_bytes: int

    @property
    def path(self) -> str:
        """Path relative to the table."""
        file_name = self.name.to_file_name()
        return f"{self.partition_path}/{file_name}" if self.partition_path else file_name


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: a base file, log files, or both."""

    partition_path: str
    file_id: FileId
    instant: InstantTime
    base_file: DataFile | None
    log_files: tuple[DataFile, ...] = ()
