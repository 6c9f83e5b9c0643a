"""The command line of all benchmarks, from a run to its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.common.benchmark import NAMES, load_benchmark
from benchmarks.common.command import main, parse
from benchmarks.common.figures import Result
from benchmarks.common.report import page_text

ROOT = Path(__file__).resolve().parents[3]
RESULTS, PAGES = ROOT / "benchmarks/results", ROOT / "docs/benchmarks"


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_has_a_quick_size_that_leaves_its_results_alone(name: str) -> None:
    benchmark = load_benchmark(name)
    whole, quick = parse(benchmark, []), parse(benchmark, ["--quick"])
    assert whole.out == RESULTS
    assert RESULTS not in (quick.out, *quick.out.parents)
    assert quick.rows < whole.rows
    assert len(set(quick.contenders)) == len(quick.contenders) == len(benchmark.contenders)


def test_a_contender_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(load_benchmark("upsert"), ["--contenders", "polars-limit,nobody"])
    assert "unknown ['nobody']; there are bucketlake-spark4, " in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in NAMES if (PAGES / f"{name}.md").exists()])
def test_a_page_is_what_the_stored_results_make(name: str) -> None:
    paths = sorted(RESULTS.glob(f"{name}-*.json"))
    found = [Result(json.loads(path.read_text())) for path in paths]
    found.sort(key=lambda result: result.row_count)
    text = page_text(name, load_benchmark(name).page, found)
    assert (PAGES / f"{name}.md").read_text() == text


def test_a_run_is_kept_and_makes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [f"--{name}={tmp_path / name}" for name in ("out", "docs", "work")]
    assert main(["hashing", "--rows", "1k", "--repeats", "1", *folders]) == 0
    result = json.loads((tmp_path / "out/hashing-1000.json").read_text())
    (measured,) = result["contenders"]["hashing"]["rounds"]
    assert measured["bucket-composite-device"]["rate"] > 0
    assert main(["hashing", "--render", *folders]) == 0
    assert "| bucket, one field of two | **" in (tmp_path / "docs/hashing.md").read_text()
    assert str(tmp_path / "docs/hashing.md") in capsys.readouterr().out
