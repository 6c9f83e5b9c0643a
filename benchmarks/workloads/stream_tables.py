"""Tables of the stream, and what is worth telling of their folder."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql.types import StructType

import bucketlake as bl
from benchmarks.systems.order_tables import create
from benchmarks.systems.spark import files_of
from benchmarks.workloads.stream_rows import ORDERING


def create_streamed(path: Path, schema: StructType, max_records: int) -> bl.Table:
    """Create a merge-on-read table with dynamic buckets."""
    index = bl.DynamicBucket(max_records=max_records)
    return create(path, schema, index, "merge_on_read", ordering=ORDERING)


def folder_facts(path: Path) -> dict[str, int]:
    """Count the files of a table: data, log, active timeline, metadata table and archive."""
    metadata = path / ".hoodie/metadata"
    return {
        **files_of(path),
        "timeline_files": _files(path / ".hoodie/timeline"),
        "archive_files": _files(path / ".hoodie/timeline/history"),
        "metadata_timeline_files": _files(metadata / ".hoodie/timeline"),
        "metadata_files": sum(
            len(names)
            for folder, _, names in os.walk(metadata)
            if "/.hoodie/metadata/.hoodie" not in folder
        ),
    }


def _files(folder: Path) -> int:
    """Count the files of a folder itself."""
    return sum(entry.is_file() for entry in os.scandir(folder)) if folder.exists() else 0
