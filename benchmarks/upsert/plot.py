"""The plot of an upsert result: sorted bars for upsert and load, with the strictest aim marked.

Seconds on a linear axis from zero, so that lengths compare as times do. The aim is a tick on our
own bars: the longest time that still meets every aim of that step.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "bucketlake"  # The same result gives the same file.
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from benchmarks.upsert import report  # noqa: E402

INK, FAINT = "#24292f", "#8c959f"
OURS_COLOUR, PEER_COLOUR, LIMIT_COLOUR = "#0f766e", "#c4cbd3", "#e3b341"
AIM_COLOUR = "#b42318"


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw one result's upserts and loads into a file, in the format its suffix names."""
    names = report.measured(result)
    height = 1.5 + 0.36 * len(names)
    figure, panels = plt.subplots(1, 2, figsize=(11.5, height), layout="constrained")
    for panel, step in zip(panels, ("upsert", "load"), strict=True):
        _panel(panel, result, step)
    data, rounds = result["data"], result["settings"]["rounds"]
    figure.suptitle(
        f"{data['rows'] / 1e6:g} M rows, then {data['updates'] / 1e3:,.0f} k updates and "
        f"{data['inserts'] / 1e3:,.0f} k inserts: {result['machine']['cores']} cores, "
        f"median of {rounds}, lower is better",
        color=INK,
        fontsize=11,
    )
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=130)
    plt.close(figure)


def _panel(axes: Axes, result: Mapping[str, Any], step: str) -> None:
    times = {name: report.seconds(result, name, step) for name in report.measured(result)}
    middle = {name: statistics.median(values) for name, values in times.items()}
    names = sorted(middle, key=lambda name: -middle[name])
    axes.barh(
        names, [middle[name] for name in names], color=[_colour(n) for n in names], height=0.66
    )
    for place, name in enumerate(names):
        low, high = min(times[name]), max(times[name])
        axes.plot([low, high], [place, place], color=INK, linewidth=1.1, solid_capstyle="butt")
        axes.annotate(
            _time(middle[name]),
            (high, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            fontsize=8.5,
        )
    _mark_aims(axes, middle, names, step)
    _style(axes, step, max(max(values) for values in times.values()))


def _mark_aims(axes: Axes, middle: Mapping[str, float], names: list[str], step: str) -> None:
    """A red tick on our bars: the slowest time that still meets every aim of this step."""
    limits = [
        (middle[aim.peer] / aim.factor, aim)
        for aim in report.AIMS
        if aim.step == step and aim.peer in middle
    ]
    if not limits:
        return
    limit, aim = min(limits, key=lambda pair: pair[0])
    label = f"aim: {_time(limit)} ({aim.text().partition(': ')[2]})"
    for name in set(report.OURS) & set(names):
        place = names.index(name)
        axes.plot(
            [limit, limit], [place - 0.45, place + 0.45], color=AIM_COLOUR, linewidth=2, label=label
        )
        label = "_same"
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", fontsize=8, frameon=False, labelcolor=AIM_COLOUR)


def _style(axes: Axes, step: str, longest: float) -> None:
    axes.set_xlim(0, longest * 1.16)  # Room for the longest bar's label.
    axes.set_title(step, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.set_xlabel("seconds; black line: minimum to maximum", color=FAINT, fontsize=8.5)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.grid(axis="x", color="#eaeef2", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#d0d7de")


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"


def _colour(name: str) -> str:
    if name in report.OURS:
        return OURS_COLOUR
    return LIMIT_COLOUR if name == "polars-limit" else PEER_COLOUR
