"""Reads a planned snapshot into an Arrow table, without an engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.base_file import BaseFileReader
from bucketlake.model.field_path import columns_at, fields_at, roots_of, spelled
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.schema import cast_table
from bucketlake.read.clean_guard import telling_what_is_gone
from bucketlake.read.read_plan import ReadPlan
from bucketlake.storage.base import Storage
from bucketlake.where.predicate import Predicate

_CHUNK_ROWS = 131_072


def read_arrow(storage: Storage, plan: ReadPlan) -> pa.Table:
    """Read the files and slices of a plan; return its rows and columns as a table."""
    condition = None
    if plan.where is not None:
        assert plan.predicate is not None, "only a Spark session gives SQL text another meaning"
        condition = _condition(plan.predicate, plan.schema)
    wanted = plan.columns if plan.columns is not None else plan.schema.names
    asked = [spelled(plan.schema, path) or path for path in wanted]
    roots = roots_of(asked, plan.schema.names)
    needed = plan.schema if plan.where is not None else fields_at(plan.schema, roots)

    def read(job: DataFile | FileSlice) -> pa.Table:
        if isinstance(job, FileSlice):
            chunks = plan.reader.read(job, needed.names)
        else:
            chunks = _chunks_of_file(storage, job, needed)
        table = pa.concat_tables([needed.empty_table(), *(cast_table(c, needed) for c in chunks)])
        return table if condition is None else table.filter(condition)

    jobs = [*(file for _, files in plan.files for file in files), *plan.merged]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = list(pool.map(read, jobs))
    table = pa.concat_tables([needed.empty_table(), *parts])
    return columns_at(table, asked, "requested")


def _condition(predicate: Predicate, schema: pa.Schema) -> pc.Expression:
    from bucketlake.where.arrow_filter import to_arrow_expression

    return to_arrow_expression(predicate, schema)


def _chunks_of_file(storage: Storage, file: DataFile, needed: pa.Schema) -> Iterator[pa.Table]:
    with (
        telling_what_is_gone(storage),
        BaseFileReader(storage, file.path, file.size_bytes) as reader,
    ):
        yield from reader.iter_chunks(needed.names, rows_max=_CHUNK_ROWS)
