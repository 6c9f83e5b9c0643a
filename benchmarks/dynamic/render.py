"""The page and the plot of the benchmark of dynamic buckets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.plot import draw_bars, draw_panels
from benchmarks.common.render import render_results
from benchmarks.common.report import Result
from benchmarks.dynamic.report import on_spark, page, spark_part
from benchmarks.dynamic.steps import LOAD, SIMPLE, UPSERT


def render(results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    return render_results("dynamic", page, draw, results, docs)


def draw(result: Result, path: Path) -> None:
    """Draw one result into a file, in the format its suffix names."""
    data = result["data"]
    title = (
        f"{data['rows'] / 1e6:g} M rows, then {data['updates'] / 1e3:,.0f} k updates and "
        f"{data['inserts'] / 1e3:,.0f} k inserts"
    )

    def draw_panel(axes: Axes, step: str) -> None:
        drawn = _by_processor_time(spark_part(result))
        draw_bars(axes, drawn, step, f"{step}, processor time", limits=set(SIMPLE.values()))

    draw_panels(path, title, (UPSERT, LOAD), draw_panel, bars=len(on_spark(result)))


def _by_processor_time(result: Result) -> Result:
    """Return the result with processor time as its seconds: others may use the machine."""
    contenders = {
        name: {
            **held,
            "rounds": [
                {step: {**seen, "seconds": seen["cpu_seconds"]} for step, seen in each.items()}
                for each in held["rounds"]
            ],
        }
        for name, held in result["contenders"].items()
    }
    return {**result, "contenders": contenders}
