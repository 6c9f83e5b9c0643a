"""The page and the plot of the benchmark of the metadata table."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.plot import (
    AIM_COLOUR,
    INK,
    OURS_COLOUR,
    PEER_COLOUR,
    draw_panels,
    style_panel,
)
from benchmarks.common.render import render_results
from benchmarks.common.report import Result
from benchmarks.metadata.modes import OFF, ON
from benchmarks.metadata.report import RATIO_MAX, TITLES, page, ratios

RATIOS, SENT = "ratios", "sent"


def render(results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    return render_results("metadata", page, draw, results, docs)


def draw(result: Result, path: Path) -> None:
    """Draw one result into a file, in the format its suffix names."""
    title = (
        f"with the metadata table over without it: {result['data']['rows'] / 1e6:g} M rows, "
        f"{result['settings']['commits']:,} small commits"
    )

    def draw_panel(axes: Axes, step: str) -> None:
        (_draw_times if step == RATIOS else _draw_sent)(axes, result)

    draw_panels(path, title, (RATIOS, SENT), draw_panel, bars=len(TITLES))


def _draw_times(axes: Axes, result: Result) -> None:
    found = {title: ratios(result, case, "cpu_seconds") for case, title in TITLES.items()}
    _bars(axes, {title: statistics.median(values) for title, values in found.items()}, OURS_COLOUR)
    for place, title in enumerate(reversed(TITLES.values())):
        low, high = min(found[title]), max(found[title])
        axes.plot([low, high], [place, place], color=INK, linewidth=1.1)
    axes.axvline(RATIO_MAX, color=AIM_COLOUR, linewidth=1.2)
    longest = max(RATIO_MAX, *(max(values) for values in found.values()))
    style_panel(axes, "Processor time", longest, "ratio; black line: minimum to maximum; red: aim")


def _draw_sent(axes: Axes, result: Result) -> None:
    found = {}
    for case, title in TITLES.items():
        on, off = (result["cases"][case]["sent"][mode]["requests"] for mode in (ON, OFF))
        found[title] = on / off
    _bars(axes, found, PEER_COLOUR)
    style_panel(axes, "Requests to storage", max(found.values()), "ratio")


def _bars(axes: Axes, middle: dict[str, float], colour: str) -> None:
    titles = list(reversed(middle))
    axes.barh(titles, [middle[title] for title in titles], color=colour, height=0.66)
    for place, title in enumerate(titles):
        axes.annotate(
            f"{middle[title]:.2f}",
            (0, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color="white" if colour == OURS_COLOUR else INK,
            fontsize=8.5,
        )
