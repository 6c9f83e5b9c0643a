"""The request of a read, and the table pinned for it."""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_keys import META_COLUMNS_OFF
from bucketlake.errors import ConfigError, UnsupportedFeatureError
from bucketlake.read.changes import Changes, changes_between
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import parse_as_of


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The arguments of a read; each is optional.

    Attributes
    ----------
    where : str or None
        SQL condition.
    columns : tuple of str or None
        Columns to return; None for those of the table.
    as_of : str or None
        Time travel: instants requested later are ignored.
    since, until : str or None
        Incremental read: rows of commits completed after ``since`` and up to ``until``.
    read_optimized : bool
        Whether to ignore log files.
    """

    where: str | None = None
    columns: tuple[str, ...] | None = None
    as_of: str | None = None
    since: str | None = None
    until: str | None = None
    read_optimized: bool = False


@dataclass(frozen=True, slots=True)
class PinnedRead:
    """A table pinned for a read.

    Attributes
    ----------
    snapshot : Snapshot
        The table at the requested time.
    request : ReadRequest
        The request.
    changes : Changes or None
        The commits whose rows are read; None if the read is not incremental.
    """

    snapshot: Snapshot
    request: ReadRequest = ReadRequest()
    changes: Changes | None = None

    @property
    def condition(self) -> str | None:
        """SQL condition of the rows; an incremental read adds a condition on a meta column."""
        if self.changes is None:
            return self.request.where
        return self.changes.condition(self.request.where)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Columns to return; None for all columns of the files."""
        if self.changes is None or self.request.columns is not None:
            return self.request.columns
        return tuple(self.snapshot.schema.names)  # Without the meta columns of the condition.


def pin_read(storage: Storage, config: TableConfig, request: ReadRequest) -> PinnedRead:
    """Pin a table for a read.

    Raises
    ------
    ConfigError
        If a time cannot be parsed, or ``as_of`` is given with ``since`` or ``until``.
    UnsupportedFeatureError
        If the read is incremental, and the table has no meta columns.
    """
    if request.since is None and request.until is None:
        return PinnedRead(load_snapshot(storage, config, as_of=request.as_of), request)
    if request.as_of is not None:
        raise ConfigError("as_of", request.as_of, "give either as_of, or since and until")
    if not config.populate_meta_fields:
        # Hudi refuses this, too: the rows of a base file do not tell which commit wrote them.
        raise UnsupportedFeatureError(
            f"an incremental read of a table without meta columns ({META_COLUMNS_OFF})",
            storage.root,
            "its files do not tell which commit wrote a row; read the table, or read it as_of a "
            "time",
        )
    since, until = (
        None if text is None else parse_as_of(text, argument)
        for argument, text in (("since", request.since), ("until", request.until))
    )
    changes = changes_between(storage, config, load_timeline(storage, config), since, until)
    return PinnedRead(load_snapshot(storage, config, changes.timeline), request, changes)
