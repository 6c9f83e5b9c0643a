"""The copy-on-write merge: stored rows of a file group and incoming records, column by column.

Stored rows are read in chunks and keep their position. A record that wins over a stored row takes
the position of the row; new records are appended, sorted by key. So two attempts of a task write
the same rows in the same order (RFC-29 does not define the order). Memory holds the incoming
records and two chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.merge.combining import Combining, MixedRows
from bucketlake.merge.incoming import (
    BoolArray,
    IncomingRecords,
    IntArray,
    key_order,
)
from bucketlake.model.arrays import one_array
from bucketlake.model.file_name import InstantTime
from bucketlake.model.number_order import is_everything
from bucketlake.model.schema import META_NAMES
from bucketlake.model.table_type import MergeMode

COMMIT_TIME, SEQUENCE, RECORD_KEY, PARTITION_PATH, FILE_NAME = META_NAMES

STORED_META = (COMMIT_TIME, SEQUENCE, RECORD_KEY)
"""Meta columns that are read from a stored file; the others are constants of the new file."""


@dataclass(frozen=True, slots=True)
class MergeRule:
    """Which of two records with the same key wins.

    Under commit-time ordering the incoming record always wins. Under event-time ordering it wins
    if its ordering value is not less. A delete without an ordering value always wins.
    """

    mode: MergeMode
    ordering_fields: tuple[str, ...]
    incoming_always_wins: bool = False

    @property
    def compares(self) -> bool:
        """Whether ordering values are compared."""
        by_event = self.mode is MergeMode.EVENT_TIME and bool(self.ordering_fields)
        return by_event and not self.incoming_always_wins


@dataclass(frozen=True, slots=True)
class Stamp:
    """Values for the meta columns of a new file; sequence numbers contain the group's number."""

    instant: InstantTime
    group_number: int
    partition_path: str
    file_name: str


@dataclass(slots=True)
class MergeCounts:
    """Numbers of inserted, updated, deleted and ignored records, and of rows of the new file.

    An ignored record has a stored key, and lost by its ordering value.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0
    written: int = 0

    @property
    def changed(self) -> int:
        """Number of records that changed the file group."""
        return self.inserted + self.updated + self.deleted


@dataclass(slots=True)
class GroupMerge:
    """One merge of stored chunks with incoming records; iterate :meth:`run` once.

    Parameters
    ----------
    incoming : IncomingRecords
        Records with distinct keys, see ``distinct_rows``.
    rule : MergeRule
        Which record wins.
    stamp : Stamp
        Meta columns of the new file.
    schema : pa.Schema
        Data schema of the new file, without meta columns.
    combining : Combining, optional
        How the columns of a record and of a stored row are combined; None if a record replaces the
        row.

    Attributes
    ----------
    counts : MergeCounts
        Numbers of records and rows; complete after the run.
    is_stored : ndarray of bool, shape (n_records,)
        Whether the group had a row with the key of the record; complete after the run.
    is_gone : ndarray of bool, shape (n_records,)
        Whether the record deleted that row; complete after the run.
    """

    incoming: IncomingRecords
    rule: MergeRule
    stamp: Stamp
    schema: pa.Schema
    combining: Combining | None = None
    counts: MergeCounts = field(default_factory=MergeCounts)
    is_stored: BoolArray = field(init=False)
    is_gone: BoolArray = field(init=False)

    def __post_init__(self) -> None:
        self.is_stored = np.zeros(len(self.incoming), np.bool_)
        self.is_gone = np.zeros(len(self.incoming), np.bool_)

    def run(self, stored: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows of the new file, meta columns first.

        Parameters
        ----------
        stored : iterator of pa.Table
            Rows of the newest base file: ``STORED_META`` and the data columns in ``schema``.
        """
        chunk = next(stored, None)
        if chunk is None and len(fresh := self._fresh()):
            yield self._assemble(None, fresh)
        while chunk is not None:
            following = next(stored, None)
            # New records come with the last chunk, so that its rows are copied once.
            chunk = self._merge_chunk(chunk, is_last=following is None)
            if chunk.num_rows:
                yield chunk
            chunk = following

    def _merge_chunk(self, chunk: pa.Table, *, is_last: bool) -> pa.Table:
        rows, positions = self.incoming.found_in(one_array(chunk[RECORD_KEY]))
        self.is_stored[positions] = True
        fields = self.rule.ordering_fields if self.rule.compares else ()
        wins = self.incoming.wins_over(chunk, rows, positions, fields)
        mixed, changes = self._mixed(chunk, rows, positions, wins), wins
        source, stored = np.arange(chunk.num_rows), chunk.num_rows
        source[rows[wins]] = stored + positions[wins]
        if mixed is not None:
            changes = wins.copy()
            changes[mixed.pairs] = True
            source[rows[mixed.pairs]] = stored + len(self.incoming) + np.arange(len(mixed.pairs))
        self.counts.ignored += int((~changes).sum())
        rows, positions = rows[changes], positions[changes]
        deleted = self.incoming.deleted[positions]
        self.counts.deleted += int(deleted.sum())
        self.counts.updated += int((~deleted).sum())
        self.is_gone[positions[deleted]] = True
        keep = np.ones(chunk.num_rows, np.bool_)
        keep[rows[deleted]] = False
        source = source[keep]
        if is_last:
            source = np.concatenate([source, stored + self._fresh()])
        return self._assemble(chunk, source, mixed)

    def _mixed(
        self, chunk: pa.Table, rows: IntArray, positions: IntArray, wins: BoolArray
    ) -> MixedRows | None:
        if self.combining is None or len(rows) == 0:
            return None
        what = group_in_words(self.stamp.partition_path, self.stamp.file_name)
        return self.combining.mixed(self.incoming, positions, chunk, rows, wins, what)

    def _fresh(self) -> IntArray:
        """Count the records that no stored row has; return their positions, sorted by key."""
        positions = np.flatnonzero(~self.is_stored & ~self.incoming.deleted)
        if self.combining is not None:
            self.combining.require_inserts(self.incoming, positions)
        self.counts.inserted += len(positions)
        return positions[key_order(_taken(self.incoming.keys, positions))]

    def _assemble(
        self, chunk: pa.Table | None, source: IntArray, mixed: MixedRows | None = None
    ) -> pa.Table:
        """Gather output rows.

        ``source`` numbers the stored rows, then the incoming records, then rows made of both.
        """
        stored_count = 0 if chunk is None else chunk.num_rows
        first_row = self.counts.written
        self.counts.written += len(source)
        incoming = source >= stored_count
        if chunk is not None and len(source) == stored_count and not incoming.any():
            return self._stamped(
                chunk[COMMIT_TIME],
                chunk[SEQUENCE],
                chunk[RECORD_KEY],
                [chunk[name] for name in self.schema.names],
            )
        indices = pa.array(source)
        if chunk is None and is_everything(source, len(self.incoming)):
            keys = self.incoming.keys
            columns = [self.incoming.columns[name] for name in self.schema.names]
        elif incoming.any():
            parts = [(self.incoming.keys, self.incoming.columns)]
            if chunk is not None:
                parts.insert(0, (chunk[RECORD_KEY], chunk))
            if mixed is not None:
                parts.append((mixed.keys, mixed.rows))
            keys = _gather([keys for keys, _ in parts], indices)
            columns = [
                _gather([columns[name] for _, columns in parts], indices)
                for name in self.schema.names
            ]
        else:  # Deletes may have only keys, without data columns.
            assert chunk is not None
            keys = one_array(chunk[RECORD_KEY]).take(indices)
            columns = [one_array(chunk[name]).take(indices) for name in self.schema.names]
        times, sequences = self._times_and_sequences(chunk, source, incoming, first_row)
        return self._stamped(times, sequences, keys, columns)

    def _times_and_sequences(
        self, chunk: pa.Table | None, source: IntArray, incoming: BoolArray, first_row: int
    ) -> tuple[pa.Array, pa.Array]:
        rows = pa.array(first_row + np.flatnonzero(incoming)).cast(pa.string())
        prefix = f"{self.stamp.instant}_{self.stamp.group_number}_"
        fresh = pc.binary_replace_slice(rows, 0, 0, prefix)  # Faster than a join.
        if chunk is None:
            return _constant(self.stamp.instant, len(source)), fresh
        own, count = _constant(self.stamp.instant, 1), chunk.num_rows
        times = np.where(incoming, count, source)
        sequences = np.where(incoming, count - 1 + np.cumsum(incoming), source)
        return (
            _gather([chunk[COMMIT_TIME], own], pa.array(times)),
            _gather([chunk[SEQUENCE], fresh], pa.array(sequences)),
        )

    def _stamped(
        self, times: pa.Array, sequences: pa.Array, keys: pa.Array, columns: list[pa.Array]
    ) -> pa.Table:
        n = len(keys)
        meta = [
            times,
            sequences,
            keys,
            _constant(self.stamp.partition_path, n),
            _constant(self.stamp.file_name, n),
        ]
        return pa.Table.from_arrays(meta + columns, names=[*META_NAMES, *self.schema.names])


def _gather(parts: list[pa.Array | pa.ChunkedArray], indices: pa.Array) -> pa.Array:
    arrays = [one_array(part) for part in parts]
    if any(pa.types.is_dictionary(array.type) for array in arrays):
        arrays = [array.dictionary_encode() for array in arrays]
    return (arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)).take(indices)


def group_in_words(partition_path: str, file_name: str) -> str:
    """Return the file group of a file in words, for messages."""
    return f"file group {file_name.partition('_')[0]} of partition {partition_path!r}"


def _taken(keys: pa.Array, positions: IntArray) -> pa.Array:
    return keys if is_everything(positions, len(keys)) else keys.take(pa.array(positions))


def _constant(value: str, length: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(length, np.int32), pa.array([value]))
