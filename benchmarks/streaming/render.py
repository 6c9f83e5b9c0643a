"""The page and the plot of the benchmark of a long stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.plot import FAINT, INK, OURS_COLOUR, draw_panels, style_panel
from benchmarks.common.render import render_results
from benchmarks.common.report import Result
from benchmarks.streaming.report import batches_of, page

TIME, FILES = "time of a batch", "files"
_LINES = {
    "log_files": ("log files", "#b45309"),
    "data_files": ("base files", OURS_COLOUR),
    "timeline_files": ("timeline", "#4f46e5"),
    "metadata_files": ("metadata table", FAINT),
}


def render(results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    return render_results("streaming", page, draw, results, docs)


def draw(result: Result, path: Path) -> None:
    """Draw one result into a file, in the format its suffix names."""
    batches = batches_of(result)
    title = f"{len(batches)} batches of a stream"

    def draw_panel(axes: Axes, panel: str) -> None:
        numbers = [each["batch"] + 1 for each in batches]
        if panel == TIME:
            whole = [each["seconds"] for each in batches]
            axes.scatter(numbers, whole, color=FAINT, s=8, label="with services")
            upserts = [each["upsert"] for each in batches]
            axes.plot(numbers, upserts, color=OURS_COLOUR, linewidth=1.2, label="upsert")
            highest, unit = max(whole), "seconds"
        else:
            highest, unit = 0.0, "number"
            for name, (label, colour) in _LINES.items():
                found = [each[name] for each in batches]
                highest = max(highest, *found)
                axes.plot(numbers, found, color=colour, linewidth=1.2, label=label)
        style_panel(axes, panel, max(numbers), "batch")
        axes.set_ylim(0, highest * 1.1)
        axes.set_ylabel(unit, color=FAINT, fontsize=8.5)
        axes.legend(fontsize=8, frameon=False, labelcolor=INK)

    draw_panels(path, title, (TIME, FILES), draw_panel, bars=6)
