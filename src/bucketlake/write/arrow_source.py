"""Arrow tables as the source of a write: without an engine, the tasks are threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from bucketlake.flow.threads import ThreadFlow, Threads
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import stored_type
from bucketlake.model.field_path import columns_at
from bucketlake.write.pack import PackedRecords, pack_records
from bucketlake.write.tag import Tagger

_PART_ROWS_MIN = 1 << 16  # Of a part of the records that a thread tags and routes.


class ArrowSource:
    """Records of an Arrow table; its row order decides between equal ordering values."""

    def __init__(self, rows: pa.Table, threads: int | None = None) -> None:
        self._rows = selectable(rows)
        self._threads = Threads(threads)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self._rows.column_names
        return names

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table."""
        return self._rows.schema

    def is_empty(self) -> bool:
        """Return whether the table has no rows."""
        return len(self._rows) == 0

    def keep(self, paths: list[str]) -> None:
        """Keep only the values at these paths."""
        self._rows = columns_at(self._rows, paths)

    def pack(self, tagger: Tagger) -> PackedRecords:
        """Tag and count the records, in parts of equal size."""
        count = len(self._rows)
        size = max(_PART_ROWS_MIN, -(-count // self._threads.tasks_wanted))

        def packed(start: int) -> Iterator[Any]:
            part = self._rows.slice(start, size)
            return pack_records(tagger, [part], first_position=start)

        starts = range(0, max(1, count), size)  # A table without rows is a part, too.
        flow = ThreadFlow(self._threads, self._threads.each(packed, starts)).kept()
        return PackedRecords(flow, self._rows.schema, self._threads.tasks_wanted)

    def close(self) -> None:
        """Do nothing: the source keeps nothing."""


def selectable(rows: pa.Table) -> pa.Table:
    """Return the rows in layouts of which Arrow can select rows.

    Arrow cannot select from views, as polars makes them, and not from run-end encoded columns. The
    text of a column of JSON may be a view.
    Other columns keep their type, which later steps check and cast in chunks.
    """
    fields = list(rows.schema)
    for number, field in enumerate(fields):
        if any(layout in str(field.type) for layout in ("_view", "run_end_encoded", ".json")):
            fields[number] = field.with_type(stored_type(field.type, field.name, "the records"))
            column = rows.select([number])
            column = cast_table(column, pa.schema([fields[number]]), where="the records")
            rows = rows.set_column(number, fields[number], column.column(0))
    return rows
