"""The request of a read, and the table pinned for it."""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.config.table_config import TimelineTimezone
from bucketlake.config.table_keys import META_COLUMNS_OFF
from bucketlake.errors import ConfigError, UnsupportedFeatureError
from bucketlake.model.file_name import InstantTime
from bucketlake.read.incremental import Changes, changes_between
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.clock import system_now_ms
from bucketlake.timeline.instant import instant_from_ms
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.read_time import ReadTime, read_time


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The arguments of a read; each is optional.

    Attributes
    ----------
    where : str or None
        SQL condition.
    columns : tuple of str or None
        Columns to return; None for those of the table.
    as_of : str, datetime, date, WriteResult or None
        Time travel: instants requested later are ignored.
    since, until : str, datetime, date, WriteResult or None
        Incremental read: rows of commits completed after ``since`` and up to ``until``.
    read_optimized : bool
        Whether to ignore log files.
    """

    where: str | None = None
    columns: tuple[str, ...] | None = None
    as_of: ReadTime | None = None
    since: ReadTime | None = None
    until: ReadTime | None = None
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


def pin_read(table: OpenTable, request: ReadRequest) -> PinnedRead:
    """Pin a table for a read.

    Raises
    ------
    ConfigError
        If a time cannot be parsed, ``as_of`` is given with ``since`` or ``until``, or ``since`` is
        later than ``until``, or than now.
    UnsupportedFeatureError
        If the read is incremental, and the table has no meta columns.
    """
    if request.since is None and request.until is None:
        as_of = _times(table, as_of=request.as_of)[0]
        return PinnedRead(load_snapshot(table, as_of=as_of), request)
    if request.as_of is not None:
        raise ConfigError("as_of", request.as_of, "give either as_of, or since and until")
    require_changes(table)
    changes = changes_between(table, *read_range(table, request))
    return PinnedRead(load_snapshot(table, changes.timeline), request, changes)


def require_changes(table: OpenTable) -> None:
    """Raise UnsupportedFeatureError if the rows of a table do not tell which commit wrote them."""
    if not table.config.populate_meta_fields:
        # Hudi refuses this, too: the rows of a base file do not tell which commit wrote them.
        raise UnsupportedFeatureError(
            f"an incremental read of a table without meta columns ({META_COLUMNS_OFF})",
            table.storage.root,
            "its files do not tell which commit wrote a row; read the table, or read it as_of a "
            "time",
        )


def read_range(
    table: OpenTable, request: ReadRequest
) -> tuple[Timeline, InstantTime | None, InstantTime | None]:
    """Return the timeline of a table, and the range of completion times of a request.

    Raises
    ------
    ConfigError
        If a time cannot be parsed, or ``since`` is later than ``until``, or than now.
    """
    since, until = _times(table, since=request.since, until=request.until)
    timeline = load_timeline(table)
    if since is not None:
        require_begun(since, until, timeline, table.config.timeline_timezone)
    return timeline, since, until


def _times(table: OpenTable, **given: ReadTime | None) -> list[InstantTime | None]:
    zone = table.config.timeline_timezone
    return [
        None if time is None else read_time(time, argument, zone)
        for argument, time in given.items()
    ]


def require_begun(
    since: InstantTime, until: InstantTime | None, timeline: Timeline, timezone: TimelineTimezone
) -> None:
    """Raise ConfigError if a range of time begins after its end or in the future.

    Such a range is a mistake: swapped times, or a time of another zone. It would give no rows.
    """
    if until is not None and since > until:
        raise ConfigError("since", since, f"give a time that is not later than until, {until}")
    now = max(instant_from_ms(system_now_ms(), timezone), timeline.newest_time() or "")
    if since > now:
        raise ConfigError(
            "since", since, f"give a time up to now, {now} on the clock of the table ({timezone})"
        )
