"""Medians, ratios and aims of upsert results, as a page with tables and a plot.

Ratios are taken pair by pair: a peer's seconds over ours in the same round, then the median of
these, so that a slow minute of the machine falls on both sides.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Result = Mapping[str, Any]
STEPS = ("load", "upsert", "read")
OURS = ("bucketlake-spark4", "bucketlake-spark35")
QUIET_SHARE_MAX = 0.10  # Above it the machine was doing something else, and the page says so.


@dataclass(frozen=True, slots=True)
class Aim:
    """How one of our steps must stand beside a peer's same step."""

    step: str
    peer: str
    factor: float  # Peer's seconds over ours; at least this.

    def text(self) -> str:
        if self.factor < 1:
            return f"{self.step}: at most {1 / self.factor:g}x the time of {self.peer}"
        return f"{self.step}: at least {self.factor:g}x faster than {self.peer}"


AIMS = (
    Aim("upsert", "hudi-bucket-upsert", 8),
    Aim("upsert", "delta-merge", 6),
    Aim("upsert", "polars-limit", 1 / 2),
    Aim("load", "hudi-bucket-upsert", 9),
    Aim("load", "hudi-bucket-bulk_insert-nomdt", 2.5),
)
ROWS_MAX_OVER_MEAN = 1.25
WORKER_OVER_GROUP = 3.0


def seconds(result: Result, name: str, step: str) -> list[float]:
    """A contender's times of one step, by round."""
    return [each[step]["seconds"] for each in _rounds(result, name)]


def ratios(result: Result, step: str, peer: str, ours: str) -> list[float]:
    """A peer's seconds over ours, round by round."""
    pairs = zip(seconds(result, peer, step), seconds(result, ours, step), strict=False)
    return [theirs / mine for theirs, mine in pairs]


def measured(result: Result) -> list[str]:
    """Contenders with at least one round, ours first, then by the median time of the upsert."""
    names = [name for name in result["contenders"] if _rounds(result, name)]
    return sorted(
        names, key=lambda n: (n not in OURS, statistics.median(seconds(result, n, "upsert")))
    )


def _rounds(result: Result, name: str) -> list[Mapping[str, Any]]:
    return result["contenders"].get(name, {}).get("rounds", [])


def page(results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    parts = [
        "# Upsert benchmark",
        "Order-like rows (string key, 9 columns, zstd Parquet): a first load, then a batch of 20 % "
        "updates and 2 % inserts, then a read of everything. Same data, same machine, contenders "
        "interleaved, processes warm, fresh tables each round. After every round each "
        "contender's table has shown the row count and the column sums that the generator "
        "predicts.",
        "![Median seconds of load and upsert](upsert.svg)",
        *(_section(result) for result in results),
        _settings(results[-1]),
        "Made by `python -m benchmarks.upsert --render` from `benchmarks/results/`; the "
        "files in `benchmarks/upsert/contenders/` say why each setting is as it is.",
    ]
    return "\n\n".join(parts) + "\n"


def _section(result: Result) -> str:
    data, settings = result["data"], result["settings"]
    rounds = settings["rounds"]
    head = (
        f"## {data['rows']:,} rows, {data['partitions']} partitions x {settings['buckets']} "
        f"buckets, {rounds} round{'s' if rounds > 1 else ''}"
    )
    parts = [head, _machine_line(result), _times_table(result)]
    parts += [
        block
        for ours in OURS
        if _rounds(result, ours)
        for block in (f"### Aims, {ours}", _aims_table(result, ours))
    ]
    parts += [_ratios_table(result), _placement_table(result)]
    failed = [f"- {n}: {c['error'].splitlines()[0]}" for n, c in _failures(result)]
    if failed:
        parts += ["Failed, and so without figures:", "\n".join(failed)]
    return "\n\n".join(part for part in parts if part)


def _failures(result: Result) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, each) for name, each in result["contenders"].items() if "error" in each]


def _machine_line(result: Result) -> str:
    machine = result["machine"]
    text = (
        f"{machine['cores']} cores ({machine['processor']}), "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['system']}; seed "
        f"{result['data']['seed']}; heap {result['settings']['driver_memory']} a Spark process."
    )
    others = statistics.median(
        each[step].get("other_cpu_share", 0.0)
        for name in measured(result)
        for each in _rounds(result, name)
        for step in STEPS
    )
    if others > QUIET_SHARE_MAX:
        text += (
            f" **Provisional**: other processes used {others:.0%} of the machine (median over "
            "steps), so compare ratios and processor time rather than seconds."
        )
    return text


def _times_table(result: Result) -> str:
    rows = [
        "| contender | load, s | upsert, s | read, s | upsert, processor s | table, MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in measured(result):
        cells = [_spread(seconds(result, name, step)) for step in STEPS]
        cpu = statistics.median(e["upsert"]["cpu_seconds"] for e in _rounds(result, name))
        size = statistics.median(e["load"]["data_bytes"] for e in _rounds(result, name)) / 1e6
        rows.append(f"| {name} | {' | '.join(cells)} | {cpu:.1f} | {size:.0f} |")
    return "\n".join(
        [
            "Median (minimum to maximum). *Table* is the size of the data files after the load; "
            "*nomdt* is without Hudi's metadata table; *polars-limit* is the bare merge of the "
            "same rows in one process, with no table format around it.",
            "",
            *rows,
        ]
    )


def _spread(values: Sequence[float]) -> str:
    middle = statistics.median(values)
    if len(values) == 1:
        return f"{middle:.2f}"
    return f"**{middle:.2f}** ({min(values):.2f} to {max(values):.2f})"


def _aims_table(result: Result, ours: str) -> str:
    rows = ["| aim | found, median (min to max) of the rounds | |", "|---|---:|---|"]
    for aim in AIMS:
        if found := ratios(result, aim.step, aim.peer, ours):
            shown = [1 / ratio for ratio in found] if aim.factor < 1 else found
            text = f"{statistics.median(shown):.2f}x ({min(shown):.2f} to {max(shown):.2f})"
            rows.append(f"| {aim.text()} | {text} | {_met(_holds(aim, found))} |")
    uneven = evenness(result, ours)
    if uneven:
        rows.append(
            f"| most rows of a task, over the mean of all tasks: at most {ROWS_MAX_OVER_MEAN} "
            f"| {uneven:.3f} | {_met(uneven <= ROWS_MAX_OVER_MEAN)} |"
        )
    memory = worker_memory(result, ours)
    if memory:
        rows.append(
            "| memory that a Python worker takes for its work, over its largest file group in "
            f"Arrow: at most {WORKER_OVER_GROUP:g} | {memory.text()} "
            f"| {_met(memory.ratio <= WORKER_OVER_GROUP)} |"
        )
    return "\n".join(rows)


def _ratios_table(result: Result) -> str:
    """Every peer's time over ours, so that no reader has to trust the choice of the aims."""
    ours = [name for name in OURS if _rounds(result, name)]
    if not ours:
        return ""
    columns = [(name, step) for name in ours for step in STEPS]
    titles = [f"{step}, {name.removeprefix('bucketlake-')}" for name, step in columns]
    rows = [f"| contender | {' | '.join(titles)} |", f"|---|{'---:|' * len(columns)}"]
    for peer in measured(result):
        if peer not in ours:
            cells = [_factor(ratios(result, step, peer, name)) for name, step in columns]
            rows.append(f"| {peer} | {' | '.join(cells)} |")
    return "\n".join(["### Time over bucketlake's, median of the rounds", "", *rows])


def _factor(found: Sequence[float]) -> str:
    return f"{statistics.median(found):.2f}x"


def _holds(aim: Aim, found: Sequence[float]) -> bool:
    return statistics.median(found) >= aim.factor


def _met(holds: bool) -> str:
    return "met" if holds else "**missed**"


def evenness(result: Result, name: str) -> float | None:
    """Largest task over the mean task of the stage that writes, worst of the rounds."""
    found = [
        stage["rows_max_over_mean"]
        for each in _rounds(result, name)
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


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """What the leanest idle worker and the fullest one held, and the largest file group."""

    idle_bytes: int
    peak_bytes: int
    group_bytes: int

    @property
    def ratio(self) -> float:
        return max(0, self.peak_bytes - self.idle_bytes) / self.group_bytes

    def text(self) -> str:
        idle, peak, group = (
            f"{size / 1e6:.0f} MB" for size in (self.idle_bytes, self.peak_bytes, self.group_bytes)
        )
        return f"{self.ratio:.2f} (peak {peak}, idle {idle}, file group {group})"


def worker_memory(result: Result, name: str) -> WorkerMemory | None:
    """The worst of a contender's upserts, where it has Python workers."""
    found = [
        WorkerMemory(
            each["upsert"]["worker_idle_bytes"],
            each["upsert"]["worker_peak_bytes"],
            each["upsert"]["largest_group_arrow_bytes"],
        )
        for each in _rounds(result, name)
        if "worker_peak_bytes" in each["upsert"] and "largest_group_arrow_bytes" in each["upsert"]
    ]
    return max(found, key=lambda memory: memory.ratio, default=None)


def _placement_table(result: Result) -> str:
    head = [
        "| contender | tasks | without rows | most rows over the mean |",
        "|---|---:|---:|---:|",
    ]
    rows = []
    for name in measured(result):
        if stage := write_stage(result, _rounds(result, name)[-1]["upsert"], "upsert"):
            rows.append(
                f"| {name} | {stage['tasks']} | {stage['tasks_without_rows']} "
                f"| {stage['rows_max_over_mean']} |"
            )
    if not rows:
        return ""
    title = "### Rows by task in the upsert's last shuffle of the batch"
    return "\n".join([title, "", *head, *rows])


def _settings(result: Result) -> str:
    parts = ["## Versions and settings"]
    for name in measured(result):
        contender = result["contenders"][name]
        versions = ", ".join(f"{key} {value}" for key, value in contender["versions"].items())
        lines = [f"{key}={value}" for key, value in contender["settings"].items()]
        block = "\n".join(lines)
        parts.append(
            f"<details><summary>{name}: {versions}</summary>\n\n```\n{block}\n```\n\n</details>"
        )
    return "\n\n".join(parts)
