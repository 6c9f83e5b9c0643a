"""The kinds of findings about a table: their severity, and what a repair does.

:data:`_FACTS` has one row per kind. ``services/check/doctor.py`` finds them,
``services/check/repair.py`` repairs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape

from bucketlake.model.shown import Shown, ShownList

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
    LOG_OF_OTHER_COMMIT = "log_of_other_commit"
    BUCKET_TWICE = "bucket_twice"
    BUCKET_UNKNOWN = "bucket_unknown"
    KEYS_IN_WRONG_BUCKET = "keys_in_wrong_bucket"
    KEYS_TWICE = "keys_twice"
    KEYS_AMBIGUOUS = "keys_ambiguous"
    KEYS_UNLIKE_COLUMNS = "keys_unlike_columns"
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
    FindingKind.PENDING_OF_HUDI: (
        Severity.ERROR,
        Remedy.NOTHING,
        "let the job of Hudi that planned it finish, or end it with CALL rollback_to_instant in "
        "Hudi's SQL",
    ),
    FindingKind.PLAN_BROKEN: (
        Severity.ERROR,
        Remedy.NOTHING,
        "restore the files, or roll the plan back: a resize by table.rollback(instant) (bucketlake "
        "rollback PATH INSTANT --run), a compaction with Hudi",
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
    FindingKind.KEYS_UNLIKE_COLUMNS: (
        Severity.ERROR,
        Remedy.NOTHING,
        "upsert these records again from their source: the columns that are missing are in no file",
    ),
    FindingKind.LOG_OF_OTHER_COMMIT: (
        Severity.ERROR,
        Remedy.NOTHING,
        "compact the table, and then run the statement of that commit again",
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


ALWAYS_CHECKED = (
    "properties",
    "timeline",
    "list of files",
    "metadata table",
    "buckets",
    "leftovers",
)
"""What a doctor always checks."""

ON_REQUEST = {"keys": "check_keys=True (--check-keys)", "files": "check_files=True (--check-files)"}
"""What a doctor checks only on request, because it costs a scan; and the argument for it."""


class Findings(ShownList["Finding"]):
    """The findings of a doctor, the worst first; and what it checked.

    Attributes
    ----------
    checked : tuple of str
        What was checked.
    not_checked : tuple of str
        What was not checked, and how to check it.
    """

    def __init__(
        self, found: Iterable[Finding], checked: Sequence[str], not_checked: Sequence[str]
    ) -> None:
        super().__init__(found)
        self.checked, self.not_checked = tuple(checked), tuple(not_checked)

    @property
    def summary(self) -> str:
        """How many findings there are, in words."""
        if not self:
            return "no findings"
        counts = {kind: sum(one.severity is kind for one in self) for kind in Severity}
        return ", ".join(
            f"{count} {kind.value}{'s' if count > 1 else ''}"
            for kind, count in counts.items()
            if count
        )

    def __str__(self) -> str:
        """Return the findings as a table, and what was checked."""
        return "\n".join([super().__str__() if self else self.summary, *self._scope()])

    def _repr_html_(self) -> str:
        table = super()._repr_html_() if self else f"<p>{self.summary}</p>"
        return table + "".join(f"<p>{escape(line)}</p>" for line in self._scope())

    def _scope(self) -> list[str]:
        lines = [f"checked: {', '.join(self.checked)}"]
        if self.not_checked:
            lines.append(f"not checked: {', '.join(self.not_checked)}")
        return lines


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
