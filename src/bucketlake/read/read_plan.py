"""The plan of a read: which files to read, and with which schema each base file was written.

A table whose schema evolved has files with several schemas. Files are read per schema and cast,
because engines differ in the types that they widen. The schema of a file comes from the commit that
wrote the file, so no footer is read for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from bucketlake.config.table_keys import META_COLUMNS_OFF
from bucketlake.errors import InputError
from bucketlake.format.avro.tree import understood_columns
from bucketlake.format.base_file import BaseFileReader
from bucketlake.index.kinds import IndexKind
from bucketlake.model.field_path import fields_at, spelled_paths, spellings, why_missing
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.schema import META_FIELDS, META_NAMES, without_meta
from bucketlake.read.pruning.prune import PruningReport, prune_slices
from bucketlake.read.request import PinnedRead
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot
from bucketlake.storage.base import at_once
from bucketlake.where.comparable import plain_condition
from bucketlake.where.predicate import Among, And, Predicate
from bucketlake.where.sets import merged


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The files, columns and condition of a read.

    Attributes
    ----------
    schema : pa.Schema
        Columns that can be read: the table's, and the meta columns if one of them is needed.
    files : tuple of (pa.Schema, tuple of DataFile)
        Base files of slices without log files, by the schema with which they were written,
        restricted to the columns of ``schema``.
    merged : tuple of FileSlice
        Slices with log files, for ``reader`` to merge; all slices if files lack columns.
    reader : SliceReader
        Reads the slices.
    report : PruningReport
        How much is read, and why nothing was pruned.
    where : str or None
        SQL condition of the rows.
    predicate : Predicate or None
        The parsed condition, and the keys; None without a condition, or if the reader's session
        gives it another meaning.
    columns : tuple of str or None
        Columns to return; None for all of ``schema``.
    keys : Among or None
        The keys of the rows, with which Spark filters them, too.
    """

    schema: pa.Schema
    files: tuple[tuple[pa.Schema, tuple[DataFile, ...]], ...]
    merged: tuple[FileSlice, ...]
    reader: SliceReader
    report: PruningReport
    where: str | None = None
    predicate: Predicate | None = None
    columns: tuple[str, ...] | None = None
    keys: Among | None = None

    @property
    def jobs(self) -> list[DataFile | FileSlice]:
        """The files, and the slices to merge; each can be read on its own."""
        return [*(file for _, files in self.files for file in files), *self.merged]


def plan_read(
    read: PinnedRead,
    index: IndexKind | None,
    *,
    time_zone: str | None = None,
    usual_settings: bool = True,
    counts_all: bool = False,
    besides: Predicate | None = None,
) -> ReadPlan:
    """Plan a snapshot read or an incremental read.

    Parameters
    ----------
    read : PinnedRead
        The pinned table and the request.
    index : IndexKind or None
        How keys find their bucket; None prunes no buckets.
    time_zone : str, optional
        Zone of times in the condition without a zone; None does not prune by such times.
    usual_settings : bool
        False if the reader's session gives SQL text another meaning; see ``prune_slices``.
    counts_all : bool
        Whether the report counts the whole table; see ``prune_slices``.
    besides : Predicate, optional
        Another condition. Files without a row that may fulfil it are not read; other rows that do
        not fulfil it may be left out.

    Raises
    ------
    InputError
        If the list of columns is empty, or a column does not exist or is named twice.
    """
    snapshot, where, columns = read.snapshot, read.condition, read.columns
    schema = _readable_columns(read)
    readable = snapshot.readable_schema
    parts = [] if besides is None else [merged(besides, readable)]
    parts += [] if read.keys is None else [read.keys]
    if where is not None and usual_settings:
        try:
            parts.append(parsed_condition(where, readable, time_zone))
        except InputError as error:
            for name, refused in snapshot.refused_columns.items():
                if re.search(rf"\b{re.escape(name)}\b", where, re.IGNORECASE):
                    raise refused from error
            raise
    predicate = And(tuple(parts)) if len(parts) > 1 else next(iter(parts), None)
    slices, report = prune_slices(
        snapshot,
        index,
        predicate,
        usual_settings=usual_settings,
        changes=read.changes,
        counts_all=counts_all,
    )
    if read.request.read_optimized:
        based = (file_slice for file_slice in slices if file_slice.base_file is not None)
        slices = [replace(file_slice, log_files=()) for file_slice in based]
    plan = _plan(snapshot, slices, schema, report)
    return replace(plan, where=where, predicate=predicate, columns=columns, keys=read.keys)


def returned_schema(read: PinnedRead) -> pa.Schema:
    """Return the columns of the rows that a read returns; no file is listed or read.

    Raises
    ------
    InputError
        If the list of columns is empty, or a column does not exist or is named twice.
    """
    schema = _readable_columns(read)
    if read.columns is None:
        return schema
    return fields_at(schema, spelled_paths(schema, read.columns))


def plan_slices(snapshot: Snapshot, slices: Sequence[FileSlice]) -> ReadPlan:
    """Plan a read of all rows of some slices; the report counts only these slices."""
    paths, count = {file_slice.partition_path for file_slice in slices}, len(slices)
    report = PruningReport(len(paths), len(paths), count, count, None, None, None)
    return _plan(snapshot, slices, snapshot.schema, report)


def _plan(
    snapshot: Snapshot, slices: Sequence[FileSlice], schema: pa.Schema, report: PruningReport
) -> ReadPlan:
    # Only the reader of slices knows the values of columns that files lack.
    lacks = snapshot.config.drop_partition_columns
    merged = tuple(file_slice for file_slice in slices if lacks or file_slice.log_files)
    whole = [] if lacks else [file_slice for file_slice in slices if not file_slice.log_files]
    files = _by_schema(snapshot, whole, schema)
    return ReadPlan(schema, files, merged, SliceReader.of_snapshot(snapshot), report)


def parsed_condition(where: str, schema: pa.Schema, time_zone: str | None) -> Predicate:
    """Parse the condition of a read, and make sets of its alternatives; see ``parse_where``."""
    plain = plain_condition(where, schema, time_zone)
    if plain is not None:
        return merged(plain, schema)
    from bucketlake.where.parser import parse_where  # The SQL parser is slow to import.

    return merged(parse_where(where, schema, time_zone=time_zone), schema)


def _readable_columns(read: PinnedRead) -> pa.Schema:
    tested = [read.condition or "", *(() if read.keys is None else read.keys.columns)]
    return readable_columns(read.snapshot, " ".join(tested), read.columns)


def readable_columns(
    snapshot: Snapshot, where: str | None, columns: Sequence[str] | None
) -> pa.Schema:
    """Return the columns that a read may use: the table's, and meta columns if it names one.

    Raises
    ------
    InputError
        If the list of columns is empty, or a column does not exist or is named twice.
    """
    if columns is not None and not columns:  # An Arrow table without columns has no row count.
        raise InputError(
            f"columns of {snapshot.storage.root}",
            "the list of columns is empty",
            "name columns, or omit the argument to read all columns",
        )
    asked = {c.lower() for c in columns or ()}
    if len(asked) < len(columns or ()):
        raise InputError(
            f"columns of {snapshot.storage.root}",
            f"a column is named twice in {list(columns or ())}",
            "name each column once",
        )
    meta = any(name in asked or (where and name in where.lower()) for name in META_NAMES)
    for name, error in snapshot.refused_columns.items():
        if columns is None or name.lower() in {path.partition(".")[0] for path in asked}:
            raise error
    schema = snapshot.readable_schema
    if not meta:
        schema = without_meta(schema)
    absent = sorted(path for path, found in spellings(schema, asked).items() if found is None)
    if absent:
        is_unstored = absent[0] in META_NAMES
        why = f", and no meta columns ({META_COLUMNS_OFF})" if is_unstored else ""
        raise InputError(
            f"columns of {snapshot.storage.root}",
            f"there is no column {absent[0]!r}; the table "
            f"{why_missing(without_meta(schema), absent[0])}{why}",
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
        own = {field.name: field for field in (*META_FIELDS, *stored)}
        restricted = pa.schema([own[name] for name in schema.names if name in own])
        grouped.setdefault(restricted, []).append(file)
    return tuple((written, tuple(held)) for written, held in grouped.items())


def _told(snapshot: Snapshot, instant: InstantTime) -> str | None:
    """Return the Avro schema in the commit of an instant; None if no active commit has one."""
    commit = next(
        (c for c in snapshot.timeline.completed_commits() if c.requested_at == instant), None
    )
    if commit is None:
        return None
    return snapshot.timeline.read_commit(snapshot.storage, commit).schema_json


def _parsed(snapshot: Snapshot, text: str) -> pa.Schema:
    same = snapshot.understood_schema if text == snapshot.schema_text else None
    return same or understood_columns(text)[0]


def _in_footer(snapshot: Snapshot, file: DataFile) -> pa.Schema:
    with BaseFileReader(snapshot.storage, file.path) as reader:
        return reader.schema
