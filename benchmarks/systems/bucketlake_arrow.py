"""bucketlake without Spark: threads of one process write Arrow tables.

Reading the Parquet files into Arrow is a part of a step, as it is for the bare merge of polars.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.common.data import Checksum
from benchmarks.common.rows import DataSet
from benchmarks.systems.engine_free import EngineFree
from benchmarks.systems.order_tables import bytes_of_files, create


class BucketLakeArrow(EngineFree):
    """A table under one index, with a metadata table."""

    def __init__(
        self, _settings: Mapping[str, Any], index: Any, table_type: str = "copy_on_write"
    ) -> None:
        super().__init__(index=repr(index), table_type=table_type, metadata_table=True)
        self._index, self._table_type = index, table_type

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows into a new table."""
        rows = pq.read_table(data.load)
        create(table, rows.schema, self._index, self._table_type).upsert(rows)

    def upsert(self, data: DataSet, table: Path) -> None:
        """Write the changes."""
        bl.open_table(str(table)).upsert(pq.read_table(data.changes))

    def read(self, _data: DataSet, table: Path) -> dict[str, int]:
        """Sum everything up."""
        found = Checksum()
        found.add(bl.open_table(str(table)).to_arrow())
        return found.sums

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        """Return the size of the files, except after a read."""
        return {} if step == "read" else {"data_bytes": sum(bytes_of_files(table))}
