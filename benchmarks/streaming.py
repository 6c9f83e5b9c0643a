"""A long stream into dynamic buckets, and small batches into a small and into a large table.

Two questions, each in a process of its own:

- A stream of inserts and updates fills a table from nothing to ``--rows`` keys in no less than
  ``--minutes``: how long do its batches take, and what do files, timeline and memory do meanwhile?
  At the end the table must show what the rows of the stream add up to.
- Does a batch of ``--micro-rows`` rows take longer in a table with many keys than in a small one?
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.common.benchmark import Benchmark, Contender, Option, count, counts
from benchmarks.common.figures import Result, met
from benchmarks.common.plot import BLUE, FAINT, ORANGE, OURS, Chart, Line, Lines
from benchmarks.common.report import Page, machine_line
from benchmarks.common.tables import listing
from benchmarks.common.turn import plain_work
from benchmarks.workloads.small_batches import LARGE, SMALL, SmallBatches
from benchmarks.workloads.small_batches import STEPS as SMALL_STEPS
from benchmarks.workloads.stream import Stream, pace

Batch = Mapping[str, Any]
LARGE_OVER_SMALL = 2.0
WARM_UP = 2
"""Small batches of each table that do not count."""

WINDOWS = 5
"""Parts of the stream, each with as many batches, that the page tells apart."""

SERVICES = ("compact", "clean", "archive")
SHARES = (0.5, 0.95, 0.99)
FILES = {
    "data_files": "base files",
    "log_files": "log files",
    "timeline_files": "files of the timeline",
    "archive_files": "files of the archive",
    "metadata_files": "files of the metadata table",
    "metadata_timeline_files": "files of its timeline",
}
MEMORY = {
    "python_bytes": "driver, Python",
    "jvm_bytes": "driver, JVM with all tasks",
    "heap_bytes": "its used heap",
}
LINES = {
    "log_files": ("log files", ORANGE),
    "data_files": ("base files", OURS),
    "timeline_files": ("timeline", BLUE),
    "metadata_files": ("metadata table", FAINT),
}


# ---- batches ------------------------------------------------------------------------------------


def batches_of(result: Result) -> list[Batch]:
    """Return what the batches of the stream took; none if it did not run."""
    found: list[Batch] = result.first("stream", "run").get("batches", [])
    return found


def small_batches(result: Result, table: str) -> list[Batch]:
    """Return the small batches into a table that count."""
    every: list[Batch] = result.first("micro", "batches").get("batches", [])
    return [each for each in every if each["table"] == table and each["batch"] >= WARM_UP]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def windows(batches: Sequence[Batch]) -> list[Sequence[Batch]]:
    """Cut the batches into parts of about equal length, in their order."""
    number = min(WINDOWS, len(batches))
    edges = [round(place * len(batches) / number) for place in range(number + 1)]
    return [batches[start:end] for start, end in pairwise(edges)]


def with_cpu(batches: Sequence[Batch], field: str) -> list[Batch]:
    """Return the batches whose processor time is known.

    Spark ends Python workers that were idle for a minute, and their time is taken off then.
    """
    return [each for each in batches if each[field] >= 0]


# ---- page ---------------------------------------------------------------------------------------


def stream(result: Result) -> str:
    """Tell the rate of the stream."""
    batches = batches_of(result)
    if not batches:
        return ""
    size = result.settings["batch_rows"]
    rows, elapsed = len(batches) * size, result.first("stream", "run")["elapsed"]
    working = sum(each["seconds"] for each in batches)
    known = with_cpu(batches, "cpu")
    cpu = sum(each["cpu"] for each in known)
    interval_s = pace(result.settings, result.row_count)[1] / 1000
    return (
        f"Batches of {size:,} rows: half have new keys, the other half update keys, nine of ten "
        "among the newest tenth of all. Half of the keys are in the first of eight partitions, and "
        f"each further one has half of those before it. A batch began each {interval_s:g} s, or "
        "when the batch before it had ended. At the end the table showed the number of rows and "
        "the sum of their versions that the stream predicts. "
        f"**{rows / elapsed:,.0f} rows a second** for {elapsed / 60:.0f} minutes; "
        f"{rows / working:,.0f} while a batch was being written, {len(known) * size / cpu:,.0f} "
        "for each second of processor time, with all services."
    )


def aims(result: Result) -> str:
    """Judge the size of the table and the time of the run."""
    batches = batches_of(result)
    if not batches:
        return ""
    wanted, minutes = result.row_count, result.settings["minutes"]
    # The first row of each pair has a new key.
    keys = len(batches) * result.settings["batch_rows"] // 2
    elapsed = result.first("stream", "run")["elapsed"]
    long_enough = met(elapsed >= 60 * minutes)
    rows = [
        [f"the table grows to {wanted:,} keys", f"{keys:,}", met(keys >= wanted)],
        [f"a run of {minutes:g} minutes or more", f"{elapsed / 60:.1f}", long_enough],
    ]
    return listing("", "", ["<aim", "found", "<"], rows)


def latencies(result: Result) -> str:
    """Tell the time of batches, by parts of the stream."""
    batches = batches_of(result)
    rows = []
    for part in [*windows(batches), batches] if batches else []:
        where = "all" if part is batches else f"{part[0]['batch'] + 1} to {part[-1]['batch'] + 1}"
        times = [[each[name] for each in part] for name in ("upsert", "seconds")]
        cells = [f"{percentile(found, share):.1f}" for found in times for share in SHARES]
        cpu = statistics.median(each["upsert_cpu"] for each in with_cpu(part, "upsert_cpu"))
        rows.append([where, *cells, f"{cpu:.1f}"])
    heads = ["<batches", "upsert: median, s", "p95", "p99", "with services: median, s", "p95"]
    return listing("Time of a batch", "", [*heads, "p99", "upsert, processor s, median"], rows)


def services(result: Result) -> str:
    """Tell the time of the services."""
    rows = []
    for name in SERVICES:
        taken = [each[name] for each in batches_of(result) if name in each]
        if taken:
            longest = f"{max(taken):.2f}"
            rows.append([name, str(len(taken)), f"{statistics.median(taken):.2f}", longest])
    heads = ["<service", "runs", "median, s", "longest, s"]
    return listing("Services within the stream", "", heads, rows)


def files(result: Result) -> str:
    """Tell the number of files and the memory, by parts of the stream."""
    parts = windows(batches_of(result)) if batches_of(result) else []
    heads = [f"{part[0]['batch'] + 1} to {part[-1]['batch'] + 1}" for part in parts]
    rows = [
        [title, *(f"{max(each[name] for each in part):,}" for part in parts)]
        for name, title in FILES.items()
    ]
    rows += [
        [f"{title}, MB", *(f"{max(each[name] for each in part) / 1e6:,.0f}" for part in parts)]
        for name, title in MEMORY.items()
    ]
    text = (
        "The most after any batch of each part of the stream. The number of base files follows "
        "the buckets and the commits that a clean retains."
    )
    return listing("Files and memory", text, ["<batches", *heads], rows if parts else [])


def micro(result: Result) -> str:
    """Compare small batches into a small and into a large table."""
    small, large = (small_batches(result, table) for table in (SMALL, LARGE))
    if not small or not large:
        return ""
    rows = []
    for title, field in (("seconds", "seconds"), ("processor seconds", "cpu_seconds")):
        pairs = [
            (a[field], b[field])
            for a, b in zip(small, large, strict=True)
            if min(a[field], b[field]) >= 0  # See `with_cpu`.
        ]
        middle = [f"{statistics.median(side):.2f}" for side in zip(*pairs, strict=True)]
        ratio = statistics.median(b / a for a, b in pairs)
        rows.append([title, *middle, f"{ratio:.2f}x", met(ratio <= LARGE_OVER_SMALL)])
    longest = [f"{max(each['seconds'] for each in side):.2f}" for side in (small, large)]
    rows.append(["longest, seconds", *longest, "", ""])
    text = (
        f"{machine_line(result, ['micro'], ['batches'])}\n\n"
        f"Batches of {result.settings['micro_rows']:,} rows, half with new keys and half with any "
        "of the stored ones, in turns into two tables with as many buckets, without compaction. "
        f"Medians of {len(small)} batches of each after {WARM_UP} that do not count, and the "
        "median of their ratios. Every tenth commit compacts the metadata table within the batch, "
        "which is the longest one; this compaction follows the number of stored keys."
    )
    keys = [f"{each:,} stored keys" for each in result.settings["micro_keys"]]
    heads = ["<", *keys, "large over small", f"<at most {LARGE_OVER_SMALL:g}x"]
    return listing("Small batches into a small and a large table", text, heads, rows)


# ---- plot ---------------------------------------------------------------------------------------


def time_lines(result: Result) -> list[Line]:
    """Return the time of each batch."""
    batches = batches_of(result)
    whole = [(each["batch"] + 1, each["seconds"]) for each in batches]
    upserts = [(each["batch"] + 1, each["upsert"]) for each in batches]
    every = [Line("with services", whole, FAINT, is_dots=True), Line("upsert", upserts, OURS)]
    return every if batches else []


def file_lines(result: Result) -> list[Line]:
    """Return the number of files after each batch."""
    batches = batches_of(result)
    return [
        Line(title, [(each["batch"] + 1, each[name]) for each in batches], colour)
        for name, (title, colour) in LINES.items()
        if batches
    ]


BENCHMARK = Benchmark(
    name="streaming",
    description="A long stream into dynamic buckets, and small batches into two tables. The "
    "figures of the page: --rows 20m --minutes 30 --batch-rows 400k --bucket-rows 500k "
    "--micro-keys 100k,10m.",
    contenders=(
        Contender("stream", Stream, steps=("run", "check"), once=True),
        Contender("micro", SmallBatches, steps=SMALL_STEPS, once=True),
    ),
    turn=plain_work,
    orders=False,
    options=[
        Option("--minutes", float, 1.0, "shortest time of the stream"),
        Option("--limit-minutes", float, 120.0, "longest time of the stream"),
        Option("--batch-rows", count, 20_000, "rows of a batch, half new keys"),
        Option("--bucket-rows", count, 10_000, "rows of a full bucket"),
        Option("--services-every", count, 5, "batches between two compactions"),
        Option("--micro-rows", count, 10_000, "rows of a small batch"),
        Option("--micro-keys", counts, [10_000, 100_000], "keys of the tables that get them"),
        Option("--micro-batches", count, 12, "small batches of each table"),
    ],
    defaults={"rows": 200_000, "rounds": 1},
    quick={"rows": 50_000, "minutes": 0.1, "micro_batches": 4},
    page=Page(
        title="Benchmark of a long stream",
        text="Structured Streaming with `foreachBatch(table.upsert_batch(query_name=...))` into a "
        "merge-on-read table with dynamic buckets, from nothing to many keys, with the services "
        "that keep such a table healthy; and small batches into a small and into a large table.",
        image="Time of the batches, and files",
        head="Up to {rows:,} keys in no less than {minutes:g} minutes",
        busy=(["stream"], ["run"]),
        blocks=[stream, aims, latencies, services, files, micro],
        chart=Chart(
            "Batches of a stream",
            [
                Lines("time of a batch", time_lines, ("batch", "seconds")),
                Lines("files", file_lines, ("batch", "number")),
            ],
            bars=6,
        ),
    ),
)
