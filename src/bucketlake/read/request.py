"""The request of a read, and the table pinned for it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import pyarrow as pa

from bucketlake.config.table_keys import META_COLUMNS_OFF
from bucketlake.errors import ClockWarning, ConfigError, InputError, UnsupportedFeatureError
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import columns_at, field_at, spelled, why_missing
from bucketlake.model.file_name import InstantTime
from bucketlake.model.partition_path import formatted_fields
from bucketlake.read.incremental import Changes, changes_between
from bucketlake.read.snapshot import Snapshot, load_snapshot, load_whole_timeline
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import archived_completion_times, read_archive
from bucketlake.timeline.instant import is_initial, told_future
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.read_time import ReadTime, read_time
from bucketlake.where.predicate import Among
from bucketlake.where.sets import distinct


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The arguments of a read; each is optional.

    Attributes
    ----------
    where : str or None
        SQL condition.
    columns : tuple of str or None
        Columns to return; None for those of the table.
    as_of : str, datetime, date, WriteResult, TimelineEntry or None
        Time travel: instants requested later are ignored.
    since, until : str, datetime, date, WriteResult, TimelineEntry or None
        Incremental read: rows of commits completed after ``since`` and up to ``until``.
    read_optimized : bool
        Whether to ignore log files.
    keys : pa.Table or None
        Rows of values: only rows of the table with such values are returned.
    key_columns : tuple of str or None
        Their columns that count; None for those of the record key and, if they have them, of the
        partition.
    """

    where: str | None = None
    columns: tuple[str, ...] | None = None
    as_of: ReadTime | None = None
    since: ReadTime | None = None
    until: ReadTime | None = None
    read_optimized: bool = False
    keys: pa.Table | None = None
    key_columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
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

    @cached_property
    def keys(self) -> Among | None:
        """The keys of the rows, in the types of the table; None for all rows.

        Raises
        ------
        InputError
            If the keys lack a column, or the table does, or a value does not fit its column.
        """
        request, spec = self.request, self.snapshot.config.key_spec
        if request.keys is None:
            return None
        names, schema = request.key_columns, self.snapshot.readable_schema
        if names is None:
            exact = {*spec.partition_fields}.difference(formatted_fields(spec))
            given = (name for name in sorted(exact) if field_at(request.keys.schema, name))
            names = tuple(dict.fromkeys((*spec.record_key_fields, *given)))
        fields = []
        for name in names:
            path = spelled(schema, name)
            field = None if path is None else field_at(schema, path)
            if field is None:
                why = why_missing(schema, name)
                problem = f"there is no column {name!r}; the table {why}"
                raise InputError("keys", problem, "name columns of the table")
            fields.append(field.with_nullable(True))
        values = columns_at(request.keys, names).rename_columns([field.name for field in fields])
        return Among(distinct(cast_table(values, pa.schema(fields), where="keys", exact=True)))

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
        If a time cannot be parsed, ``as_of`` is given with ``since`` or ``until``, or is before the
        first commit, or ``since`` is later than ``until``, or than now.
    UnsupportedFeatureError
        If the read is incremental, and the table has no meta columns.
    """
    if request.since is None and request.until is None:
        if request.as_of is None:
            return PinnedRead(load_snapshot(table), request)
        then = timeline_as_of(table, load_whole_timeline(table), request.as_of)
        return PinnedRead(load_snapshot(table, then), request)
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
    """Return the timeline of a table, and the range of a request as ``range_of`` reads it."""
    timeline = load_timeline(table)
    return timeline, *range_of(table, timeline, request.since, request.until)


# ---- The times of a read on the timeline of its table: the state at a time, and a range of commits
#
# The requested time of a commit stands for the commit, also as a bound of a range, where completion
# times count. ``timeline/read_time.py`` reads the forms in which callers give a time.


def timeline_as_of(table: OpenTable, timeline: Timeline, as_of: ReadTime) -> Timeline:
    """Return the timeline for time travel: the instants that were requested up to a time.

    Raises
    ------
    ConfigError
        If the time cannot be parsed, or is before the first commit of the table.
    """
    at = _read(table, timeline, "as_of", as_of)
    pinned = timeline.as_of(at)
    if not pinned.completed_commits():
        first = _first_commit(table, timeline)
        if first is not None and at < first:
            allowed = f"the first commit of the table is {first}; give a time from then on"
            raise ConfigError("as_of", at, allowed)
    return pinned


def range_of(
    table: OpenTable, timeline: Timeline, since: ReadTime | None, until: ReadTime | None
) -> tuple[InstantTime | None, InstantTime | None]:
    """Return the bounds of a range of completion times; each may be None.

    Raises
    ------
    ConfigError
        If a time cannot be parsed, or ``since`` is later than ``until``, or than now.
    """
    begin, end = (
        None if time is None else _end_of(table, timeline, _read(table, timeline, name, time))
        for name, time in (("since", since), ("until", until))
    )
    if begin is not None:
        _require_begun(table, timeline, begin, end)
    return begin, end


def _read(table: OpenTable, timeline: Timeline, argument: str, given: ReadTime) -> InstantTime:
    """Return a time as digits; warn if it is of a clock that some instants are ahead of."""
    at = read_time(given, argument, table.config.timeline_timezone)
    future = table.clock.future_of(timeline)
    is_of_clock = isinstance(given, str | date) and not is_initial(at)
    if is_of_clock and future and at < future[-1]:
        warnings.warn(
            f"table {table.storage.root}: {told_future(future)}; {argument} = {at} is before "
            f"{future[-1]}. To read by commits, give an entry of table.timeline() "
            f"(bucketlake timeline) as {argument}",
            ClockWarning,
            stacklevel=2,
        )
    return at


def _first_commit(table: OpenTable, timeline: Timeline) -> InstantTime | None:
    active = [commit.requested_at for commit in timeline.completed_commits()[:1]]
    archived = read_archive(table, with_metadata=False)
    found = [entry.requested_at for entry in archived if entry.action.endswith("commit")]
    return min([*active, *found], default=None)


def _end_of(table: OpenTable, timeline: Timeline, at: InstantTime) -> InstantTime:
    """Return when the commit with a requested time completed; any other time as it is."""
    if any(at == found.completed_at for found in timeline.instants):
        return at
    ended_at = timeline.completion_time(at)
    if ended_at is None and timeline.start is not None and at < timeline.start:
        times = archived_completion_times(table, until=at)
        ended_at = None if at in times.values() else times.get(at)
    return ended_at or at


def _require_begun(
    table: OpenTable, timeline: Timeline, since: InstantTime, until: InstantTime | None
) -> None:
    """Raise ConfigError if a range of time begins after its end or in the future.

    Such a range is a mistake: swapped times, or a time of another zone. It would give no rows.
    """
    if until is not None and since > until:
        raise ConfigError("since", since, f"give a time that is not later than until, {until}")
    now = max(table.clock.now(timeline), timeline.newest_time() or "")
    if since > now:
        zone = table.config.timeline_timezone
        raise ConfigError(
            "since", since, f"give a time up to now, {now} on the clock of the table ({zone})"
        )
