"""Reading a planned snapshot into an Arrow table, without an engine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.base_file import BaseFileReader
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.schema import cast_table
from bucketlake.read.clean_guard import telling_what_is_gone
from bucketlake.read.plan import ReadPlan
from bucketlake.storage.base import Storage

_CHUNK_ROWS = 131_072


def read_arrow(
    storage: Storage, plan: ReadPlan, *, where: str | None, columns: Sequence[str] | None
) -> pa.Table:
    """Read the files and slices of a plan.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    plan : ReadPlan
        What to read.
    where : str or None
        SQL condition on the rows.
    columns : sequence of str or None
        Columns to return; None returns all of the plan.
    """
    condition = _condition(where, plan.schema) if where else None
    wanted = list(columns) if columns is not None else plan.schema.names
    needed = plan.schema if where else pa.schema([_field(plan.schema, name) for name in wanted])

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
    return table.select([_field(plan.schema, name).name for name in wanted])


def _condition(where: str, schema: pa.Schema) -> pc.Expression:
    from bucketlake.where.arrow_filter import to_arrow_expression
    from bucketlake.where.parser import parse_where  # Its SQL parser is slow to import.

    return to_arrow_expression(parse_where(where, schema), schema)


def _chunks_of_file(storage: Storage, file: DataFile, needed: pa.Schema) -> Iterator[pa.Table]:
    with (
        telling_what_is_gone(),
        BaseFileReader(storage, file.path, file.size_bytes) as reader,
    ):
        yield from reader.iter_chunks(needed.names, rows_max=_CHUNK_ROWS)


def _field(schema: pa.Schema, name: str) -> pa.Field:
    """Return the column of a name, in any case, as Spark resolves it."""
    return next(f for f in schema if f.name.lower() == name.lower())
