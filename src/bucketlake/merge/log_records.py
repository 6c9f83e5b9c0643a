"""Merges the records of a file slice's log blocks to one record per key.

As in Hudi's readers, blocks are merged with each other before they are merged with the base file;
merging each block into the base rows gives other rows. Under event-time ordering a *commit-time
delete* (a delete without an ordering value) wins over all earlier entries and loses to all later
entries. So only the entries after a key's last commit-time delete matter; the entry with the
greatest ordering value wins, and the latest entry if values are equal. Under commit-time ordering
the latest entry wins. If the winner holds only some columns, or has gaps in a table with a partial
update mode, the other columns come from the other entries of the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.merge.combining import Combining, Gaps, meet, meet_at
from bucketlake.merge.incoming import (
    BoolArray,
    IncomingRecords,
    IntArray,
    at_least,
    key_order,
)
from bucketlake.merge.row_changes import RowChanges
from bucketlake.model.arrays import gather_rows, number_order, one_array
from bucketlake.model.schema import RECORD_KEY

_NO_VALUE = -1


def merged_slice(
    records: IncomingRecords,
    stored: Iterator[pa.Table],
    ordering_fields: Sequence[str],
    gaps: Gaps | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of a slice: those of its base file, chunk by chunk, and the new ones.

    Base rows keep their position. A log row that wins takes the position of its base row; new rows
    come last, sorted by key. Rows keep their meta columns, because snapshots and compactions need
    them. Memory holds the merged log entries and one chunk.

    Parameters
    ----------
    records : IncomingRecords
        The merged log entries.
    stored : iterator of pa.Table
        Rows of the base file, with the columns of the entries.
    ordering_fields : sequence of str
        Ordering fields; empty under commit-time ordering.
    gaps : Gaps, optional
        Values of a row that count as not given, in a table with a partial update mode: then a row
        also takes them from a log entry that loses.
    """
    combining = _combining(records, gaps)
    is_new = ~records.deleted
    for chunk in stored:
        met = meet(records, chunk, ordering_fields, combining, "file slice")
        is_new[met.positions] = False
        if len(met.positions):
            source = met.outcome(chunk.num_rows, records)
            parts = [chunk, records.columns]
            parts += [] if met.made_rows is None else [met.made_rows]
            columns = gather_rows(parts, chunk.column_names, source)
            chunk = pa.Table.from_arrays(columns, schema=chunk.schema)
        if chunk.num_rows:
            yield chunk
    fresh = np.flatnonzero(is_new)
    if len(fresh):
        order = key_order(records.keys.take(pa.array(fresh)))
        yield records.columns.take(pa.array(fresh[order]))


def _combining(records: IncomingRecords, gaps: Gaps | None) -> Combining | None:
    """Return how log entries and stored rows are combined; None if an entry replaces the row."""
    if not records.unset and gaps is None:
        return None
    return Combining("", gaps or Gaps(), fills_late=gaps is not None)


def deleted_keys(blocks: Iterable[IncomingRecords]) -> Iterator[pa.Array]:
    """Yield the keys that entries delete, also if a later entry has a row of the key."""
    for entries in blocks:
        if entries.deleted.any():
            yield entries.keys.filter(pa.array(entries.deleted))


def merged_entries(
    blocks: Sequence[IncomingRecords],
    schema: pa.Schema,
    *,
    compares: bool,
    gaps: Gaps | None = None,
) -> IncomingRecords:
    """Merge the entries of a slice's blocks to one entry for each key.

    Parameters
    ----------
    blocks : sequence of IncomingRecords
        The entries of each block, oldest block first. A block of deletes has no columns, a partial
        block has no values (``unset``) in the columns that it lacks.
    schema : pa.Schema
        Columns of rows.
    compares : bool
        Whether ordering values are compared.
    gaps : Gaps, optional
        Values of a row that count as not given, in a table with a partial update mode.

    Returns
    -------
    IncomingRecords
        First rows with columns, then deletes, which have none.
    """
    return merged_versions(blocks, [0] * len(blocks), schema, compares=compares, gaps=gaps)[0]


def merged_versions(
    blocks: Sequence[IncomingRecords],
    steps: Sequence[int],
    schema: pa.Schema,
    *,
    compares: bool,
    gaps: Gaps | None = None,
) -> tuple[IncomingRecords, IntArray]:
    """Merge the entries of a slice's blocks as :func:`merged_entries`, after each of some steps.

    Parameters
    ----------
    steps : sequence of int
        The step of each block; never less than that of the block before.
    blocks, schema, compares, gaps
        As for :func:`merged_entries`.

    Returns
    -------
    IncomingRecords
        What the entries up to a step make of a key, for each key and step with an entry of it.
    ndarray of int64
        The step of each.
    """
    merged = _Concatenated(blocks, schema)
    step_of_entry = np.repeat(np.array(steps, np.int64), [len(block.keys) for block in blocks])
    order = merged.by_key
    places = merged.codes[order], step_of_entry[order]
    ends = np.ones(len(order), np.bool_)
    ends[order[:-1]] = np.any([place[1:] != place[:-1] for place in places], axis=0)
    records, entries = merged.versions(ends, gaps, compares=compares)
    return records, step_of_entry[entries]


def row_versions(
    records: IncomingRecords,
    steps: IntArray,
    stored: pa.Table,
    ordering_fields: Sequence[str],
    gaps: Gaps | None = None,
) -> tuple[pa.Table, RowChanges, IntArray]:
    """Return the versions of the rows of some keys, and which of them a step replaced by which.

    Parameters
    ----------
    records, steps
        What :func:`merged_versions` returns; step 0 replaces nothing.
    stored : pa.Table
        The rows of the base file with these keys, with the columns of the records.
    ordering_fields, gaps
        As for :func:`merged_slice`.

    Returns
    -------
    pa.Table
        All versions.
    RowChanges
        The changes, as positions in the versions.
    ndarray of int64
        The step of each change.
    """
    found = pc.index_in(records.keys, value_set=one_array(stored[RECORD_KEY]))
    at = found.fill_null(-1).to_numpy().astype(np.int64)
    positions = np.flatnonzero(at >= 0)
    combining = _combining(records, gaps)
    what = "file slice"
    met = meet_at(at[positions], positions, records, stored, ordering_fields, combining, what)
    parts = [stored, records.columns, *([] if met.made_rows is None else [met.made_rows])]
    made = stored.num_rows + records.columns.num_rows
    source = np.where(records.deleted, -1, stored.num_rows + np.arange(len(records)))
    loses = ~met.wins
    source[positions[loses]] = met.rows[loses]
    source[positions[met.made]] = made + np.arange(len(met.made))
    codes = records.keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((steps, codes))
    codes, after = codes[order], source[order]
    before = np.roll(after, 1)
    is_first = codes != np.roll(codes, 1)
    is_first[:1] = True
    before[is_first] = at[order][is_first]
    is_change = (steps[order] > 0) & (before != after)
    changes = RowChanges(before[is_change], after[is_change])
    return pa.concat_tables(parts), changes, steps[order][is_change]


class _Concatenated:
    """The entries of all blocks, one after the other."""

    def __init__(self, blocks: Sequence[IncomingRecords], schema: pa.Schema) -> None:
        self.schema = schema
        self.keys = pa.concat_arrays([b.keys for b in blocks] or [pa.array([], pa.string())])
        self.deleted = _joined([b.deleted for b in blocks])
        self.is_reset = _joined([b.is_reset for b in blocks])
        fields = len(blocks[0].ordering) if blocks else 0
        self.ordering = tuple(
            pa.concat_arrays([b.ordering[i] for b in blocks]) for i in range(fields)
        )
        self.with_rows = [block for block in blocks if block.columns.num_columns]
        rows = [block.columns for block in self.with_rows]
        self.rows = pa.concat_tables([schema.empty_table(), *rows]).combine_chunks()
        self.row_of_entry = _rows_of(blocks)
        encoded = self.keys.dictionary_encode()
        self.codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self.by_key, self.key_count = number_order(self.codes), len(encoded.dictionary)

    def versions(
        self, ends: BoolArray, gaps: Gaps | None, *, compares: bool
    ) -> tuple[IncomingRecords, IntArray]:
        """Merge the entries of each key up to some of them; return the outcomes, and which ends.

        The winner of two rows keeps its values. In partial blocks, and with gaps, it takes the
        values that it lacks from the other row, also if the other row is later. A deleted row, and
        a row that loses against a delete, contribute no values. The loop handles the n-th entries
        of all keys (one rank) at once, so each entry is handled once, for any number of ranks and
        blocks.
        """
        combines = gaps is not None or any(block.unset for block in self.with_rows)
        given = [self._given(name, gaps) for name in self.schema.names if combines]
        places = [np.full(self.key_count, _NO_VALUE) for _ in given]  # The row of each value.
        current, no_entries = np.full(self.key_count, -1), np.empty(0, np.int64)
        found, at = [no_entries], [no_entries]
        found_places = [[no_entries] for _ in given]
        for entries in self._by_rank():
            codes, rows = self.codes[entries], self.row_of_entry[entries]
            before = current[codes]
            wins = (before < 0) | self.is_reset[entries] | self.is_reset[before]
            wins |= self._at_least(entries, np.maximum(before, 0)) if compares else True
            both = (before >= 0) & ~self.deleted[entries] & ~self.deleted[before]
            for column, flags in zip(places, given, strict=True):
                new = rows if flags is None else np.where(flags[rows], rows, _NO_VALUE)
                old = column[codes]
                winner, loser = np.where(wins, new, old), np.where(wins, old, new)
                column[codes] = np.where((winner == _NO_VALUE) & both, loser, winner)
            current[codes[wins]] = entries[wins]
            ended = ends[entries]
            at.append(entries[ended])
            found.append(current[codes[ended]])
            for parts, column in zip(found_places, places, strict=True):
                parts.append(column[codes[ended]])
        winners, which = np.concatenate(found), np.concatenate(at)
        is_row = ~self.deleted[winners]
        chosen = [np.concatenate(parts)[is_row] for parts in found_places] if combines else None
        return self.taken(winners, chosen), np.concatenate([which[is_row], which[~is_row]])

    def _given(self, name: str, gaps: Gaps | None) -> BoolArray | None:
        """Return which rows have a value in a column; None if all have one."""
        if not self.rows.num_rows:
            return None
        is_gap = None if gaps is None else gaps.of(name, self.rows[name])
        if any(name in block.unset for block in self.with_rows):
            has_all = ((len(block), block.unset.get(name)) for block in self.with_rows)
            unset = [np.zeros(n, np.bool_) if flags is None else flags for n, flags in has_all]
            is_gap = np.concatenate(unset) | (np.False_ if is_gap is None else is_gap)
        return None if is_gap is None else ~is_gap

    def taken(self, winners: IntArray, places: Sequence[IntArray] | None = None) -> IncomingRecords:
        """Return the winners as merged entries: first rows, then deletes.

        ``places`` has, for each column, the row of each value; ``_NO_VALUE`` if no row has one.
        """
        is_row = ~self.deleted[winners]
        own = self.row_of_entry[winners[is_row]]
        entries = np.concatenate([winners[is_row], winners[~is_row]])
        indices, unset = pa.array(entries), dict[str, BoolArray]()
        if places is None:
            rows = self.rows.take(pa.array(own))
        else:  # Gaps of a row stay where no row has a value.
            unset = {
                name: column == _NO_VALUE
                for name, column in zip(self.schema.names, places, strict=True)
                if (column == _NO_VALUE).any()
            }
            columns = [
                one_array(self.rows[name]).take(pa.array(np.where(unset.get(name, False), own, at)))
                for name, at in zip(self.schema.names, places, strict=True)
            ]
            rows = pa.Table.from_arrays(columns, names=self.schema.names)
        return IncomingRecords(
            self.keys.take(indices),
            rows,
            tuple(values.take(indices) for values in self.ordering),
            self.deleted[entries],
            self.is_reset[entries],
            unset=unset,
        )

    def _by_rank(self) -> list[IntArray]:
        """Return the entries of each rank, in their order."""
        if len(self.codes) == 0:
            return []
        ordered = self.codes[self.by_key]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        rank = np.empty(len(ordered), np.int64)
        sizes = np.diff(np.append(starts, len(ordered)))
        rank[self.by_key] = np.arange(len(ordered)) - np.repeat(starts, sizes)
        return np.split(number_order(rank), np.cumsum(np.bincount(rank))[:-1])

    def _at_least(self, entries: IntArray, held: IntArray) -> BoolArray:
        new = tuple(values.take(pa.array(entries)) for values in self.ordering)
        old = tuple(values.take(pa.array(held)) for values in self.ordering)
        return at_least(new, old)


def _joined(parts: list[BoolArray]) -> BoolArray:
    return np.concatenate([np.zeros(0, np.bool_), *parts])


def _rows_of(blocks: Sequence[IncomingRecords]) -> IntArray:
    """Return the row of each entry among the rows of all blocks; -1 if the entry has no row."""
    has_row = _joined([np.full(len(block), block.columns.num_columns > 0) for block in blocks])
    return np.where(has_row, np.cumsum(has_row) - 1, -1)
