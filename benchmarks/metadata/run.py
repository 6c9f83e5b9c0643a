"""The benchmark of the metadata table: writes with and without it, in pairs.

Three cases, all with bucketlake in one process without Spark: an upsert of 20 % updates and 2 %
inserts into a copy-on-write table, the same into a merge-on-read table, and a stream of small
commits into a merge-on-read table. In each case the table with and the table without a metadata
table take turns, and which of the two is first changes from pair to pair. So a slow minute of the
machine falls on both, and the ratio of a pair is kept. The stream compacts and cleans its metadata
table as every writer does; its timeline is archived from time to time, beside the clock.

A second run of each case, on the storage in memory, counts requests and bytes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.common import data as generator
from benchmarks.common.command import count, row_count
from benchmarks.common.process import REPOSITORY
from benchmarks.common.race import machine
from benchmarks.common.rows import KEY, ORDERING, PARTITION
from benchmarks.common.usage import core_count, machine_cpu_seconds
from benchmarks.metadata.modes import OFF, ON
from benchmarks.metadata.requests import counting
from bucketlake.storage.memory import forget

TABLE_TYPES = {"upsert": "copy_on_write", "log_upsert": "merge_on_read", "small": "merge_on_read"}
ARCHIVED_EVERY = 30  # Commits of the stream between two archivals.
EXAMPLES = """examples:
  python -m benchmarks.metadata --rows 50k --rounds 1 --commits 40     a first try, a minute
  python -m benchmarks.metadata                                        the figures of the page
  python -m benchmarks.metadata --render                               docs/benchmarks/metadata.md
"""

Pair = dict[str, dict[str, float]]
"""Seconds of a write, by whether the table has a metadata table."""


@dataclass(frozen=True, slots=True)
class Batches:
    """The rows of a run."""

    load: pa.Table
    changes: pa.Table
    small_rows: int
    seed: int

    def small(self, number: int) -> pa.Table:
        """Return the rows of a small commit: changes of orders that the table has."""
        rng = np.random.default_rng([self.seed, number])
        chosen = rng.choice(len(self.load), min(self.small_rows, len(self.load)), replace=False)
        rows = self.load.take(pa.array(np.sort(chosen)))
        changed_at = pa.array(np.full(len(rows), 2_000_000_000_000 + number))
        return rows.set_column(rows.schema.get_field_index(ORDERING), ORDERING, changed_at)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    options = _parser().parse_args(arguments)
    if options.render:
        from benchmarks.metadata.render import render  # It needs matplotlib, which no run does.

        for written in render(options.out, options.docs):
            print(written)
        return 0
    print(_run(options))
    return 0


def _run(options: argparse.Namespace) -> Path:
    recipe = generator.Recipe(options.rows, options.partitions, options.seed)
    data = generator.prepare(options.work / "data", recipe)
    batches = Batches(
        *(pq.read_table(folder, schema=generator.SCHEMA) for folder in (data.load, data.changes)),
        small_rows=options.small_rows,
        seed=options.seed,
    )
    run = _Run(batches, options.buckets, options.work / "tables")
    path: Path = options.out / f"metadata-{options.rows}.json"
    settings = ("rounds", "commits", "small_rows", "buckets", "counted_commits")
    result: dict[str, Any] = {
        "benchmark": "metadata",
        "data": data.facts,
        "settings": {name: getattr(options, name) for name in settings},
        "machine": machine(),
        "versions": {
            "python": sys.version.split()[0],
            **{name: version(name) for name in ("bucketlake", "pyarrow", "numpy")},
        },
        "cases": {},
    }
    with _other_cpu_share(result):
        for case in ("upsert", "log_upsert"):
            _say(f"{case}: {options.rounds} pairs after a warm-up")
            _, *pairs = (run.upserts(case, number) for number in range(options.rounds + 1))
            result["cases"][case] = {"pairs": pairs, "sent": run.sent(case, 0)}
        _say(f"small: {options.commits} pairs")
        result["cases"]["small"] = {
            "pairs": [*run.stream(options.commits)],
            "sent": run.sent("small", options.counted_commits),
        }
    shutil.rmtree(run.folder, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


@dataclass(frozen=True, slots=True)
class _Run:
    batches: Batches
    buckets: int
    folder: Path

    def upserts(self, case: str, number: int) -> Pair:
        """Measure one upsert into a new table with, and one into a new table without."""
        pair: Pair = {}
        for mode in _modes(number):
            table = self._table(case, mode, str(self.folder / f"{case}-{mode}"))
            pair[mode] = _measured(partial(table.upsert, self.batches.changes))
        _say(f"  {case} {number}: {_ratio_text(pair)}")
        return pair

    def stream(self, commits: int) -> Iterator[Pair]:
        """Measure small commits into one table with, and one without, in turns."""
        tables = {m: self._table("small", m, str(self.folder / f"small-{m}")) for m in (ON, OFF)}
        for number in range(commits):
            rows = self.batches.small(number)
            pair: Pair = {}
            for mode in _modes(number):
                pair[mode] = _measured(partial(tables[mode].upsert, rows))
            yield pair
            if number % ARCHIVED_EVERY == ARCHIVED_EVERY - 1:
                for table in tables.values():
                    table.archive()
                _say(f"  small {number + 1}: {_ratio_text(pair)}")

    def sent(self, case: str, commits: int) -> dict[str, Any]:
        """Count requests and bytes of a write, or of so many small commits together."""
        found = {}
        for mode in (ON, OFF):
            name = f"benchmark-{case}-{mode}"
            forget(name)
            table = self._table(case, mode, f"memory://{name}")
            with counting() as counted:
                if case != "small":
                    table.upsert(self.batches.changes)
                for number in range(commits):
                    table.upsert(self.batches.small(number))
            forget(name)
            found[mode] = {"commits": max(commits, 1), **counted.facts()}
        return found

    def _table(self, case: str, mode: str, path: str) -> bl.Table:
        """Make a table and load it."""
        shutil.rmtree(path, ignore_errors=True)
        table = bl.create_table(
            path,
            schema=generator.SCHEMA,
            record_key=[KEY],
            partition_by=[PARTITION],
            ordering=ORDERING,
            index=bl.SimpleBucket(self.buckets),
            table_type=TABLE_TYPES[case],
            metadata_table=mode == ON,
        )
        table.upsert(self.batches.load)
        return table


def _modes(number: int) -> tuple[str, str]:
    return (ON, OFF) if number % 2 else (OFF, ON)


def _measured(write: Callable[[], object]) -> dict[str, float]:
    """Return the wall and processor seconds of a write; all of its threads count."""
    cpu, wall = time.process_time(), time.perf_counter()
    write()
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


@contextmanager
def _other_cpu_share(result: dict[str, Any]) -> Iterator[None]:
    """Store how much of the machine other processes used meanwhile."""
    before = machine_cpu_seconds(), time.process_time(), time.perf_counter()
    yield
    after = machine_cpu_seconds(), time.process_time(), time.perf_counter()
    every, own, wall = (end - start for start, end in zip(before, after, strict=True))
    result["other_cpu_share"] = round(max(0.0, every - own) / (wall * core_count()), 3)


def _ratio_text(pair: Pair) -> str:
    on, off = pair[ON]["cpu_seconds"], pair[OFF]["cpu_seconds"]
    return f"processor {on * 1e3:.0f} ms with, {off * 1e3:.0f} ms without"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.metadata",
        description="Upserts and a stream of small commits, with and without the metadata table.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rows", type=row_count, default=1_000_000, help="rows of the load: 1k to 50m (1m)")
    add("--rounds", type=count, default=7, help="pairs of upserts after a warm-up (7)")
    add("--commits", type=count, default=1_000, help="small commits of each table (1,000)")
    add("--small-rows", type=count, default=1_000, help="rows of a small commit (1,000)")
    add("--counted-commits", type=count, default=50, help="small commits counted in memory (50)")
    add("--partitions", type=count, default=8, help="partitions of the table (8)")
    add("--buckets", type=count, default=4, help="buckets of a partition (4)")
    add("--seed", type=int, default=generator.Recipe(1).seed, help="what the rows follow from")
    add("--out", type=Path, default=REPOSITORY / "benchmarks/results", help="folder of results")
    add("--docs", type=Path, default=REPOSITORY / "docs/benchmarks", help="where the page goes")
    add("--work", type=Path, default=REPOSITORY / "build/metadata", help="data and tables")
    add("--render", action="store_true", help="run nothing; make the page and plot of the results")
    return parser
