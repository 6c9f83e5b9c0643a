"""How full the buckets of a table are."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

import bucketlake as bl


def rows_of_files(table: Path) -> list[int]:
    """Return the number of rows of each live base file."""
    return [
        pq.read_metadata(table / bucket.path).num_rows
        for bucket in bl.open_table(str(table)).buckets()
        if bucket.path is not None
    ]


def bytes_of_files(table: Path) -> list[int]:
    """Return the size of each live base file."""
    return [
        (table / bucket.path).stat().st_size
        for bucket in bl.open_table(str(table)).buckets()
        if bucket.path is not None
    ]
