"""Medians, ratios and aims of upsert results, as a page with tables and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.common.report import (
    Aim,
    Result,
    aim_row,
    aims_blocks,
    failures_text,
    machine_line,
    measured,
    met,
    origin_text,
    ratios,
    ratios_table,
    rounds_of,
    seconds,
    settings_text,
    spread,
    tables_head,
    values,
    worker_memory,
)

STEPS = ("load", "upsert", "read")
TITLES = {step: step for step in STEPS}


AIMS = (
    Aim("upsert", "hudi-bucket-upsert", 8),
    Aim("upsert", "delta-merge", 6),
    Aim("upsert", "polars-limit", 1 / 2),
    Aim("load", "hudi-bucket-upsert", 9),
    Aim("load", "hudi-bucket-bulk_insert-nomdt", 2.5),
)
WITH_METADATA_TABLE = "-mdt-"
METADATA_AIM = Aim("upsert", "polars-limit", 1 / 2.5)
"""What an upsert with a metadata table may take."""

ROWS_MAX_OVER_MEAN = 1.25
WORKER_OVER_GROUP = 3.0


def page(results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    widest = max(results, key=lambda result: len(_names(result)))
    parts = [
        "# Upsert benchmark",
        "Order-like rows (string key, 9 columns, zstd Parquet): a first load, then a batch of 20 % "
        "updates and 2 % inserts, then a read of everything. Same data, same machine, contenders "
        "interleaved, processes warm, fresh tables each round. After every round each "
        "contender's table has shown the row count and the column sums that the generator "
        "predicts.",
        "![Median seconds of load and upsert](upsert.svg)",
        *(_section(result) for result in results),
        settings_text(widest, _names(widest)),
        origin_text("upsert"),
    ]
    return "\n\n".join(parts) + "\n"


def _names(result: Result) -> list[str]:
    return measured(result, "upsert")


def _section(result: Result) -> str:
    parts = [
        tables_head(result),
        machine_line(result, STEPS),
        _times_table(result),
        *aims_blocks(result, AIMS, TITLES, _further_aims),
        ratios_table(result, TITLES, _names(result)),
        _placement_table(result),
        failures_text(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _times_table(result: Result) -> str:
    rows = [
        "| contender | load, s | upsert, s | read, s | upsert, processor s | table, MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in _names(result):
        cells = [spread(seconds(result, name, step)) for step in STEPS]
        cpu = statistics.median(values(result, name, "upsert", "cpu_seconds"))
        size = statistics.median(values(result, name, "load", "data_bytes")) / 1e6
        rows.append(f"| {name} | {' | '.join(cells)} | {cpu:.1f} | {size:.0f} |")
    return "\n".join(
        [
            "Median (minimum to maximum). *Table* is the size of the data files after the load; "
            "*nomdt* is Hudi without its metadata table, *mdt* is bucketlake with one; "
            "*polars-limit* is the bare merge of the "
            "same rows in one process, with no table format around it.",
            "",
            *rows,
        ]
    )


def _further_aims(result: Result, ours: str) -> list[str]:
    """What is aimed at besides: even tasks, lean workers, and a cheap metadata table."""
    rows = []
    if WITH_METADATA_TABLE in ours:
        found = ratios(result, METADATA_AIM.step, METADATA_AIM.peer, ours)
        rows += [aim_row(METADATA_AIM, TITLES[METADATA_AIM.step], found)] if found else []
    uneven = evenness(result, ours)
    if uneven:
        rows.append(
            f"| most rows of a task, over the mean of all tasks: at most {ROWS_MAX_OVER_MEAN} "
            f"| {uneven:.3f} | {met(uneven <= ROWS_MAX_OVER_MEAN)} |"
        )
    memory = worker_memory(result, ours, "upsert")
    if memory:
        rows.append(
            "| memory that a Python worker takes for its work, over its largest file group in "
            f"Arrow: at most {WORKER_OVER_GROUP:g} | {memory.text()} "
            f"| {met(memory.ratio <= WORKER_OVER_GROUP)} |"
        )
    return rows


def evenness(result: Result, name: str) -> float | None:
    """Largest task over the mean task of the stage that writes, worst of the rounds."""
    found = [
        stage["rows_max_over_mean"]
        for each in rounds_of(result, name)
        for step in ("load", "upsert")
        if (stage := write_stage(result, each[step], step))
    ]
    return max(found, default=None)


def write_stage(result: Result, step: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The last stage that was handed about as many rows as the batch has: the one that writes."""
    data = result["data"]
    batch = data["rows"] if name == "load" else data["updates"] + data["inserts"]
    fitting = [stage for stage in step.get("stages", ()) if stage["rows"] >= 0.9 * batch]
    return max(fitting, key=lambda stage: stage["stage"], default=None)


def _placement_table(result: Result) -> str:
    head = [
        "| contender | tasks | without rows | most rows over the mean |",
        "|---|---:|---:|---:|",
    ]
    rows = []
    for name in _names(result):
        if stage := write_stage(result, rounds_of(result, name)[-1]["upsert"], "upsert"):
            rows.append(
                f"| {name} | {stage['tasks']} | {stage['tasks_without_rows']} "
                f"| {stage['rows_max_over_mean']} |"
            )
    if not rows:
        return ""
    title = "### Rows by task in the upsert's last shuffle of the batch"
    return "\n".join([title, "", *head, *rows])
