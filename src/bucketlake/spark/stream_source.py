"""The data source as a stream: the table as it is, then the rows that change, batch by batch.

An offset is a completion time: a batch has the rows of the commits that completed after the offset
of the last batch, up to its own, as they were then. Spark stores the offset of a batch before it
runs the batch, so a batch that is run again has the same rows. The first offset of a stream without
a start is empty; its first batch is the table.

With the option ``changes``, a batch has the changes of these commits, with the rows before and
after, and a stream without a start begins with the first commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from bucketlake.errors import ConfigError, TimelineError
from bucketlake.index.setting import TableIndex
from bucketlake.model.file_name import InstantTime
from bucketlake.model.names import did_you_mean
from bucketlake.read.change_plan import pin_changes
from bucketlake.read.incremental import (
    commits_between,
    completion_times,
    timeline_at,
)
from bucketlake.read.read_plan import plan_read
from bucketlake.read.request import PinnedRead, pin_read, require_begun, require_changes
from bucketlake.read.snapshot import load_snapshot
from bucketlake.spark.data_source import (
    naming,
    planned_changes,
    schema_of_changes,
    with_columns,
)
from bucketlake.spark.source_options import SourceOptions
from bucketlake.spark.spark_schema import arrow_from_spark
from bucketlake.spark.splits import Split, batches_of, splits_of, splits_of_changes
from bucketlake.table import Table, index_of, open_for_read
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.read_time import read_time

Offset: TypeAlias = dict[str, str]

_COMPLETED = "completed_until"
_NOTHING: Offset = {_COMPLETED: ""}
_WORDS = ("earliest", "latest")
_COMMITS_SIZED = 1_000  # Each batch reads the metadata of the commits whose sizes it adds up.


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of a table in batches.

    Parameters
    ----------
    options : SourceOptions
        The options of the load.
    table : Table
        The table.
    schema : StructType
        Columns of the rows.

    Raises
    ------
    ConfigError
        If an option cannot be used.
    UnsupportedFeatureError
        If the table has no meta columns.
    """

    def __init__(self, options: SourceOptions, table: Table, schema: StructType) -> None:
        self._options, self._table, self._schema = options, table, schema
        self._request = options.stream_request()
        self._max_commits, self._max_bytes = options.max_commits, options.max_bytes
        self._last: InstantTime | None = None
        opened, start = open_for_read(table), options.start
        if options.of_changes:
            start = start or "earliest"
        else:
            require_changes(opened)
        self._start = _start_of(start, opened)

    def initialOffset(self) -> Offset:  # noqa: N802 -- the names of these methods are Spark's.
        """Return the offset before the first batch of a new query."""
        return self._start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a limit of the kind that stands for that of a batch; Spark has none of commits."""
        if self._max_bytes is not None:
            return ReadMaxBytes(self._max_bytes)
        return ReadAllAvailable() if self._max_commits is None else ReadMaxFiles(self._max_commits)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end at the newest commit of now."""
        with naming(self._options):
            self._last = _newest(open_for_read(self._table)) or InstantTime("")

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the offset at which the next batch ends; ``start`` if nothing has changed."""
        with naming(self._options):
            opened = open_for_read(self._table)
            after = start[_COMPLETED]
            since = InstantTime(after) if after else None
            timeline = load_timeline(opened)
            times = completion_times(opened, timeline, since)
            if self._last is not None:
                times = [time for time in times if time <= self._last]
            if not times:
                return start
            # The first batch is the table; it cannot end earlier.
            if since is None or isinstance(limit, ReadAllAvailable):
                return {_COMPLETED: times[-1]}
            times = times[: self._max_commits]
            if self._max_bytes is None:
                return {_COMPLETED: times[-1]}
            sizes = dict.fromkeys(times[:_COMMITS_SIZED], 0)
            for commit in commits_between(opened, timeline, since, [*sizes][-1])[1]:
                sizes[commit.completed_at] += commit.size_bytes
            fitting = sum(total <= self._max_bytes for total in accumulate(sizes.values()))
            return {_COMPLETED: times[max(fitting, 1) - 1]}  # At least one commit.

    def partitions(self, start: Offset, end: Offset) -> Sequence[Split]:
        """Plan a batch."""
        if start == end:
            return []
        with naming(self._options), _telling_how_to_begin_again(start):
            if self._options.of_changes:
                return self._changes(start[_COMPLETED], end[_COMPLETED])
            pinned, index = self._pinned(start[_COMPLETED], InstantTime(end[_COMPLETED]))
            plan = plan_read(with_columns(pinned, self._schema), index)
            return splits_of(plan, pinned.snapshot.storage, arrow_from_spark(self._schema))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""
        return batches_of(partition)

    def _changes(self, after: str, until: str) -> Sequence[Split]:
        request = replace(self._request, since=after, until=until)
        planned = planned_changes(pin_changes(open_for_read(self._table), request), request)
        return splits_of_changes(planned, schema_of_changes(planned, self._schema))

    def _pinned(self, after: str, until: InstantTime) -> tuple[PinnedRead, TableIndex | None]:
        opened = open_for_read(self._table)
        if after:
            pinned = pin_read(opened, replace(self._request, since=after, until=until))
        else:
            snapshot = load_snapshot(opened, timeline_at(opened, until))
            pinned = PinnedRead(snapshot, self._request)
        return pinned, index_of(self._table, pinned.snapshot)


def _start_of(start: str | None, opened: OpenTable) -> Offset:
    """Return the first offset of a stream."""
    if start is None:
        return _NOTHING
    if start == "earliest":
        return {_COMPLETED: read_time("0", "since")}
    if start == "latest":
        return {_COMPLETED: _newest(opened) or read_time("0", "since")}
    try:
        timezone = opened.config.timeline_timezone
        after = read_time(start, "since", timezone)
        require_begun(after, None, load_timeline(opened), timezone)
        return {_COMPLETED: after}
    except ConfigError as error:
        allowed = f"{error.allowed}, or earliest or latest{did_you_mean(start, _WORDS)}"
        raise ConfigError("start", start, allowed) from None


def _newest(opened: OpenTable) -> InstantTime | None:
    times = completion_times(opened, load_timeline(opened), None)
    return times[-1] if times else None


@contextmanager
def _telling_how_to_begin_again(start: Offset) -> Iterator[None]:
    """Let the error that files of a batch were cleaned say what to do with the stream."""
    try:
        yield
    except TimelineError as error:
        gone = error.problem.partition(";")[0]
        after = f"after {start[_COMPLETED]}" if start[_COMPLETED] else "with the whole table"
        raise TimelineError(
            error.instant,
            f"{gone}; the batch of the stream {after} needs it: begin the stream again with a new "
            "checkpoint, and let cleans keep more commits than the stream falls behind",
        ) from None
