"""The page and the plot of the resize benchmark.

Bars show processor seconds, which other work on the machine disturbs less than
the time by the clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.common.plot import (
    AIM_COLOUR,
    INK,
    OURS_COLOUR,
    PEER_COLOUR,
    draw_panels,
    style_panel,
    time_text,
)
from benchmarks.common.render import render_results
from benchmarks.common.report import Result, rounds_held, rounds_of, values
from benchmarks.resize.report import LINKED_BYTES_MAX, UPSERTS, page
from benchmarks.resize.steps import (
    CONSISTENT,
    GROWING,
    KINDS,
    LOAD,
    RESIZE,
    SIZES,
    UPSERT,
    UPSERT_LINKED,
    size_step,
)

GROWTH, BYTES = "growth", "bytes"
CPU, CPU_UNIT = "cpu_seconds", "processor seconds; black line: minimum to maximum"
PANELS = (GROWTH, BYTES, LOAD, UPSERT)


def render(results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    return render_results("resize", page, draw, results, docs)


def draw(result: Result, path: Path) -> None:
    """Draw one result into a file, in the format its suffix names."""
    title = (
        f"Resizes of hash rings, {result['data']['rows'] / 1e6:g} M rows: "
        f"{result['machine']['cores']} cores, median of {rounds_held(result)}"
    )

    def draw_panel(axes: Axes, panel: str) -> None:
        if panel == GROWTH:
            _draw_growth(axes, result)
        elif panel == BYTES:
            _draw_bytes(axes, result)
        else:
            _draw_kinds(axes, result, panel)

    draw_panels(path, title, PANELS, draw_panel, bars=len(KINDS))


def _draw_growth(axes: Axes, result: Result) -> None:
    """Bars of both changes, by the size of the table."""
    bars = [
        (
            f"{name}, {count} buckets",
            values(result, name, size_step(count), CPU),
            OURS_COLOUR if name == RESIZE else PEER_COLOUR,
        )
        for count in reversed(SIZES)
        for name in reversed(GROWING)
        if rounds_of(result, name)
    ]
    for title, found, colour in bars:
        axes.barh(title, statistics.median(found), color=colour, height=0.66)
        _label(axes, title, found, time_text(statistics.median(found)))
    _finish(axes, "two buckets split, or all rescaled", CPU_UNIT, [f for _, f, _ in bars])


def _draw_bytes(axes: Axes, result: Result) -> None:
    """Bytes of an upsert over those of bucketlake's or Hudi's own without a resize."""
    bars = []
    for (name, step), title in reversed(UPSERTS.items()):
        if rounds_of(result, name):
            pairs = (values(result, name, each, "added_bytes") for each in (step, UPSERT))
            bars.append((title, [a / b for a, b in zip(*pairs, strict=True)], name))
    for title, found, name in bars:
        colour = OURS_COLOUR if name == CONSISTENT else PEER_COLOUR
        axes.barh(title, statistics.median(found), color=colour, height=0.66)
        _label(axes, title, found, f"{statistics.median(found):.2f}x")
    linked = UPSERTS[CONSISTENT, UPSERT_LINKED]
    for place in (place for place, bar in enumerate(bars) if bar[0] == linked):
        edges = [place - 0.45, place + 0.45]
        axes.plot([LINKED_BYTES_MAX, LINKED_BYTES_MAX], edges, color=AIM_COLOUR, linewidth=2)
    _finish(
        axes,
        "bytes written, all buckets being resized",
        f"times the bytes without a resize; red: aim of virtual logs, {LINKED_BYTES_MAX}x",
        [found for _, found, _ in bars],
    )


def _draw_kinds(axes: Axes, result: Result, step: str) -> None:
    names = [name for name in reversed(KINDS) if rounds_of(result, name)]
    times = {name: values(result, name, step, CPU) for name in names}
    for name, found in times.items():
        colour = OURS_COLOUR if name.startswith("bucketlake") else PEER_COLOUR
        axes.barh(name, statistics.median(found), color=colour, height=0.66)
        _label(axes, name, found, time_text(statistics.median(found)))
    _finish(axes, step, CPU_UNIT, list(times.values()))


def _label(axes: Axes, place: str, found: list[float], text: str) -> None:
    low, high = min(found), max(found)
    axes.plot([low, high], [place, place], color=INK, linewidth=1.1, solid_capstyle="butt")
    axes.annotate(
        text,
        (high, place),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=INK,
        fontsize=8.5,
    )


def _finish(axes: Axes, title: str, unit: str, found: list[list[float]]) -> None:
    longest = max((max(each) for each in found), default=1.0)
    style_panel(axes, title, longest, unit)
