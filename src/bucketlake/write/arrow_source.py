"""Arrow tables as the source of a write: without an engine, the tasks are threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from bucketlake.flow.threads import ThreadFlow, Threads
from bucketlake.model.cast import selectable
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
        return [*self._rows.column_names]

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table."""
        return self._rows.schema

    @property
    def gaps(self) -> frozenset[str]:
        """No columns: each record has all."""
        return frozenset()

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
        return PackedRecords(flow, self._rows.schema, self._threads)

    def close(self) -> None:
        """Do nothing: the source keeps nothing."""
