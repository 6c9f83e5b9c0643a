"""The processes of a soak: each runs until SIGTERM, and may be killed at any time.

``python -m benchmarks.workloads.soak_parts PART STATE KEYS``. Errors other than a lost race end a
part, and so the soak.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.workloads.soak_events import Events, batches_in, differences
from bucketlake.errors import CommitConflictError
from bucketlake.intake.job import stopped_by_signal

INGEST, SERVICES, FILL, READER = PARTS = ("ingest", "services", "fill", "reader")
INGEST_SECONDS, SERVICES_SECONDS, FILL_SECONDS, READER_SECONDS = 3.0, 20.0, 2.0, 5.0
LANDING, TABLE = "landing", "table"


def note(state: Path, name: str, **told: Any) -> None:
    """Add a line to a file of the state."""
    with (state / f"{name}.jsonl").open("a") as lines:
        lines.write(json.dumps({"wall": round(time.time(), 2), **told}) + "\n")


def ingest(state: Path, _keys: int) -> None:
    """Take the files of the landing zone."""
    bl.ingest(
        f"{state}/{LANDING}/*.parquet", f"{state}/{TABLE}", name="landing", max_files=10,
        every=INGEST_SECONDS, metrics=[f"{state}/batches.jsonl"],
    )  # fmt: skip


def services(state: Path, _keys: int) -> None:
    """Compact, clean and archive beside the upkeep of the writers."""
    table = bl.open_table(f"{state}/{TABLE}")
    ways: dict[str, Callable[[], object]] = {
        "compact": table.compact,
        "clean": table.clean,
        "archive": table.archive,
    }

    def serve() -> None:
        for name, run in ways.items():
            started, lost = time.monotonic(), False
            try:
                run()
            except CommitConflictError:  # The upkeep of a writer does it.
                lost = True
            note(state, SERVICES, service=name, seconds=time.monotonic() - started, lost=lost)

    _repeat(serve, SERVICES_SECONDS)


def fill(state: Path, _keys: int) -> None:
    """Upsert batches of older rows; one that was committed before a kill is written again."""

    def write() -> None:
        for path in sorted((state / FILL).glob("*.parquet")):
            rows = pq.ParquetFile(path).read()
            try:
                bl.open_table(f"{state}/{TABLE}").upsert(rows)
            except CommitConflictError:  # Again and again; the next round tries once more.
                return
            path.unlink()

    _repeat(write, FILL_SECONDS)


def reader(state: Path, keys: int) -> None:
    """Read snapshots, and compare each with the changes that it shows."""
    events = Events(state / "events.sqlite", keys)

    def read() -> None:
        started = time.monotonic()
        found = bl.open_table(f"{state}/{TABLE}").to_arrow()
        seconds, batches = time.monotonic() - started, batches_in(found)
        wrong = differences(found, events)
        note(state, READER, seconds=seconds, rows=len(found), batches=batches, wrong=wrong)

    _repeat(read, READER_SECONDS)


def _repeat(work: Callable[[], None], seconds: float) -> None:
    with stopped_by_signal() as stop:
        while not stop.wait(seconds):
            work()


if __name__ == "__main__":
    part, folder, key_count = sys.argv[1:]
    runs = (ingest, services, fill, reader)
    dict(zip(PARTS, runs, strict=True))[part](Path(folder), int(key_count))
