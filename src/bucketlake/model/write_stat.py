"""The content of commit metadata: what a write did, per file and as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bucketlake.model.file_name import FileId, Group, InstantTime, log_instant
from bucketlake.model.grouping import grouped

NO_PREVIOUS_COMMIT = "null"  # Hudi writes this word instead of an absent value.


@dataclass(frozen=True, slots=True)
class LogCopy:
    """Where the records of a log file are repeated while their file group is resized (RFC-42).

    Attributes
    ----------
    file_id : FileId
        The file group that takes the records over.
    resize : InstantTime
        Instant of the resize.
    number : int
        Position of the file group among those that the resize takes the records from.
    """

    file_id: FileId
    resize: InstantTime
    number: int


@dataclass(frozen=True, slots=True)
class WriteStat:
    """One file that a commit wrote."""

    file_id: FileId
    path: str  # Relative to the table.
    partition_path: str
    previous_commit: str = NO_PREVIOUS_COMMIT
    previous_base_file: str | None = None
    record_count: int = 0
    insert_count: int = 0
    update_count: int = 0
    delete_count: int = 0
    file_size_bytes: int = 0
    opens_group: bool = False  # Whether the file group did not exist before this commit.
    # Path and size of the files that hold the changes of this file, for change data capture.
    change_files: tuple[tuple[str, int], ...] = ()
    # Names of the files of the slice to which the commit adds this log file, the base file first.
    # Only written, and only for change data capture: Hudi reads the rows before a change there.
    slice_files: tuple[str, ...] = ()
    log_copy: LogCopy | None = None  # Until the commit, which makes the copy.
    # Statistics of the file's columns, cut (``metadata/statistics/of_file.py``). Until the
    # commit, which writes them to the metadata table; None if it has none.
    statistics: Any = None

    @property
    def group(self) -> Group:
        """The file group: partition path and file id."""
        return self.partition_path, self.file_id

    @property
    def file_sizes(self) -> dict[str, int]:
        """The sizes of all written files, by path; none if nothing was written."""
        return {self.path: self.file_size_bytes, **dict(self.change_files)} if self.path else {}

    @property
    def is_log(self) -> bool:
        """Whether the file is a log file."""
        return log_instant(self.path) is not None


@dataclass(frozen=True, slots=True, order=True)
class TombstoneFile:
    """A file of remembered deletes (``write/tombstones.py``), as a commit names it.

    Attributes
    ----------
    name : str
        Name in the folder of such files.
    rows : int
        Number of deletes.
    newest_ms : int
        Time of the newest one, in ms since 1970 UTC.
    """

    name: str
    rows: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Content of a completed commit, delta commit or replace commit."""

    operation: str  # Hudi's spelling; a table may hold operations that bucketlake never writes.
    write_stats: Mapping[str, tuple[WriteStat, ...]]  # By partition path.
    extra: Mapping[str, str] = field(default_factory=dict)
    replaced_file_ids: Mapping[str, tuple[FileId, ...]] = field(default_factory=dict)
    compacted: bool = False

    @property
    def schema_json(self) -> str | None:
        """Avro schema of the data, without meta fields; None if the commit has none."""
        return self.extra.get("schema") or None

    @property
    def evolves_on_read(self) -> bool:
        """Whether columns are found by ids of a schema history, not by their names in files."""
        return bool(self.extra.get("latest_schema"))

    @property
    def stats(self) -> list[WriteStat]:
        """Statistics of all files that it wrote."""
        return [stat for held in self.write_stats.values() for stat in held]

    @property
    def file_groups(self) -> set[Group]:
        """Partition path and file id of the file groups that the commit wrote or removed."""
        return {stat.group for stat in self.stats} | self.replaced_groups

    @property
    def replaced_groups(self) -> set[Group]:
        """The file groups that the commit removed."""
        replaced = self.replaced_file_ids.items()
        return {(path, file_id) for path, ids in replaced for file_id in ids}

    @property
    def resizes(self) -> bool:
        """Whether the commit is a clustering: it moved rows to other file groups."""
        return self.operation == "CLUSTER"

    @property
    def partitions(self) -> set[str]:
        """Partitions that the commit changed."""
        return {*self.write_stats, *self.replaced_file_ids}


def by_partition(stats: Iterable[WriteStat]) -> dict[str, tuple[WriteStat, ...]]:
    """Return the files of a commit by partition path, sorted by path."""
    ordered = sorted(stats, key=lambda s: s.path)
    found = grouped((stat.partition_path, stat) for stat in ordered)
    return {partition: tuple(held) for partition, held in found.items()}
