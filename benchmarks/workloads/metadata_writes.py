"""The same writes into a table with and into a table without a metadata table, in pairs.

The two tables take turns, and which of the two is first changes from pair to pair. So a slow minute
of the machine falls on both, and the ratio of a pair is kept. All is done in one process without
Spark. The stream of small commits compacts and cleans its metadata table as every writer does; its
timeline is archived from time to time, beside the clock.

Requests and bytes are counted at the storage in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.common.data import SCHEMA
from benchmarks.common.rows import ORDERING, DataSet
from benchmarks.systems.engine_free import EngineFree
from benchmarks.systems.order_tables import create
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.storage.memory import MemoryStorage, forget

ON, OFF = "on", "off"
TABLE_TYPES = {"upsert": "copy_on_write", "log_upsert": "merge_on_read", "small": "merge_on_read"}
ARCHIVED_EVERY = 30  # Commits of the stream between two archivals.

PUTS = ("put", "put_if_absent", "put_if_version")
OTHER_REQUESTS = (
    "read read_range read_version stat list list_named list_folders duplicate delete delete_folder"
).split()


class MetadataWrites(EngineFree):
    """Each step tells what the writes of a case took with the metadata table, and without."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._settings, self._pairs = settings, 0

    def pair(self, data: DataSet, table: Path, case: str) -> None:
        """Measure one upsert into a new table with, and one into a new table without."""
        self._pairs += 1
        for mode in _modes(self._pairs):
            made = self._table(data, case, mode, str(table / f"{case}-{mode}"))
            self.seen[mode] = _measured(partial(made.upsert, _rows(data.changes)))

    def stream(self, data: DataSet, table: Path) -> None:
        """Measure small commits into one table with, and one without, in turns."""
        tables = {m: self._table(data, "small", m, str(table / m)) for m in (ON, OFF)}
        pairs = self.seen["pairs"] = []
        stored = _rows(data.load)
        for number in range(self._settings["commits"]):
            rows = self._small(stored, number)
            writes = {mode: partial(tables[mode].upsert, rows) for mode in _modes(number)}
            pairs.append({mode: _measured(write) for mode, write in writes.items()})
            if number % ARCHIVED_EVERY == ARCHIVED_EVERY - 1:
                for each in tables.values():
                    each.archive()

    def sent(self, data: DataSet, _table: Path, case: str) -> None:
        """Count requests and bytes of a write, or of many small commits together."""
        commits = self._settings["counted_commits"] if case == "small" else 0
        for mode in (ON, OFF):
            name = f"benchmark-{case}-{mode}"
            forget(name)
            table = self._table(data, case, mode, f"memory://{name}")
            stored = _rows(data.load)
            with counting() as counted:
                if case != "small":
                    table.upsert(_rows(data.changes))
                for number in range(commits):
                    table.upsert(self._small(stored, number))
            forget(name)
            self.seen[mode] = {"commits": max(commits, 1), **asdict(counted)}

    def _small(self, stored: pa.Table, number: int) -> pa.Table:
        """Return the rows of a small commit: changes of orders that the table has."""
        rng = np.random.default_rng([self._settings["seed"], number])
        count = min(self._settings["small_rows"], len(stored))
        chosen = rng.choice(len(stored), count, replace=False)
        rows = stored.take(pa.array(np.sort(chosen)))
        changed_at = pa.array(np.full(len(rows), 2_000_000_000_000 + number))
        return rows.set_column(rows.schema.get_field_index(ORDERING), ORDERING, changed_at)

    def _table(self, data: DataSet, case: str, mode: str, path: str) -> bl.Table:
        """Make a table and load it."""
        index = bl.SimpleBucket(self._settings["buckets"])
        table = create(path, SCHEMA, index, TABLE_TYPES[case], metadata_table=mode == ON)
        table.upsert(_rows(data.load))
        return table


def _rows(folder: Path) -> pa.Table:
    return pq.read_table(folder, schema=SCHEMA)


def _modes(number: int) -> tuple[str, str]:
    return (ON, OFF) if number % 2 else (OFF, ON)


def _measured(write: Callable[[], object]) -> dict[str, float]:
    """Return the wall and processor seconds of a write; all of its threads count."""
    cpu, wall = time.process_time(), time.perf_counter()
    write()
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


@dataclass(slots=True)
class Sent:
    """What was sent to storage.

    Attributes
    ----------
    requests : int
        Calls; each is a request to an object store.
    written_bytes, metadata_bytes : int
        Bytes written to the whole table, and to its metadata table alone.
    """

    requests: int = 0
    written_bytes: int = 0
    metadata_bytes: int = 0

    def add(self, path: str, data: Any = b"") -> None:
        """Count a request."""
        self.requests += 1
        self.written_bytes += len(data)
        if path.startswith(METADATA_TABLE_FOLDER):
            self.metadata_bytes += len(data)


@contextmanager
def counting() -> Iterator[Sent]:
    """Count what all handles of the storage in memory are asked for, until the block ends."""
    sent = Sent()
    counted: dict[str, Any] = {name: _counted(sent, name) for name in (*PUTS, *OTHER_REQUESTS)}
    with patch.multiple(MemoryStorage, **counted):
        yield sent


def _counted(sent: Sent, name: str) -> Callable[..., Any]:
    original = getattr(MemoryStorage, name)

    def call(self: MemoryStorage, path: str, *arguments: Any, **named: Any) -> Any:
        sent.add(path, arguments[0] if name in PUTS else b"")
        return original(self, path, *arguments, **named)

    return call
