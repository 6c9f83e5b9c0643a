"""What the pages of all benchmarks say alike: medians, ratios, aims, worker memory, settings.

Ratios are taken pair by pair: a peer's seconds over ours in the same round, then the median of
these, so that a slow minute of the machine falls on both sides.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Result = Mapping[str, Any]
Titles = Mapping[str, str]
"""What a page calls each measured step."""

OURS = (
    "bucketlake-spark4",
    "bucketlake-spark35",
    "bucketlake-mdt-spark4",
    "bucketlake-mdt-spark35",
    "bucketlake-mor-spark4",
    "bucketlake-mor-spark35",
)
QUIET_SHARE_MAX = 0.10  # Above it the machine was doing something else, and the page says so.


def rounds_of(result: Result, name: str) -> list[Mapping[str, Any]]:
    """What was measured of a contender, by round; nothing where it did not run."""
    return result["contenders"].get(name, {}).get("rounds", [])


def values(result: Result, name: str, step: str, field: str) -> list[float]:
    """One measured value of a contender's step, by round."""
    return [each[step][field] for each in rounds_of(result, name)]


def seconds(result: Result, name: str, step: str) -> list[float]:
    """A contender's times of one step, by round."""
    return values(result, name, step, "seconds")


def ratios(result: Result, step: str, peer: str, ours: str, field: str = "seconds") -> list[float]:
    """A peer's measured value over ours, round by round."""
    pairs = zip(values(result, peer, step, field), values(result, ours, step, field), strict=False)
    return [theirs / mine for theirs, mine in pairs]


def without(result: Result, names: Collection[str]) -> Result:
    """The result without some contenders, such as those that answer another question."""
    held = {name: c for name, c in result["contenders"].items() if name not in names}
    return {**result, "contenders": held}


def measured(result: Result, step: str) -> list[str]:
    """Contenders with at least one round, ours first, then by the median time of a step."""
    names = [name for name in result["contenders"] if rounds_of(result, name)]
    return sorted(names, key=lambda n: (n not in OURS, statistics.median(seconds(result, n, step))))


def rounds_held(result: Result) -> int:
    """How often each contender took its turn; a run may have been stopped before its last round."""
    if "contenders" not in result:
        return int(result["settings"]["rounds"])  # Pairs; a run that is stopped leaves no result.
    return max((len(rounds_of(result, name)) for name in result["contenders"]), default=0)


def rounds_text(result: Result) -> str:
    """How often each contender took its turn, in words."""
    rounds = rounds_held(result)
    return f"{rounds} round{'s' if rounds != 1 else ''}"


def tables_head(result: Result) -> str:
    """The head of a section about tables of so many rows, partitions and buckets."""
    data, buckets = result["data"], result["settings"]["buckets"]
    return (
        f"## {data['rows']:,} rows, {data['partitions']} partitions x {buckets} buckets, "
        f"{rounds_text(result)}"
    )


def machine_line(result: Result, steps: Sequence[str]) -> str:
    """What the figures were measured on, and whether it was quiet."""
    machine, seed = result["machine"], result["data"].get("seed")
    text = (
        f"{machine['cores']} cores ({machine['processor']}), "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['system']}; "
        f"{'' if seed is None else f'seed {seed}; '}"
        f"heap {result['settings']['driver_memory']} a Spark process."
    )
    others = [
        each[step].get("other_cpu_share", 0.0)
        for name in result["contenders"]
        for each in rounds_of(result, name)
        for step in steps
        if step in each
    ]
    if others and (share := statistics.median(others)) > QUIET_SHARE_MAX:
        text += (
            f" **Provisional**: other processes used {share:.0%} of the machine (median over "
            "steps), so compare ratios and processor time rather than seconds."
        )
    return text


def spread(numbers: Sequence[float]) -> str:
    """Median, minimum and maximum; the number itself where there is one."""
    middle = statistics.median(numbers)
    if len(numbers) == 1:
        return f"{middle:.2f}"
    return f"**{middle:.2f}** ({min(numbers):.2f} to {max(numbers):.2f})"


def factor(found: Sequence[float]) -> str:
    """The median of ratios."""
    return f"{statistics.median(found):.2f}x"


def factors(found: Sequence[float]) -> str:
    """The median, minimum and maximum of ratios."""
    return f"{factor(found)} ({min(found):.2f} to {max(found):.2f})"


def ratios_table(result: Result, titles: Titles, names: Sequence[str]) -> str:
    """Every peer's time over ours, so that no reader has to trust a choice of peers."""
    ours = [name for name in OURS if rounds_of(result, name)]
    peers = [name for name in names if name not in ours]
    if not ours or not peers:
        return ""
    columns = [(name, step) for name in ours for step in titles]
    heads = [f"{titles[step]}, {name.removeprefix('bucketlake-')}" for name, step in columns]
    rows = [f"| contender | {' | '.join(heads)} |", f"|---|{'---:|' * len(columns)}"]
    for peer in peers:
        cells = [factor(ratios(result, step, peer, name)) for name, step in columns]
        rows.append(f"| {peer} | {' | '.join(cells)} |")
    return "\n".join(["### Time over bucketlake's, median of the rounds", "", *rows])


@dataclass(frozen=True, slots=True)
class Aim:
    """How one of our steps must stand beside a peer's same step."""

    step: str
    peer: str
    factor: float  # Peer's seconds over ours; at least this.

    def text(self) -> str:
        if self.factor == 1:
            return f"no slower than {self.peer}"
        if self.factor < 1:
            return f"at most {1 / self.factor:g}x the time of {self.peer}"
        return f"at least {self.factor:g}x faster than {self.peer}"

    def holds(self, found: Sequence[float]) -> bool:
        """Tell whether the median of the ratios is what was aimed at."""
        return statistics.median(found) >= self.factor


def aims_blocks(
    result: Result,
    aims: Sequence[Aim],
    titles: Titles,
    more: Callable[[Result, str], Sequence[str]] = lambda _result, _ours: (),
) -> list[str]:
    """A table for each of ours that was measured, with more rows where a benchmark has some."""
    blocks = []
    for ours in (name for name in OURS if rounds_of(result, name)):
        rows = ["| aim | found, median (min to max) of the rounds | |", "|---|---:|---|"]
        for aim in aims:
            if found := ratios(result, aim.step, aim.peer, ours):
                rows.append(aim_row(aim, titles[aim.step], found))
        blocks += [f"### Aims, {ours}", "\n".join([*rows, *more(result, ours)])]
    return blocks


def aim_row(aim: Aim, title: str, found: Sequence[float]) -> str:
    """Return the row of an aim in a table of aims."""
    shown = [1 / ratio for ratio in found] if aim.factor < 1 else found
    return f"| {title}: {aim.text()} | {factors(shown)} | {met(aim.holds(found))} |"


def met(holds: bool) -> str:
    """The verdict on an aim."""
    return "met" if holds else "**missed**"


def failures_text(result: Result) -> str:
    """Name the contenders that have no figures, with the first line of why."""
    failed = [
        f"- {name}: {each['error'].splitlines()[0]}"
        for name, each in result["contenders"].items()
        if "error" in each
    ]
    return "\n\n".join(["Failed, and so without figures:", "\n".join(failed)]) if failed else ""


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


def worker_memory(result: Result, name: str, step: str) -> WorkerMemory | None:
    """The worst of a contender's rounds, where it has Python workers."""
    found = [
        WorkerMemory(
            each[step]["worker_idle_bytes"],
            each[step]["worker_peak_bytes"],
            each[step]["largest_group_arrow_bytes"],
        )
        for each in rounds_of(result, name)
        if "worker_peak_bytes" in each[step] and "largest_group_arrow_bytes" in each[step]
    ]
    return max(found, key=lambda memory: memory.ratio, default=None)


def worker_cell(result: Result, name: str, step: str) -> str:
    """The highest memory of a Python worker, in brackets what an idle one does not hold, in MB."""
    memory = worker_memory(result, name, step)
    if memory is None:
        return "–"
    taken = (memory.peak_bytes - memory.idle_bytes) / 1e6
    return f"{memory.peak_bytes / 1e6:.0f} ({taken:.0f})"


def settings_text(result: Result, names: Sequence[str]) -> str:
    """Versions and settings of contenders, folded up."""
    parts = ["## Versions and settings"]
    for name in names:
        contender = result["contenders"][name]
        versions = ", ".join(f"{key} {value}" for key, value in contender["versions"].items())
        lines = [f"{key}={value}" for key, value in contender["settings"].items()]
        block = "\n".join(lines)
        parts.append(
            f"<details><summary>{name}: {versions}</summary>\n\n```\n{block}\n```\n\n</details>"
        )
    return "\n\n".join(parts)


def origin_text(benchmark: str) -> str:
    """How a page came to be."""
    return (
        f"Made by `scripts/bench {benchmark} --render` from `benchmarks/results/`; the files in "
        f"`benchmarks/{benchmark}/contenders/` and `benchmarks/common/` say why each setting is as "
        "it is."
    )
