"""What a table is at a glance, without a look into a data file: for a REPL and notebooks.

The names of files come from the metadata table where there is one, and the numbers of rows from the
commits that wrote the files. So the cost is that of opening the table and listing it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from bucketlake.index.setting import TableIndex, without_state
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.result import NONE_TEXT, Shown
from bucketlake.model.text_table import cell_text
from bucketlake.read.handle import Handle
from bucketlake.read.snapshot import Snapshot

OVERVIEW_SECONDS_MAX = 2.0
"""How long a person waits; a store that does not answer must not block a prompt."""


@dataclass(frozen=True, slots=True)
class TableOverview(Shown):
    """Facts of a table.

    Attributes
    ----------
    path : str
        Address of the table.
    table_type : str
        ``copy_on_write`` or ``merge_on_read``.
    index : str or None
        How keys find their bucket.
    record_key, partition_by, ordering : tuple of str
        Columns of these roles.
    ordering_groups : str or None
        The orderings of columns that have one of their own.
    delete_marker : str or None
        The column and the text in it that make a row a delete.
    columns : int or None
        Number of columns.
    rows : int or None
        Rows of the base files; None if a commit that says it is archived.
    rows_exact : bool
        Whether no log file may add rows or delete some.
    size_bytes, file_groups, partitions : int
        What the newest state of the table consists of.
    commits : int
        Commits of the active timeline.
    last_commit : InstantTime or None
        Requested time of the last one.
    last_operation : str or None
        What it did.
    """

    path: str
    table_type: str
    index: str | None
    record_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    ordering: tuple[str, ...]
    ordering_groups: str | None
    delete_marker: str | None
    columns: int | None
    rows: int | None = field(metadata={NONE_TEXT: "unknown: table.count() counts them"})
    rows_exact: bool
    size_bytes: int
    file_groups: int
    partitions: int
    commits: int
    last_commit: InstantTime | None
    last_operation: str | None

    @property
    def line(self) -> str:
        """The most important facts on one line."""
        parts = [self.table_type.replace("_", "-")]
        if self.index is not None:
            parts.append(self.index)
        if self.delete_marker is not None:
            parts.append(f"{self.delete_marker} deletes")
        if self.rows is not None:
            parts.append(f"{'' if self.rows_exact else 'about '}{self.rows:,} rows")
        size = cell_text("size_bytes", self.size_bytes)
        parts.append(f"{size} in {self.file_groups:,} file groups")
        if self.last_commit is None:
            parts.append("no commit")
        else:
            parts.append(f"last commit {self.last_commit} ({self.last_operation})")
        return ", ".join(parts)


def table_overview(path: str, snapshot: Snapshot, index: TableIndex | None) -> TableOverview:
    """Return the facts of a pinned table."""
    config, timeline = snapshot.config, snapshot.timeline
    commits = timeline.completed_commits()
    slices = snapshot.listed(None).slices
    schema = snapshot.understood_schema
    last = None if not commits else timeline.read_commit(snapshot.storage, commits[-1])
    return TableOverview(
        path=path,
        table_type=config.table_type.value.lower(),
        index=None if index is None else repr(without_state(index)),
        record_key=config.key_spec.record_key_fields,
        partition_by=config.key_spec.partition_fields,
        ordering=config.ordering_fields,
        ordering_groups=config.groups_text,
        delete_marker=config.marker_text,
        columns=None if schema is None else len(schema) + len(snapshot.refused_columns),
        rows=_rows(snapshot, slices),
        rows_exact=not any(held.log_files for held in slices),
        size_bytes=sum(held.size_bytes for held in slices),
        file_groups=len(slices),
        partitions=len({held.partition_path for held in slices}),
        commits=len(commits),
        last_commit=commits[-1].requested_at if commits else None,
        last_operation=None if last is None else last.operation,
    )


def _rows(snapshot: Snapshot, slices: tuple[FileSlice, ...]) -> int | None:
    """Return the rows of the base files, as their commits count them; None if one is unknown."""
    bases = {held.base_file.path: held.base_file for held in slices if held.base_file is not None}
    writers = {base.name.instant for base in bases.values()}
    timeline = snapshot.timeline
    commits = [c for c in timeline.completed_commits() if c.requested_at in writers]
    if len(commits) < len(writers):
        return None  # One is archived.
    read = timeline.read_commits(snapshot.storage, commits)
    counts = {stat.path: stat.record_count for _, commit in read for stat in commit.stats}
    return sum(counts[path] for path in bases) if bases.keys() <= counts.keys() else None


def quick_overview(handle: Handle) -> TableOverview | None:
    """Return the facts of a table; None if it is not read within :data:`OVERVIEW_SECONDS_MAX`."""

    def look() -> TableOverview:
        snapshot = handle.snapshot()
        return table_overview(handle.address, snapshot, handle.index_of(snapshot))

    return within_seconds(look)


def within_seconds(
    look: Callable[[], TableOverview], seconds_max: float = OVERVIEW_SECONDS_MAX
) -> TableOverview | None:
    """Return what a look at a table finds; None if it fails, or takes longer.

    The caller is a prompt, a log or a debugger, which an error would confuse.
    """
    found: list[TableOverview] = []

    def run() -> None:
        try:
            found.append(look())
        except Exception:  # Also errors of a store's client.
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds_max)
    return found[0] if found else None
