"""What a cached shard covers, and which log files it lacks of a pinned slice.

A cached shard has the entries of a base file and of log files, all of committed instants. It can be
brought to a pinned slice if it covers the first files of everything that leads to the slice: the
base file, then the log files in the order in which they completed. Compactions between are no
obstacle. The plan of a compaction names the log files that went into its base file, so the cache
reads only those that it lacks. A log file that vanished, by a rollback or a restore, makes the
cached shard useless.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any, Self

from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.timeline.instant import Action, is_initial

_COMPACTIONS_MAX = 8  # After more of them, reading the base file is not much slower.


@dataclass(frozen=True, slots=True)
class CoveredFile:
    """A file whose entries are in the cache.

    Attributes
    ----------
    name : str
        Name of the file.
    size_bytes : int
        Its size.
    completed_at : str or None
        When its instant completed, for initial instants. They are counters, which a new metadata
        table uses again.
    """

    name: str
    size_bytes: int
    completed_at: str | None = None

    @classmethod
    def of(cls, table: MetadataTable, file: DataFile) -> Self:
        """Return a file of a pinned table."""
        instant = file.name.instant
        completed_at = table.timeline.completion_time(instant) if is_initial(instant) else None
        return cls(file.name.to_file_name(), file.size_bytes, completed_at)

    def is_file(self, table: MetadataTable, file: DataFile) -> bool:
        """Return whether this is a file of a pinned table, or of a plan, which has no sizes."""
        found = CoveredFile.of(table, file)
        return replace(found, size_bytes=found.size_bytes or self.size_bytes) == self


@dataclass(frozen=True, slots=True)
class Coverage:
    """The files whose entries a cached shard has.

    Attributes
    ----------
    base : CoveredFile or None
        The base file; None if the shard has none.
    logs : tuple of CoveredFile
        The log files.
    newest_time : str
        The newest time on the timelines that the slice was pinned at. An earlier pinned table may
        lack log files only because it is older.
    """

    base: CoveredFile | None
    logs: tuple[CoveredFile, ...]
    newest_time: str

    @classmethod
    def of(cls, table: MetadataTable, held: FileSlice) -> Self:
        """Return what the entries of a pinned slice cover."""
        base = None if held.base_file is None else CoveredFile.of(table, held.base_file)
        logs = tuple(CoveredFile.of(table, log) for log in held.log_files)
        return cls(base, logs, newest_time(table))

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """Undo :meth:`to_value`; a malformed value raises TypeError, ValueError or KeyError."""
        base = None if value["base"] is None else CoveredFile(*value["base"])
        logs = tuple(CoveredFile(*log) for log in value["logs"])
        return cls(base, logs, str(value["newest_time"]))

    def to_value(self) -> dict[str, Any]:
        """Return the coverage as JSON values."""
        return {
            "base": None if self.base is None else astuple(self.base),
            "logs": [astuple(log) for log in self.logs],
            "newest_time": self.newest_time,
        }

    def is_newer_than(self, table: MetadataTable) -> bool:
        """Return whether the cached shard was pinned later than a table."""
        return self.newest_time > newest_time(table)

    def lacks(self, table: MetadataTable, held: FileSlice) -> tuple[DataFile, ...] | None:
        """Return the log files to read, in their order, to bring the entries to a pinned slice.

        Returns
        -------
        tuple of DataFile, or None
            Empty if the entries are those of the slice. None if they cannot be brought to it.

        Raises
        ------
        ObjectNotFoundError, FormatError
            If the plan of a compaction cannot be read.
        """
        logs = self._logs_since_base(table, held)
        if logs is None or len(logs) < len(self.logs):
            return None
        pairs = zip(self.logs, logs, strict=False)
        if not all(covered.is_file(table, log) for covered, log in pairs):
            return None
        lacking = logs[len(self.logs) :]
        return lacking if all(table.counts(log.name.instant) for log in lacking) else None

    def _logs_since_base(
        self, table: MetadataTable, held: FileSlice
    ) -> tuple[DataFile, ...] | None:
        """Return all log files after the covered base file, in order; None if they are unknown."""
        base, logs = held.base_file, held.log_files
        for _ in range(_COMPACTIONS_MAX):
            if self._has_base(table, base):
                return logs
            compaction = None if base is None else table.timeline.find_completed(base.name.instant)
            if compaction is None or compaction.action is not Action.COMMIT:
                return None  # No compaction made the base file.
            found = table.compacted_slices(compaction).get(held.file_id)
            if found is None:
                return None
            base = found.base_file
            logs = (*table.in_order(found.log_files), *logs)
        return None

    def _has_base(self, table: MetadataTable, base: DataFile | None) -> bool:
        if self.base is None or base is None:
            return self.base is None and base is None
        return self.base.is_file(table, base)


def newest_time(table: MetadataTable) -> str:
    """Return the newest time on the timelines of a pinned table."""
    return max(table.timeline.newest_time() or "", table.data_timeline.newest_time() or "")
