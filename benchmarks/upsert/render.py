"""The page and the plot of the upsert benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.common.render import render_results
from benchmarks.upsert.plot import draw
from benchmarks.upsert.report import page


def render(results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    return render_results("upsert", page, draw, results, docs)
