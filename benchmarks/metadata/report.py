"""Ratios, aims, requests and bytes of the metadata table's cases, as a page with tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.common.report import QUIET_SHARE_MAX, Result, met, spread
from benchmarks.metadata.modes import OFF, ON

TITLES = {
    "upsert": "upsert, copy-on-write",
    "log_upsert": "upsert, merge-on-read",
    "small": "small commits, merge-on-read",
}
RATIO_MAX = 1.25
"""What the metadata table may cost: time with it over time without it."""

WINDOW = 50  # Small commits whose sums are compared; a compaction comes with each tenth.


def page(results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    parts = [
        "# Metadata table benchmark",
        "What it costs to maintain Hudi's metadata table: the same writes of bucketlake to a table "
        "with it and to a table without it, in one process without Spark. The two tables take "
        "turns, and which is first changes from pair to pair. The metadata table has the list of "
        "files and statistics of all columns, of files and of partitions; bucketlake compacts and "
        "cleans it within the commits that are measured. "
        "[When to turn it off](../how-to/metadata-table.md#when-it-is-wise-to-turn-it-off).",
        "![Time with the metadata table over time without it](metadata.svg)",
        *(_section(result) for result in results),
        _origin(results[-1]),
    ]
    return "\n\n".join(parts) + "\n"


def ratios(result: Result, case: str, field: str) -> list[float]:
    """Return time with over time without, for each pair, or for windows of small commits.

    The last window of small commits may be shorter only if there is no other.
    """
    pairs = result["cases"][case]["pairs"]
    size = min(WINDOW, len(pairs)) if case == "small" else 1
    windows = [pairs[at : at + size] for at in range(0, len(pairs) - size + 1, size)]
    return [_sum(window, ON, field) / _sum(window, OFF, field) for window in windows]


def _sum(pairs: Sequence[Any], mode: str, field: str) -> float:
    return float(sum(pair[mode][field] for pair in pairs))


def _section(result: Result) -> str:
    data, settings = result["data"], result["settings"]
    head = (
        f"## {data['rows']:,} rows, {data['partitions']} partitions x {settings['buckets']} "
        f"buckets, {settings['rounds']} rounds, {settings['commits']:,} small commits"
    )
    changed = data["updates"] + data["inserts"]
    text = (
        f"An upsert has {changed:,} rows in all file groups. A small commit has "
        f"{settings['small_rows']:,} rows; the ratios of small commits are of {WINDOW} commits "
        "together."
    )
    return "\n\n".join([head, _machine(result), text, _times(result), _sent(result)])


def _machine(result: Result) -> str:
    machine = result["machine"]
    text = (
        f"{machine['cores']} cores ({machine['processor']}), "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['system']}; seed "
        f"{result['data']['seed']}."
    )
    share = result["other_cpu_share"]
    if share > QUIET_SHARE_MAX:
        text += (
            f" **Provisional**: other processes used {share:.0%} of the machine, so the ratios of "
            "processor time say more than seconds."
        )
    return text


def _times(result: Result) -> str:
    rows = [
        "| write | with, processor s | without, processor s | ratio, processor | ratio, seconds "
        f"| at most {RATIO_MAX:g} |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for case, title in TITLES.items():
        pairs = result["cases"][case]["pairs"]
        medians = [statistics.median(p[mode]["cpu_seconds"] for p in pairs) for mode in (ON, OFF)]
        cpu, wall = (ratios(result, case, field) for field in ("cpu_seconds", "seconds"))
        cells = [*(f"{median:.3f}" for median in medians), spread(cpu), spread(wall)]
        verdict = met(statistics.median(cpu) <= RATIO_MAX)
        rows.append(f"| {title} | {' | '.join(cells)} | {verdict} |")
    head = (
        "Medians of the writes; ratios are the median of the pairs (minimum to maximum). The aim "
        "is judged by processor time."
    )
    return "\n".join([head, "", *rows])


def _sent(result: Result) -> str:
    rows = [
        "| write | requests with | without | ratio | written with, kB | without, kB | ratio "
        "| metadata table, kB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for case, title in TITLES.items():
        sent = result["cases"][case]["sent"]
        cells = []
        for field, unit in (("requests", 1), ("written_bytes", 1000)):
            on, off = (sent[mode][field] / sent[mode]["commits"] / unit for mode in (ON, OFF))
            cells += [f"{on:,.0f}", f"{off:,.0f}", f"{on / off:.2f}"]
        metadata_kb = sent[ON]["metadata_bytes"] / sent[ON]["commits"] / 1000
        rows.append(f"| {title} | {' | '.join(cells)} | {metadata_kb:,.0f} |")
    commits = result["cases"]["small"]["sent"][ON]["commits"]
    head = (
        "Requests and bytes of one write, on a storage in memory; of small commits the mean of "
        f"{commits}, compactions of the metadata table included."
    )
    return "\n".join([head, "", *rows])


def _origin(result: Result) -> str:
    versions = ", ".join(f"{name} {text}" for name, text in result["versions"].items())
    return (
        f"{versions}. Made by `scripts/bench metadata --render` from `benchmarks/results/`; "
        "`benchmarks/metadata/run.py` says what is measured."
    )
