"""The change stream as files: a folder for each batch, as an airline feed would land them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from change_stream import Events, batches


@dataclass(frozen=True, slots=True)
class FeedFolder:
    """What came in during one period: rows to upsert, and keys to delete."""

    name: str  # First day of the period.
    upserts: Path
    deletes: Path
    upsert_count: int
    delete_count: int


def write_feed(path: Path, flights: pa.Table, events: Events, period_days: int) -> list[FeedFolder]:
    """Write the stream below a path, and return its folders in the order of time.

    Those of an earlier run are removed.
    """
    for earlier in path.glob("????-??-??"):
        shutil.rmtree(earlier)
    folders = []
    for batch in batches(flights, events, period_days):
        folder = path / str(batch.start)
        folder.mkdir(parents=True)
        upserts, deletes = folder / "upserts.parquet", folder / "deletes.parquet"
        pq.write_table(batch.upserts, upserts)
        pq.write_table(batch.deletes, deletes)
        counts = (batch.upserts.num_rows, batch.deletes.num_rows)
        folders.append(FeedFolder(folder.name, upserts, deletes, *counts))
    return folders
