"""The page of a benchmark: a title, a plot, a section for each result, versions and settings.

What a section shows is a list of blocks. A block makes Markdown of a result, or nothing if the
result has no figures for it. `Table` (`tables.py`) and `Aims` are blocks that are stated as data.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.common.figures import Result, factor, factors, is_ours, met
from benchmarks.common.tables import Row, Tell, listing

if TYPE_CHECKING:
    from benchmarks.common.plot import Chart

QUIET_SHARE_MAX = 0.10  # Above it the machine was doing something else, and the page says so.

Block = Callable[[Result], str]


@dataclass(frozen=True, slots=True)
class Page:
    """What the page of a benchmark shows.

    Attributes
    ----------
    title, text : str
        The head of the page, and what is measured.
    head : str
        The head of a result's section. It may name `Result.words` in braces.
    blocks : sequence of Block
        The contents of a section.
    image : str
        What the plot shows, in words.
    chart : Chart, optional
        The plot.
    headline : Chart, optional
        A plot for the README, which the page does not show.
    busy : tuple
        Contenders and steps of which the section tells how busy the machine was; all if empty.
    """

    title: str
    text: str
    head: str
    blocks: Sequence[Block]
    image: str = ""
    chart: Chart | None = None
    headline: Chart | None = None
    busy: tuple[Sequence[str], Sequence[str]] = field(default=((), ()))


def page_text(name: str, page: Page, results: Sequence[Result]) -> str:
    """Return the page of these results, in Markdown."""
    parts = [
        f"# {page.title}",
        page.text,
        f"![{page.image}]({name}.svg)" if page.chart else "",
        *(part for result in results for part in _section(page, result)),
        settings_text(max(results, key=lambda result: len(result.names))),
        f"Made by `scripts/bench {name} --render` from `benchmarks/results/`; "
        f"`benchmarks/{name}.py` and the files in `benchmarks/systems/` say why each setting is as "
        "it is.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(page: Page, result: Result) -> list[str]:
    return [
        f"## {page.head.format(**result.words)}",
        machine_line(result, *page.busy),
        *(block(result) for block in page.blocks),
        failures_text(result),
    ]


# ---- aims and ratios ----------------------------------------------------------------------------


def ratios_table(titles: dict[str, str], by: str, names: Collection[str] = ()) -> Block:
    """Return the table of every peer's time over ours, ranked by a step.

    So nobody has to trust a choice of peers. ``names`` are those of ours; all if empty.
    """

    def block(result: Result) -> str:
        ours = [
            (name, step)
            for name in result.names
            if is_ours(name) and (not names or name in names)
            for step in titles
        ]
        peers = [name for name in result.ranked(by) if not is_ours(name)]
        short = [f"{titles[step]}, {name.removeprefix('bucketlake-')}" for name, step in ours]
        rows = [
            [peer, *(factor(result.ratios(step, peer, name)) for name, step in ours)]
            for peer in peers
            if ours
        ]
        title = "Time over bucketlake's, median of the rounds"
        return listing(title, "", ["<contender", *short], rows)

    return block


@dataclass(frozen=True, slots=True)
class Aim:
    """How one of our steps must stand beside a peer's same step."""

    step: str
    peer: str
    factor: float  # Peer's seconds over ours; at least this.

    def text(self) -> str:
        """Return the aim in words."""
        if self.factor == 1:
            return f"no slower than {self.peer}"
        if self.factor < 1:
            return f"at most {1 / self.factor:.3g}x the time of {self.peer}"
        return f"at least {self.factor:.3g}x faster than {self.peer}"

    def found(self, result: Result, ours: str, field: str = "seconds") -> list[float]:
        """Return the ratios that the aim is about: turned round if it limits our time."""
        ratios = result.ratios(self.step, self.peer, ours, field)
        return [1 / ratio for ratio in ratios] if self.factor < 1 else ratios

    def verdict(self, found: Sequence[float]) -> str:
        """Return whether the median is what was aimed at."""
        middle = statistics.median(found)
        return met(middle <= 1 / self.factor if self.factor < 1 else middle >= self.factor)

    def row(self, result: Result, ours: str, title: str) -> list[str]:
        """Return the row of a table of aims; an empty one if the peer did not run."""
        wall, cpu = (self.found(result, ours, field) for field in ("seconds", "cpu_seconds"))
        if not wall:
            return []
        verdicts = [self.verdict(found) for found in (wall, cpu)]
        title = f"{ours}, {title}: {self.text()}"
        return [title, factors(wall), verdicts[0], factors(cpu), verdicts[1]]


@dataclass(frozen=True, slots=True)
class Aims:
    """The table of aims. `more` tells further rows.

    Attributes
    ----------
    aims : callable
        From a result to the aims, by contender of ours.
    """

    aims: Callable[[Result], Mapping[str, Sequence[Aim]]]
    titles: Mapping[str, str]
    more: Callable[[Result], Iterable[list[str]]] = lambda _result: ()

    def __call__(self, result: Result) -> str:
        """Return the table of a result."""
        rows = [
            aim.row(result, ours, self.titles[aim.step])
            for ours, own in self.aims(result).items()
            for aim in own
        ]
        heads = ["<aim", "seconds, median (min to max) of the rounds", "<", "processor time", "<"]
        return listing("Aims", "", heads, [*filter(None, rows), *self.more(result)])


# ---- machine, settings, failures ----------------------------------------------------------------


def machine_line(result: Result, names: Sequence[str] = (), steps: Sequence[str] = ()) -> str:
    """What the figures were measured on, and whether it was quiet."""
    machine, seed = result.content["machine"], result.content["data"].get("seed")
    parts = [
        f"{machine['cores']} cores ({machine['processor']}), "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['system']}",
        f"seed {seed}" if seed is not None else "",
        f"heap {result.settings['driver_memory']} a Spark process" if result.has_spark else "",
    ]
    text = "; ".join(part for part in parts if part) + "."
    if (share := result.busy_share(names, steps)) > QUIET_SHARE_MAX:
        text += (
            f" **Provisional**: other processes used {share:.0%} of the machine (median over "
            "steps), so compare ratios and processor time rather than seconds."
        )
    return text


def settings_text(result: Result) -> str:
    """Versions and settings of contenders, folded up."""
    parts = ["## Versions and settings"]
    for name in result.names:
        facts = result.facts(name)
        versions = ", ".join(f"{key} {value}" for key, value in facts["versions"].items())
        lines = "\n".join(f"{key}={value}" for key, value in facts["settings"].items())
        block = f"```\n{lines}\n```\n\n" if lines else ""
        parts.append(f"<details><summary>{name}: {versions}</summary>\n\n{block}</details>")
    return "\n\n".join(parts)


def failures_text(result: Result) -> str:
    """Name the contenders that failed, with the first line of why."""
    failures = [f"- {name}: {text.splitlines()[0]}" for name, text in result.failures.items()]
    return "Failed, and so without figures:\n\n" + "\n".join(failures) if failures else ""


# ---- memory of Python workers -------------------------------------------------------------------


class WorkerMemory(NamedTuple):
    """What the leanest idle worker and the fullest one held, and the largest file group."""

    idle_bytes: int
    peak_bytes: int
    group_bytes: int

    @property
    def ratio(self) -> float:
        """What the work took, over the file group."""
        return max(0, self.peak_bytes - self.idle_bytes) / self.group_bytes

    def text(self) -> str:
        """Return the ratio and what it is made of."""
        peak, idle, group = (
            f"{size / 1e6:.0f} MB" for size in (self.peak_bytes, self.idle_bytes, self.group_bytes)
        )
        return f"{self.ratio:.2f} (peak {peak}, idle {idle}, file group {group})"


def worker_memory(result: Result, name: str, step: str) -> WorkerMemory | None:
    """Return the worst of a contender's rounds; None if it has no Python workers."""
    fields = ("worker_idle_bytes", "worker_peak_bytes", "largest_group_arrow_bytes")
    values = (result.values(name, step, each) for each in fields)
    found = [WorkerMemory(*each) for each in zip(*values, strict=False)]
    return max(found, key=lambda memory: memory.ratio, default=None)


def worker_figure(step: str) -> Tell:
    """Return what tells the highest memory of a worker, and what an idle one does not hold."""

    def tell(result: Result, row: Row) -> str:
        memory = worker_memory(result, row.contender, step)
        if memory is None:
            return "–"
        taken = (memory.peak_bytes - memory.idle_bytes) / 1e6
        return f"{memory.peak_bytes / 1e6:.0f} ({taken:.0f})"

    return tell
