"""Reads planned changes: compares the states of file groups, and returns what changed.

A change has Hudi's letter of the operation, the commit that made it, and the row before and after
it. Memory holds two states of a share of a file group at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.merge.incoming import BoolArray, IntArray
from bucketlake.merge.row_changes import RowChanges, images, row_changes
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import columns_at, fields_at, roots_of, spelled
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import META_NAMES, RECORD_KEY, with_meta
from bucketlake.read.change_plan import ChangeRange, ComparedStates, compared_states
from bucketlake.read.key_share import KeyShare
from bucketlake.read.read_plan import parsed_condition, readable_columns
from bucketlake.read.slice_reader import SliceReader
from bucketlake.where.predicate import Predicate

OPERATION, INSTANT, COMPLETED_AT, BEFORE, AFTER = "op", "instant", "completed_at", "before", "after"

_CHUNK_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """Reads the changes of one table; a picklable value.

    Attributes
    ----------
    reader : SliceReader
        Reads slices as they are at the end of the range.
    commits : tuple of (InstantTime, InstantTime)
        Requested and completion time of the commits of the range.
    stored : pa.Schema
        The columns to read, with the record key.
    compared : tuple of str
        Paths of the columns that make an update if they differ.
    images : tuple of str
        Paths of the columns of the images.
    predicate : Predicate or None
        A change counts if the row before or after it matches; None for all.
    """

    reader: SliceReader
    commits: tuple[tuple[InstantTime, InstantTime], ...]
    stored: pa.Schema
    compared: tuple[str, ...]
    images: tuple[str, ...]
    predicate: Predicate | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of changes."""
        # In an image that is missing, all values are.
        image = pa.struct([f.with_nullable(True) for f in fields_at(self.stored, self.images)])
        texts = [pa.field(name, pa.string()) for name in (OPERATION, INSTANT, COMPLETED_AT)]
        return pa.schema([*texts, pa.field(BEFORE, image), pa.field(AFTER, image)])

    def read(self, plan: ComparedStates) -> Iterator[pa.Table]:
        """Yield the changes of some file groups, commit by commit."""
        before = self._rows(plan.states[0], plan.commits[0], plan.share)
        for place, state in zip(plan.commits, plan.states[1:], strict=True):
            after = self._rows(state, place + 1, plan.share)
            yield from self._changes(before, after, place)
            before = after

    def _rows(self, state: Sequence[FileSlice], place: int, share: KeyShare) -> pa.Table:
        """Return the rows of a state, as they were before the commit at a place of the range."""
        later = {instant for instant, _ in self.commits[place:]}
        reader = replace(self.reader, timeline=self.reader.timeline.without(later))
        chunks = (chunk for held in state for chunk in reader.read(held, self.stored.names))
        parts = [cast_table(chunk, self.stored) for chunk in share.rows_of(chunks)]
        return pa.concat_tables([self.stored.empty_table(), *parts])

    def _changes(self, before: pa.Table, after: pa.Table, place: int) -> Iterator[pa.Table]:
        keys = [
            pa.concat_arrays(rows[RECORD_KEY].chunks or [pa.array([], pa.string())])
            for rows in (before, after)
        ]
        held = [columns_at(rows, self.compared, "requested") for rows in (before, after)]
        changes = row_changes(*keys, *held)
        if self.predicate is not None:
            from bucketlake.where.arrow_filter import to_arrow_expression

            condition = to_arrow_expression(self.predicate, self.stored)
            matches = _of(changes.before, _matching(before, condition))
            changes = changes.chosen(matches | _of(changes.after, _matching(after, condition)))
        for start in range(0, len(changes), _CHUNK_ROWS):
            some = changes.chosen(slice(start, start + _CHUNK_ROWS))
            yield self._table(some, before, after, place)

    def _table(
        self, changes: RowChanges, before: pa.Table, after: pa.Table, place: int
    ) -> pa.Table:
        count, (instant, completed_at) = len(changes), self.commits[place]
        columns = [
            changes.operations,
            pa.repeat(str(instant), count),
            pa.repeat(str(completed_at), count),
            self._image(before, changes.before),
            self._image(after, changes.after),
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _image(self, rows: pa.Table, positions: IntArray) -> pa.StructArray:
        return images(columns_at(rows, self.images, "requested"), positions, nullable=True)


@dataclass(frozen=True, slots=True)
class ChangesToRead:
    """What a read of changes reads, how, and the paths of the columns that it returns."""

    reader: ChangeReader
    plans: tuple[ComparedStates, ...]
    columns: tuple[str, ...]


def plan_changes(
    found: ChangeRange,
    where: str | None = None,
    columns: tuple[str, ...] | None = None,
    *,
    time_zone: str | None = None,
    usual_settings: bool = True,
    engine_filters: bool = False,
) -> ChangesToRead:
    """Plan a read of the changes of a range.

    Parameters
    ----------
    found : ChangeRange
    where : str, optional
        SQL condition of the rows before or after a change.
    columns : tuple of str, optional
        Columns of the images.
    time_zone, usual_settings
        As for ``plan_read``.
    engine_filters : bool
        Whether the caller filters the changes; their images then have all columns.

    Raises
    ------
    InputError
        If the list of columns is empty, or a column does not exist or is named twice, or the
        condition is wrong.
    TimelineError
        If a clean deleted what the changes need.
    """
    snapshot = found.snapshot
    readable = readable_columns(snapshot, where, columns)
    predicate = None
    if where is not None and usual_settings:
        predicate = parsed_condition(where, snapshot.readable_schema, time_zone)
    names = columns if columns is not None else tuple(snapshot.schema.names)
    asked = tuple(spelled(readable, path) or path for path in names)
    compared = tuple(path for path in asked if path not in META_NAMES) or (RECORD_KEY,)
    roots = readable.names if where is not None else roots_of(asked, readable.names)
    stored = with_meta(snapshot.schema)
    needed = pa.schema([field for field in stored if field.name in {RECORD_KEY, *roots}])
    reader = ChangeReader(
        SliceReader.of_snapshot(snapshot),
        tuple((commit.instant, commit.completed_at) for commit in found.commits),
        needed,
        compared,
        tuple(readable.names) if engine_filters else asked,
        None if engine_filters else predicate,
    )
    return ChangesToRead(reader, tuple(compared_states(found, predicate)), asked)


def read_changes(planned: ChangesToRead) -> pa.Table:
    """Return the changes as a table, in the order of their commits."""
    reader = planned.reader
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = list(pool.map(lambda plan: list(reader.read(plan)), planned.plans))
    table = pa.concat_tables([reader.schema.empty_table(), *(t for part in parts for t in part)])
    # A sort of Arrow is not stable for several batches; two commits may complete at one time.
    places = {instant: place for place, (instant, _) in enumerate(reader.commits)}
    known = pa.array(list(places), pa.string())
    order = np.argsort(pc.index_in(table[INSTANT], value_set=known).to_numpy(), kind="stable")
    return table.take(pa.array(order))


def _matching(rows: pa.Table, condition: pc.Expression) -> BoolArray:
    """Return which rows match a condition."""
    numbered = rows.append_column("#row", pa.array(np.arange(rows.num_rows)))
    found = np.zeros(rows.num_rows, np.bool_)
    found[numbered.filter(condition)["#row"].to_numpy()] = True
    return found


def _of(positions: IntArray, flags: BoolArray) -> BoolArray:
    """Return the flags of rows; False in place of a row that is not there."""
    found = np.zeros(len(positions), np.bool_)
    there = positions >= 0
    found[there] = flags[positions[there]]
    return found
