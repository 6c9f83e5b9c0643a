"""The plot of an upsert result: sorted bars for upsert and load, with the strictest aim marked.

The aim is a tick on our own bars: the longest time that still meets every aim of that step.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.plot import draw_bars, draw_panels, mark_aims
from benchmarks.common.report import Result, measured, rounds_held
from benchmarks.upsert.report import AIMS


def draw(result: Result, path: Path) -> None:
    """Draw one result's upserts and loads into a file, in the format its suffix names."""
    data = result["data"]
    title = (
        f"{data['rows'] / 1e6:g} M rows, then {data['updates'] / 1e3:,.0f} k updates and "
        f"{data['inserts'] / 1e3:,.0f} k inserts: {result['machine']['cores']} cores, "
        f"median of {rounds_held(result)}"
    )

    def draw_panel(axes: Axes, step: str) -> None:
        names = draw_bars(axes, result, step, step, limits={"polars-limit"})
        mark_aims(axes, result, names, step, AIMS)

    bars = len(measured(result, "upsert"))
    draw_panels(path, title, ("upsert", "load"), draw_panel, bars=bars)
