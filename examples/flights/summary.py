"""What the demo prints: a line for each batch, a summary at the end, and what to try next."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from checks import Check
from feed import FeedFile

import bucketlake as bl

_COLUMNS = ("batch", "from", "rows", "inserted", "updated", "deleted", "groups", "seconds")
_WIDTHS = (7, 10, 8, 9, 8, 8, 7, 8)


@dataclass
class Progress:
    """Counts of the batches written so far."""

    feed: Sequence[FeedFile]
    batches: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    repeated: int = 0
    seconds: list[float] = field(default_factory=list)

    def print_head(self) -> None:
        """Print the names of what each line tells."""
        _print_line(_COLUMNS)

    def print_kill(self) -> None:
        """Say that the job was killed."""
        print(
            "        the job was killed in the middle of a write, and is started again", flush=True
        )

    def add(self, facts: Mapping[str, float]) -> None:
        """Count what the job tells about a batch, and print a line."""
        number = int(facts["batch"])
        file = self.feed[number]
        if facts["was_written_before"]:
            self.repeated += 1
            print(
                f"        batch {number + 1} came again, and was in the table already", flush=True
            )
            return
        counts = [int(facts[name]) for name in ("inserted", "updated", "deleted", "file_groups")]
        self.batches += 1
        self.inserted += counts[0]
        self.updated += counts[1]
        self.deleted += counts[2]
        self.seconds.append(facts["seconds"])
        sizes = (f"{size:,}" for size in (file.rows, *counts))
        place = f"{number + 1}/{len(self.feed)}"
        _print_line((place, file.name, *sizes, f"{facts['seconds']:.2f}"))


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
            "rows upserted": f"{sum(file.rows for file in progress.feed):,}"
            f" ({progress.inserted:,} inserted, {progress.updated:,} updated,"
            f" {progress.deleted:,} deleted; the rest was out of date when it came)",
            "batches": f"{len(progress.feed)}, of which the job that was started again met"
            f" {progress.repeated} that were in the table already",
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
    print(f"  {command} report {path} --to report.html     # growth, sizes, skew, advice: a page")


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


def _print_note(text: str) -> None:
    print(f"{' ' * _WIDTHS[0]} {text}", flush=True)
