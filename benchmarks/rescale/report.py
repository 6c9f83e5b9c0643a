"""Medians and ratios of rescale results, as a page with tables and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.common.report import (
    Result,
    factor,
    failures_text,
    machine_line,
    measured,
    origin_text,
    ratios_table,
    rounds_text,
    seconds,
    settings_text,
    spread,
    values,
    worker_cell,
)
from benchmarks.rescale.counts import ALL, CHOSEN, ONE, STEPS

TITLES = {ONE: "one partition", ALL: "whole table"}


def page(results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    parts = [
        "# Rescale benchmark",
        "What it costs to give one partition of many another bucket count, and what to give it to "
        "all of them, as is necessary where an index has one count for the whole table. Order-like "
        "rows (string key, 9 columns, zstd Parquet) in a table with the partition-level index, "
        "copy-on-write. "
        "Hudi rescales by its own procedure, `partition_bucket_index_manager`. Same data, same "
        "machine, contenders interleaved, processes warm, a fresh copy of the contender's table "
        "for each figure. After each rescale every contender's table has shown the row count and "
        "the column sums that the generator predicts, and its files the new counts with every row "
        "in its bucket.",
        "![Median seconds for one partition and for the whole table](rescale.svg)",
        *(_section(result) for result in results),
        settings_text(results[-1], _names(results[-1])),
        origin_text("rescale"),
    ]
    return "\n\n".join(parts) + "\n"


def _names(result: Result) -> list[str]:
    return measured(result, ONE)


def _section(result: Result) -> str:
    data, settings = result["data"], result["settings"]
    head = (
        f"## {data['rows']:,} rows, {data['partitions']} partitions x {settings['buckets']} "
        f"buckets to {settings['new_buckets']}, {rounds_text(result)}"
    )
    parts = [
        head,
        machine_line(result, STEPS),
        _times_table(result),
        ratios_table(result, TITLES, _names(result)),
        _costs_table(result),
        failures_text(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _times_table(result: Result) -> str:
    rows = [
        f"| contender | {TITLES[ONE]}, s | {TITLES[ALL]}, s | {TITLES[ALL]} over {TITLES[ONE]} |",
        "|---|---:|---:|---:|",
    ]
    for name in _names(result):
        one, every = seconds(result, name, ONE), seconds(result, name, ALL)
        share = factor([b / a for a, b in zip(one, every, strict=True)])
        rows.append(f"| {name} | {spread(one)} | {spread(every)} | {share} |")
    return "\n".join(
        [
            f"Median (minimum to maximum); the one partition is `{CHOSEN}`, and *nomdt* is without "
            "Hudi's metadata table.",
            "",
            *rows,
        ]
    )


def _costs_table(result: Result) -> str:
    heads = [
        f"{what}, {TITLES[step]}"
        for what in ("processor s", "written, MB", "Python worker, MB")
        for step in STEPS
    ]
    rows = [
        f"| contender | {' | '.join(heads)} | run again |",
        f"|---|{'---:|' * (len(heads) + 1)}",
    ]
    for name in _names(result):
        cpu = [statistics.median(values(result, name, s, "cpu_seconds")) for s in STEPS]
        written = [statistics.median(values(result, name, s, "written_bytes")) for s in STEPS]
        cells = [
            *(f"{each:.1f}" for each in cpu),
            *(f"{each / 1e6:.1f}" for each in written),
            *(worker_cell(result, name, step) for step in STEPS),
            str(result["contenders"][name]["reruns"]),
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(
        [
            "### What it took, median of the rounds",
            "",
            "*Written* is the size of the new data files; Hudi's procedure puts a Bloom filter of "
            "about 0.4 MB into each, also where its options say not to. *Python worker* is the "
            "highest memory of a worker in any round, in brackets what of it an idle one does not "
            "hold; Hudi has none. *Run again* counts what a `ConcurrentModificationException` in "
            "Hudi's own tasks broke off, in the warm-up too; the second run is the one that "
            "counts.",
            "",
            *rows,
        ]
    )
