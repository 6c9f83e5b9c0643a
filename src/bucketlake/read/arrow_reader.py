"""Reads a planned snapshot into an Arrow table, without an engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.base_file import BaseFileReader
from bucketlake.model.field_path import columns_at, fields_at, roots_of, spelled
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.schema import cast_table
from bucketlake.read.clean_guard import telling_what_is_gone
from bucketlake.read.read_plan import ReadPlan
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Storage
from bucketlake.where.predicate import Predicate

_CHUNK_ROWS = 131_072


def read_arrow(storage: Storage, plan: ReadPlan) -> pa.Table:
    """Read the files and slices of a plan; return its rows and columns as a table."""
    parts = _Parts(storage, plan)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tables = list(pool.map(lambda job: pa.concat_tables(parts.of(job)), parts.jobs))
    return parts.returned(tables)


def first_rows(storage: Storage, plan: ReadPlan, count: int) -> pa.Table:
    """Return some rows of a plan; only the files that have them are read."""
    parts, tables, left = _Parts(storage, plan), [], count
    for chunk in chain.from_iterable(map(parts.of, parts.jobs)):
        tables.append(chunk.slice(0, min(left, len(chunk))))
        left -= tables[-1].num_rows
        if left <= 0:
            break
    return parts.returned(tables)


def count_rows(storage: Storage, plan: ReadPlan) -> int:
    """Return the number of rows of a plan; of whole base files, the footers tell it."""
    parts = _Parts(storage, plan)

    def count(job: DataFile | FileSlice) -> int:
        if isinstance(job, DataFile) and plan.where is None:
            with (
                telling_what_is_gone(storage),
                BaseFileReader(storage, job.path, job.size_bytes) as reader,
            ):
                return reader.row_count
        return sum(chunk.num_rows for chunk in parts.of(job))

    return sum(at_once(storage, count, parts.jobs))


class _Parts:
    """The rows of a plan, file by file."""

    def __init__(self, storage: Storage, plan: ReadPlan) -> None:
        self._storage, self._plan = storage, plan
        self._condition = None
        if plan.where is not None:
            assert plan.predicate is not None, "only a Spark session gives SQL text another meaning"
            self._condition = _condition(plan.predicate, plan.schema)
        wanted = plan.columns if plan.columns is not None else plan.schema.names
        self._asked = [spelled(plan.schema, path) or path for path in wanted]
        roots = roots_of(self._asked, plan.schema.names)
        self._needed = plan.schema if plan.where is not None else fields_at(plan.schema, roots)

    @property
    def jobs(self) -> list[DataFile | FileSlice]:
        """The files and slices."""
        return [*(file for _, files in self._plan.files for file in files), *self._plan.merged]

    def of(self, job: DataFile | FileSlice) -> Iterator[pa.Table]:
        """Yield the rows of a file or slice in chunks, at least an empty one."""
        needed, condition = self._needed, self._condition
        if isinstance(job, FileSlice):
            chunks = self._plan.reader.read(job, needed.names)
        else:
            chunks = _chunks_of_file(self._storage, job, needed)
        yield needed.empty_table()
        for chunk in chunks:
            rows = cast_table(chunk, needed)
            yield rows if condition is None else rows.filter(condition)

    def returned(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Return the columns of the read, from the rows of its parts."""
        table = pa.concat_tables([self._needed.empty_table(), *tables])
        return columns_at(table, self._asked, "requested")


def _condition(predicate: Predicate, schema: pa.Schema) -> pc.Expression:
    from bucketlake.where.arrow_filter import to_arrow_expression

    return to_arrow_expression(predicate, schema)


def _chunks_of_file(storage: Storage, file: DataFile, needed: pa.Schema) -> Iterator[pa.Table]:
    with (
        telling_what_is_gone(storage),
        BaseFileReader(storage, file.path, file.size_bytes) as reader,
    ):
        yield from reader.iter_chunks(needed.names, rows_max=_CHUNK_ROWS)
