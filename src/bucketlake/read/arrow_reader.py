"""Reads a planned snapshot into an Arrow table, without an engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from bucketlake.flow.stage import in_runs
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import columns_at, fields_at, roots_of, spelled_paths
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.read.read_plan import ReadPlan
from bucketlake.read.slice_reader import SliceReader, opened_base
from bucketlake.storage.base import Storage, at_once
from bucketlake.where.predicate import Among, Predicate, leaves, tested_columns

_CHUNK_ROWS = 131_072
_ROWS_FOR_KEY, _ROWS_AT_ONCE_MAX = 8, 1_048_576


def read_arrow(storage: Storage, plan: ReadPlan) -> pa.Table:
    """Read the files and slices of a plan; return its rows and columns as a table."""
    rows = PlannedRows.of_plan(storage, plan)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tables = list(pool.map(lambda jobs: pa.concat_tables(rows.of(*jobs)), rows.runs(plan)))
    return rows.returned(tables)


def read_first(storage: Storage, plan: ReadPlan, count: int) -> pa.Table:
    """Return some rows of a plan; only the files that have them are read."""
    rows, tables, left = PlannedRows.of_plan(storage, plan), [], count
    for chunk in chain.from_iterable(map(rows.of, plan.jobs)):
        tables.append(chunk.slice(0, min(left, len(chunk))))
        left -= tables[-1].num_rows
        if left <= 0:
            break
    return rows.returned(tables)


def count_rows(storage: Storage, plan: ReadPlan) -> int:
    """Return the number of rows of a plan; of whole base files, the footers tell it.

    Under a condition, only the columns that it tests are read.
    """
    tested = () if plan.predicate is None else tested_columns(plan.predicate)
    rows = PlannedRows.of_plan(storage, replace(plan, columns=tested) if tested else plan)

    def count(jobs: Sequence[DataFile | FileSlice]) -> int:
        job = jobs[0]
        if isinstance(job, DataFile) and rows.condition is None:
            with opened_base(storage, job) as reader:
                return reader.row_count
        return sum(chunk.num_rows for chunk in rows.of(*jobs))

    return sum(at_once(storage, count, rows.runs(plan)))


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """How the files and slices of a plan are read; a small picklable value.

    Attributes
    ----------
    storage : Storage
        The table's storage.
    reader : SliceReader
        Reads slices with log files.
    needed : pa.Schema
        The columns that are read.
    condition : Predicate or None
        The rows to keep; None for all.
    columns : tuple of str
        The columns that the read returns, as paths.
    """

    storage: Storage
    reader: SliceReader
    needed: pa.Schema
    condition: Predicate | None
    columns: tuple[str, ...]

    @classmethod
    def of_plan(cls, storage: Storage, plan: ReadPlan) -> PlannedRows:
        """Return how the rows of a plan are read.

        Raises
        ------
        UnsupportedFeatureError
            If only Spark can evaluate the condition.
        """
        condition = plan.predicate
        tested: tuple[str, ...] = ()
        if condition is not None:
            from bucketlake.where.arrow_filter import require_answerable

            require_answerable(condition)
            tested = tested_columns(condition)
        assert plan.where is None or condition is not None, "only a session may read SQL otherwise"
        wanted = plan.columns if plan.columns is not None else plan.schema.names
        asked = spelled_paths(plan.schema, wanted)
        needed = fields_at(plan.schema, roots_of([*asked, *tested], plan.schema.names))
        return cls(storage, plan.reader, needed, condition, tuple(asked))

    def of(self, *jobs: DataFile | FileSlice) -> Iterator[pa.Table]:
        """Yield the rows of files and slices in chunks, at least an empty one."""
        yield self.needed.empty_table()
        rows = (cast_table(chunk, self.needed) for job in jobs for chunk in self._chunks(job))
        yield from rows if self.condition is None else _matching(rows, self.condition)

    def _chunks(self, job: DataFile | FileSlice) -> Iterator[pa.Table]:
        if isinstance(job, FileSlice):
            yield from self.reader.read(job, self.needed.names)
            return
        with opened_base(self.storage, job) as reader:
            yield from reader.iter_chunks(self.needed.names, rows_max=_CHUNK_ROWS)

    def runs(self, plan: ReadPlan) -> list[list[DataFile | FileSlice]]:
        """Return the files and slices in runs: those in one are filtered together."""
        sizes = [job.size_bytes for job in plan.jobs]
        count = max(self.storage.requests_at_once, 4 * (os.cpu_count() or 1))
        return in_runs(plan.jobs, sizes, 0 if self.condition is None else sum(sizes) / count)

    def tables(self, *jobs: DataFile | FileSlice) -> Iterator[pa.Table]:
        """Yield the rows of files and slices with the columns of the read."""
        return (self.returned([chunk]) for chunk in self.of(*jobs))

    def returned(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Return the columns of the read, from the rows of its parts."""
        table = pa.concat_tables([self.needed.empty_table(), *tables])
        return columns_at(table, self.columns, "requested")


def _matching(chunks: Iterator[pa.Table], condition: Predicate) -> Iterator[pa.Table]:
    """Yield the rows that match, of several chunks at once if the condition has large sets."""
    from bucketlake.where.arrow_filter import truth_of

    sets = (leaf.keys.num_rows for leaf in leaves(condition) if isinstance(leaf, Among))
    # Arrow makes a table of the keys each time, so that it takes a share of the rows' time.
    rows_min = min(_ROWS_FOR_KEY * max(sets, default=0), _ROWS_AT_ONCE_MAX)
    for rows in gathered(chunks, rows_min):
        yield rows.filter(truth_of(condition, rows))


def gathered(chunks: Iterator[pa.Table], rows_min: int) -> Iterator[pa.Table]:
    """Yield rows in tables of at least so many rows; the last may have fewer."""
    held: list[pa.Table] = []
    count = 0
    for chunk in chunks:
        held.append(chunk)
        count += len(chunk)
        if count >= rows_min:
            yield pa.concat_tables(held)
            held, count = [], 0
    if held:
        yield pa.concat_tables(held)
