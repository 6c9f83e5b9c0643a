"""The page and the plot of the benchmark of file groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.plot import draw_bars, draw_panels
from benchmarks.common.render import render_results
from benchmarks.common.report import Result, measured, rounds_held
from benchmarks.groups.report import TITLES, page
from benchmarks.groups.steps import LOAD, SIMPLE, TABLE_TYPES, UPSERT, UPSERT_AGAIN


def render(results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    return render_results("groups", page, draw, results, docs)


def draw(result: Result, path: Path) -> None:
    """Draw one result into a file, in the format its suffix names."""
    data, settings = result["data"], result["settings"]
    title = (
        f"{data['rows'] / 1e6:g} M rows, {data['partitions']} partitions, {settings['buckets']} "
        f"buckets of {settings['groups']} file groups; {result['machine']['cores']} cores, median "
        f"of {rounds_held(result)}"
    )
    simple = {f"{SIMPLE}-{short}" for short in TABLE_TYPES}

    def draw_panel(axes: Axes, step: str) -> None:
        draw_bars(axes, result, step, TITLES[step], limits=simple)

    draw_panels(path, title, (UPSERT, UPSERT_AGAIN), draw_panel, bars=len(measured(result, LOAD)))
