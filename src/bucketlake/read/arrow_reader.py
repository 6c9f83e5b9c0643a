"""Reads a planned snapshot into an Arrow table, without an engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.base_file import BaseFileReader
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import columns_at, fields_at, roots_of, spelled
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.read.clean_guard import telling_what_is_gone
from bucketlake.read.read_plan import ReadPlan
from bucketlake.read.slice_reader import SliceReader
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Storage
from bucketlake.where.predicate import COLUMN_TESTS, Predicate, leaves

_CHUNK_ROWS = 131_072


def read_arrow(storage: Storage, plan: ReadPlan) -> pa.Table:
    """Read the files and slices of a plan; return its rows and columns as a table."""
    rows = PlannedRows.of_plan(storage, plan)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tables = list(pool.map(lambda job: pa.concat_tables(rows.of(job)), plan.jobs))
    return rows.returned(tables)


def first_rows(storage: Storage, plan: ReadPlan, count: int) -> pa.Table:
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
    tested = _tested(plan.predicate)
    rows = PlannedRows.of_plan(storage, replace(plan, columns=tested) if tested else plan)

    def count(job: DataFile | FileSlice) -> int:
        if isinstance(job, DataFile) and rows.condition is None:
            with (
                telling_what_is_gone(storage),
                BaseFileReader(storage, job.path, job.size_bytes) as reader,
            ):
                return reader.row_count
        return sum(chunk.num_rows for chunk in rows.of(job))

    return sum(at_once(storage, count, plan.jobs))


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
    condition : pc.Expression or None
        The rows to keep; None for all.
    columns : tuple of str
        The columns that the read returns, as paths.
    """

    storage: Storage
    reader: SliceReader
    needed: pa.Schema
    condition: pc.Expression | None
    columns: tuple[str, ...]

    @classmethod
    def of_plan(cls, storage: Storage, plan: ReadPlan) -> PlannedRows:
        """Return how the rows of a plan are read.

        Raises
        ------
        UnsupportedFeatureError
            If only Spark can evaluate the condition.
        """
        condition = None
        if plan.predicate is not None:
            condition = _condition(plan.predicate, plan.schema)
        assert plan.where is None or condition is not None, "only a session may read SQL otherwise"
        wanted = plan.columns if plan.columns is not None else plan.schema.names
        asked = [spelled(plan.schema, path) or path for path in wanted]
        needed = fields_at(
            plan.schema, roots_of([*asked, *_tested(plan.predicate)], plan.schema.names)
        )
        return cls(storage, plan.reader, needed, condition, tuple(asked))

    def of(self, job: DataFile | FileSlice) -> Iterator[pa.Table]:
        """Yield the rows of a file or slice in chunks, at least an empty one."""
        needed, condition = self.needed, self.condition
        if isinstance(job, FileSlice):
            chunks = self.reader.read(job, needed.names)
        else:
            chunks = _chunks_of_file(self.storage, job, needed)
        yield needed.empty_table()
        for chunk in chunks:
            rows = cast_table(chunk, needed)
            yield rows if condition is None else rows.filter(condition)

    def tables(self, job: DataFile | FileSlice) -> Iterator[pa.Table]:
        """Yield the rows of a file or slice with the columns of the read."""
        return (self.returned([chunk]) for chunk in self.of(job))

    def returned(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Return the columns of the read, from the rows of its parts."""
        table = pa.concat_tables([self.needed.empty_table(), *tables])
        return columns_at(table, self.columns, "requested")


def _tested(predicate: Predicate | None) -> tuple[str, ...]:
    """Return the columns that a condition tests."""
    found = () if predicate is None else leaves(predicate)
    return tuple(dict.fromkeys(leaf.column for leaf in found if isinstance(leaf, COLUMN_TESTS)))


def _condition(predicate: Predicate, schema: pa.Schema) -> pc.Expression:
    from bucketlake.where.arrow_filter import to_arrow_expression

    return to_arrow_expression(predicate, schema)


def _chunks_of_file(storage: Storage, file: DataFile, needed: pa.Schema) -> Iterator[pa.Table]:
    with (
        telling_what_is_gone(storage),
        BaseFileReader(storage, file.path, file.size_bytes) as reader,
    ):
        yield from reader.iter_chunks(needed.names, rows_max=_CHUNK_ROWS)
