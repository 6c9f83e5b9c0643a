"""What the demo prints: a line for each batch, a summary at the end, and what to try next."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from checks import Check
from feed import FeedFolder

import bucketlake as bl

_COLUMNS = ("batch", "from", "rows", "keys", "inserted", "updated", "deleted", "groups", "seconds")
_WIDTHS = (7, 10, 8, 6, 9, 8, 8, 7, 8)


@dataclass
class Progress:
    """Counts of the batches written so far."""

    batch_count: int
    rows: int = 0
    keys: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    seconds: list[float] = field(default_factory=list)

    def print_head(self) -> None:
        """Print the names of what each line tells."""
        _print_line(_COLUMNS)

    @contextmanager
    def batch(self, folder: FeedFolder) -> Iterator[list[bl.WriteResult]]:
        """Time one batch; the body adds what its writes returned, and a line is printed."""
        started = time.perf_counter()
        results: list[bl.WriteResult] = []
        yield results
        self._add(folder, results, time.perf_counter() - started)

    def _add(self, folder: FeedFolder, results: list[bl.WriteResult], seconds: float) -> None:
        counts = [
            sum(getattr(result, name) for result in results)
            for name in ("inserted", "updated", "deleted", "file_groups")
        ]
        self.rows += folder.upsert_count
        self.keys += folder.delete_count
        self.inserted += counts[0]
        self.updated += counts[1]
        self.deleted += counts[2]
        self.seconds.append(seconds)
        number = f"{len(self.seconds)}/{self.batch_count}"
        sizes = [folder.upsert_count, folder.delete_count, *counts]
        _print_line((number, folder.name, *(f"{size:,}" for size in sizes), f"{seconds:.2f}"))


class Stopwatch:
    """Seconds of each step of the demo, by its name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the body."""
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def print_summary(
    table: bl.Table, path: Path, progress: Progress, checks: Sequence[Check], watch: Stopwatch
) -> None:
    """Print what happened, what lies in the table now, and whether it is right."""
    _print_facts(
        "What happened",
        {
            "rows upserted": f"{progress.rows:,} ({progress.inserted:,} inserted,"
            f" {progress.updated:,} updated; the rest was out of date when it came)",
            "keys deleted": f"{progress.keys:,} ({progress.deleted:,} were in the table)",
            "seconds a batch": f"{statistics.median(progress.seconds):.2f} (median),"
            f" {max(progress.seconds):.2f} (longest)",
            **{name: f"{seconds:.1f} s" for name, seconds in watch.seconds.items()},
            "all": f"{sum(watch.seconds.values()):.1f} s",
        },
    )
    sizes = [bucket.size_bytes for bucket in table.buckets()]
    months = {bucket.partition_path for bucket in table.buckets()}
    stored = [file.stat().st_size for file in path.glob("*/*.parquet")]
    _print_facts(
        "In the table",
        {
            "file groups": f"{len(sizes)}, of {len(months)} months",
            "their sizes": f"{_kilobytes(min(sizes))} to {_kilobytes(max(sizes))},"
            f" {_kilobytes(sum(sizes))} together",
            "older versions": f"{len(stored) - len(sizes):,} files,"
            f" {_kilobytes(sum(stored) - sum(sizes))}, for time travel",
        },
    )
    _print_facts(
        "Is it right?",
        {check.question: f"{'yes' if check.passed else 'NO'}: {check.finding}" for check in checks},
    )


def print_next_steps(path: Path) -> None:
    """Name commands to try on the table."""
    command = Path(sys.executable).with_name("bucketlake")
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    flight = {"year": 2013, "month": 1, "day": 1, "carrier": "UA", "flight": 1545, "origin": "EWR"}
    fields = " ".join(f"--key {name}={value}" for name, value in flight.items())
    print("\nTry next")
    print(f"  {command} show {path}")
    print(f"""  {command} read {path} --where "month = 1 AND status = 'diverted'" \\""")
    print("    --columns day,carrier,flight,origin,dest,actual_departure")
    print(f"  {command} locate {path} {fields}")


def _print_facts(title: str, facts: dict[str, str]) -> None:
    width = max(map(len, facts))
    print(f"\n{title}")
    for name, fact in facts.items():
        print(f"  {name.ljust(width)}  {fact}")


def _kilobytes(size_bytes: int) -> str:
    return f"{size_bytes / 1000:,.0f} kB"


def _print_line(cells: Sequence[str]) -> None:
    padded = [cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True)]
    print(" ".join(padded), flush=True)
