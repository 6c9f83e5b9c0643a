"""The benchmark of a long stream into a merge-on-read table with dynamic buckets.

Two questions, each in a process of its own:

- A stream of inserts and updates fills a table from nothing to ``--keys`` keys in no less than
  ``--minutes``: how long do its batches take, and what do files, timeline and memory do meanwhile?
  At the end the table must show what the rows of the stream add up to.
- Does a batch of ``--micro-rows`` rows take longer in a table with many keys than in a small one?

A run of one question leaves the figures of the other in the result file. The page and the plot are
made by `render.py`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.command import count, row_count
from benchmarks.common.process import REPOSITORY, ContenderProcess
from benchmarks.common.race import machine, say
from benchmarks.common.rows import DataSet
from benchmarks.streaming.steps import CONTENDERS, READ, STEPS

EXAMPLES = """examples:
  python -m benchmarks.streaming                               a first try, some minutes
  python -m benchmarks.streaming --keys 20m --minutes 30 --batch-rows 250k --bucket-rows 500k \\
      --micro-keys 100k,10m                                    the figures of the page
  python -m benchmarks.streaming --contenders micro            the small batches alone
  python -m benchmarks.streaming --render                      docs/benchmarks/streaming.md and .svg
"""
MODULE = "benchmarks.streaming.contenders.bucketlake"
SETTINGS = (
    "keys",
    "minutes",
    "limit_minutes",
    "batch_rows",
    "bucket_rows",
    "services_every",
    "micro_rows",
    "micro_keys",
    "micro_batches",
    "cores",
    "driver_memory",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run or render, and return the exit code."""
    options = _parser().parse_args(arguments)
    if options.render:
        from benchmarks.streaming.render import render  # It needs matplotlib, which no run does.

        for written in render(options.out, options.docs):
            print(written)
        return 0
    path: Path = options.out / f"streaming-{options.keys}.json"
    for name in options.contenders:
        measured = _measured(name, options)
        result = json.loads(path.read_text()) if path.exists() else {"contenders": {}}
        result |= {
            "benchmark": "streaming",
            "data": {"rows": options.keys},  # Rows follow from their numbers, not from a seed.
            "settings": {"driver_memory": options.driver_memory, "rounds": 1},
            "machine": machine(),
        }
        result["contenders"][name] = measured
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
    print(path)
    return 0


def _measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one contender in a process of its own."""
    given = {key: getattr(options, key) for key in SETTINGS} | pace(options)
    table = options.work / "tables" / name / "orders"
    shutil.rmtree(table.parent, ignore_errors=True)
    table.parent.mkdir(parents=True)
    peers = {"zstd_level": 1, "work": str(options.work)}
    process = ContenderProcess(
        MODULE, sys.executable, {**given, **peers}, options.work / "logs" / f"{name}.log"
    )
    limit = 60 * (options.limit_minutes + 60)
    measured = {}
    try:
        for step in STEPS[name]:
            say(f"{name}: {step}")
            done = process.run(step, name, DataSet(options.work), table, timeout_s=limit)
            measured[step] = done
            say(f"{name}: {step} {done['seconds']:.1f} s")
        facts = process.facts[name]
    finally:
        process.close()
        if not options.keep_tables:
            shutil.rmtree(table.parent, ignore_errors=True)
    if READ in measured:
        measured[READ]["sums"] = measured[READ].pop("checksum")
    return {**facts, "given": given, "rounds": [measured]}


def pace(options: argparse.Namespace) -> dict[str, int]:
    """Return the number of batches, and the time between two of them."""
    batches = -(-2 * options.keys // options.batch_rows)  # Half of the rows have new keys.
    return {"batches": batches, "interval_ms": round(60_000 * options.minutes / batches)}


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := sorted(set(names) - set(CONTENDERS)):
        raise argparse.ArgumentTypeError(f"unknown {unknown}; there are {', '.join(CONTENDERS)}")
    return names


def _two_counts(text: str) -> list[int]:
    counts = [row_count(part) for part in text.split(",")]
    if len(counts) != 2:
        raise argparse.ArgumentTypeError("give two numbers, such as 100k,10m")
    return counts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.streaming",
        description="A long stream into dynamic buckets, and small batches into two tables.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--keys", type=row_count, default=200_000, help="keys that the table grows to (200k)")
    add("--minutes", type=float, default=1.0, help="shortest time of the stream (1)")
    add("--limit-minutes", type=float, default=120.0, help="longest time of the stream (120)")
    add("--batch-rows", type=row_count, default=20_000, help="rows of a batch, half new keys (20k)")
    add("--bucket-rows", type=row_count, default=10_000, help="rows of a full bucket (10k)")
    add("--services-every", type=count, default=5, help="batches between two compactions (5)")
    add("--micro-rows", type=row_count, default=10_000, help="rows of a small batch (10k)")
    add(
        "--micro-keys",
        type=_two_counts,
        default=[10_000, 100_000],
        help="keys of the two tables that get small batches (10k,100k)",
    )
    add("--micro-batches", type=count, default=12, help="small batches of each table (12)")
    add("--contenders", type=_names, default=list(CONTENDERS), help="comma-separated: stream,micro")
    add("--cores", type=count, default=2, help="cores of each process (2)")
    add("--driver-memory", default="4g", help="heap of each Spark process (4g)")
    add("--out", type=Path, default=REPOSITORY / "benchmarks/results", help="folder of results")
    add("--docs", type=Path, default=REPOSITORY / "docs/benchmarks", help="where the page goes")
    add("--work", type=Path, default=REPOSITORY / "build/streaming", help="tables and logs")
    add("--keep-tables", action="store_true", help="leave the tables in place")
    add("--render", action="store_true", help="run nothing; make the page and plot of the results")
    return parser
