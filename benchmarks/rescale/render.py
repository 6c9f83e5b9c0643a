"""The page and the plot of the rescale benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.plot import draw_bars, draw_panels
from benchmarks.common.render import render_results
from benchmarks.common.report import Result, measured, rounds_held
from benchmarks.rescale.counts import ONE, STEPS
from benchmarks.rescale.report import TITLES, page


def render(results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    return render_results("rescale", page, draw, results, docs)


def draw(result: Result, path: Path) -> None:
    """Draw one result into a file, in the format its suffix names."""
    data, settings = result["data"], result["settings"]
    title = (
        f"{data['rows'] / 1e6:g} M rows in {data['partitions']} partitions, "
        f"{settings['buckets']} buckets to {settings['new_buckets']}: "
        f"{result['machine']['cores']} cores, median of {rounds_held(result)}"
    )

    def draw_panel(axes: Axes, step: str) -> None:
        draw_bars(axes, result, step, TITLES[step])

    draw_panels(path, title, STEPS, draw_panel, bars=len(measured(result, ONE)))
