"""A snapshot is loaded while the live stream goes on: two processes, which are killed at random."""

from __future__ import annotations

import multiprocessing
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import CommitConflictError
from tests.choices import DEEP, combinations

SNAPSHOT, LIVE = "snapshot", "live"
KINDS: dict[str, Any] = {"simple": bl.SimpleBucket(4), "dynamic": bl.DynamicBucket()}


@dataclass(frozen=True)
class Source:
    """A database with a log: event n changes or deletes one key, and has the position n.

    The snapshot is read in chunks of keys. Between two chunks the database goes on, so each chunk
    is of another time, as the snapshots of change data capture are.
    """

    seed: int
    keys: int
    events: int
    chunks: int
    batch: int

    @property
    def begin(self) -> int:
        """The event with which the stream begins; those before it are in the snapshot alone."""
        return self.events // 4

    @property
    def log(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Key of each event, and whether it deletes the key."""
        rng = np.random.default_rng(self.seed)
        return rng.integers(0, self.keys, self.events), rng.random(self.events) < 0.3

    def rows(self, keys: npt.NDArray[np.int64], until: int) -> pa.Table:
        """Return the rows of some keys after an event."""
        changed, deleted = self.log
        newest = np.zeros(self.keys, np.int64)
        newest[changed[:until]] = np.arange(1, until + 1)  # Of equal places the last one counts.
        at = newest[keys]
        stays = (at == 0) | ~deleted[at - 1]
        return _rows(keys[stays], at[stays])

    def chunk(self, number: int) -> pa.Table:
        """Return a chunk of the snapshot."""
        keys = np.array_split(np.arange(self.keys), self.chunks)[number]
        later = (self.events - self.begin) * number // self.chunks // 2
        return self.rows(keys, self.begin + later)

    def changes(self, first: int, last: int) -> pa.Table:
        """Return events as rows, with the flag of deletes."""
        changed, deleted = self.log
        at = np.arange(first, last + 1)
        some = slice(first - 1, last)
        return _rows(changed[some], at).append_column("_hoodie_is_deleted", [deleted[some]])


def _rows(keys: npt.NDArray[np.int64], at: npt.NDArray[np.int64]) -> pa.Table:
    parts = np.array(["p0", "p1", "p2"])[keys % 3]
    return pa.table({"id": keys, "part": parts, "at": at, "v": keys * 1_000_000 + at})


def load_snapshot(source: Source, path: str) -> None:
    """Load the chunks that are not loaded, each with its number as the position."""
    table = bl.open_table(path)
    stored = table.position(SNAPSHOT)
    for number in range(0 if stored is None else stored.last["chunk"] + 1, source.chunks):
        here = {"chunk": number}
        write(table, source.chunk(number), bl.Position(SNAPSHOT, here, here))


def follow(source: Source, path: str) -> None:
    """Write the events after the stored position, in batches."""
    table = bl.open_table(path)
    stored = table.position(LIVE)
    first = (source.begin if stored is None else stored.last["log"]) + 1
    for begin in range(first, source.events + 1, source.batch):
        end = min(begin + source.batch - 1, source.events)
        write(
            table,
            source.changes(begin, end),
            bl.Position(LIVE, {"log": end}, {"log": begin}),
        )


def write(table: bl.Table, rows: pa.Table, position: bl.Position) -> None:
    while True:
        try:
            table.upsert(rows, position=position)
        except CommitConflictError:  # The other process was faster several times.
            continue
        return


@pytest.mark.parametrize(
    ("kind", "table_type"), combinations([*KINDS], ["copy_on_write", "merge_on_read"])
)
def test_a_snapshot_beside_the_live_stream_gives_the_source(
    kind: str, table_type: str, tmp_path: Path
) -> None:
    source = Source(7, 2_000_000, 600_000, 40, 5_000) if DEEP else Source(7, 3_000, 3_000, 4, 500)
    path = str(tmp_path / "table")
    bl.create_table(
        path,
        schema=source.rows(np.arange(0), 0).schema,
        record_key="id",
        partition_by="part",
        ordering="at",
        index=KINDS[kind],
        table_type=table_type,
        upkeep="auto",
    )
    rng = np.random.default_rng()
    spawned = multiprocessing.get_context("spawn")
    kills, living = 40 if DEEP else 2, dict[Any, Any]()
    waiting = [load_snapshot, follow]
    while waiting or living:
        for work in waiting:
            living[work] = spawned.Process(target=work, args=(source, path))
            living[work].start()
        waiting = []
        time.sleep(rng.uniform(0.1, 2.5))
        if kills and living:
            kills -= 1
            living[[*living][rng.integers(len(living))]].kill()
        for work, process in [*living.items()]:
            if process.exitcode is None:
                continue
            assert process.exitcode in (0, -signal.SIGKILL)
            if process.exitcode:
                waiting.append(work)
            del living[work]
    found = bl.open_table(path).to_arrow(columns=["id", "part", "at", "v"]).sort_by("id")
    assert found.equals(source.rows(np.arange(source.keys), source.events))
