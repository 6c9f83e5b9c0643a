"""Writes with and without the metadata table, in pairs, without Spark.

Three cases: an upsert of 20 % updates and 2 % inserts into a copy-on-write table, the same into a
merge-on-read table, and a stream of small commits into a merge-on-read table. Requests and bytes
are counted in a further run of each case, on the storage in memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.common.benchmark import Benchmark, Contender, Option, count
from benchmarks.common.figures import Result, met, spread
from benchmarks.common.plot import OURS, PEER, Bar, Bars, Chart
from benchmarks.common.report import Page
from benchmarks.common.tables import listing
from benchmarks.common.turn import plain_work
from benchmarks.workloads.metadata_writes import OFF, ON, MetadataWrites

TITLES = {
    "upsert": "upsert, copy-on-write",
    "log_upsert": "upsert, merge-on-read",
    "small": "small commits, merge-on-read",
}
RATIO_MAX = 1.25
"""What the metadata table may cost: time with it over time without it."""

WINDOW = 50  # Small commits whose sums are compared; a compaction comes with each tenth.


def pairs_of(result: Result, case: str) -> list[dict[str, Any]]:
    """Return what each pair of writes of a case took."""
    if case == "small":
        found: list[dict[str, Any]] = result.first("stream", "stream")["pairs"]
        return found
    return [each[f"pair-{case}"] for each in result.rounds("pairs")]


def ratios(result: Result, case: str, field: str) -> list[float]:
    """Return time with over time without, for each pair, or for windows of small commits.

    The last window of small commits may be shorter only if there is no other.
    """
    pairs = pairs_of(result, case)
    size = min(WINDOW, len(pairs)) if case == "small" else 1
    windows = [pairs[at : at + size] for at in range(0, len(pairs) - size + 1, size)]
    return [_sum(window, ON, field) / _sum(window, OFF, field) for window in windows]


def _sum(pairs: Sequence[Any], mode: str, field: str) -> float:
    return float(sum(pair[mode][field] for pair in pairs))


def _writes(result: Result) -> str:
    return (
        f"An upsert has {result.words['changes']:,} rows in all file groups. A small commit has "
        f"{result.settings['small_rows']:,} rows; the ratios of small commits are of {WINDOW} "
        "commits together."
    )


def times(result: Result) -> str:
    """Tell the time of each case, with and without."""
    rows = []
    for case, title in TITLES.items():
        pairs = pairs_of(result, case)
        medians = [statistics.median(p[mode]["cpu_seconds"] for p in pairs) for mode in (ON, OFF)]
        cpu, wall = (ratios(result, case, field) for field in ("cpu_seconds", "seconds"))
        verdict = met(statistics.median(cpu) <= RATIO_MAX)
        found = [f"{median:.3f}" for median in medians]
        rows.append([title, *found, spread(cpu), spread(wall), verdict])
    heads = ["<write", "with, processor s", "without, processor s", "ratio, processor"]
    text = (
        "Medians of the writes; ratios are the median of the pairs (minimum to maximum). The aim "
        "is judged by processor time."
    )
    return listing("", text, [*heads, "ratio, seconds", f"<at most {RATIO_MAX:g}"], rows)


def sent(result: Result) -> str:
    """Tell the requests and bytes of each case, with and without."""
    rows = []
    for case, title in TITLES.items():
        seen = result.first("requests", f"sent-{case}")
        cells = [title]
        for field, unit in (("requests", 1), ("written_bytes", 1000)):
            on, off = (seen[mode][field] / seen[mode]["commits"] / unit for mode in (ON, OFF))
            cells += [f"{on:,.0f}", f"{off:,.0f}", f"{on / off:.2f}"]
        metadata_kb = seen[ON]["metadata_bytes"] / seen[ON]["commits"] / 1000
        rows.append([*cells, f"{metadata_kb:,.0f}"])
    heads = ["<write", "requests with", "without", "ratio", "written with, kB", "without, kB"]
    commits = result.settings["counted_commits"]
    text = (
        "Requests and bytes of one write, on a storage in memory; of small commits the mean of "
        f"{commits}, compactions of the metadata table included."
    )
    return listing("", text, [*heads, "ratio", "metadata table, kB"], rows)


def time_bars(result: Result) -> list[Bar]:
    """Return the ratios of processor time."""
    return [
        Bar(title, ratios(result, case, "cpu_seconds"), OURS, RATIO_MAX)
        for case, title in TITLES.items()
    ]


def request_bars(result: Result) -> list[Bar]:
    """Return the ratios of requests."""
    seen = {title: result.first("requests", f"sent-{case}") for case, title in TITLES.items()}
    return [
        Bar(title, [each[ON]["requests"] / each[OFF]["requests"]], PEER)
        for title, each in seen.items()
    ]


RATIO = "{:.2f}".format
UNIT = "ratio; black line: minimum to maximum; red: aim"

BENCHMARK = Benchmark(
    name="metadata",
    description="Upserts and a stream of small commits, with and without the metadata table.",
    contenders=(
        Contender("pairs", MetadataWrites, steps=("pair-upsert", "pair-log_upsert")),
        Contender("stream", MetadataWrites, steps=("stream",), once=True),
        Contender(
            "requests", MetadataWrites, steps=tuple(f"sent-{case}" for case in TITLES), once=True
        ),
    ),
    turn=plain_work,
    options=[
        Option("--commits", count, 1_000, "small commits of each table"),
        Option("--small-rows", count, 1_000, "rows of a small commit"),
        Option("--counted-commits", count, 50, "small commits counted in memory"),
    ],
    defaults={"rows": 1_000_000, "rounds": 7, "warmup_rounds": 1},
    quick={"rows": 50_000, "commits": 40, "counted_commits": 10},
    page=Page(
        title="Metadata table benchmark",
        text="What it costs to maintain Hudi's metadata table: the same writes of bucketlake to a "
        "table with it and to a table without it, in one process without Spark. The two tables "
        "take turns, and which is first changes from pair to pair. The metadata table has the list "
        "of files and statistics of all columns, of files and of partitions; bucketlake compacts "
        "and cleans it within the commits that are measured. "
        "[When to turn it off](../how-to/metadata-table.md#when-it-is-wise-to-turn-it-off).",
        image="Time with the metadata table over time without it",
        head="{rows:,} rows, {partitions} partitions x {buckets} buckets, {rounds}, {commits:,} "
        "small commits",
        blocks=[_writes, times, sent],
        chart=Chart(
            "with the metadata table over without it: {millions} M rows, {commits:,} small commits",
            [
                Bars("Processor time", time_bars, UNIT, RATIO),
                Bars("Requests to storage", request_bars, "ratio", RATIO),
            ],
        ),
    ),
)
