"""The page and the plot of the benchmark, from its result files alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.upsert.plot import draw
from benchmarks.upsert.report import Result, page


def render(results: Path, docs: Path) -> Iterator[Path]:
    """Write the page and the plot of every result file in a folder; yield what was written."""
    found = [json.loads(path.read_text()) for path in results.glob("upsert-*.json")]
    if not found:
        raise SystemExit(f"no upsert-*.json in {results}; run the benchmark first")
    found.sort(key=lambda result: result["data"]["rows"])
    docs.mkdir(parents=True, exist_ok=True)
    text, plot = docs / "upsert.md", docs / "upsert.svg"
    text.write_text(page(found))
    yield text
    draw(_most_telling(found), plot)
    yield plot


def _most_telling(results: Sequence[Result]) -> Result:
    """The result with the most rounds, the larger table on a tie."""
    return max(results, key=lambda r: (r["settings"]["rounds"], r["data"]["rows"]))
