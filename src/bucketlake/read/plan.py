"""The plan of a read: which files answer it, and with which schema each base file was written.

A table whose schema evolved holds files of several schemas; they are read group by group and cast,
since readers differ in what they widen by themselves. A file's schema is that of the commit that
wrote it, so no footer is opened for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.format.avro.schema import arrow_from_avro
from bucketlake.format.base_file import BaseFileReader
from bucketlake.index.kinds import IndexKind
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.schema import META_NAMES, with_meta
from bucketlake.read.pruning.prune import PruningReport, prune_slices
from bucketlake.read.request import PinnedRead
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot
from bucketlake.storage.at_once import at_once
from bucketlake.where.predicate import Predicate


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a read looks at.

    Attributes
    ----------
    schema : pa.Schema
        Columns that the files can give: the table's, and the meta columns where one is asked for.
    files : tuple of (pa.Schema, tuple of DataFile)
        Base files that are whole slices, by the schema they were written with, restricted to the
        columns of ``schema``.
    merged : tuple of FileSlice
        Slices with log files, for ``reader`` to merge.
    reader : SliceReader
        Reads them.
    report : PruningReport
        What was left out, and why.
    where : str or None
        SQL condition of the rows.
    predicate : Predicate or None
        The condition as bucketlake understands it; None without one, and where the reader's session
        gives it another meaning.
    columns : tuple of str or None
        Columns to return; None for all of ``schema``.
    """

    schema: pa.Schema
    files: tuple[tuple[pa.Schema, tuple[DataFile, ...]], ...]
    merged: tuple[FileSlice, ...]
    reader: SliceReader
    report: PruningReport
    where: str | None = None
    predicate: Predicate | None = None
    columns: tuple[str, ...] | None = None


def plan_read(
    read: PinnedRead,
    index: IndexKind | None,
    *,
    time_zone: str | None = None,
    usual_settings: bool = True,
    counts_all: bool = False,
) -> ReadPlan:
    """Plan a snapshot read, or a read of what some commits of it changed.

    Parameters
    ----------
    read : PinnedRead
        The pinned table, and what is asked for.
    index : IndexKind or None
        How keys find their bucket; None prunes no buckets.
    time_zone : str, optional
        Zone of times in the condition that name none; None prunes by no such time.
    usual_settings : bool
        False where the reader's session gives SQL text another meaning; see ``prune_slices``.
    counts_all : bool
        Whether the report counts the whole table; see ``prune_slices``.

    Raises
    ------
    InputError
        If the list of columns is empty, or the table lacks one.
    """
    snapshot, where, columns = read.snapshot, read.condition, read.columns
    schema = _readable_schema(snapshot, where, columns)
    predicate = None
    if where is not None and usual_settings:
        predicate = _parsed_condition(where, with_meta(snapshot.schema), time_zone)
    slices, report = prune_slices(
        snapshot,
        index,
        predicate,
        usual_settings=usual_settings,
        changes=read.changes,
        counts_all=counts_all,
    )
    if read.request.read_optimized:
        slices = [replace(one, log_files=()) for one in slices if one.base_file is not None]
    plan = _plan(snapshot, slices, schema, report)
    return replace(plan, where=where, predicate=predicate, columns=columns)


def plan_slices(snapshot: Snapshot, slices: Sequence[FileSlice]) -> ReadPlan:
    """Plan a read of all rows of some slices; its report tells of these alone."""
    paths, count = {one.partition_path for one in slices}, len(slices)
    report = PruningReport(len(paths), len(paths), count, count, None, None, None)
    return _plan(snapshot, slices, snapshot.schema, report)


def _plan(
    snapshot: Snapshot, slices: Sequence[FileSlice], schema: pa.Schema, report: PruningReport
) -> ReadPlan:
    merged = tuple(one for one in slices if one.log_files)
    whole = [one for one in slices if not one.log_files]
    files = _by_schema(snapshot, whole, schema)
    return ReadPlan(schema, files, merged, SliceReader.of_snapshot(snapshot), report)


def _parsed_condition(where: str, schema: pa.Schema, time_zone: str | None) -> Predicate:
    from bucketlake.where.parser import parse_where  # Its SQL parser is slow to import.

    return parse_where(where, schema, time_zone=time_zone)


def _readable_schema(
    snapshot: Snapshot, where: str | None, columns: Sequence[str] | None
) -> pa.Schema:
    if columns is not None and not columns:  # Rows without columns have no count in Arrow.
        raise InputError(
            f"columns of {snapshot.storage.root}",
            "the list of columns is empty",
            "name some, or leave the argument out for all",
        )
    asked = {c.lower() for c in columns or ()}
    meta = any(name in asked or (where and name in where.lower()) for name in META_NAMES)
    schema = with_meta(snapshot.schema) if meta else snapshot.schema
    known = {name.lower() for name in schema.names}
    absent = sorted(asked - known)
    if absent:
        raise InputError(
            f"columns of {snapshot.storage.root}",
            f"there is no column {absent[0]!r}; the table has {snapshot.schema.names}",
            "name columns of the table",
        )
    return schema


def _by_schema(
    snapshot: Snapshot, slices: Sequence[FileSlice], schema: pa.Schema
) -> tuple[tuple[pa.Schema, tuple[DataFile, ...]], ...]:
    files = [s.base_file for s in slices if s.base_file is not None]
    instants = sorted({f.name.instant for f in files})
    texts = dict(
        zip(instants, at_once(snapshot.storage, partial(_told, snapshot), instants), strict=True)
    )
    parsed = {text: _parsed(snapshot, text) for text in {*texts.values()} if text}
    grouped: dict[pa.Schema, list[DataFile]] = {}
    for file in files:
        text = texts[file.name.instant]
        stored = parsed[text] if text else _in_footer(snapshot, file)
        names = set(stored.names) | set(META_NAMES)
        restricted = pa.schema(
            [
                stored.field(f.name) if f.name in stored.names else f
                for f in schema
                if f.name in names
            ]
        )
        grouped.setdefault(restricted, []).append(file)
    return tuple((one, tuple(held)) for one, held in grouped.items())


def _told(snapshot: Snapshot, instant: InstantTime) -> str | None:
    """Return the Avro schema in the commit of an instant; None where no commit tells."""
    commit = next(
        (c for c in snapshot.timeline.completed_commits() if c.requested_at == instant), None
    )
    if commit is None:
        return None
    return snapshot.timeline.read_commit(snapshot.storage, commit).schema_json


def _parsed(snapshot: Snapshot, text: str) -> pa.Schema:
    return snapshot.schema if text == snapshot.schema_text else arrow_from_avro(text)


def _in_footer(snapshot: Snapshot, file: DataFile) -> pa.Schema:
    with BaseFileReader(snapshot.storage, file.path) as reader:
        return reader.schema
