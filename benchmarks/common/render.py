"""The page and the plot of a benchmark, from its result files alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.common.report import Result, rounds_held


def render_results(
    benchmark: str,
    page: Callable[[Sequence[Result]], str],
    draw: Callable[[Result, Path], None],
    results: Path,
    docs: Path,
) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    found = [json.loads(path.read_text()) for path in sorted(results.glob(f"{benchmark}-*.json"))]
    if not found:
        raise SystemExit(f"no {benchmark}-*.json in {results}; run the benchmark first")
    found.sort(key=lambda result: result["data"]["rows"])
    docs.mkdir(parents=True, exist_ok=True)
    text, plot = docs / f"{benchmark}.md", docs / f"{benchmark}.svg"
    text.write_text(page(found))
    yield text
    draw(_most_telling(found), plot)
    yield plot


def _most_telling(results: Sequence[Result]) -> Result:
    """The result with the most rounds, the larger table on a tie."""
    return max(results, key=lambda r: (rounds_held(r), r["data"]["rows"]))
