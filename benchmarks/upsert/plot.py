"""The plot of an upsert result: sorted bars for upsert and load, with the strictest aim marked.

The aim is a tick on our own bars: the longest time that still meets every aim of that step.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.plot import draw_bars, draw_panels, time_text
from benchmarks.common.report import OURS, Result, measured, seconds
from benchmarks.upsert.report import AIMS

AIM_COLOUR = "#b42318"


def draw(result: Result, path: Path) -> None:
    """Draw one result's upserts and loads into a file, in the format its suffix names."""
    data, rounds = result["data"], result["settings"]["rounds"]
    title = (
        f"{data['rows'] / 1e6:g} M rows, then {data['updates'] / 1e3:,.0f} k updates and "
        f"{data['inserts'] / 1e3:,.0f} k inserts: {result['machine']['cores']} cores, "
        f"median of {rounds}"
    )

    def draw_panel(axes: Axes, step: str) -> None:
        names = draw_bars(axes, result, step, step, limits={"polars-limit"})
        _mark_aims(axes, result, names, step)

    bars = len(measured(result, "upsert"))
    draw_panels(path, title, ("upsert", "load"), draw_panel, bars=bars)


def _mark_aims(axes: Axes, result: Result, names: list[str], step: str) -> None:
    """A red tick on our bars: the slowest time that still meets every aim of this step."""
    limits = [
        (statistics.median(seconds(result, aim.peer, step)) / aim.factor, aim)
        for aim in AIMS
        if aim.step == step and aim.peer in names
    ]
    if not limits:
        return
    limit, aim = min(limits, key=lambda pair: pair[0])
    label = f"aim: {time_text(limit)} ({aim.text().partition(': ')[2]})"
    for place in [names.index(name) for name in OURS if name in names]:
        axes.plot(
            [limit, limit], [place - 0.45, place + 0.45], color=AIM_COLOUR, linewidth=2, label=label
        )
        label = "_same"
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", fontsize=8, frameon=False, labelcolor=AIM_COLOUR)
