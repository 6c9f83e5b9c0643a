"""The change stream as files: one for each batch, as an airline feed would land them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from change_stream import IS_DELETED, Events, batches


@dataclass(frozen=True, slots=True)
class FeedFile:
    """What came in during one period."""

    name: str  # First day of the period.
    path: Path
    rows: int
    withdrawals: int


def write_feed(path: Path, flights: pa.Table, events: Events, period_days: int) -> list[FeedFile]:
    """Write the stream to a folder, and return its files in the order of time.

    The files of an earlier run are removed.
    """
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    files: list[FeedFile] = []
    for number, batch in enumerate(batches(flights, events, period_days)):
        file = path / f"{batch.start}.parquet"
        pq.write_table(batch.changes, file)
        os.utime(file, (number, number))  # Spark takes the files of a folder in this order.
        withdrawals = pc.sum(batch.changes[IS_DELETED]).as_py()
        files.append(FeedFile(str(batch.start), file, batch.changes.num_rows, withdrawals))
    return files
