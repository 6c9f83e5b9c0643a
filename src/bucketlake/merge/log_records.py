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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.merge.gaps import Gaps
from bucketlake.merge.incoming import (
    BoolArray,
    IncomingRecords,
    IntArray,
    at_least,
    sort_nulls_first,
)

MaskMatrix = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LogEntries:
    """Entries of one log block, in its order.

    Attributes
    ----------
    keys : pa.StringArray, shape (n_entries,)
        Record keys.
    ordering : tuple of pa.Array
        Comparable ordering values, undefined for ``is_reset``. Empty under commit-time ordering.
    deleted : ndarray of bool, shape (n_entries,)
        True if an entry deletes its key.
    is_reset : ndarray of bool, shape (n_entries,)
        True for a commit-time delete, see :func:`~bucketlake.merge.incoming.commit_time_deletes`.
    columns : pa.Table or None
        Rows of the entries; None for a block of deletes.
    partial : tuple of str or None
        Columns of the rows of a partial block; None for all columns.
    """

    keys: pa.Array
    ordering: tuple[pa.Array, ...]
    deleted: BoolArray
    is_reset: BoolArray
    columns: pa.Table | None = None
    partial: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class LogSurvivors:
    """The merged log entries of a slice.

    Attributes
    ----------
    records : IncomingRecords
        One entry per key: first rows with columns, then deletes.
    unset : ndarray of bool, shape (n_rows, n_columns), or None
        True if a row has no value in a column and takes the stored row's value; None if all rows
        have all values.
    """

    records: IncomingRecords
    unset: MaskMatrix | None = None


@dataclass(slots=True)
class LogMerge:
    """Collects the entries of a slice's blocks, oldest first, and merges them.

    Parameters
    ----------
    schema : pa.Schema
        Columns of rows.
    compares : bool
        Whether ordering values are compared.
    gaps : Gaps, optional
        Values of a row that count as not given, in a table with a partial update mode.
    """

    schema: pa.Schema
    compares: bool
    gaps: Gaps | None = None
    _entries: list[LogEntries] = field(default_factory=list)

    def add(self, entries: LogEntries) -> None:
        """Add the entries of the next block."""
        if len(entries.keys):
            self._entries.append(entries)

    def deleted_keys(self) -> Iterator[pa.Array]:
        """Yield the keys that entries delete, also if a later entry has a row of the key."""
        for entries in self._entries:
            if entries.deleted.any():
                yield entries.keys.filter(pa.array(entries.deleted))

    def survivors(self) -> LogSurvivors:
        """Return the merged entries, one per key."""
        merged = _Concatenated(self._entries, self.schema, self.gaps)
        counting = merged.entries_that_count() if self.compares else np.arange(len(merged.keys))
        is_partial = any(entries.partial is not None for entries in self._entries)
        if is_partial or self.gaps is not None:
            return merged.combined(counting, self.compares)
        winners = merged.last_of_each_key(counting, self.compares)
        return merged.take(winners)


class _Concatenated:
    """The entries of all blocks, one after the other."""

    def __init__(
        self, blocks: Sequence[LogEntries], schema: pa.Schema, gaps: Gaps | None = None
    ) -> None:
        self.schema, self.blocks, self.gaps = schema, blocks, gaps
        self.keys = pa.concat_arrays([b.keys for b in blocks] or [pa.array([], pa.string())])
        self.deleted = _joined([b.deleted for b in blocks])
        self.is_reset = _joined([b.is_reset for b in blocks])
        fields = len(blocks[0].ordering) if blocks else 0
        self.ordering = tuple(
            pa.concat_arrays([b.ordering[i] for b in blocks]) for i in range(fields)
        )
        rows = [b.columns for b in blocks if b.columns is not None]
        self.rows = pa.concat_tables([schema.empty_table(), *rows]).combine_chunks()
        self.row_of_entry = _rows_of(blocks)
        self.block_of_entry = np.repeat(np.arange(len(blocks)), [len(b.keys) for b in blocks])
        encoded = self.keys.dictionary_encode()
        self.codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self.key_count = len(encoded.dictionary)

    def entries_that_count(self) -> IntArray:
        """Return the entries after each key's last commit-time delete, or that delete if none."""
        places = np.arange(len(self.codes))
        last = np.full(self.key_count, -1)
        np.maximum.at(last, self.codes[self.is_reset], places[self.is_reset])
        after = places > last[self.codes]
        has_later = np.zeros(self.key_count, np.bool_)
        has_later[self.codes[after]] = True
        is_last_reset = places == last[self.codes]
        return np.flatnonzero(after | (is_last_reset & ~has_later[self.codes]))

    def last_of_each_key(self, counting: IntArray, compares: bool) -> IntArray:
        """Return the winners among entries, one per key: by ordering value, then by position."""
        codes = self.codes[counting]
        if not compares:
            last: IntArray = np.full(self.key_count, -1)
            last[codes] = counting  # For repeated codes the last assignment stays.
            return last[last >= 0]
        repeated = np.bincount(codes, minlength=self.key_count)[codes] > 1
        alone: IntArray = counting[~repeated]
        several: IntArray = counting[repeated]
        if len(several) == 0:
            return alone
        taken = pa.array(several)
        order = sort_nulls_first(
            [
                pa.array(self.codes[several]),
                *(values.take(taken) for values in self.ordering),
                pa.array(several),
            ]
        )
        ordered = several[order]
        is_last = np.append(self.codes[ordered][1:] != self.codes[ordered][:-1], True)
        winners: IntArray = np.concatenate([alone, ordered[is_last]])
        return winners

    def take(self, winners: IntArray) -> LogSurvivors:
        """Return the winners as merged entries: first rows, then deletes."""
        is_row = ~self.deleted[winners]
        rows, deletes = winners[is_row], winners[~is_row]
        chosen = np.concatenate([rows, deletes])
        indices = pa.array(chosen)
        records = IncomingRecords(
            self.keys.take(indices),
            self.rows.take(pa.array(self.row_of_entry[rows])),
            tuple(values.take(indices) for values in self.ordering),
            self.deleted[chosen],
            self.is_reset[chosen],
        )
        return LogSurvivors(records)

    def combined(self, counting: IntArray, compares: bool) -> LogSurvivors:
        """Combine rows of partial blocks, or rows with gaps, with the other entries of their keys.

        The winner of two rows keeps its values, and takes the values that it lacks from the other
        row, also if the other row is later. The loop handles the n-th entries of all keys (one
        rank) at once, so each entry is handled once, for any number of ranks and blocks.
        """
        source = np.full((self.key_count, len(self.schema)), -1)  # Row from which a value comes.
        is_gap = [None if self.gaps is None else self._gaps_of(n) for n in self.schema.names]
        current = np.full(self.key_count, -1)
        for entries in self._by_rank(counting):
            held = current[self.codes[entries]]
            wins = held < 0
            wins |= self._at_least(entries, np.maximum(held, 0)) if compares else True
            both_rows = (held >= 0) & ~self.deleted[entries] & ~self.deleted[held]
            # A deleted row, and a row that loses against a delete, contribute no values.
            source[self.codes[entries[wins & ~both_rows]]] = -1
            for columns, inside in self._columns_of(entries):
                of_block, put = entries[inside], wins[inside]
                fill = both_rows[inside] & ~put
                for column in columns:
                    gap = is_gap[column]
                    given = np.True_ if gap is None else ~gap[self.row_of_entry[of_block]]
                    self._put(source[:, column], of_block, put & given)
                    self._fill(source[:, column], of_block, fill & given)
            current[self.codes[entries[wins]]] = entries[wins]
        return self._assemble(np.flatnonzero(current >= 0), current, source)

    def _gaps_of(self, name: str) -> BoolArray | None:
        assert self.gaps is not None
        return self.gaps.of(name, self.rows[name])

    def _put(self, source: IntArray, entries: IntArray, chosen: BoolArray) -> None:
        source[self.codes[entries[chosen]]] = self.row_of_entry[entries[chosen]]

    def _fill(self, source: IntArray, entries: IntArray, chosen: BoolArray) -> None:
        codes = self.codes[entries[chosen]]
        rows = self.row_of_entry[entries[chosen]]
        source[codes] = np.where(source[codes] < 0, rows, source[codes])

    def _columns_of(self, entries: IntArray) -> Iterator[tuple[list[int], slice]]:
        """Yield for each block of entries the columns of its rows, and the slice of its entries."""
        numbers = self.block_of_entry[entries]  # Ascending, like the entries.
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])).tolist()
        for start, stop in pairwise([*starts, len(entries)]):
            block = self.blocks[numbers[start]]
            if block.columns is not None:
                names = self.schema.names if block.partial is None else block.partial
                yield [self.schema.get_field_index(name) for name in names], slice(start, stop)

    def _assemble(self, codes: IntArray, current: IntArray, source: IntArray) -> LogSurvivors:
        is_row = ~self.deleted[current[codes]]
        codes = np.concatenate([codes[is_row], codes[~is_row]])
        row_codes = codes[: int(is_row.sum())]
        own = self.row_of_entry[current[row_codes]]  # Its gaps stay where no row has a value.
        columns = [
            self.rows[name]
            .combine_chunks()
            .take(pa.array(np.where(source[row_codes, i] < 0, own, source[row_codes, i])))
            for i, name in enumerate(self.schema.names)
        ]
        indices = pa.array(current[codes])
        records = IncomingRecords(
            self.keys.take(indices),
            pa.Table.from_arrays(columns, names=self.schema.names),
            tuple(values.take(indices) for values in self.ordering),
            self.deleted[current[codes]],
            self.is_reset[current[codes]],
        )
        return LogSurvivors(records, source[row_codes] < 0)

    def _by_rank(self, counting: IntArray) -> list[IntArray]:
        """Return the entries of each rank, in their order."""
        if len(counting) == 0:
            return []
        codes = self.codes[counting]
        order = np.argsort(codes, kind="stable")
        sorted_codes = codes[order]
        starts = np.flatnonzero(np.append(True, sorted_codes[1:] != sorted_codes[:-1]))
        sizes = np.diff(np.append(starts, len(order)))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - np.repeat(starts, sizes)
        ends = np.cumsum(np.bincount(rank))
        return np.split(counting[np.argsort(rank, kind="stable")], ends[:-1])

    def _at_least(self, entries: IntArray, held: IntArray) -> BoolArray:
        new = tuple(values.take(pa.array(entries)) for values in self.ordering)
        old = tuple(values.take(pa.array(held)) for values in self.ordering)
        return at_least(new, old)


def _joined(parts: list[BoolArray]) -> BoolArray:
    return np.concatenate([np.zeros(0, np.bool_), *parts])


def _rows_of(blocks: Sequence[LogEntries]) -> IntArray:
    """Return the row of each entry among the rows of all blocks; -1 if the entry has no row."""
    parts, rows = [np.zeros(0, np.int64)], 0
    for block in blocks:
        count = len(block.keys)
        parts.append(
            np.arange(rows, rows + count) if block.columns is not None else np.full(count, -1)
        )
        rows += count if block.columns is not None else 0
    return np.concatenate(parts)
