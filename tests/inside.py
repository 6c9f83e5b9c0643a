"""What is inside a table: its storage, its timeline and its rows, for tests that look there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

import bucketlake as bl
from bucketlake.format.commit_metadata import decode_commit_metadata, encode_commit_metadata
from bucketlake.model.table_type import Operation
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import table_at
from bucketlake.timeline.transitions import instant_path
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target


def storage_of(table: bl.Table) -> Storage:
    """Return the storage of a table."""
    return open_storage(table.path)


def opened(table: bl.Table) -> OpenTable:
    """Return a table as its properties say it is now."""
    return table_at(storage_of(table))


def timeline_of(table: bl.Table) -> Timeline:
    """Return the active timeline of a table."""
    return load_timeline(opened(table))


def values_of(table: bl.Table, column: str = "v", **options: Any) -> dict[str, int]:
    """Return a column of the rows by ``id``; no key is stored twice."""
    found = table.to_arrow(columns=["id", column], **options).to_pydict()
    assert len({*found["id"]}) == len(found["id"]), "a key is stored twice"
    return dict(zip(found["id"], found[column], strict=True))


def upsert_once(table: bl.Table, batch: pa.Table, operation: Operation = Operation.UPSERT) -> None:
    """Write without a retry after a conflict."""
    write_records(open_target(opened(table), None), operation, ArrowSource(batch, threads=1))


def let_commits_forget(table: bl.Table, *names: str) -> None:
    """Take entries off the extra metadata of completed commits, as other programs leave it."""
    storage, config = storage_of(table), table.config()
    for instant in timeline_of(table).completed_commits():
        path = instant_path(config, instant)
        commit = decode_commit_metadata(storage.read(path), path)
        extra = {name: text for name, text in commit.extra.items() if name not in names}
        storage.put(path, encode_commit_metadata(replace(commit, extra=extra), config.layout))
