"""The page and the plot of the start-up benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.plot import draw_bars, draw_panels
from benchmarks.common.render import render_results
from benchmarks.common.report import Result, measured, rounds_held
from benchmarks.startup.report import TITLES, page
from benchmarks.startup.run import STEPS


def render(results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    return render_results("startup", page, draw, results, docs)


def draw(result: Result, path: Path) -> None:
    """Draw one result into a file, in the format its suffix names."""
    data = result["data"]
    title = (
        f"a whole process each: {data['rows'] / 1e6:g} M rows, then "
        f"{(data['updates'] + data['inserts']) / 1e3:,.0f} k changes; "
        f"{result['machine']['cores']} cores, median of {rounds_held(result)}"
    )

    def draw_panel(axes: Axes, step: str) -> None:
        draw_bars(axes, result, step, TITLES[step], limits={"plain-parquet"})

    draw_panels(path, title, STEPS, draw_panel, bars=len(measured(result, STEPS[0])))
