"""Rates, latencies and bounds of results about streams, as a page with tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.common.report import (
    Result,
    machine_line,
    met,
    origin_text,
    rounds_of,
    settings_text,
)
from benchmarks.streaming.steps import BATCHES, LARGE, MICRO, RUN, SERVICES, SMALL, STEPS, STREAM

Batch = Mapping[str, Any]
LARGE_OVER_SMALL = 2.0
WARM_UP = 2
"""Small batches of each table that do not count."""

WINDOWS = 5
"""Parts of the stream, each with as many batches, that the page tells apart."""

_FILES = {
    "data_files": "base files",
    "log_files": "log files",
    "timeline_files": "files of the timeline",
    "archive_files": "files of the archive",
    "metadata_files": "files of the metadata table",
    "metadata_timeline_files": "files of its timeline",
}
_MEMORY = {
    "python_bytes": "driver, Python",
    "jvm_bytes": "driver, JVM with all tasks",
    "heap_bytes": "its used heap",
}


def page(results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    last = results[-1]
    parts = [
        "# Benchmark of a long stream",
        "Structured Streaming with `foreachBatch(table.upsert_batch(query_name=...))` into a "
        "merge-on-read table with dynamic buckets, from nothing to many keys, with the services "
        "that keep such a table healthy; and small batches into a small and into a large table.",
        "![Time of the batches, and files](streaming.svg)",
        *(_section(result) for result in results),
        settings_text(last, [name for name in STEPS if rounds_of(last, name)]),
        origin_text("streaming"),
    ]
    return "\n\n".join(parts) + "\n"


def batches_of(result: Result) -> list[Batch]:
    """Return what the batches of the stream took; none if it did not run."""
    found = rounds_of(result, STREAM)
    return found[0][RUN]["batches"] if found else []


def small_batches(result: Result, table: str) -> list[Batch]:
    """Return the small batches into a table that count."""
    found = rounds_of(result, MICRO)
    every = found[0][BATCHES]["batches"] if found else []
    return [each for each in every if each["table"] == table and each["batch"] >= WARM_UP]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def windows(batches: Sequence[Batch]) -> list[Sequence[Batch]]:
    """Cut the batches into parts of about equal length, in their order."""
    count = min(WINDOWS, len(batches))
    edges = [round(number * len(batches) / count) for number in range(count + 1)]
    return [batches[start:end] for start, end in pairwise(edges)]


def _section(result: Result) -> str:
    given = result["contenders"][next(iter(result["contenders"]))]["given"]
    parts = [
        f"## Up to {given['keys']:,} keys in no less than {given['minutes']:g} minutes",
        *_stream_parts(result),
        *_micro_parts(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _only(result: Result, name: str) -> Result:
    return {**result, "contenders": {name: result["contenders"][name]}}


def _stream_parts(result: Result) -> list[str]:
    batches = batches_of(result)
    if not batches:
        return []
    contender = result["contenders"][STREAM]
    given, run = contender["given"], contender["rounds"][0][RUN]
    rows = len(batches) * given["batch_rows"]
    # The first row of each pair has a new key.
    keys, elapsed = rows // 2, run["elapsed"]
    working = sum(each["seconds"] for each in batches)
    known = _with_cpu(batches, "cpu")
    cpu = sum(each["cpu"] for each in known)
    reached = keys >= given["keys"]
    aims = [
        "| aim | found | |",
        "|---|---:|---|",
        f"| the table grows to {given['keys']:,} keys | {keys:,} | {met(reached)} |",
        f"| a run of {given['minutes']:g} minutes or more | {elapsed / 60:.1f} "
        f"| {met(elapsed >= 60 * given['minutes'])} |",
    ]
    text = (
        f"Batches of {given['batch_rows']:,} rows: half have new keys, the other half update keys, "
        "nine of ten among the newest tenth of all. Half of the keys are in the first of eight "
        "partitions, and each further one has half of those before it. A batch began each "
        f"{given['interval_ms'] / 1000:g} s, or when the batch before it had ended. At the end the "
        "table showed the number of rows and the sum of their versions that the stream predicts. "
        f"**{rows / elapsed:,.0f} rows a second** for {elapsed / 60:.0f} minutes; "
        f"{rows / working:,.0f} while a batch was being written, "
        f"{len(known) * given['batch_rows'] / cpu:,.0f} for each second of processor time, with "
        "all services."
    )
    return [
        machine_line(_only(result, STREAM), (RUN,)),
        text,
        "\n".join(aims),
        _latency_table(batches),
        _services_table(batches),
        _files_table(batches),
    ]


def _with_cpu(batches: Sequence[Batch], field: str) -> list[Batch]:
    """Return the batches whose processor time is known.

    Spark ends Python workers that were idle for a minute, and their time is taken off then.
    """
    return [each for each in batches if each[field] >= 0]


def _latency_table(batches: Sequence[Batch]) -> str:
    rows = []
    every = [*windows(batches), batches]
    for part in every:
        where = "all" if part is batches else f"{part[0]['batch'] + 1} to {part[-1]['batch'] + 1}"
        upserts, whole = ([each[name] for each in part] for name in ("upsert", "seconds"))
        cells = [f"{percentile(upserts, share):.1f}" for share in (0.5, 0.95, 0.99)]
        cells += [f"{percentile(whole, share):.1f}" for share in (0.5, 0.95, 0.99)]
        cells.append(
            f"{statistics.median(each['upsert_cpu'] for each in _with_cpu(part, 'upsert_cpu')):.1f}"
        )
        rows.append(f"| {where} | {' | '.join(cells)} |")
    head = (
        "| batches | upsert: median, s | p95 | p99 | with services: median, s | p95 | p99 "
        "| upsert, processor s, median |"
    )
    return "\n".join(["### Time of a batch", "", head, f"|---|{'---:|' * 7}", *rows])


def _services_table(batches: Sequence[Batch]) -> str:
    rows = []
    for name in SERVICES:
        taken = [each[name] for each in batches if name in each]
        if taken:
            rows.append(
                f"| {name} | {len(taken)} | {statistics.median(taken):.2f} | {max(taken):.2f} |"
            )
    if not rows:
        return ""
    head = "| service | runs | median, s | longest, s |"
    return "\n".join(["### Services within the stream", "", head, "|---|---:|---:|---:|", *rows])


def _files_table(batches: Sequence[Batch]) -> str:
    parts = windows(batches)
    heads = [f"{part[0]['batch'] + 1} to {part[-1]['batch'] + 1}" for part in parts]
    rows = [
        f"| {title} | {' | '.join(f'{max(each[name] for each in part):,}' for part in parts)} |"
        for name, title in _FILES.items()
    ]
    rows += [
        f"| {title}, MB "
        f"| {' | '.join(f'{max(each[name] for each in part) / 1e6:,.0f}' for part in parts)} |"
        for name, title in _MEMORY.items()
    ]
    text = (
        "The most after any batch of each part of the stream. The number of base files follows "
        "the buckets and the commits that a clean retains."
    )
    head = f"| batches | {' | '.join(heads)} |"
    title = "### Files and memory"
    return "\n".join([title, "", text, "", head, f"|---|{'---:|' * len(parts)}", *rows])


def _micro_parts(result: Result) -> list[str]:
    small, large = (small_batches(result, table) for table in (SMALL, LARGE))
    if not small or not large:
        return []
    given = result["contenders"][MICRO]["given"]
    rows = []
    for title, field in (("seconds", "seconds"), ("processor seconds", "cpu_seconds")):
        pairs = [
            (a[field], b[field])
            for a, b in zip(small, large, strict=True)
            if min(a[field], b[field]) >= 0  # See `_with_cpu`.
        ]
        middle = [statistics.median(side) for side in zip(*pairs, strict=True)]
        ratio = statistics.median(b / a for a, b in pairs)
        rows.append(
            f"| {title} | {middle[0]:.2f} | {middle[1]:.2f} | {ratio:.2f}x "
            f"| {met(ratio <= LARGE_OVER_SMALL)} |"
        )
    longest = [max(each["seconds"] for each in side) for side in (small, large)]
    rows.append(f"| longest, seconds | {longest[0]:.2f} | {longest[1]:.2f} | | |")
    keys = given["micro_keys"]
    text = (
        f"Batches of {given['micro_rows']:,} rows, half with new keys and half with any of the "
        "stored ones, in turns into two tables with as many buckets, without compaction. Medians "
        f"of {len(small)} batches of each after {WARM_UP} that do not count, and the median of "
        "their ratios. Every tenth commit compacts the metadata table within the batch, which is "
        "the longest one; this compaction follows the number of stored keys."
    )
    head = (
        f"| | {keys[0]:,} stored keys | {keys[1]:,} stored keys | large over small "
        f"| at most {LARGE_OVER_SMALL:g}x |"
    )
    return [
        "### Small batches into a small and a large table",
        machine_line(_only(result, MICRO), (BATCHES,)),
        text,
        "\n".join([head, "|---|---:|---:|---:|---|", *rows]),
    ]
