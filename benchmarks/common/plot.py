"""The plot of a benchmark: panels of bars or lines, two in a row, as an SVG file.

What is drawn is stated as data. Bars are on a linear axis from zero, so that lengths compare as
values do; a black line goes from the minimum to the maximum of the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common.figures import Result, is_ours

INK, FAINT, AIM = "#24292f", "#8c959f", "#b42318"
OURS, PEER, LIMIT = "#0f766e", "#c4cbd3", "#e3b341"
ORANGE, BLUE = "#b45309", "#4f46e5"
BY_CLOCK = "seconds; black line: minimum to maximum"
BY_PROCESSOR = "processor seconds; black line: minimum to maximum"


def time_text(seconds: float) -> str:
    """Write seconds as a label of a bar."""
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: the median of its values. Its aim is drawn as a red tick."""

    title: str
    values: Sequence[float]
    colour: str = PEER
    aim: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """A panel of bars, from above."""

    title: str
    bars: Callable[[Result], Sequence[Bar]]
    unit: str = BY_CLOCK
    label: Callable[[float], str] = time_text


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points."""

    title: str
    points: Sequence[tuple[float, float]]
    colour: str
    is_dots: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """A panel of lines, on linear axes from zero or on logarithmic ones."""

    title: str
    lines: Callable[[Result], Sequence[Line]]
    units: tuple[str, str]
    is_logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot. Its title may name `Result.words` in braces; `bars` is the height of a panel."""

    title: str
    panels: Sequence[Bars | Lines]
    bars: int = 0


def step_bars(
    step: str,
    title: str,
    *,
    field: str = "seconds",
    unit: str = BY_CLOCK,
    limits: Collection[str] = (),
    titles: Mapping[str, str] | None = None,
) -> Bars:
    """Return the panel of a step: a bar for each contender, the quickest above.

    ``titles`` chooses the contenders, and says what their bars are called. Those of ``limits`` are
    no contenders but what any system must do.
    """

    def bars(result: Result) -> list[Bar]:
        chosen = [n for n in result.ranked(step, field) if titles is None or n in titles]
        found = []
        for name in sorted(chosen, key=lambda each: result.median(each, step, field)):
            values = result.values(name, step, field)
            title = name if titles is None else titles[name]
            colour = OURS if is_ours(name) else LIMIT if name in limits else PEER
            found.append(Bar(title, values, colour))
        return found

    return Bars(title, bars, unit)


def draw(chart: Chart, result: Result, path: Path) -> None:
    """Draw the plot of a result into a file, whose suffix names the format."""
    import matplotlib as mpl  # Here, because no run needs it.

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "bucketlake"  # The same result gives the same file.
    import matplotlib.pyplot as plt

    drawn = [(panel, _contents(panel, result)) for panel in chart.panels]
    tallest = chart.bars or max(len(each) for panel, each in drawn if isinstance(panel, Bars))
    rows = -(-len(drawn) // 2)
    size = (11.5, rows * (1.5 + 0.36 * tallest))
    figure, axes = plt.subplots(rows, 2, figsize=size, layout="constrained")
    for place, (panel, contents) in zip(axes.flat, drawn, strict=True):
        if not contents:
            place.set_visible(False)
        elif isinstance(panel, Bars):
            _draw_bars(place, panel, contents)
        else:
            _draw_lines(place, panel, contents)
    title = f"{chart.title.format(**result.words)}, lower is better"
    figure.suptitle(title, color=INK, fontsize=11)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=130)
    plt.close(figure)


def _contents(panel: Bars | Lines, result: Result) -> Sequence[Any]:
    return panel.bars(result) if isinstance(panel, Bars) else panel.lines(result)


def _draw_bars(axes: Any, panel: Bars, bars: Sequence[Bar]) -> None:
    for place, bar in enumerate(reversed(bars)):
        middle, low, high = statistics.median(bar.values), min(bar.values), max(bar.values)
        axes.barh(place, middle, color=bar.colour, height=0.66)
        axes.plot([low, high], [place, place], color=INK, linewidth=1.1, solid_capstyle="butt")
        style: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(panel.label(middle), (high, place), color=INK, fontsize=8.5, **style)
        if bar.aim is not None:
            edges = [place - 0.45, place + 0.45]
            axes.plot([bar.aim, bar.aim], edges, color=AIM, linewidth=2)
    axes.set_yticks(range(len(bars)), [bar.title for bar in reversed(bars)])
    _style(axes, panel.title, panel.unit)
    longest = max(max(*bar.values, bar.aim or 0) for bar in bars)
    axes.set_xlim(0, longest * 1.16)


def _draw_lines(axes: Any, panel: Lines, lines: Sequence[Line]) -> None:
    for line in lines:
        across, up = zip(*line.points, strict=True)
        if line.is_dots:
            axes.scatter(across, up, color=line.colour, s=8, label=line.title)
            continue
        marker = {"marker": "o", "markersize": 3.5} if panel.is_logarithmic else {}
        axes.plot(across, up, color=line.colour, linewidth=1.2, label=line.title, **marker)
    _style(axes, panel.title, panel.units[0])
    axes.set_ylabel(panel.units[1], color=FAINT, fontsize=8.5)
    axes.legend(fontsize=8, frameon=False, labelcolor=INK)
    every = [point for line in lines for point in line.points]
    if panel.is_logarithmic:
        ticks = sorted({x for x, _ in every})
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    else:
        axes.set_xlim(0, max(x for x, _ in every) * 1.16)
        axes.set_ylim(0, max(y for _, y in every) * 1.1)


def _style(axes: Any, title: str, unit: str) -> None:
    """Give a panel its title and its axis."""
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.set_xlabel(unit, color=FAINT, fontsize=8.5)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.grid(axis="x", color="#eaeef2", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#d0d7de")
