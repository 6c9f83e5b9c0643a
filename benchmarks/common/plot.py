"""Plots of a result: a panel of sorted bars for a step.

Seconds on a linear axis from zero, so that lengths compare as times do.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "bucketlake"  # The same result gives the same file.
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from benchmarks.common import report  # noqa: E402

INK, FAINT, AIM_COLOUR = "#24292f", "#8c959f", "#b42318"
OURS_COLOUR, PEER_COLOUR, LIMIT_COLOUR = "#0f766e", "#c4cbd3", "#e3b341"


def draw_panels(
    path: Path,
    title: str,
    steps: Sequence[str],
    draw_panel: Callable[[Axes, str], None],
    *,
    bars: int,
) -> None:
    """Draw panels of so many bars, two in a row, into a file whose suffix names the format."""
    rows = -(-len(steps) // 2)
    figure, panels = plt.subplots(
        rows, 2, figsize=(11.5, rows * (1.5 + 0.36 * bars)), layout="constrained"
    )
    for panel, step in zip(panels.flat, steps, strict=True):
        draw_panel(panel, step)
    figure.suptitle(f"{title}, lower is better", color=INK, fontsize=11)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=130)
    plt.close(figure)


def draw_bars(
    axes: Axes, result: report.Result, step: str, title: str, *, limits: Collection[str] = ()
) -> list[str]:
    """Draw each contender's median and spread, the longest lowest; return them from below.

    Those of ``limits`` are no contenders but what any system must do.
    """
    times = {name: report.seconds(result, name, step) for name in report.measured(result, step)}
    middle = {name: statistics.median(values) for name, values in times.items()}
    names = sorted(middle, key=lambda name: -middle[name])
    axes.barh(
        names,
        [middle[name] for name in names],
        color=[_colour(name, limits) for name in names],
        height=0.66,
    )
    for place, name in enumerate(names):
        low, high = min(times[name]), max(times[name])
        axes.plot([low, high], [place, place], color=INK, linewidth=1.1, solid_capstyle="butt")
        axes.annotate(
            time_text(middle[name]),
            (high, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            fontsize=8.5,
        )
    style_panel(axes, title, max(max(values) for values in times.values()))
    return names


def mark_aims(
    axes: Axes, result: report.Result, names: Sequence[str], step: str, aims: Sequence[report.Aim]
) -> None:
    """Draw a red tick on our bars: the slowest time that still meets every aim of this step."""
    limits = [
        (statistics.median(report.seconds(result, aim.peer, step)) / aim.factor, aim)
        for aim in aims
        if aim.step == step and aim.peer in names
    ]
    if not limits:
        return
    limit, aim = min(limits, key=lambda pair: pair[0])
    label = f"aim: {time_text(limit)} ({aim.text()})"
    for place in [names.index(name) for name in report.OURS if name in names]:
        axes.plot(
            [limit, limit], [place - 0.45, place + 0.45], color=AIM_COLOUR, linewidth=2, label=label
        )
        label = "_same"
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", fontsize=8, frameon=False, labelcolor=AIM_COLOUR)


def time_text(seconds: float) -> str:
    """Write seconds as a label of a bar."""
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"


def style_panel(
    axes: Axes,
    title: str,
    longest: float,
    unit: str = "seconds; black line: minimum to maximum",
) -> None:
    """Give a panel of bars its title, its axis and room for the label of the longest bar."""
    axes.set_xlim(0, longest * 1.16)
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.set_xlabel(unit, color=FAINT, fontsize=8.5)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.grid(axis="x", color="#eaeef2", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#d0d7de")


def _colour(name: str, limits: Collection[str]) -> str:
    if name in report.OURS:
        return OURS_COLOUR
    return LIMIT_COLOUR if name in limits else PEER_COLOUR
