"""Reads planned changes: compares the states of file groups, and returns what changed.

A change has Hudi's letter of the operation, the commit that made it, and the row before and after
it. Log files tell the rows that they change, and commit times those that a base file has anew. Only
versions of these rows are compared, and memory holds nothing else. States that differ in another
way, such as those of several file groups, are read and compared one after the other.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.log_block import LogBlock
from bucketlake.merge.incoming import BoolArray, IntArray, key_order
from bucketlake.merge.row_changes import DELETE, NOWHERE, RowChanges, images, row_changes
from bucketlake.model.arrays import one_array
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import columns_at, fields_at, roots_of, spelled_paths
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.schema import META_NAMES, RECORD_KEY, with_meta
from bucketlake.read.change_plan import ChangeRange, ComparedStates, compared_states
from bucketlake.read.read_plan import parsed_condition, readable_columns
from bucketlake.read.request import ReadRequest
from bucketlake.read.slice_reader import KeyShare, SliceReader
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
        found = None
        if plan.are_files:
            files = [state[0].base_file if state else None for state in plan.states]
            found = versions_by_times(self.reader, files, self.stored, plan.share)
        elif plan.add_logs:
            found = self._log_versions(plan)
        if found is not None:
            versions, changes, steps = found
            yield from self._changes(versions, changes, np.array(plan.commits)[steps - 1])
            return
        before = self._rows(plan.states[0], plan.commits[0], plan.share)
        for place, state in zip(plan.commits, plan.states[1:], strict=True):
            after = self._rows(state, place + 1, plan.share)
            changes = row_changes(one_array(before[RECORD_KEY]), one_array(after[RECORD_KEY]))
            is_there = changes.after != NOWHERE
            moved = np.where(is_there, changes.after + before.num_rows, NOWHERE)
            both = pa.concat_tables([before, after])
            places = np.full(len(changes), place)
            yield from self._changes(both, RowChanges(changes.before, moved), places)
            before = after

    def _log_versions(self, plan: ComparedStates) -> tuple[pa.Table, RowChanges, IntArray] | None:
        """Return the versions that log files made of the rows of one slice."""
        first: dict[str, int] = {}
        for step, state in enumerate(plan.states):
            first |= {path: step for held in state for path in held.paths if path not in first}
        places = {instant: place for place, (instant, _) in enumerate(self.commits)}
        ends = [plan.commits[0], *(place + 1 for place in plan.commits)]

        def step_of(block: LogBlock) -> int:  # Some log files have blocks of several commits.
            place = places.get(block.instant, -1)
            return max(first[block.path], bisect_right(ends, place))

        (last,) = plan.states[-1]
        found = self._at(ends[-1]).versions(last, self.stored.names, step_of, plan.share)
        return None if found is None else (cast_table(found[0], self.stored), *found[1:])

    def _at(self, place: int) -> SliceReader:
        """Return a reader of slices as they were before the commit at a place of the range."""
        later = {instant for instant, _ in self.commits[place:]}
        return replace(self.reader, timeline=self.reader.timeline.without(later))

    def _rows(self, state: Sequence[FileSlice], place: int, share: KeyShare) -> pa.Table:
        """Return the rows of a state, as they were before the commit at a place of the range."""
        reader = self._at(place)
        chunks = (chunk for held in state for chunk in reader.read(held, self.stored.names))
        parts = [cast_table(chunk, self.stored) for chunk in share.rows_of(chunks)]
        return pa.concat_tables([self.stored.empty_table(), *parts])

    def _changes(self, rows: pa.Table, changes: RowChanges, places: IntArray) -> Iterator[pa.Table]:
        """Yield changes between some versions of rows, sorted by their commits, then by key."""
        compared = columns_at(rows, self.compared, "requested")
        counts = changes.differ(compared, compared)
        if self.predicate is not None:
            from bucketlake.where.arrow_filter import truth_of

            found = pc.fill_null(truth_of(self.predicate, rows), False)
            matches: BoolArray = found.to_numpy(zero_copy_only=False)
            counts &= _of(changes.before, matches) | _of(changes.after, matches)
        changes, places = changes.chosen(counts), places[counts]
        at = np.where(changes.after == NOWHERE, changes.before, changes.after)
        order = key_order(one_array(rows[RECORD_KEY].take(pa.array(at))))
        order = order[np.argsort(places[order], kind="stable")]
        shown = columns_at(rows, self.images, "requested")
        for start in range(0, len(order), _CHUNK_ROWS):
            some = order[start : start + _CHUNK_ROWS]
            yield self._table(shown, changes.chosen(some), pa.array(places[some]))

    def _table(self, rows: pa.Table, changes: RowChanges, places: pa.Array) -> pa.Table:
        times = [pa.array([str(t[side]) for t in self.commits], pa.string()) for side in (0, 1)]
        columns = [
            changes.operations,
            *(texts.take(places) for texts in times),
            images(rows, changes.before, nullable=True),
            images(rows, changes.after, nullable=True),
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, slots=True)
class ChangesToRead:
    """What a read of changes reads, how, and the paths of the columns that it returns."""

    reader: ChangeReader
    plans: tuple[ComparedStates, ...]
    columns: tuple[str, ...]


def plan_changes(
    found: ChangeRange,
    request: ReadRequest,
    *,
    time_zone: str | None = None,
    usual_settings: bool = True,
    engine_filters: bool = False,
) -> ChangesToRead:
    """Plan a read of the changes of a range.

    Parameters
    ----------
    found : ChangeRange
    request : ReadRequest
        SQL condition of the rows before or after a change, and columns of the images.
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
    snapshot, where, columns = found.snapshot, request.where, request.columns
    readable = readable_columns(snapshot, where, columns)
    predicate = None
    if where is not None and usual_settings:
        predicate = parsed_condition(where, snapshot.readable_schema, time_zone)
    names = columns if columns is not None else tuple(snapshot.schema.names)
    asked = tuple(spelled_paths(readable, names))
    compared = tuple(path for path in asked if path not in META_NAMES) or (RECORD_KEY,)
    roots = readable.names if where is not None else roots_of(asked, readable.names)
    stored = with_meta(snapshot.readable_schema)
    wanted = {RECORD_KEY, *roots}
    needed = pa.schema([field for field in stored if field.name in wanted])
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
    """Return the changes as a table, in the order of their commits, each with its deletes first.

    A row that moved is a delete and an insert, so its key is free before it comes again.
    """
    reader = planned.reader
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = list(pool.map(lambda plan: list(reader.read(plan)), planned.plans))
    table = pa.concat_tables([reader.schema.empty_table(), *(t for part in parts for t in part)])
    # A sort of Arrow is not stable for several batches; two commits may complete at one time.
    places = {instant: place for place, (instant, _) in enumerate(reader.commits)}
    known = pa.array(list(places), pa.string())
    commits = pc.index_in(table[INSTANT], value_set=known).to_numpy()
    stays = pc.not_equal(table[OPERATION], DELETE).to_numpy()
    return table.take(pa.array(np.lexsort((stays, commits))))


def _of(positions: IntArray, flags: BoolArray) -> BoolArray:
    """Return the flags of rows; False in place of a row that is not there."""
    found = np.zeros(len(positions), np.bool_)
    there = positions >= 0
    found[there] = flags[positions[there]]
    return found


# ---- Follows the rows of a file group through its base files, each of which one commit made ------
#
# A commit copies the rows that it keeps with the time of the commit that wrote them, in their
# order, and appends new ones. So commit times alone tell which rows it changed, and a row that one
# commit left and another one found is read from one file: each version of a row has a range of
# files, and the fewest files that hit all ranges are read, in the rows of these versions.
#
# Rows keep their numbers unless a row before them was deleted. This is not known before keys are
# read. But then the last number of the file before has a new row, or none, and the keys of this
# change are not equal. If so, or if the new file is shorter, rows are found by their keys.

_NONE = np.empty(0, np.int64)


def versions_by_times(
    reader: SliceReader, files: Sequence[DataFile | None], needed: pa.Schema, share: KeyShare
) -> tuple[pa.Table, RowChanges, IntArray] | None:
    """Return versions of the rows of a file group, and which of them a step replaced by which.

    Parameters
    ----------
    reader : SliceReader
        Reads the files.
    files : sequence of DataFile or None
        The base file before the first step and after each; None if there is none.
    needed : pa.Schema
        The columns to return, with the record key.
    share : KeyShare
        The keys whose changes are returned.

    Returns
    -------
    tuple or None
        The versions; the changes, as positions in them, some of which change no value; the step of
        each. None if commit times do not tell what changed: a file has none, has other columns than
        the file before, or a key twice where rows were deleted.
    """
    heads = [None if file is None else reader.commit_times(file) for file in files]
    names = {*needed.names}
    known: dict[str, int] = {}
    times, schemas = [], []
    for file, head in zip(files, heads, strict=True):
        if file is None:
            times.append(np.empty(0, np.int64))
        elif head is None:
            return None
        else:
            codes = [known.setdefault(text, len(known)) for text in head[0].dictionary.to_pylist()]
            times.append(np.array(codes, np.int64)[head[0].indices.to_numpy()])
            schemas.append([f for f in head[1] if f.name in names])
    if any(schema != schemas[0] for schema in schemas):
        return None
    found = _Followed(reader, files, needed, share).through(times, by_keys=False)
    if found is None:
        found = _Followed(reader, files, needed, share).through(times, by_keys=True)
    return found


@dataclass(slots=True)
class _Followed:
    """The rows of a file group on their way through its files.

    Attributes
    ----------
    held : ndarray of int64
        The version of each row of the current file.
    begins : ndarray of int64
        The first file of each version.
    at : int
        The file from which versions are read that have not ended before it.
    held_there : ndarray of int64
        The version of each of its rows.
    ended : list of ndarray
        The versions to read from it.
    read, keys, rows : list
        Versions that were read, their keys, and the rows of those that belong to the share.
    """

    reader: SliceReader
    files: Sequence[DataFile | None]
    needed: pa.Schema
    share: KeyShare
    held: IntArray = field(default_factory=lambda: _NONE)
    begins: IntArray = field(default_factory=lambda: _NONE)
    at: int = -1
    held_there: IntArray = field(default_factory=lambda: _NONE)
    ended: list[IntArray] = field(default_factory=list)
    read: list[IntArray] = field(default_factory=list)
    keys: list[pa.Array] = field(default_factory=list)
    rows: list[pa.Table] = field(default_factory=list)

    def through(
        self, times: Sequence[IntArray], *, by_keys: bool
    ) -> tuple[pa.Table, RowChanges, IntArray] | None:
        """Return what :func:`file_versions` returns; None if rows must be found by their keys."""
        self.held = self._begin(len(times[0]), 0)
        before, after, steps = [_NONE], [_NONE], [_NONE]
        for step in range(1, len(times)):
            pairs = self._pairs(step, len(times[step - 1]), len(times[step]), by_keys=by_keys)
            if pairs is None:
                return None
            old, new = self._step(step, pairs, times[step - 1], times[step])
            before.append(old)
            after.append(new)
            steps.append(np.full(len(old), step))
        self._end(self.held[self.begins[self.held] > 0], len(times) - 1)
        self._read()
        return self._found(*map(np.concatenate, (before, after, steps)), by_keys=by_keys)

    def _found(
        self, before: IntArray, after: IntArray, steps: IntArray, *, by_keys: bool
    ) -> tuple[pa.Table, RowChanges, IntArray] | None:
        keys = pa.concat_arrays([pa.array([], pa.string()), *self.keys])
        place = np.full(len(self.begins) + 1, NOWHERE)  # The last one is for no version.
        place[np.concatenate([_NONE, *self.read])] = np.arange(len(keys))
        changes = RowChanges(place[before], place[after])
        if not by_keys and not _has_equal_keys(keys, changes):
            return None
        inside = self.share.has(keys)
        moved = np.append(np.where(inside, np.cumsum(inside) - 1, NOWHERE), NOWHERE)
        changes = RowChanges(moved[changes.before], moved[changes.after])
        of_share = (changes.before != NOWHERE) | (changes.after != NOWHERE)
        rows = pa.concat_tables([self.needed.empty_table(), *self.rows])
        return rows, changes.chosen(of_share), steps[of_share]

    def _pairs(self, step: int, count: int, count_after: int, *, by_keys: bool) -> IntArray | None:
        """Return for each row of a file its row in the file before; -1 for a new row.

        None if rows are found by keys, and one of the files has a key twice.
        """
        if not by_keys and count_after >= count:
            return np.append(np.arange(count), np.full(count_after - count, NOWHERE))
        before, after = self._keys(step - 1), self._keys(step)
        if any(pc.count_distinct(keys).as_py() < len(keys) for keys in (before, after)):
            return None
        found: IntArray = pc.index_in(after, value_set=before).fill_null(NOWHERE).to_numpy()
        return found.astype(np.int64)

    def _keys(self, place: int) -> pa.Array:
        file, only_key = self.files[place], pa.schema([self.needed.field(RECORD_KEY)])
        chunks = [] if file is None else self.reader.base_rows(file, only_key)
        return pa.concat_tables([only_key.empty_table(), *chunks])[RECORD_KEY].combine_chunks()

    def _step(
        self, step: int, pairs: IntArray, before: IntArray, after: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Go on to the next file; return the versions before and after each change, -1 for none."""
        old = np.append(self.held, NOWHERE)[pairs]
        stays = pairs != NOWHERE
        is_left = np.ones(len(before), np.bool_)
        is_left[pairs[stays]] = False
        stays[stays] = before[pairs[stays]] == after[stays]
        gone = self.held[is_left]
        ending = np.append(gone, old[~stays])
        self._end(ending[ending != NOWHERE], step - 1)
        made = self._begin(int((~stays).sum()), step)
        self.held = old
        self.held[~stays] = made
        return ending, np.append(np.full(len(gone), NOWHERE), made)

    def _begin(self, count: int, step: int) -> IntArray:
        first = len(self.begins)
        self.begins = np.append(self.begins, np.full(count, step))
        return np.arange(first, first + count)

    def _end(self, versions: IntArray, place: int) -> None:
        """Note versions to read that the current file is the last one to have."""
        if self.begins[versions].max(initial=-1) > self.at:
            self._read()
            self.at, self.held_there = place, self.held
        self.ended.append(versions)

    def _read(self) -> None:
        """Read the noted versions."""
        versions = np.concatenate([_NONE, *self.ended])
        self.ended, file = [], self.files[self.at]
        if len(versions) == 0 or file is None:
            return
        place = np.full(len(self.begins), NOWHERE)
        place[self.held_there] = np.arange(len(self.held_there))
        ordered = versions[np.argsort(place[versions])]
        self.read.append(ordered)
        for rows in self.reader.base_rows(file, self.needed, place[ordered]):
            self.keys.append(rows[RECORD_KEY].combine_chunks())
            self.rows.extend(self.share.rows_of(iter([rows])))


def _has_equal_keys(keys: pa.Array, changes: RowChanges) -> bool:
    both = (changes.before != NOWHERE) & (changes.after != NOWHERE)
    old, new = (keys.take(pa.array(side[both])) for side in (changes.before, changes.after))
    return bool(pc.all(pc.equal(old, new), min_count=0).as_py())
