"""The merge of a file slice: merges base rows, chunk by chunk, with the merged log entries.

Base rows keep their position. A log row that wins takes the position of its base row; new rows are
appended, sorted by key. Rows keep their meta columns, because snapshots and compactions need them.
Memory holds the merged log entries and one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.merge.gaps import Gaps
from bucketlake.merge.incoming import BoolArray, IntArray, key_order
from bucketlake.merge.log_records import LogSurvivors
from bucketlake.model.schema import RECORD_KEY


@dataclass(slots=True)
class SliceMerge:
    """One merge of a slice; iterate :meth:`run` once.

    Parameters
    ----------
    survivors : LogSurvivors
        The merged log entries.
    schema : pa.Schema
        Columns of the rows, including the record key and ordering fields.
    ordering_fields : tuple of str
        Ordering fields; empty under commit-time ordering.
    gaps : Gaps, optional
        Values of a row that count as not given, in a table with a partial update mode: then a row
        also takes them from a log entry that loses.
    """

    survivors: LogSurvivors
    schema: pa.Schema
    ordering_fields: tuple[str, ...]
    gaps: Gaps | None = None
    _matched: BoolArray = field(init=False)

    def __post_init__(self) -> None:
        self._matched = np.zeros(len(self.survivors.records), np.bool_)

    def run(self, stored: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows of the slice, in chunks.

        Parameters
        ----------
        stored : iterator of pa.Table
            Rows of the base file, in ``schema``.
        """
        for chunk in stored:
            merged = self._merge_chunk(chunk)
            if merged.num_rows:
                yield merged
        records = self.survivors.records
        fresh = np.flatnonzero(~self._matched & ~records.deleted)
        if len(fresh):
            order = key_order(records.keys.take(pa.array(fresh)))
            yield records.columns.take(pa.array(fresh[order]))

    def _merge_chunk(self, chunk: pa.Table) -> pa.Table:
        records = self.survivors.records
        found = pc.index_in(chunk[RECORD_KEY].combine_chunks(), value_set=records.keys)
        rows = np.flatnonzero(pc.is_valid(found).to_numpy(zero_copy_only=False))
        if len(rows) == 0:
            return chunk
        positions = found.drop_null().to_numpy().astype(np.int64)
        self._matched[positions] = True
        wins = records.wins_over(chunk, rows, positions, self.ordering_fields)
        if self.gaps is not None:
            late = ~wins & ~records.deleted[positions]
            chunk = self._filled(chunk, rows[late], positions[late], self.gaps)
        rows, positions = rows[wins], positions[wins]
        keep = np.ones(chunk.num_rows, np.bool_)
        keep[rows[records.deleted[positions]]] = False
        source = np.arange(chunk.num_rows)
        source[rows] = chunk.num_rows + positions
        return self._gather(chunk, source[keep], np.flatnonzero(keep))

    def _filled(self, chunk: pa.Table, rows: IntArray, positions: IntArray, gaps: Gaps) -> pa.Table:
        """Return stored rows that take values for their gaps from late log entries."""
        unset = self.survivors.unset
        assert unset is not None, "entries of a table with gaps are combined"
        for number, name in enumerate(self.schema.names if len(rows) else ()):
            is_gap = gaps.of(name, chunk[name])
            if is_gap is None:
                continue
            filled = is_gap[rows] & ~unset[positions, number]
            if filled.any():
                given = self.survivors.records.columns[name].cast(chunk[name].type)
                source = np.arange(chunk.num_rows)
                source[rows[filled]] = chunk.num_rows + positions[filled]
                both = pa.chunked_array([*chunk[name].chunks, *given.chunks], chunk[name].type)
                chunk = chunk.set_column(
                    number, chunk.schema.field(name), both.take(pa.array(source))
                )
        return chunk

    def _gather(self, chunk: pa.Table, source: IntArray, places: IntArray) -> pa.Table:
        """Take rows; ``source`` numbers stored rows, then log rows; ``places`` are stored rows."""
        both = pa.concat_tables([chunk, self.survivors.records.columns.cast(chunk.schema)])
        unset = self.survivors.unset
        if unset is None:
            return both.take(pa.array(source))
        from_log = np.flatnonzero(source >= chunk.num_rows)
        of_log = source[from_log] - chunk.num_rows
        columns = []
        for number, name in enumerate(self.schema.names):
            chosen = source.copy()
            absent = unset[of_log, number]
            chosen[from_log[absent]] = places[from_log[absent]]
            columns.append(both[name].take(pa.array(chosen)))
        return pa.Table.from_arrays(columns, names=self.schema.names)
