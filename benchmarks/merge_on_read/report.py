"""Medians, ratios and aims of merge-on-read results, as a page with tables and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from benchmarks.common.report import (
    Aim,
    Result,
    aims_blocks,
    failures_text,
    machine_line,
    measured,
    origin_text,
    ratios_table,
    seconds,
    settings_text,
    spread,
    tables_head,
    values,
    worker_cell,
)
from benchmarks.merge_on_read.steps import (
    COMPACT,
    FEW_COLUMNS,
    LOAD,
    READ_AFTER,
    READ_ALL,
    READ_FEW,
    STEPS,
    UPSERT,
)

TITLES = {
    LOAD: "load",
    UPSERT: "upsert",
    READ_ALL: "merged read, all columns",
    READ_FEW: "merged read, few columns",
    COMPACT: "compaction",
    READ_AFTER: "read after it",
}
FACTORS = {UPSERT: 7, READ_ALL: 2, READ_FEW: 4, COMPACT: 5}
# Both of Hudi's: its default first, then the one that is like for like, as bucketlake writes no
# metadata table.
AIMS = tuple(
    Aim(step, peer, factor)
    for step, factor in FACTORS.items()
    for peer in ("hudi-mor", "hudi-mor-nomdt")
)


def page(results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    parts = [
        "# Merge-on-read benchmark",
        "Order-like rows (string key, 9 columns, zstd Parquet) in merge-on-read tables with the "
        "simple bucket index: a first load, then a batch of 20 % updates and 2 % inserts that goes "
        "into log files, a merged read of all columns and one of a few (count and sum of "
        f"`{'`, `'.join(FEW_COLUMNS)}`), a compaction, and a read of all columns after it. Both "
        "sides load by upsert, and compact by a call of their own. Same data, same machine, "
        "contenders interleaved, processes warm, fresh tables each round. Each read has shown the "
        "row count and the column sums that the generator predicts, and after the compaction no "
        "log file was live.",
        "![Median seconds of upsert, merged reads and compaction](merge_on_read.svg)",
        *(_section(result) for result in results),
        settings_text(results[-1], _names(results[-1])),
        origin_text("merge_on_read"),
    ]
    return "\n\n".join(parts) + "\n"


def _names(result: Result) -> list[str]:
    return measured(result, UPSERT)


def _section(result: Result) -> str:
    parts = [
        tables_head(result),
        machine_line(result, STEPS),
        _times_table(result),
        *aims_blocks(result, AIMS, TITLES),
        ratios_table(result, TITLES, _names(result)),
        _costs_table(result, "Processor seconds, median of the rounds", _cpu_cell),
        _costs_table(
            result,
            "Highest memory of a Python worker, in brackets what an idle one does not hold, MB",
            worker_cell,
        ),
        _sizes_table(result),
        failures_text(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _times_table(result: Result) -> str:
    rows = [_head([f"{TITLES[step]}, s" for step in STEPS])]
    for name in _names(result):
        cells = [spread(seconds(result, name, step)) for step in STEPS]
        rows.append(_row(name, cells))
    note = "Median (minimum to maximum); *nomdt* is without Hudi's metadata table."
    return "\n".join([note, "", *rows])


def _costs_table(result: Result, title: str, cell: Callable[[Result, str, str], str]) -> str:
    """A cell for each step of each contender."""
    rows = [_row(name, [cell(result, name, step) for step in STEPS]) for name in _names(result)]
    return "\n".join([f"### {title}", "", _head([TITLES[step] for step in STEPS]), *rows])


def _cpu_cell(result: Result, name: str, step: str) -> str:
    return f"{statistics.median(values(result, name, step, 'cpu_seconds')):.1f}"


def _sizes_table(result: Result) -> str:
    """Base and log files on disk; whoever loads into log files has no base files before."""
    heads = [
        f"{kind}, {what}"
        for what in ("load", "upsert", "compaction")
        for kind in ("base files", "log files")
    ]
    rows = []
    for name in _names(result):
        sizes = [
            statistics.median(values(result, name, step, field)) / 1e6
            for step in (LOAD, UPSERT, COMPACT)
            for field in ("data_bytes", "log_bytes")
        ]
        rows.append(_row(name, [f"{size:.1f}" for size in sizes]))
    note = "Files of older slices count, too: no step removes them."
    return "\n".join(["### Files on disk after each step, MB", "", note, "", _head(heads), *rows])


def _head(titles: Sequence[str]) -> str:
    return f"| contender | {' | '.join(titles)} |\n|---|{'---:|' * len(titles)}"


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"
