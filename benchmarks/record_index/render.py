"""The page and the plot of the benchmark of the record-level index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from benchmarks.common.plot import (
    FAINT,
    INK,
    OURS_COLOUR,
    PEER_COLOUR,
    draw_bars,
    draw_panels,
    style_panel,
)
from benchmarks.common.render import render_results
from benchmarks.common.report import Result
from benchmarks.record_index.report import (
    TITLES,
    growth_rows,
    on_spark,
    page,
    size_titles,
    spark_part,
)
from benchmarks.record_index.steps import BUILD, INSERT_ROW, LOCATE, LOCATED, LOOKUP, UPSERT

SIZES, GROWTH = "sizes", "growth"
LINES = {
    BUILD: ("build", OURS_COLOUR),
    LOOKUP: ("lookup of 10,000 keys", "#b45309"),
    INSERT_ROW: ("insert of one row", "#4f46e5"),
    LOCATE: ("locate one key", FAINT),
}


def render(results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    return render_results("record_index", page, draw, results, docs)


def draw(result: Result, path: Path) -> None:
    """Draw one result into a file, in the format its suffix names."""
    data = result["data"]
    title = f"{data['rows'] / 1e6:g} M rows in {data['partitions']} partitions"

    def draw_panel(axes: Axes, panel: str) -> None:
        if panel == SIZES:
            _draw_sizes(axes, result)
        elif panel == GROWTH:
            _draw_growth(axes, result)
        else:
            draw_bars(axes, spark_part(result), panel, TITLES[panel])

    draw_panels(path, title, (UPSERT, BUILD, SIZES, GROWTH), draw_panel, bars=len(on_spark(result)))


def _draw_sizes(axes: Axes, result: Result) -> None:
    rows = list(size_titles(result))[::-1]
    if not rows:
        axes.set_visible(False)
        return
    places = np.arange(len(rows))
    for shift, column, colour in ((0.19, 1, OURS_COLOUR), (-0.19, 2, PEER_COLOUR)):
        found = [row[column] for row in rows]
        axes.barh(places + shift, found, color=colour, height=0.36)
        for place, size in zip(places + shift, found, strict=True):
            axes.annotate(
                f"{size:.1f}",
                (size, place),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                color=INK,
                fontsize=8.5,
            )
    axes.set_yticks(places, [row[0] for row in rows])
    style_panel(
        axes,
        "index",
        max(max(row[1:]) for row in rows),
        "bytes for each key; green: bucketlake, grey: Hudi",
    )


def _draw_growth(axes: Axes, result: Result) -> None:
    found = growth_rows(result)
    if not found:
        axes.set_visible(False)
        return
    keys = [count / 1e6 for count, _ in found]
    for step, (label, colour) in LINES.items():
        repeated = LOCATED if step == LOCATE else 1
        times = [steps[step]["cpu_seconds"] / repeated for _, steps in found]
        axes.plot(keys, times, color=colour, marker="o", markersize=3.5, label=label)
    style_panel(axes, "growth of the table", max(keys), "million keys")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(keys) * 0.9, max(keys) * 1.1)
    axes.set_xticks(keys, [f"{count:g}" for count in keys])
    axes.minorticks_off()
    axes.set_ylabel("processor seconds", color=FAINT, fontsize=8.5)
    axes.legend(fontsize=8, frameon=False, labelcolor=INK)
