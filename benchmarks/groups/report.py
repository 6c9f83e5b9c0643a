"""Medians and ratios of results about file groups, as a page with tables and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.common.report import (
    Result,
    failures_text,
    machine_line,
    met,
    origin_text,
    rounds_of,
    rounds_text,
    seconds,
    settings_text,
    spread,
    values,
)
from benchmarks.groups.steps import (
    CONTENDERS,
    GROUPS,
    LOAD,
    SIMPLE,
    STEPS,
    TABLE_TYPES,
    UPSERT,
    UPSERT_AGAIN,
)

TITLES = {LOAD: "load", UPSERT: "upsert", UPSERT_AGAIN: "second upsert"}
COST_MAX = 1.2


def page(results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    parts = [
        "# Benchmark of file groups",
        "What upserts cost in buckets of several file groups "
        "(`SimpleBucket(count, max_file_size=...)`), beside a simple bucket index with as many "
        "files. A bucket of several groups looks up in which of them a key is stored; a simple "
        "bucket has one group and looks nothing up. Order-like rows (string key, 9 columns): a "
        "first load, a batch of 20 % updates and 2 % inserts, and the same batch once more, when "
        "all of its keys are stored. Same data, same machine, contenders in turns in one warm "
        "Spark session, fresh tables each round. After every round each table has shown the row "
        "count and the column sums that the generator predicts.",
        "![Median seconds of both upserts](groups.svg)",
        *(_section(result) for result in results),
        settings_text(results[-1], _names(results[-1])),
        origin_text("groups"),
    ]
    return "\n\n".join(parts) + "\n"


def _names(result: Result) -> list[str]:
    return [name for name in CONTENDERS if rounds_of(result, name)]


def _section(result: Result) -> str:
    data, settings = result["data"], result["settings"]
    head = (
        f"## {data['rows']:,} rows, {data['partitions']} partitions x {settings['buckets']} "
        f"buckets x {settings['groups']} file groups, {rounds_text(result)}"
    )
    parts = [
        head,
        machine_line(result, STEPS),
        _times_table(result),
        _costs_table(result),
        failures_text(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _times_table(result: Result) -> str:
    heads = [f"{TITLES[step]}, s" for step in STEPS]
    heads += [f"{TITLES[step]}, processor s" for step in STEPS]
    rows = [f"| contender | files | {' | '.join(heads)} |", f"|---|---:|{'---:|' * len(heads)}"]
    for name in _names(result):
        files = statistics.median(values(result, name, LOAD, "data_files"))
        cells = [spread(seconds(result, name, step)) for step in STEPS]
        cells += [spread(values(result, name, step, "cpu_seconds")) for step in STEPS]
        rows.append(f"| {name} | {files:.0f} | {' | '.join(cells)} |")
    return "\n".join(
        [
            "Median (minimum to maximum). *cow* is a copy-on-write table, *mor* a merge-on-read "
            "table; *files* are those of the load.",
            "",
            *rows,
        ]
    )


def _costs_table(result: Result) -> str:
    rows = [
        "| table type | step | processor time | seconds | "
        f"aim: at most {COST_MAX:g}x the processor time |",
        "|---|---|---:|---:|---|",
    ]
    for short, table_type in TABLE_TYPES.items():
        for step in STEPS:
            cpu = _ratios(result, short, step, "cpu_seconds")
            if not cpu:
                continue
            verdict = "" if step == LOAD else met(statistics.median(cpu) <= COST_MAX)
            wall = _ratios(result, short, step, "seconds")
            rows.append(
                f"| {table_type} | {TITLES[step]} | {spread(cpu)} | {spread(wall)} | {verdict} |"
            )
    return "\n".join(["### Several groups over the simple bucket, median of the rounds", "", *rows])


def _ratios(result: Result, short: str, step: str, field: str) -> list[float]:
    groups, simple = (values(result, f"{kind}-{short}", step, field) for kind in (GROUPS, SIMPLE))
    return [ours / peer for ours, peer in zip(groups, simple, strict=False)]
