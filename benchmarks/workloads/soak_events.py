"""The changes of a soak, in SQLite, and the rows that a table must show after some of them.

Each row has a key, and an ordering value that no other change of the key has. So the rows of a
table follow from the set of batches in it, in whatever order they were committed: of each key the
change with the greatest ordering value, unless that is a delete. Each batch also writes the row
``marker-SOURCE`` with its number. So a read tells which batches it shows.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.int64()),
        ("note", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
READ = ["id", "ts", "v"]
"""The columns that are compared."""

STREAM, BACKFILL, HUDI = SOURCES = ("stream", "backfill", "hudi")
REGIONS = 4
DELETES = 0.2
STEP = 10  # Ordering values of a stream; those of a backfill lie between.
MARKER = "marker-"

Batches = Mapping[str, int]
"""The number of the last batch by source."""

Rows = dict[str, tuple[int, int]]
"""Ordering value and value by key."""


class Events:
    """The changes so far.

    Parameters
    ----------
    path : Path
        The database, which is made if it is not there.
    keys : int
        How many keys the changes have.
    """

    def __init__(self, path: Path, keys: int) -> None:
        self._keys = keys
        self._db = sqlite3.connect(path, timeout=60, check_same_thread=False)
        self._db.execute("pragma journal_mode=wal")
        self._db.execute(
            "create table if not exists events (number int, ts int, source text, batch int, v int, "
            "is_deleted int, primary key (number, ts)) without rowid"
        )
        self._db.execute("create index if not exists batches on events (source, batch)")

    def newest(self) -> dict[str, int]:
        """Return the number of the last batch by source; 0 without one."""
        found = self._db.execute("select source, max(batch) from events group by source")
        return {**dict.fromkeys(SOURCES, 0), **dict(found.fetchall())}

    def load(self) -> int:
        """Make the first batch of the stream: each key once."""
        return self._add(STREAM, [(n, STEP * (n + 1), False) for n in range(self._keys)])

    def draw(self, source: str, count: int, drawn: random.Random) -> int:
        """Make the next batch of a source, keep it, and return its number."""
        (newest,) = self._db.execute("select max(ts) from events").fetchone()
        newest -= newest % STEP
        numbers = [drawn.randrange(self._keys) for _ in range(count)]
        if source == BACKFILL:  # Each key was changed once in so many changes, as a mean.
            past = min(newest // STEP, 3 * self._keys)
            times = [newest - STEP * drawn.randrange(past) - STEP // 2 for _ in numbers]
        else:
            times = [newest + STEP * (place + 1) for place in range(count)]
        # Nobody remembers the deletes of Hudi, so older rows would come back.
        deletes = 0 if source == HUDI else DELETES
        rows = {n: (n, ts, drawn.random() < deletes) for n, ts in zip(numbers, times, strict=True)}
        return self._add(source, rows.values())

    def _add(self, source: str, rows: Iterable[tuple[int, int, bool]]) -> int:
        batch = self.newest()[source] + 1
        made = [(n, ts, source, batch, ts * 7 + batch, deleted) for n, ts, deleted in rows]
        with self._db:
            self._db.executemany("insert or ignore into events values (?, ?, ?, ?, ?, ?)", made)
        return batch

    def rows_of(self, source: str, batch: int) -> pa.Table:
        """Return a batch as the table takes it, with its marker."""
        found = self._db.execute(
            "select number, ts, v, is_deleted from events where source = ? and batch = ?",
            (source, batch),
        )
        rows = [
            (f"k{n}", f"r{n % REGIONS}", ts, v, f"change {ts} of {source} " * 4, bool(gone))
            for n, ts, v, gone in found
        ]
        rows.append((f"{MARKER}{source}", "markers", batch, batch, "", False))
        return pa.table([*map(list, zip(*rows, strict=True))], schema=SCHEMA)

    def expected(self, batches: Batches) -> Rows:
        """Return the rows of a table that has some batches."""
        found = self._db.execute(
            "select number, v, is_deleted, max(ts) from events where batch <= case source "
            "when ? then ? when ? then ? else ? end group by number",
            (STREAM, batches[STREAM], BACKFILL, batches[BACKFILL], batches[HUDI]),
        )
        return {f"k{n}": (ts, v) for n, v, gone, ts in found if not gone}


def batches_in(found: pa.Table) -> dict[str, int]:
    """Return which batches a read shows."""
    rows = found.select(READ).to_pylist()
    shown = {r["id"].removeprefix(MARKER): r["v"] for r in rows if r["id"].startswith(MARKER)}
    return {**dict.fromkeys(SOURCES, 0), **shown}


def differences(found: pa.Table, events: Events) -> list[str]:
    """Compare a read with what the batches that it shows must give; return some differences."""
    rows: list[dict[str, Any]] = found.select(READ).to_pylist()
    there = {r["id"]: (r["ts"], r["v"]) for r in rows if not r["id"].startswith(MARKER)}
    batches = batches_in(found)
    wanted = events.expected(batches)
    told = [] if len({r["id"] for r in rows}) == len(rows) else ["a key is there twice"]
    told += [
        f"{key} is {there.get(key)}, expected {wanted.get(key)}"
        for key in sorted(there.keys() | wanted.keys())
        if there.get(key) != wanted.get(key)
    ]
    return [f"{len(told)} differences in a read of {batches}", *told[:20]] if told else []
