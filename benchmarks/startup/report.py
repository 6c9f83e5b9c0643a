"""Medians, ratios and aims of start-up results, as a page with tables and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.common.report import (
    Aim,
    Result,
    aims_blocks,
    failures_text,
    machine_line,
    measured,
    met,
    origin_text,
    ratios_table,
    seconds,
    settings_text,
    spread,
    tables_head,
    values,
)
from benchmarks.startup.run import STEPS

TITLES = {"load": "first load", "upsert": "first upsert"}
AIMS = (Aim("load", "delta-merge", 1),)
UPSERT_SECONDS_MAX = 8.0


def page(results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    parts = [
        "# Start-up benchmark",
        "What a job costs that starts, writes once and ends. Each figure is a whole process, from "
        "its start to its end: an interpreter, a JVM, Spark's session, and for bucketlake Python "
        "workers. One process loads order-like rows (string key, 9 columns, zstd Parquet) into a "
        "new table; the next one upserts a batch of 20 % updates and 2 % inserts. Same data, same "
        "machine, contenders in turns.",
        "![Median seconds of the first load and the first upsert](startup.svg)",
        *(_section(result) for result in results),
        settings_text(results[-1], _names(results[-1])),
        origin_text("startup"),
    ]
    return "\n\n".join(parts) + "\n"


def _names(result: Result) -> list[str]:
    return measured(result, STEPS[0])


def _section(result: Result) -> str:
    parts = [
        tables_head(result),
        machine_line(result, STEPS),
        _checked_text(result),
        _times_table(result),
        *aims_blocks(result, AIMS, TITLES, _upsert_aim),
        ratios_table(result, TITLES, _names(result)),
        failures_text(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _checked_text(result: Result) -> str:
    warmup = result["settings"]["warmup"]
    if not warmup["rounds"]:
        return ""
    return (
        f"In a warm-up with {warmup['rows']:,} rows each contender's table has shown the row count "
        "and the column sums that the generator predicts."
    )


def _times_table(result: Result) -> str:
    heads = [*(f"{TITLES[step]}, s" for step in STEPS)]
    heads += [f"{TITLES[step]}, {what}" for what in ("processor s", "session, s") for step in STEPS]
    rows = [f"| contender | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for name in _names(result):
        cells = [spread(seconds(result, name, step)) for step in STEPS]
        for field in ("cpu_seconds", "session_seconds"):
            cells += [f"{statistics.median(values(result, name, s, field)):.1f}" for s in STEPS]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(
        [
            "Median (minimum to maximum). *Session* is the part of the seconds until Spark's "
            "session is there, before any contender has done anything. *plain-parquet* has no "
            "table format around it, and its upsert rewrites the whole table.",
            "",
            *rows,
        ]
    )


def _upsert_aim(result: Result, ours: str) -> list[str]:
    found = seconds(result, ours, "upsert")
    holds = statistics.median(found) <= UPSERT_SECONDS_MAX
    title = f"{TITLES['upsert']}: at most {UPSERT_SECONDS_MAX:g} s"
    return [f"| {title} | {spread(found)} s | {met(holds)} |"]
