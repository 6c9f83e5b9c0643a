"""Combines two rows of one key to one row, column by column.

The older row is the stored one, or the earlier one of a batch. Gaps of the newer row take the older
value (:mod:`bucketlake.merge.gaps`); other columns follow their rules
(:mod:`bucketlake.merge.column_rules`), and a function of the caller may follow. Rows of a batch are
combined with each other first, then with the stored row. A late row counts in the columns whose
rule accumulates: a sum must not depend on the order in which rows arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.merge.column_rules import chosen, combined_values
from bucketlake.merge.gaps import Gaps
from bucketlake.merge.incoming import BoolArray, IncomingRecords, IntArray
from bucketlake.merge.row_changes import differing
from bucketlake.merge.row_function import RowFunction
from bucketlake.model.arrays import one_array
from bucketlake.model.row_merge import ACCUMULATING, ColumnRule
from bucketlake.model.schema import RECORD_KEY


@dataclass(frozen=True, slots=True)
class MixedRows:
    """Rows that were made of a stored row and a record.

    Attributes
    ----------
    pairs : ndarray of int64, shape (n_rows,)
        The pairs of which they were made.
    keys : pa.StringArray, shape (n_rows,)
        Their record keys.
    rows : pa.Table
        The rows.
    """

    pairs: IntArray
    keys: pa.Array
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class WholeRecords:
    """Records with the values that their rows have after a write.

    Attributes
    ----------
    records : IncomingRecords
        The records that change rows; deletes as they are.
    inserted : int
        Number of records whose key is not stored.
    ignored : int
        Number of records that lost to a stored row by their ordering value.
    """

    records: IncomingRecords
    inserted: int
    ignored: int


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
    function : RowFunction or None
        Makes the row to store of the older row and the row that follows from gaps and rules.
    required : tuple of str
        Columns that may not be null.
    fills_late : bool
        Whether the table itself has the rule (Hudi's partial update mode). Then the row with the
        greater ordering value takes its gaps from the other one, also if the other one is late.
    """

    table: str
    gaps: Gaps
    rules: Mapping[str, ColumnRule] = field(default_factory=dict)
    function: RowFunction | None = None
    required: tuple[str, ...] = ()
    fills_late: bool = False

    def rows(self, older: pa.Table, newer: pa.Table, what: str) -> pa.Table:
        """Combine rows pair by pair.

        Parameters
        ----------
        older, newer : pa.Table, shape (n_pairs, n_columns)
            The rows, with the columns and types of the table.
        what : str
            Where the rows are from, for messages.
        """
        if newer.num_rows == 0:
            return newer
        columns = [
            self._column(name, one_array(older[name]), one_array(newer[name]))
            for name in newer.column_names
        ]
        combined = pa.Table.from_arrays(columns, schema=newer.schema)
        return combined if self.function is None else self.function.rows(older, combined, what)

    def _column(self, name: str, older: pa.Array, newer: pa.Array) -> pa.Array:
        rule = self.rules.get(name, ColumnRule.REPLACE)
        if rule is not ColumnRule.REPLACE:
            return combined_values(rule, older, newer, name, f"write to {self.table}")
        gaps = self.gaps.of(name, newer)
        return newer if gaps is None else chosen(~gaps, newer, older)

    def late_rows(self, late: pa.Table, stored: pa.Table, what: str) -> pa.Table:
        """Combine late records with the rows to which they lose by their ordering value.

        Parameters
        ----------
        late, stored : pa.Table, shape (n_pairs, n_columns)
            Records and stored rows, with the columns and types of the table.
        what : str
            Where the rows are from, for messages.
        """
        if self.fills_late:
            return self.rows(late, stored, what)
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

    def mixed(
        self,
        incoming: IncomingRecords,
        positions: IntArray,
        stored: pa.Table,
        rows: IntArray,
        wins: BoolArray,
        what: str,
    ) -> MixedRows:
        """Combine records with the stored rows of their keys.

        Parameters
        ----------
        incoming : IncomingRecords
            The records.
        positions : ndarray of int64, shape (n_pairs,)
            Positions of records.
        stored : pa.Table
            Stored rows with the columns of the records, and perhaps others.
        rows : ndarray of int64, shape (n_pairs,)
            For each of these records, the position of the stored row.
        wins : ndarray of bool, shape (n_pairs,)
            Whether the record wins over the row.
        what : str
            The file group, for messages.
        """
        names = incoming.columns.column_names
        live = ~incoming.deleted[positions]
        if incoming.is_whole is not None:
            live &= ~incoming.is_whole[positions]
        takes = wins & live
        pairs = np.flatnonzero(takes)
        newer = incoming.columns.take(pa.array(positions[pairs]))
        mixed = self.rows(stored.select(names).take(pa.array(rows[pairs])), newer, what)
        keys = incoming.keys.take(pa.array(positions[pairs]))
        self.require_values(keys, mixed)
        late = np.flatnonzero(~wins & live)
        if not self.late_count or len(late) == 0:
            return MixedRows(pairs, keys, mixed)
        records = incoming.columns.take(pa.array(positions[late]))
        held = stored.select(names).take(pa.array(rows[late])).cast(records.schema)
        more = self.late_rows(records, held, what)
        changed = np.flatnonzero(differing(more, held))
        pairs = np.concatenate([pairs, late[changed]])
        keys = incoming.keys.take(pa.array(positions[pairs]))
        return MixedRows(pairs, keys, joined(mixed, more.take(pa.array(changed))))

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


def completed(
    incoming: IncomingRecords,
    stored: Iterable[pa.Table],
    ordering_fields: Sequence[str],
    combining: Combining,
    what: str,
) -> WholeRecords:
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
    """
    kept = np.ones(len(incoming), np.bool_)
    fresh = ~incoming.deleted
    source, parts = np.arange(len(incoming)), [incoming.columns]
    count = len(incoming)
    for chunk in stored:
        rows, positions = incoming.found_in(one_array(chunk[RECORD_KEY]))
        if len(rows) == 0:
            continue
        fresh[positions] = False
        wins = incoming.wins_over(chunk, rows, positions, ordering_fields)
        mixed = combining.mixed(incoming, positions, chunk, rows, wins, what)
        kept[positions] = wins | incoming.deleted[positions]
        kept[positions[mixed.pairs]] = True
        source[positions[mixed.pairs]] = count + np.arange(len(mixed.pairs))
        parts.append(mixed.rows)
        count += len(mixed.pairs)
    combining.require_inserts(incoming, np.flatnonzero(fresh))
    columns = joined(*parts).take(pa.array(source))
    records = incoming.with_columns(columns).take(np.flatnonzero(kept))
    return WholeRecords(records, int(fresh.sum()), int((~kept).sum()))


def joined(*parts: pa.Table) -> pa.Table:
    """Return rows of the same columns and types, one after the other, in one chunk."""
    columns = [
        pa.concat_arrays([one_array(part[name]) for part in parts])
        for name in parts[0].column_names
    ]
    return pa.Table.from_arrays(columns, schema=parts[0].schema)
