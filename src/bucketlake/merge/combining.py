"""Combines two rows of one key to one row, column by column: where a record meets a stored row.

:func:`meet` is the only place where records meet stored rows: those of a write that replaces a base
file (``merge/group_merge.py``) or appends whole rows to a log file (:func:`completed`), and the log
entries of a read (``merge/log_records.py``).

The older row is the stored one, or the earlier one of a batch. Gaps of the newer row take the older
value; other columns follow their rules (:mod:`bucketlake.merge.column_rules`), and a function of
the caller may follow. A gap is a column that a record lacks, a null, or the text that a source of
changes puts in place of a value that it did not read. Tables of Hudi with a partial update mode say
which of the last two. Rows of a batch are combined with each other first, then with the stored row.
A late row counts in the columns whose rule accumulates: a sum must not depend on the order in which
rows arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config.merge_entries import FILL_UNAVAILABLE, IGNORE_DEFAULTS
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import BucketLakeError, InputError
from bucketlake.merge.column_groups import ColumnGroups, covered
from bucketlake.merge.column_rules import chosen, combined_values, with_late_values
from bucketlake.merge.incoming import (
    ORDERING,
    BoolArray,
    ColumnFlags,
    IncomingRecords,
    IntArray,
    at_least,
    comparable,
)
from bucketlake.merge.row_changes import differing
from bucketlake.model.arrays import one_array
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import column_of
from bucketlake.model.names import did_you_mean
from bucketlake.model.row_merge import ACCUMULATING, ColumnRule, MergeFunction
from bucketlake.model.schema import RECORD_KEY


@dataclass(frozen=True, slots=True)
class Gaps:
    """Which values count as not given.

    Attributes
    ----------
    missing : collection of str
        Columns without any value.
    nulls : bool
        Whether a null is a gap.
    null_columns : collection of str
        Columns in which a null is a gap in any case.
    marker : str or None
        A text that is a gap, in columns of texts and bytes.
    """

    missing: Collection[str] = frozenset()
    nulls: bool = False
    null_columns: Collection[str] = frozenset()
    marker: str | None = None

    @classmethod
    def of_table(cls, config: TableConfig) -> Self | None:
        """Return the gaps of a table with a partial update mode; None without such a mode.

        Notes
        -----
        ``PartialUpdateHandler`` of Hudi 1.2.0. Its mode IGNORE_DEFAULTS compares a value with the
        column's default by identity, so that no value but null is a gap.
        """
        if config.partial_update_mode == IGNORE_DEFAULTS:
            return cls(nulls=True)
        if config.partial_update_mode == FILL_UNAVAILABLE:
            return cls(marker=config.unavailable_value)
        return None

    def __bool__(self) -> bool:
        given = self.missing or self.null_columns
        return bool(given) or self.nulls or self.marker is not None

    def of(self, name: str, values: pa.Array | pa.ChunkedArray) -> BoolArray | None:
        """Return which values of a column are gaps; None if none can be."""
        if name in self.missing:
            return np.ones(len(values), np.bool_)
        found: BoolArray | None = None
        if (self.nulls or name in self.null_columns) and values.null_count:
            found = values.is_null().to_numpy(zero_copy_only=False)
        if self.marker is not None:
            marked = _equal(values, self.marker)
            found = marked if found is None or marked is None else found | marked
        return found


@dataclass(frozen=True, slots=True)
class Meeting:
    """Records and the stored rows of their keys.

    Attributes
    ----------
    rows, positions : ndarray of int64, shape (n_pairs,)
        Positions of stored rows and of their records.
    wins : ndarray of bool, shape (n_pairs,)
        Whether the record wins over the row.
    made : ndarray of int64
        The pairs of which a row was made of both, also some whose record does not win.
    made_rows : pa.Table or None
        These rows; None if records replace whole rows.
    """

    rows: IntArray
    positions: IntArray
    wins: BoolArray
    made: IntArray
    made_rows: pa.Table | None = None

    @property
    def changes(self) -> BoolArray:
        """Whether the record changes the row, of each pair."""
        changes = self.wins.copy()
        changes[self.made] = True
        return changes

    def outcome(self, stored_count: int, incoming: IncomingRecords) -> IntArray:
        """Return the rows that take the places of the stored ones.

        Numbers are those of stored rows, then of incoming records, then of rows made of both.
        """
        made = stored_count + incoming.columns.num_rows
        source, wins = np.arange(stored_count), self.wins
        source[self.rows[wins]] = stored_count + self.positions[wins]
        source[self.rows[self.made]] = made + np.arange(len(self.made))
        keep = np.ones(stored_count, np.bool_)
        keep[self.rows[wins & incoming.deleted[self.positions]]] = False
        return source[keep]


@dataclass(frozen=True, slots=True)
class Combining:
    """How the columns of two rows become one row; a small picklable value.

    Attributes
    ----------
    table : str
        Path of the table, for messages.
    gaps : Gaps
        Values that count as not given.
    rules : mapping of str to ColumnRule
        Rules of columns; the other columns are replaced.
    function : callable or None
        Makes the rows to store of the older rows, the rows that follow from gaps and rules, and
        words for where they are from (:func:`rows_of_function`); it travels to tasks as Spark's own
        functions do.
    required : tuple of str
        Columns that may not be null.
    fills_late : bool
        Whether the table itself has the rule (Hudi's partial update mode). Then the row with the
        greater ordering value takes its gaps from the other one, also if the other one is late.
    ties : tuple of str
        Ordering fields, if two rows that are equal in them must be equal in all columns.
    groups : ColumnGroups or None
        Columns with orderings of their own; then nothing else of this class applies.
    sources : str or None
        Ordering field, if rows name the columns that they lack (``merge/column_rules.py``).
    reads_stored : bool
        Whether records in log files are whole rows, so that stored rows are read for them.
    """

    table: str
    gaps: Gaps
    rules: Mapping[str, ColumnRule] = field(default_factory=dict)
    function: Callable[[pa.Table, pa.Table, str], pa.Table] | None = None
    required: tuple[str, ...] = ()
    fills_late: bool = False
    ties: tuple[str, ...] = ()
    groups: ColumnGroups | None = None
    sources: str | None = None
    reads_stored: bool = False

    def rows(
        self, older: pa.Table, newer: pa.Table, what: str, gaps: ColumnFlags | None = None
    ) -> pa.Table:
        """Combine rows pair by pair.

        Parameters
        ----------
        older, newer : pa.Table, shape (n_pairs, n_columns)
            The rows, with the columns and types of the table.
        what : str
            Where the rows are from, for messages.
        gaps : mapping of str to ndarray of bool, shape (n_pairs,), optional
            Which values of newer rows are gaps, of columns whose values do not show it.
        """
        if newer.num_rows == 0:
            return newer
        known = gaps or {}
        columns = [
            self._column(name, one_array(older[name]), one_array(newer[name]), known.get(name))
            for name in newer.column_names
        ]
        combined = pa.Table.from_arrays(columns, schema=newer.schema)
        if self.sources is not None:
            combined = with_late_values(older, combined, self.sources)
        return combined if self.function is None else self.function(older, combined, what)

    def _column(
        self, name: str, older: pa.Array, newer: pa.Array, gaps: BoolArray | None = None
    ) -> pa.Array:
        rule = self.rules.get(name, ColumnRule.REPLACE)
        if rule is not ColumnRule.REPLACE:
            return combined_values(rule, older, newer, name, f"write to {self.table}")
        gaps = self.gaps.of(name, newer) if gaps is None else gaps
        return newer if gaps is None else chosen(~gaps, newer, older)

    def _late_rows(
        self, late: pa.Table, stored: pa.Table, what: str, unset: ColumnFlags
    ) -> pa.Table:
        """Combine late records with the rows to which they lose by their ordering value."""
        if self.fills_late:
            found = {name: self.gaps.of(name, stored[name]) for name in unset}
            gaps = {n: flags & ~unset[n] for n, flags in found.items() if flags is not None}
            return self.rows(late, stored, what, gaps)
        columns = [
            self._column(name, one_array(stored[name]), one_array(late[name]))
            if self.rules.get(name) in ACCUMULATING
            else one_array(stored[name])
            for name in stored.column_names
        ]
        return pa.Table.from_arrays(columns, schema=stored.schema)

    @property
    def late_count(self) -> bool:
        """Whether a late record can change a row."""
        return self.fills_late or not ACCUMULATING.isdisjoint(self.rules.values())

    def made(self, incoming: IncomingRecords, stored: pa.Table, met: Meeting, what: str) -> Meeting:
        """Make rows of records and the stored rows of their keys.

        Parameters
        ----------
        incoming : IncomingRecords
            The records.
        stored : pa.Table
            Stored rows with the columns of the records, and perhaps others.
        met : Meeting
            The pairs.
        what : str
            The file group, for messages.
        """
        stored = stored.select(incoming.columns.column_names)
        if self.groups is not None:
            return _by_group(self, self.groups, incoming, stored, met, what)
        if self.ties:
            tied = np.flatnonzero(met.wins & ~incoming.deleted[met.positions])
            records, older, unset = _paired(incoming, stored, met, tied)
            self.require_no_ties(older, records, what, unset)
        live = ~(incoming.deleted | incoming.whole)[met.positions]
        pairs, late = np.flatnonzero(met.wins & live), np.flatnonzero(~met.wins & live)
        records, older, unset = _paired(incoming, stored, met, pairs)
        rows = self.rows(older, records, what, unset)
        self.require_values(incoming.keys.take(pa.array(met.positions[pairs])), rows)
        if not self.late_count or len(late) == 0:
            return replace(met, made=pairs, made_rows=rows)
        records, kept, unset = _paired(incoming, stored, met, late)
        kept = kept.cast(records.schema)
        more = self._late_rows(records, kept, what, unset)
        changed = np.flatnonzero(differing(more, kept))
        rows = joined(rows, more.take(pa.array(changed)))
        return replace(met, made=np.concatenate([pairs, late[changed]]), made_rows=rows)

    def require_no_ties(
        self, older: pa.Table, newer: pa.Table, what: str, gaps: ColumnFlags | None = None
    ) -> None:
        """Raise InputError if a newer row has the ordering value of the older one, and differs.

        The parameters are those of :meth:`rows`; no newer row has a lesser ordering value.
        """
        sides = (
            tuple(comparable(column_of(rows, field, ORDERING)) for field in self.ties)
            for rows in (older, newer)
        )
        made, older = self.rows(older, newer, what, gaps), older.cast(newer.schema)
        self._refuse_tie(at_least(*sides) & differing(older, made), self.ties, older, newer, what)

    def _refuse_tie(
        self, ties: BoolArray, fields: Sequence[str], older: pa.Table, newer: pa.Table, what: str
    ) -> None:
        for at in np.flatnonzero(ties)[:1]:
            rows = [side.slice(at, 1).to_pylist()[0] for side in (older, newer)]
            raise InputError(
                f"write to {self.table}, {what}",
                f"two rows of one key have equal ordering values ({', '.join(fields)}) and "
                f"differ: {rows[0]} and {rows[1]}",
                "correct one of them, or leave out on_tie: then the later one wins",
            )

    def require_no_group_ties(
        self, older: pa.Table, newer: pa.Table, both: BoolArray, erased: pa.Array, what: str
    ) -> None:
        """Raise InputError if rows that bring groups are equal in an ordering, and differ in it."""
        for own, ties in (
            self.groups.ties(older, newer, erased) if self.groups and self.ties else ()
        ):
            self._refuse_tie(ties & both, [own], older, newer, what)

    def require_inserts(self, incoming: IncomingRecords, positions: IntArray) -> None:
        """Raise InputError for a new record without a value in a column that needs one."""
        if self.required:
            at = pa.array(positions)
            self.require_values(incoming.keys.take(at), incoming.columns.take(at))

    def require_values(self, keys: pa.Array, rows: pa.Table) -> None:
        """Raise InputError for a row without a value in a column that needs one."""
        for name in self.required:
            column = one_array(rows[name])
            if column.null_count:
                at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                raise InputError(
                    f"write to {self.table}, column {name}",
                    f"the table requires a value, and the record {keys[at].as_py()!r} gets none",
                    "add the column to the batch, with a value for each key that is not stored",
                )


def meet(
    incoming: IncomingRecords,
    stored: pa.Table,
    ordering_fields: Sequence[str],
    combining: Combining | None,
    what: str,
) -> Meeting:
    """Find the stored rows of records, and what becomes of them.

    Parameters
    ----------
    incoming : IncomingRecords
        Records with distinct keys.
    stored : pa.Table
        Stored rows: record key and the columns of the records.
    ordering_fields : sequence of str
        Fields whose greater value wins; without fields every record wins.
    combining : Combining or None
        How columns are combined; None if a record replaces the row.
    what : str
        The file group, for messages.
    """
    rows, positions = incoming.key_table.places_of(one_array(stored[RECORD_KEY]))
    return meet_at(rows, positions, incoming, stored, ordering_fields, combining, what)


def meet_at(
    rows: IntArray,
    positions: IntArray,
    incoming: IncomingRecords,
    stored: pa.Table,
    ordering_fields: Sequence[str],
    combining: Combining | None,
    what: str,
) -> Meeting:
    """Return what becomes of records and the stored rows of their keys, given the pairs."""
    wins = incoming.wins_over(stored, rows, positions, ordering_fields)
    met = Meeting(rows, positions, wins, np.empty(0, np.int64))
    if combining is None or len(rows) == 0:
        return met
    return combining.made(incoming, stored, met, what)


def _by_group(
    combining: Combining,
    groups: ColumnGroups,
    incoming: IncomingRecords,
    stored: pa.Table,
    met: Meeting,
    what: str,
) -> Meeting:
    """Make rows of groups, also where a delete loses to a row and clears some of its groups."""
    at, erased = pa.array(met.positions), incoming.erases
    ordering = comparable(column_of(stored, groups.of_rows, ORDERING)).take(pa.array(met.rows))
    replaced = (incoming.is_reset | incoming.whole)[met.positions]
    pairs = np.flatnonzero(~replaced & ~covered(erased.take(at), ordering))
    records, older, _ = _paired(incoming, stored, met, pairs)
    positions, older = met.positions[pairs], older.cast(records.schema)
    counts = np.ones(len(pairs), np.bool_), ~incoming.deleted[positions]
    wins, erased = met.wins[pairs], erased.take(pa.array(positions))
    combining.require_no_group_ties(older, records, counts[1], erased, what)
    rows = groups.merged(older, records, counts, wins, erased)
    changed = np.flatnonzero(wins | differing(rows, older))
    return replace(met, made=pairs[changed], made_rows=rows.take(pa.array(changed)))


def _paired(
    incoming: IncomingRecords, stored: pa.Table, met: Meeting, pairs: IntArray
) -> tuple[pa.Table, pa.Table, ColumnFlags]:
    """Return the records and the stored rows of some pairs, and what the records lack."""
    positions = met.positions[pairs]
    return (
        incoming.columns.take(pa.array(positions)),
        stored.take(pa.array(met.rows[pairs])),
        {name: flags[positions] for name, flags in incoming.unset.items()},
    )


def completed(
    incoming: IncomingRecords,
    stored: Iterable[pa.Table],
    ordering_fields: Sequence[str],
    combining: Combining,
    what: str,
) -> tuple[IncomingRecords, int, int]:
    """Make whole rows of records, for a log file, by the stored rows of their keys.

    Parameters
    ----------
    incoming : IncomingRecords
        Records with distinct keys.
    stored : iterable of pa.Table
        The rows of the file slice: record key and data columns.
    ordering_fields : sequence of str
        Fields whose greater value wins; without fields every record wins.
    combining : Combining
        How columns are combined.
    what : str
        The file group, for messages.

    Returns
    -------
    IncomingRecords
        The records that change rows, with the values that the rows have then; deletes as they are.
    int
        Number of records whose key is not stored.
    int
        Number of records that lost to a stored row by their ordering value.
    """
    kept = np.ones(len(incoming), np.bool_)
    fresh = ~incoming.deleted
    source, parts = np.arange(len(incoming)), [incoming.columns]
    count, deleted = len(incoming), incoming.deleted.copy()
    for chunk in stored:
        met = meet(incoming, chunk, ordering_fields, combining, what)
        fresh[met.positions] = False
        kept[met.positions] = met.changes | incoming.deleted[met.positions]
        if met.made_rows is not None:
            source[met.positions[met.made]] = count + np.arange(len(met.made))
            deleted[met.positions[met.made]] = False  # It cleared some columns.
            parts.append(met.made_rows)
            count += len(met.made)
    combining.require_inserts(incoming, np.flatnonzero(fresh))
    columns = joined(*parts).take(pa.array(source))
    records = replace(incoming, columns=columns, deleted=deleted).take(np.flatnonzero(kept))
    return records, int(fresh.sum()), int((~kept).sum())


def joined(*parts: pa.Table) -> pa.Table:
    """Return rows of the same columns and types, one after the other, in one chunk."""
    columns = [
        pa.concat_arrays([one_array(part[name]) for part in parts])
        for name in parts[0].column_names
    ]
    return pa.Table.from_arrays(columns, schema=parts[0].schema)


def _equal(values: pa.Array | pa.ChunkedArray, marker: str) -> BoolArray | None:
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return None
    wanted = pa.scalar(marker.encode(), pa.binary()).cast(values.type)
    equal: BoolArray = pc.fill_null(pc.equal(values, wanted), False).to_numpy(zero_copy_only=False)
    return equal


# ---- A function of the caller that makes the rows to store, and the checks of what it returns ----


def rows_of_function(
    function: MergeFunction,
    table: str,
    fixed: Sequence[str],
    older: pa.Table,
    newer: pa.Table,
    what: str,
) -> pa.Table:
    """Return the rows that a function of the caller makes of stored and new rows.

    Parameters
    ----------
    function : callable
        The function.
    table : str
        Path of the table, for messages.
    fixed : sequence of str
        Columns that it must not change: those of record key, partition and ordering.
    older, newer : pa.Table
        Rows of the same keys, in the same order, with the columns of the table.
    what : str
        Where the rows are from, for messages.

    Raises
    ------
    InputError
        If the function fails, or returns other rows, columns, types or keys.
    """
    name = getattr(function, "__name__", type(function).__name__)
    where = f"write to {table}, {what}, merge function {name!r}"
    try:
        found = function(older, newer)
    except Exception as error:
        problem = f"it raised {type(error).__name__}: {error}"
        raise InputError(where, problem, "correct the function") from error
    if isinstance(found, pa.RecordBatch):
        found = pa.Table.from_batches([found])
    if not isinstance(found, pa.Table):
        _refuse(where, f"it returned {type(found).__name__}", "return a pyarrow.Table")
    if found.num_rows != newer.num_rows:
        problem = f"it got {newer.num_rows} rows and returned {found.num_rows}"
        _refuse(where, problem, "return a row for each row, in the same order")
    _require_columns(found, newer, where)
    try:
        rows = cast_table(found, newer.schema, where=where, exact=True).combine_chunks()
    except BucketLakeError as error:
        raise InputError(where, str(error), "return the types of the table") from error
    for column in fixed:
        if not rows[column].equals(newer[column]):
            _refuse(
                where,
                f"it changed the column {column!r}, which decides where or when a row counts",
                "return the columns of key, partition and ordering of the new rows",
            )
    return rows


def _require_columns(found: pa.Table, newer: pa.Table, where: str) -> None:
    names, wanted = found.column_names, newer.column_names
    lacking = [name for name in wanted if name not in names]
    unknown = [name for name in names if name not in wanted]
    if lacking or unknown or len(names) != len(wanted):
        problem = f"it returned the columns {names}, the table has {wanted}"
        hint = did_you_mean(lacking[0], unknown) if lacking and unknown else ""
        _refuse(where, problem, f"return the columns of the table{hint}")


def _refuse(where: str, problem: str, next_step: str) -> None:
    raise InputError(where, problem, next_step)
