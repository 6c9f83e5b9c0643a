"""The kinds of findings about a table: their severity, and what a repair does.

:data:`_FACTS` has one row per kind. ``services/doctor.py`` finds them, ``services/repair.py``
repairs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bucketlake.model.shown import Shown

MIN_AGE_SECONDS = 3600
"""Younger leftovers may belong to a running writer, and are left alone."""


class Severity(Enum):
    """The severity of a finding."""

    ERROR = "error"  # Rows are missing, doubled or cannot be found, or writes are rejected.
    WARNING = "warning"  # A later action may make it an error.
    NOTE = "note"  # It does no harm.


class Remedy(Enum):
    """What a repair does; the value is shown to users."""

    NOTHING = "nothing"
    RECOVER = "recover the properties"
    DROP_METADATA = "remove the metadata table"
    REBUILD_METADATA = "build the partition of the metadata table again"
    SETTLE = "finish or roll back what is pending"
    MARK = "mark the folder as a partition"
    STORE_RING = "store the ring that the partition begins with"
    QUARANTINE = "move the files to quarantine"
    DELETE = "delete the files"
    REWRITE = "rewrite the partition, one row per key"


class FindingKind(Enum):
    """The kind of a finding."""

    UNREADABLE = "unreadable"
    PROPERTIES_BACKUP = "properties_backup"
    PROPERTIES_BROKEN = "properties_broken"
    METADATA_TABLE_SKIPPED = "metadata_table_skipped"
    METADATA_TABLE_BROKEN = "metadata_table_broken"
    METADATA_INDEX_BROKEN = "metadata_index_broken"
    METADATA_LISTS_DELETED = "metadata_lists_deleted"
    METADATA_BUILD_DEAD = "metadata_build_dead"
    INDEX_MISSING = "index_missing"
    INDEX_ENTRIES_WRONG = "index_entries_wrong"
    INDEX_ENTRIES_DEAD = "index_entries_dead"
    PENDING_DEAD = "pending_dead"
    PENDING_OF_HUDI = "pending_of_hudi"
    PLAN_BROKEN = "plan_broken"
    PARTITION_NOT_MARKED = "partition_not_marked"
    FILE_MISSING = "file_missing"
    FILE_SIZE_DIFFERS = "file_size_differs"
    FILE_CORRUPT = "file_corrupt"
    SCHEMA_UNFIT = "schema_unfit"
    ORPHAN_FILE = "orphan_file"
    ORPHAN_SHOWN = "orphan_shown"
    FILE_NOT_COMMITTED = "file_not_committed"
    BUCKET_TWICE = "bucket_twice"
    BUCKET_UNKNOWN = "bucket_unknown"
    KEYS_IN_WRONG_BUCKET = "keys_in_wrong_bucket"
    KEYS_TWICE = "keys_twice"
    KEYS_AMBIGUOUS = "keys_ambiguous"
    COUNT_OUT_OF_STEP = "count_out_of_step"
    RULES_OUT_OF_STEP = "rules_out_of_step"
    RING_OF_NO_COMMIT = "ring_of_no_commit"
    RING_MISSING = "ring_missing"
    LEFTOVER_MARKERS = "leftover_markers"
    LEFTOVER_HEARTBEAT = "leftover_heartbeat"
    LEFTOVER_LOCK = "leftover_lock"
    LEFTOVER_OUTCOME = "leftover_outcome"
    LEFTOVER_TURN = "leftover_turn"


_FACTS: dict[FindingKind, tuple[Severity, Remedy, str]] = {
    FindingKind.UNREADABLE: (Severity.ERROR, Remedy.NOTHING, "restore the file"),
    FindingKind.PROPERTIES_BACKUP: (Severity.WARNING, Remedy.RECOVER, ""),
    FindingKind.PROPERTIES_BROKEN: (
        Severity.ERROR,
        Remedy.RECOVER,
        "from the newest commit; if none records them, restore the file",
    ),
    FindingKind.METADATA_TABLE_SKIPPED: (Severity.ERROR, Remedy.DROP_METADATA, ""),
    FindingKind.METADATA_TABLE_BROKEN: (Severity.ERROR, Remedy.DROP_METADATA, ""),
    FindingKind.METADATA_INDEX_BROKEN: (Severity.ERROR, Remedy.REBUILD_METADATA, ""),
    FindingKind.METADATA_LISTS_DELETED: (Severity.WARNING, Remedy.REBUILD_METADATA, ""),
    FindingKind.METADATA_BUILD_DEAD: (Severity.WARNING, Remedy.REBUILD_METADATA, ""),
    FindingKind.INDEX_MISSING: (Severity.ERROR, Remedy.REBUILD_METADATA, ""),
    FindingKind.INDEX_ENTRIES_WRONG: (Severity.ERROR, Remedy.REBUILD_METADATA, ""),
    FindingKind.INDEX_ENTRIES_DEAD: (Severity.WARNING, Remedy.REBUILD_METADATA, ""),
    FindingKind.PENDING_DEAD: (Severity.WARNING, Remedy.SETTLE, ""),
    FindingKind.PENDING_OF_HUDI: (Severity.ERROR, Remedy.NOTHING, "let Hudi finish it"),
    FindingKind.PLAN_BROKEN: (
        Severity.ERROR,
        Remedy.NOTHING,
        "restore the files, or roll the plan back: a resize by table.rollback() (bucketlake "
        "rollback), a compaction with Hudi",
    ),
    FindingKind.PARTITION_NOT_MARKED: (Severity.ERROR, Remedy.MARK, ""),
    FindingKind.FILE_MISSING: (
        Severity.ERROR,
        Remedy.NOTHING,
        "restore the file, or roll back the commit and later commits that build on it",
    ),
    FindingKind.FILE_SIZE_DIFFERS: (Severity.ERROR, Remedy.NOTHING, "restore the file"),
    FindingKind.FILE_CORRUPT: (Severity.ERROR, Remedy.NOTHING, "restore the file"),
    FindingKind.SCHEMA_UNFIT: (
        Severity.ERROR,
        Remedy.NOTHING,
        "roll back the commit that changed the schema",
    ),
    FindingKind.ORPHAN_FILE: (Severity.WARNING, Remedy.QUARANTINE, ""),
    FindingKind.ORPHAN_SHOWN: (Severity.ERROR, Remedy.QUARANTINE, ""),
    FindingKind.FILE_NOT_COMMITTED: (Severity.ERROR, Remedy.QUARANTINE, ""),
    FindingKind.BUCKET_TWICE: (Severity.ERROR, Remedy.REWRITE, ""),
    FindingKind.BUCKET_UNKNOWN: (Severity.ERROR, Remedy.REWRITE, ""),
    FindingKind.KEYS_IN_WRONG_BUCKET: (Severity.ERROR, Remedy.REWRITE, ""),
    FindingKind.KEYS_TWICE: (Severity.ERROR, Remedy.REWRITE, ""),
    FindingKind.KEYS_AMBIGUOUS: (
        Severity.WARNING,
        Remedy.NOTHING,
        "compare these records with their source, and see docs/how-to/choose-keys.md",
    ),
    FindingKind.COUNT_OUT_OF_STEP: (
        Severity.WARNING,
        Remedy.NOTHING,
        "rescale the table: to rules with the partition's count, or again to its rules",
    ),
    FindingKind.RULES_OUT_OF_STEP: (
        Severity.ERROR,
        Remedy.NOTHING,
        "set the right rules with a rescale",
    ),
    FindingKind.RING_OF_NO_COMMIT: (Severity.WARNING, Remedy.QUARANTINE, ""),
    FindingKind.RING_MISSING: (Severity.WARNING, Remedy.STORE_RING, ""),
    FindingKind.LEFTOVER_MARKERS: (Severity.NOTE, Remedy.DELETE, ""),
    FindingKind.LEFTOVER_HEARTBEAT: (Severity.NOTE, Remedy.DELETE, ""),
    FindingKind.LEFTOVER_LOCK: (Severity.WARNING, Remedy.DELETE, ""),
    FindingKind.LEFTOVER_OUTCOME: (Severity.NOTE, Remedy.DELETE, ""),
    FindingKind.LEFTOVER_TURN: (Severity.NOTE, Remedy.DELETE, ""),
}


@dataclass(frozen=True, slots=True)
class Finding(Shown):
    """A problem of a table, or something left behind in it.

    Attributes
    ----------
    kind : FindingKind
        Kind of the finding.
    meaning : str
        What it means, in a sentence.
    partition : str or None
        Partition path; None if it concerns the whole table.
    files : tuple of str
        Paths of the files, relative to the table; for markers, their folder.
    severity : Severity
        Error, warning or note.
    remedy : Remedy
        What a repair does.
    repair : str
        What a repair does, in words, or what remains to be done by hand.
    """

    kind: FindingKind
    meaning: str
    partition: str | None = None
    files: tuple[str, ...] = ()

    @property
    def severity(self) -> Severity:
        """Error, warning or note."""
        return _FACTS[self.kind][0]

    @property
    def remedy(self) -> Remedy:
        """What a repair does."""
        return _FACTS[self.kind][1]

    @property
    def repair(self) -> str:
        """What a repair does, in words, or what remains to be done by hand."""
        by_hand = _FACTS[self.kind][2]
        return f"{self.remedy.value}: {by_hand}" if by_hand else self.remedy.value
