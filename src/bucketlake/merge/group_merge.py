"""The copy-on-write merge: stored rows of a file group and incoming records, column by column.

Stored rows are read in chunks and keep their position. A record that wins over a stored row takes
the position of the row; new records are appended, sorted by key. So two attempts of a task write
the same rows in the same order (RFC-29 does not define the order). Memory holds the incoming
records and two chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.merge.combining import Combining, Meeting, meet
from bucketlake.merge.incoming import BoolArray, IncomingRecords, IntArray
from bucketlake.model.arrays import gather, gather_rows, is_everything, one_array
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import META_NAMES
from bucketlake.model.table_type import MergeMode

COMMIT_TIME, SEQUENCE, RECORD_KEY, PARTITION_PATH, FILE_NAME = META_NAMES

_FEW_ROWS = 1024

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
    def compared(self) -> tuple[str, ...]:
        """The ordering fields whose values are compared; none if every incoming record wins."""
        by_event = self.mode is MergeMode.EVENT_TIME and not self.incoming_always_wins
        return self.ordering_fields if by_event else ()

    @property
    def compares(self) -> bool:
        """Whether ordering values are compared."""
        return bool(self.compared)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Values for the meta columns of a new file; sequence numbers contain the group's number."""

    instant: InstantTime
    group_number: int
    partition_path: str
    file_name: str

    def meta_columns(self, keys: pa.Array) -> list[pa.Array]:
        """Return the meta columns of new rows, in the order of ``META_NAMES``."""
        numbers = pa.array(np.arange(len(keys))).cast(pa.string())
        sequences = pc.binary_join_element_wise(f"{self.instant}_{self.group_number}", numbers, "_")
        texts = (self.instant, self.partition_path, self.file_name)
        time, partition, name = (pa.repeat(text, len(keys)) for text in texts)
        return [time, sequences, keys, partition, name]


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
        what = group_in_words(self.stamp.partition_path, self.stamp.file_name)
        met = meet(self.incoming, chunk, self.rule.compared, self.combining, what)
        self.is_stored[met.positions] = True
        changing = met.positions[met.changes]
        deleted = (met.wins & self.incoming.deleted[met.positions])[met.changes]
        self.is_gone[changing[deleted]] = True
        self.counts.ignored += len(met.positions) - len(changing)
        self.counts.deleted += int(deleted.sum())
        self.counts.updated += int((~deleted).sum())
        source = met.outcome(chunk.num_rows, self.incoming)
        if is_last:
            source = np.concatenate([source, chunk.num_rows + self._fresh()])
        return self._assemble(chunk, source, met)

    def _fresh(self) -> IntArray:
        """Count the records that no stored row has; return their positions, sorted by key."""
        positions = np.flatnonzero(~self.is_stored & ~self.incoming.deleted)
        if self.combining is not None:
            self.combining.require_inserts(self.incoming, positions)
        self.counts.inserted += len(positions)
        return self.incoming.in_key_order(positions)

    def _assemble(
        self, chunk: pa.Table | None, source: IntArray, met: Meeting | None = None
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
        keys, held = self.incoming.keys, self.incoming.columns
        if chunk is None and is_everything(source, len(keys)):
            times, sequences = self._times_and_sequences(None, source, incoming, first_row)
            columns = [one_array(held[name]) for name in self.schema.names]
            return self._stamped(times, sequences, keys, columns)
        # Deletes may have only keys, without data columns.
        names = [RECORD_KEY, *held.column_names]
        parts = [pa.Table.from_arrays([keys, *held.columns], names=names)]
        if chunk is not None:
            parts.insert(0, chunk)
        if met is not None and met.made_rows is not None:
            made = self.incoming.keys.take(pa.array(met.positions[met.made]))
            parts.append(met.made_rows.append_column(RECORD_KEY, made))
        keys, *columns = gather_rows(parts, [RECORD_KEY, *self.schema.names], source)
        times, sequences = self._times_and_sequences(chunk, source, incoming, first_row)
        return self._stamped(times, sequences, keys, columns)

    def _times_and_sequences(
        self, chunk: pa.Table | None, source: IntArray, incoming: BoolArray, first_row: int
    ) -> tuple[pa.Array, pa.Array]:
        if first_row + len(source) <= _FEW_ROWS and incoming.all():
            rows = _row_numbers().slice(first_row, len(source))
        else:
            rows = pa.array(first_row + np.flatnonzero(incoming)).cast(pa.string())
        prefix = f"{self.stamp.instant}_{self.stamp.group_number}_"
        fresh = pc.binary_replace_slice(rows, 0, 0, prefix)  # Faster than a join.
        if chunk is None:
            return _constant(self.stamp.instant, len(source)), fresh
        own, count = _constant(self.stamp.instant, 1), chunk.num_rows
        times = np.where(incoming, count, source)
        sequences = np.where(incoming, count - 1 + np.cumsum(incoming), source)
        return (
            gather([chunk[COMMIT_TIME], own], pa.array(times)),
            gather([chunk[SEQUENCE], fresh], pa.array(sequences)),
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


def group_in_words(partition_path: str, file_name: str) -> str:
    """Return the file group of a file in words, for messages."""
    return f"file group {file_name.partition('_')[0]} of partition {partition_path!r}"


def _constant(value: str, length: int) -> pa.DictionaryArray:
    return _repeated(value, max(length, _FEW_ROWS)).slice(0, length)


@lru_cache(maxsize=16)  # The commit time is the same in all files of a write.
def _repeated(value: str, length: int) -> pa.DictionaryArray:
    codes = _zeros() if length == _FEW_ROWS else np.zeros(length, np.int32)
    return pa.DictionaryArray.from_arrays(codes, pa.array([value], pa.string()), safe=False)


@cache
def _zeros() -> pa.Array:
    return pa.array(np.zeros(_FEW_ROWS, np.int32))


@cache
def _row_numbers() -> pa.Array:
    return pa.array(np.arange(_FEW_ROWS)).cast(pa.string())
