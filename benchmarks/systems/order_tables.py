"""Tables of orders, and how large their files are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.common.rows import KEY, ORDERING, PARTITION
from bucketlake.config.table_version import NEWEST_VERSION

_BLOCK_BYTES = 512  # The unit of st_blocks, whatever the file system's own block is.


def create(
    path: Path | str,
    schema: Any,
    index: Any,
    table_type: str = "copy_on_write",
    *,
    metadata_table: bool = True,
    ordering: str = ORDERING,
    version: int = NEWEST_VERSION,
) -> bl.Table:
    """Create a table of orders."""
    return bl.create_table(
        str(path),
        schema=schema,
        record_key=[KEY],
        partition_by=[PARTITION],
        ordering=ordering,
        index=index,
        table_type=table_type,
        metadata_table=metadata_table,
        name="orders",
        version=version,
    )


def live_files(table: Path) -> list[Path]:
    """Return the live base files."""
    buckets = bl.open_table(str(table)).buckets()
    return [table / bucket.path for bucket in buckets if bucket.path is not None]


def rows_of_files(table: Path) -> list[int]:
    """Return the number of rows of each live base file."""
    return [pq.read_metadata(path).num_rows for path in live_files(table)]


def bytes_of_files(table: Path) -> list[int]:
    """Return the size of each live base file."""
    return [path.stat().st_size for path in live_files(table)]


def index_files(table: Path) -> dict[str, int]:
    """Return number and bytes of the base files of a record-level index."""
    folder = table / ".hoodie/metadata/record_index"
    sizes = [path.stat().st_size for path in folder.glob("*.hfile")]
    return {"index_files": len(sizes), "index_bytes": sum(sizes)}


def disk_usage(table: Path) -> dict[str, int]:
    """Return bytes, bytes of whole blocks, and names of the files below a folder.

    Two names of one file are hard links: their bytes are on the disk once.
    """
    found: dict[tuple[int, int], os.stat_result] = {}
    names = 0
    for folder, _, files in os.walk(table):
        for name in files:
            status = (Path(folder) / name).stat()
            found[status.st_dev, status.st_ino] = status
            names += 1
    return {
        "bytes": sum(status.st_size for status in found.values()),
        "block_bytes": sum(status.st_blocks * _BLOCK_BYTES for status in found.values()),
        "names": names,
    }


def growth(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Return what a step added, under names of their own."""
    return {f"added_{name}": after[name] - before[name] for name in before}
