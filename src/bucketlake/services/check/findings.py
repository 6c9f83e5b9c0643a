"""The kinds of findings about a table: their severity, and what a repair does.

``services/check/doctor.py`` finds them, ``services/check/repair.py`` repairs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape

from bucketlake.model.result import Shown, ShownList

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
    SYNC = "sync the table with the catalog"
    STORE_RING = "store the ring that the partition begins with"
    FORGET = "put an empty file in its place, so that late rows of these keys can come back"
    QUARANTINE = "move the files to quarantine"
    DELETE = "delete the files"
    REWRITE = "rewrite the partition, one row per key"


BY_HAND = {
    "unreadable": "restore the file",
    "properties_broken": "from the newest commit; if none records them, restore the file",
    "clock_ahead": "set the clock of the host that wrote them; until the clock has passed the last "
    "of them, read by entries of table.timeline() (bucketlake timeline) in place of times, or "
    "roll the instants back and write again",
    "pending_of_hudi": "let the job of Hudi that planned it finish, or end it with CALL "
    "rollback_to_instant in Hudi's SQL",
    "plan_broken": "restore the files, or roll the plan back: a resize by table.rollback(instant) "
    "(bucketlake rollback PATH INSTANT --run), a compaction with Hudi",
    "file_missing": "restore the file, or roll back the commit and later commits that build on it",
    "file_size_differs": "restore the file",
    "file_corrupt": "restore the file",
    "schema_unfit": "roll back the commit that changed the schema",
    "log_of_other_commit": "compact the table, and then run the statement of that commit again",
    "keys_ambiguous": "compare these records with their source, and see docs/how-to/choose-keys.md",
    "keys_unlike_columns": "upsert these records again from their source: the columns that are "
    "missing are in no file",
    "count_out_of_step": "rescale the table: to rules with the partition's count, or again to its "
    "rules",
    "rules_out_of_step": "set the right rules with a rescale",
    "catalog_not_compared": "do what the message names",
    "deletes_lost": "to keep them out, restore the file",
}
"""What remains to be done by hand, by the word of a kind."""


class FindingKind(Enum):
    """The kind of a finding: its word, its severity, and what a repair does."""

    def __new__(cls, word: str, severity: Severity, remedy: Remedy) -> FindingKind:
        """Make a kind whose value is its word."""
        kind = object.__new__(cls)
        kind._value_ = word
        kind.severity, kind.remedy = severity, remedy
        return kind

    severity: Severity
    remedy: Remedy

    UNREADABLE = ("unreadable", Severity.ERROR, Remedy.NOTHING)
    PROPERTIES_BACKUP = ("properties_backup", Severity.WARNING, Remedy.RECOVER)
    PROPERTIES_BROKEN = ("properties_broken", Severity.ERROR, Remedy.RECOVER)
    METADATA_TABLE_SKIPPED = ("metadata_table_skipped", Severity.ERROR, Remedy.DROP_METADATA)
    METADATA_TABLE_BROKEN = ("metadata_table_broken", Severity.ERROR, Remedy.DROP_METADATA)
    METADATA_INDEX_BROKEN = ("metadata_index_broken", Severity.ERROR, Remedy.REBUILD_METADATA)
    METADATA_LISTS_DELETED = ("metadata_lists_deleted", Severity.WARNING, Remedy.REBUILD_METADATA)
    METADATA_BUILD_DEAD = ("metadata_build_dead", Severity.WARNING, Remedy.REBUILD_METADATA)
    INDEX_MISSING = ("index_missing", Severity.ERROR, Remedy.REBUILD_METADATA)
    INDEX_ENTRIES_WRONG = ("index_entries_wrong", Severity.ERROR, Remedy.REBUILD_METADATA)
    INDEX_ENTRIES_DEAD = ("index_entries_dead", Severity.WARNING, Remedy.REBUILD_METADATA)
    CLOCK_AHEAD = ("clock_ahead", Severity.WARNING, Remedy.NOTHING)
    PENDING_DEAD = ("pending_dead", Severity.WARNING, Remedy.SETTLE)
    PENDING_OF_HUDI = ("pending_of_hudi", Severity.ERROR, Remedy.NOTHING)
    PLAN_BROKEN = ("plan_broken", Severity.ERROR, Remedy.NOTHING)
    PARTITION_NOT_MARKED = ("partition_not_marked", Severity.ERROR, Remedy.MARK)
    FILE_MISSING = ("file_missing", Severity.ERROR, Remedy.NOTHING)
    FILE_SIZE_DIFFERS = ("file_size_differs", Severity.ERROR, Remedy.NOTHING)
    FILE_CORRUPT = ("file_corrupt", Severity.ERROR, Remedy.NOTHING)
    SCHEMA_UNFIT = ("schema_unfit", Severity.ERROR, Remedy.NOTHING)
    ORPHAN_FILE = ("orphan_file", Severity.WARNING, Remedy.QUARANTINE)
    ORPHAN_SHOWN = ("orphan_shown", Severity.ERROR, Remedy.QUARANTINE)
    FILE_NOT_COMMITTED = ("file_not_committed", Severity.ERROR, Remedy.QUARANTINE)
    LOG_OF_OTHER_COMMIT = ("log_of_other_commit", Severity.ERROR, Remedy.NOTHING)
    BUCKET_TWICE = ("bucket_twice", Severity.ERROR, Remedy.REWRITE)
    BUCKET_UNKNOWN = ("bucket_unknown", Severity.ERROR, Remedy.REWRITE)
    KEYS_IN_WRONG_BUCKET = ("keys_in_wrong_bucket", Severity.ERROR, Remedy.REWRITE)
    KEYS_TWICE = ("keys_twice", Severity.ERROR, Remedy.REWRITE)
    KEYS_AMBIGUOUS = ("keys_ambiguous", Severity.WARNING, Remedy.NOTHING)
    KEYS_UNLIKE_COLUMNS = ("keys_unlike_columns", Severity.ERROR, Remedy.NOTHING)
    COUNT_OUT_OF_STEP = ("count_out_of_step", Severity.WARNING, Remedy.NOTHING)
    RULES_OUT_OF_STEP = ("rules_out_of_step", Severity.ERROR, Remedy.NOTHING)
    DELETES_LOST = ("deletes_lost", Severity.ERROR, Remedy.FORGET)
    RING_OF_NO_COMMIT = ("ring_of_no_commit", Severity.WARNING, Remedy.QUARANTINE)
    RING_MISSING = ("ring_missing", Severity.WARNING, Remedy.STORE_RING)
    CATALOG_BEHIND = ("catalog_behind", Severity.WARNING, Remedy.SYNC)
    CATALOG_NOT_COMPARED = ("catalog_not_compared", Severity.WARNING, Remedy.NOTHING)
    LEFTOVER_MARKERS = ("leftover_markers", Severity.NOTE, Remedy.DELETE)
    LEFTOVER_HEARTBEAT = ("leftover_heartbeat", Severity.NOTE, Remedy.DELETE)
    LEFTOVER_LOCK = ("leftover_lock", Severity.WARNING, Remedy.DELETE)
    LEFTOVER_OUTCOME = ("leftover_outcome", Severity.NOTE, Remedy.DELETE)
    LEFTOVER_TURN = ("leftover_turn", Severity.NOTE, Remedy.DELETE)


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
        return self.kind.severity

    @property
    def remedy(self) -> Remedy:
        """What a repair does."""
        return self.kind.remedy

    @property
    def repair(self) -> str:
        """What a repair does, in words, or what remains to be done by hand."""
        by_hand = BY_HAND.get(self.kind.value)
        return f"{self.remedy.value}: {by_hand}" if by_hand else self.remedy.value
