"""A crowd of processes writes one table with positions, and is killed at random.

Two snapshots of a database are loaded, each a source of its own, while two processes that do not
know of each other follow the live stream, and another one runs services. Each process may die by
SIGKILL anywhere and is started again; it knows only what the table says.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.stream_batches import POSITIONS
from bucketlake.actions.tombstone_list import active_entries, archived_entries
from bucketlake.errors import CommitConflictError, InputError
from bucketlake.model.table_type import TableType
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.table_properties import table_at
from tests.choices import DEEP, of_this_version

LIVE, LOG = "live", "log"
KINDS: dict[str, Any] = {
    "simple": bl.SimpleBucket(4),
    "consistent": bl.ConsistentBucket(2),
    "dynamic": bl.DynamicBucket(),
}
SHAPES = [(kind, table) for kind in KINDS for table in ("copy_on_write", "merge_on_read")]


@dataclass(frozen=True)
class Source:
    """A database with a log: event n changes or deletes one key, and has the position n.

    A snapshot is read in chunks of keys. Between two chunks the database goes on, so each chunk
    is of another time, as the snapshots of change data capture are. The later snapshot sees more of
    the log.
    """

    seed: int
    keys: int
    events: int
    snapshots: dict[str, int]
    """The number of chunks of each snapshot."""
    batch: int

    @property
    def begin(self) -> int:
        """The event with which the stream begins; those before it are in the snapshots alone."""
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

    def chunk(self, name: str, number: int) -> pa.Table:
        """Return a chunk of a snapshot."""
        chunks, turn = self.snapshots[name], [*self.snapshots].index(name)
        keys = np.array_split(np.arange(self.keys), chunks)[number]
        later = (self.events - self.begin) * (number + turn * chunks) // (4 * chunks)
        return self.rows(keys, self.begin + later)

    def changes(self, first: int, last: int) -> pa.Table:
        """Return events as rows, with the flag of deletes."""
        changed, deleted = self.log
        some = slice(first - 1, last)
        rows = _rows(changed[some], np.arange(first, last + 1))
        return rows.append_column("_hoodie_is_deleted", [deleted[some]])

    @property
    def ends(self) -> dict[str, list[int]]:
        """Where the batches of each source end."""
        live = [*range(self.begin + self.batch, self.events, self.batch), self.events]
        return {LIVE: live, **{name: [*range(n)] for name, n in self.snapshots.items()}}


def _rows(keys: npt.NDArray[np.int64], at: npt.NDArray[np.int64]) -> pa.Table:
    parts = np.array(["p0", "p1", "p2"])[keys % 3]
    none = pa.nulls(len(keys), pa.int64())
    return pa.table({"id": keys, "part": parts, "at": at, "v": keys * 1_000_000 + at, "n": none})


# ---- What the processes do -----------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """A process that writes one source; its notes tell where it began and what it has written."""

    source: Source
    path: str
    name: str
    notes: Path

    def note(self, what: str, number: int) -> None:
        """Append a line at once: lines of all processes of a source are in their order."""
        file = os.open(self.notes / self.name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{what} {os.getpid()} {number}\n".encode())
        os.close(file)

    def stored(self, table: bl.Table) -> int:
        """Return where the next batch begins by the table."""
        stored = table.position(self.name)
        begin = self.source.begin + 1 if self.name == LIVE else 0
        return begin if stored is None else stored.last[LOG] + 1

    def begin(self, table: bl.Table) -> int:
        self.note("asks", 0)
        self.note("begins", first := self.stored(table))
        return first

    def write(
        self, table: bl.Table, rows: pa.Table, first: int, last: int, on_jump: Any = "fail"
    ) -> None:
        """Write a batch, and count its events in the row of the source."""
        rows = pa.concat_tables([rows, self.count(last - first + 1)], promote_options="default")
        position = bl.Position(self.name, {LOG: last}, {LOG: first}, on_jump)
        while True:
            try:
                table.upsert(rows, position=position, merge={"n": "sum"})
            except CommitConflictError:  # Other processes were faster several times.
                continue
            self.note("wrote", last)
            return

    def count(self, n: int) -> pa.Table:
        key = -3 * [*self.source.ends].index(self.name) - 3
        return pa.table({"id": [key], "part": ["p0"], "at": [0], "v": [0], "n": [n]})


def load_snapshot(work: Work) -> None:
    """Load the chunks that are not loaded, each with its number as the position."""
    table = bl.open_table(work.path)
    for number in range(work.begin(table), work.source.snapshots[work.name]):
        work.write(table, work.source.chunk(work.name, number), number, number)


def follow(work: Work) -> None:
    """Write the events after the stored position, which is asked for each batch."""
    table, source = bl.open_table(work.path), work.source
    first = work.begin(table)
    while first <= source.events:
        end = next(end for end in source.ends[LIVE] if end >= first)
        try:
            work.write(table, source.changes(first, end), first, end)
        except InputError:  # The other process of this source was ahead by more than a batch.
            assert work.stored(table) > end + 1
        first = work.stored(table)


def deliver(work: Work) -> None:
    """Write the events after the stored position, which is asked once: what is seen is skipped."""
    table, source = bl.open_table(work.path), work.source
    first = work.begin(table)
    for end in source.ends[LIVE]:
        if end >= first:
            work.write(table, source.changes(first, end), first, end, "skip")
            first = end + 1


def serve(work: Work) -> None:
    """Compact, clean and resize again and again."""
    table = bl.open_table(work.path)
    while True:
        services: list[Callable[[], object]] = [partial(table.clean, retain_versions=2)]
        if table.config().table_type is TableType.MERGE_ON_READ:
            services.append(partial(table.compact, min_log_files=2))
        if isinstance(table.index, bl.ConsistentBucket):
            services.append(partial(table.resize, max_file_size=30_000))
        for service in services:
            with suppress(CommitConflictError):
                service()
        work.note("served", 0)
        time.sleep(0.2)


# ---- What must be so at the end ------------------------------------------------------------------


def require_restarts_at_the_end(work: Work) -> None:
    """A process begins after all that its source had written when it asked, and not further."""
    asked: dict[str, int] = {}
    written = work.source.begin if work.name == LIVE else -1
    ends = [written, *work.source.ends[work.name]]
    for line in (work.notes / work.name).read_text().splitlines():
        what, process, number = line.split()
        if what == "asks":
            asked[process] = written
        elif what == "begins":
            assert int(number) > asked[process], f"{work.name}: {line} is behind {asked[process]}"
            assert int(number) - 1 in ends, f"{work.name}: {line}"
        else:
            written = max(written, int(number))
    assert written == ends[-1], work.name


def require_each_batch_once(source: Source, path: str) -> None:
    """Each end of a batch is the position of one commit, and no other one was ever stored."""
    table = table_at(LocalStorage(path))
    entries = active_entries(table, load_timeline(table), POSITIONS)
    commits: dict[str, set[tuple[int, str]]] = {name: set() for name in source.ends}
    for entry in chain(entries, archived_entries(table, POSITIONS)):
        for name, last in json.loads(entry.text).items():
            commits[name].add((last["last"][LOG], last["instant"]))
    for name, ends in source.ends.items():
        assert [end for end, _ in sorted(commits[name])] == ends, name


@pytest.mark.parametrize(("kind", "table_type"), of_this_version(SHAPES, len(SHAPES)))
def test_snapshots_beside_a_stream_that_comes_twice_give_the_source(
    kind: str, table_type: str, tmp_path: Path
) -> None:
    source = Source(7, 3_000, 2_400, {"one": 3, "two": 2}, 600)
    if DEEP:
        source = Source(7, 300_000, 160_000, {"one": 20, "two": 12}, 4_000)
    path, notes = str(tmp_path / "table"), tmp_path / "notes"
    notes.mkdir()
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
    work = {name: Work(source, path, name, notes) for name in (*source.ends, "services")}
    crowd = [(load_snapshot, work[name]) for name in source.snapshots]
    crowd += [(follow, work[LIVE]), (deliver, work[LIVE]), (serve, work["services"])]
    kills = run_with_kills(crowd, 60 if DEEP else 4)
    assert kills
    for name in source.ends:
        require_restarts_at_the_end(work[name])
    require_each_batch_once(source, path)
    table = bl.open_table(path)
    found = table.to_arrow(columns=["id", "part", "at", "v", "n"], where="id >= 0").sort_by("id")
    assert found.equals(source.rows(np.arange(source.keys), source.events))
    counts = table.to_arrow(columns=["n"], where="id < 0").column("n").to_pylist()
    chunks = [*source.snapshots.values()]
    assert sorted(counts) == sorted([source.events - source.begin, *chunks])
    assert [*table.doctor()] == []


def run_with_kills(crowd: Sequence[tuple[Callable[[Work], None], Work]], most: int) -> int:
    """Run processes until all but the last have ended; kill some at random and start them again."""
    rng, kills = np.random.default_rng(), 0
    spawned = multiprocessing.get_context("spawn")

    def start(number: int) -> Any:
        task, work = crowd[number]
        process = spawned.Process(target=task, args=(work,), daemon=True)
        process.start()
        return process

    living = {number: start(number) for number in range(len(crowd))}
    try:
        while [*living] != [len(crowd) - 1]:
            time.sleep(rng.uniform(0.1, 2.5))
            if kills < most:
                kills += 1
                living[[*living][rng.integers(len(living))]].kill()
            for number, process in [*living.items()]:
                if process.exitcode is None:
                    continue
                assert process.exitcode in (0, -signal.SIGKILL), crowd[number][0].__name__
                del living[number]
                if process.exitcode:
                    living[number] = start(number)
    finally:
        for process in living.values():
            process.kill()
            process.join()
    return kills
