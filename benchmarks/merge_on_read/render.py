"""The page and the plot of the merge-on-read benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.plot import draw_bars, draw_panels, mark_aims
from benchmarks.common.render import render_results
from benchmarks.common.report import Result, measured, rounds_held
from benchmarks.merge_on_read.report import AIMS, FACTORS, TITLES, page
from benchmarks.merge_on_read.steps import UPSERT


def render(results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    return render_results("merge_on_read", page, draw, results, docs)


def draw(result: Result, path: Path) -> None:
    """Draw the steps of one result with an aim into a file, in the format its suffix names."""
    data = result["data"]
    title = (
        f"Merge-on-read, {data['rows'] / 1e6:g} M rows, then {data['updates'] / 1e3:,.0f} k "
        f"updates and {data['inserts'] / 1e3:,.0f} k inserts: {result['machine']['cores']} cores, "
        f"median of {rounds_held(result)}"
    )

    def draw_panel(axes: Axes, step: str) -> None:
        names = draw_bars(axes, result, step, TITLES[step])
        mark_aims(axes, result, names, step, AIMS)

    draw_panels(path, title, tuple(FACTORS), draw_panel, bars=len(measured(result, UPSERT)))
