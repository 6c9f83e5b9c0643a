"""The data source as a stream: the table as it is, then the rows that change, batch by batch.

An offset is a completion time: a batch has the rows of the commits that completed after the offset
of the last batch, up to its own, as they were then. Spark stores the offset of a batch before it
runs the batch, so a batch that is run again has the same rows. The first offset of a stream without
a start is empty; its first batch is the table.

With the option ``changes``, a batch has the changes of these commits, with the rows before and
after, and a stream without a start begins with the first commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeAlias

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

from bucketlake.errors import ConfigError, InputError, TimelineError, naming_table
from bucketlake.index.setting import TableIndex
from bucketlake.model.arguments import path_of
from bucketlake.model.file_name import InstantTime
from bucketlake.model.names import did_you_mean, one_of
from bucketlake.read.change_plan import pin_changes
from bucketlake.read.change_reader import ChangesToRead, plan_changes
from bucketlake.read.handle import Handle
from bucketlake.read.incremental import (
    commits_between,
    completion_times,
    timeline_at,
)
from bucketlake.read.read_plan import plan_read, returned_schema
from bucketlake.read.request import PinnedRead, ReadRequest, pin_read, range_of, require_changes
from bucketlake.read.snapshot import load_snapshot
from bucketlake.spark.spark_schema import arrow_from_spark, spark_from_arrow
from bucketlake.spark.splits import batches_of, splits_of, splits_of_changes
from bucketlake.storage.secret_text import HIDDEN
from bucketlake.storage.store_options import GivenOptions
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
    schema : StructType
        Columns of the rows.

    Raises
    ------
    ConfigError
        If an option cannot be used.
    UnsupportedFeatureError
        If the table has no meta columns.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._request = options.stream_request()
        self._max_commits, self._max_bytes = (
            options.limit("max_commits"),
            options.limit("max_bytes"),
        )
        self._last: InstantTime | None = None
        opened, start = options.table.open(), options.given.get("start")
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
        with self._options.naming():
            self._last = _newest(self._options.table.open()) or InstantTime("")

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the offset at which the next batch ends; ``start`` if nothing has changed."""
        with self._options.naming():
            opened = self._options.table.open()
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

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plan a batch."""
        if start == end:
            return []
        with self._options.naming(), _telling_how_to_begin_again(start):
            if self._options.of_changes:
                return self._changes(start[_COMPLETED], end[_COMPLETED])
            pinned, index = self._pinned(start[_COMPLETED], InstantTime(end[_COMPLETED]))
            plan = plan_read(with_columns(pinned, self._schema), index)
            return splits_of(plan, pinned.snapshot.storage, arrow_from_spark(self._schema))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""
        return batches_of(partition)

    def _changes(self, after: str, until: str) -> Sequence[InputPartition]:
        request = replace(self._request, since=after, until=until)
        planned = plan_changes(pin_changes(self._options.table.open(), request), request)
        return splits_of_changes(planned, schema_of_changes(planned, self._schema))

    def _pinned(self, after: str, until: InstantTime) -> tuple[PinnedRead, TableIndex | None]:
        opened = self._options.table.open()
        if after:
            pinned = pin_read(opened, replace(self._request, since=after, until=until))
        else:
            snapshot = load_snapshot(opened, timeline_at(opened, until))
            pinned = PinnedRead(snapshot, self._request)
        return pinned, self._options.table.index_of(pinned.snapshot)


def _start_of(start: str | None, opened: OpenTable) -> Offset:
    """Return the first offset of a stream."""
    if start is None:
        return _NOTHING
    if start == "earliest":
        return {_COMPLETED: read_time("0", "since")}
    if start == "latest":
        return {_COMPLETED: _newest(opened) or read_time("0", "since")}
    try:
        after, _ = range_of(opened, load_timeline(opened), start, None)
        assert after is not None, start
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
        gone, since = error.problem.partition(";")[0], error.readable_since
        after = f"after {start[_COMPLETED]}" if start[_COMPLETED] else "with the whole table"
        begin = "" if since is None else f" and the option start={since}, the first that is left"
        raise TimelineError(
            error.instant,
            f"{gone}; the batch of the stream {after} needs it: begin the stream again with a new "
            f"checkpoint{begin}, and let cleans keep more commits than the stream falls behind",
        ) from None


# ---- What a load of the data source asks for: options, texts by name, and perhaps columns --------
#
# Spark turns the names into small letters. They are the arguments of ``Table.read``, those of a
# stream, and storage options with a prefix.
#
# Spark 4.3 hands a Python data source the options of a table of its catalog only when the table is
# created, so then they are stored in the schema, which Spark keeps.

PREFIX = "storage."
"""Begins the name of each storage option."""

STORED = "bucketlake.options"
"""Key of the options in the metadata of the first column, in a table of Spark's catalog."""

_TIMES = ("as_of", "since", "until")
_OF_STREAMS = ("start", "max_commits", "max_bytes")
_FLAGS_OF_READS = ("read_optimized", "changes")
_KNOWN = ("path", "where", "columns", *_TIMES, *_FLAGS_OF_READS, *_OF_STREAMS, f"{PREFIX}*")

_OF_CATALOG = "provider"  # Spark adds it, and others, when a table of its catalog is created.
_IN_CATALOG = "option."
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one load.

    Attributes
    ----------
    path : str
        Folder of the table.
    given : mapping of str to str
        The other options, without storage options.
    storage_options : mapping of str to str
        The storage options, without the prefix.
    """

    path: str
    given: Mapping[str, str]
    storage_options: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Check the names of options.

        Raises
        ------
        ConfigError
            If there is no path or several, or an option is unknown.
        """
        if "paths" in options:
            raise ConfigError("paths", options["paths"], "give one path: a table is one folder")
        if not options.get("path"):
            raise ConfigError(
                "path",
                options.get("path"),
                "give the folder of the table: load(path) in Python, OPTIONS (path '...') in SQL, "
                "where CREATE TABLE takes no columns",
            )
        storage = {
            name[len(PREFIX) :]: text
            for name, text in options.items()
            if name.lower().startswith(PREFIX)
        }
        given = {n: text for n, text in options.items() if not n.lower().startswith(PREFIX)}
        unknown = sorted(given.keys() - {*_KNOWN})
        if unknown:  # The value may be a secret with a misspelled name.
            raise ConfigError(unknown[0], HIDDEN, one_of(unknown[0], _KNOWN))
        return cls(given.pop("path"), given, GivenOptions(storage))

    @property
    def table(self) -> Handle:
        """The table that is read."""
        return Handle(path_of(self.path), storage_options=self.storage_options)

    def naming(self) -> AbstractContextManager[None]:
        """Give errors of the body the address of the table."""
        return naming_table(self.table.address)

    def request(self) -> ReadRequest:
        """Return the request of a read.

        Raises
        ------
        ConfigError
            If an option of streams is given, or a value cannot be used.
        """
        self._refuse(_OF_STREAMS, "it belongs to a stream: spark.readStream")
        if self.of_changes:
            self._refuse(("as_of", "read_optimized"), "changes are read with since and until")
        times: dict[str, Any] = {name: self.given.get(name) for name in _TIMES}
        flag = self._flag("read_optimized")
        return ReadRequest(self.given.get("where"), self.columns, **times, read_optimized=flag)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns to return; None for all."""
        text = self.given.get("columns")
        return None if text is None else tuple(name.strip() for name in text.split(","))

    def stream_request(self) -> ReadRequest:
        """Return the request of each batch of a stream, still without times.

        Raises
        ------
        ConfigError
            If an option is given that a stream does not have.
        """
        self._refuse(_TIMES, "a stream begins at its option start, and has no end")
        self._refuse(("read_optimized",), "a stream would miss the rows of log files")
        return ReadRequest(self.given.get("where"), self.columns)

    @property
    def of_changes(self) -> bool:
        """Whether changes are read, with the rows before and after, in place of rows."""
        return self._flag("changes")

    @property
    def is_of_stream(self) -> bool:
        """Whether an option is given that only streams have."""
        return not self.given.keys().isdisjoint(_OF_STREAMS)

    def limit(self, name: str) -> int | None:
        """Return the most commits or bytes of a batch of a stream; None for no limit."""
        text = self.given.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and int(text)):
            raise ConfigError(name, text, "give an integer of at least 1")
        return int(text)

    def _flag(self, name: str) -> bool:
        text = self.given.get(name, "false")
        if text.lower() not in _FLAGS:
            raise ConfigError(name, text, "give true or false")
        return _FLAGS[text.lower()]

    def _refuse(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            if name in self.given:
                raise ConfigError(name, self.given[name], reason)


def in_catalog(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options with which a table of Spark's catalog is created; None otherwise.

    Raises
    ------
    ConfigError
        If there is a storage option, because anyone who sees the table could read it.
    """
    if _OF_CATALOG not in options:
        return None
    given = {n[len(_IN_CATALOG) :]: t for n, t in options.items() if n.startswith(_IN_CATALOG)}
    if "path" in options:
        given["path"] = options["path"]
    for name in given:
        if name.lower().startswith(PREFIX):
            raise ConfigError(
                name,
                HIDDEN,
                "a table of Spark's catalog shows its options; set the variables of the object "
                "store in the environment, or CREATE TEMPORARY VIEW ... USING bucketlake",
            )
    return given


def stored_options(schema: Any) -> dict[str, str]:
    """Return the options that the schema of a table of Spark's catalog has; none otherwise."""
    texts = (field.metadata.get(STORED) for field in schema.fields)
    found = next((text for text in texts if text is not None), None)
    return {} if found is None else dict(json.loads(found))


def all_options(options: Mapping[str, str], schema: Any) -> dict[str, str]:
    """Return the options of a read: those of the load, or those of a table of Spark's catalog.

    Raises
    ------
    ConfigError
        If a table of the catalog is read with options of its own.
    """
    stored = stored_options(schema)
    if stored and options:
        name = next(iter(options))
        raise ConfigError(
            name,
            HIDDEN,
            "Spark mixes up the options of several reads of one table of its catalog; create a "
            "table or a view with this option",
        )
    return stored or dict(options)


def with_columns(read: PinnedRead, schema: StructType) -> PinnedRead:
    """Return a read of the columns of a schema.

    Raises
    ------
    InputError
        If the table lacks a column, or has it with another type: the schema was declared, or is
        older than the table's.
    """
    chosen = replace(read, request=replace(read.request, columns=tuple(schema.names)))
    held = spark_from_arrow(returned_schema(chosen))
    for given, found in zip(schema.fields, held.fields, strict=True):
        declared, stored = given.dataType.simpleString(), found.dataType.simpleString()
        if declared != stored:
            raise InputError(
                f"column {given.name}",
                f"it is declared as {declared}, and the table has it as {stored}",
                "load the table again, or create the table of Spark's catalog again",
            )
    return chosen


def schema_of_changes(planned: ChangesToRead, schema: StructType) -> pa.Schema:
    """Return names and types of changes; raise InputError if a schema was declared otherwise."""
    held = spark_from_arrow(planned.reader.schema)
    if schema.simpleString() != held.simpleString():
        raise InputError(
            "changes",
            f"they are declared as {schema.simpleString()}, and are {held.simpleString()}",
            "declare no schema; columns chooses the columns of the images",
        )
    return arrow_from_spark(schema)
