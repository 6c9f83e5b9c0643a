"""The upsert benchmark's arithmetic: a figure is only as good as this."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common.figures import Result
from benchmarks.common.report import worker_memory
from benchmarks.upsert import BENCHMARK, evenness
from tests.unit.benchmarks.pages import contender, content, page_of


def _result(times: dict[str, list[float]], shape: str = "orders", **upsert: Any) -> dict[str, Any]:
    """A result in which every step of a contender took the same time in a round."""
    step = {"cpu_seconds": 1.0, "data_bytes": 1, "other_cpu_share": 0.0, "stages": []}

    def turn(seconds: float) -> dict[str, Any]:
        steps = {name: {**step, "seconds": seconds} for name in ("load", "upsert", "read")}
        return {**steps, "upsert": {**steps["upsert"], **upsert}}

    made = content({name: contender(*map(turn, each)) for name, each in times.items()})
    made["settings"]["shape"] = shape
    return made


def test_ratios_are_taken_round_by_round() -> None:
    result = _result({"bucketlake-spark4": [1.0, 10.0, 2.0], "delta-merge": [6.0, 61.0, 14.0]})
    ratios = Result(result).ratios("upsert", "delta-merge", "bucketlake-spark4")
    assert ratios == [6.0, 6.1, 7.0]


def test_a_page_says_which_aims_are_met_and_which_are_missed(tmp_path: Path) -> None:
    times = {
        "bucketlake-spark4": [1.0],
        "bucketlake-simple-spark4": [1.0],
        "polars-limit": [0.4],
        "delta-merge": [7.0],
    }
    page = page_of(BENCHMARK, _result(times))
    faster = "bucketlake-spark4, upsert: at least 5x faster than delta-merge"
    assert f"| {faster} | 7.00x (7.00 to 7.00) | met | 1.00x (1.00 to 1.00) | **missed** |" in page
    limit = "bucketlake-simple-spark4, upsert: at most 2.2x the time of polars-limit"
    assert f"| {limit} | 2.50x (2.50 to 2.50) | **missed** | 1.00x (1.00 to 1.00) | met |" in page
    assert "hudi-bucket-upsert" not in page  # Not run, so nothing is claimed.


def test_each_shape_has_aims_of_its_own() -> None:
    times = {"bucketlake-spark4": [1.5], "delta-merge": [1.0]}
    page = page_of(BENCHMARK, _result(times, shape="lines"))
    assert "load: at most 1.6x the time of delta-merge | 1.50x (1.50 to 1.50) | met" in page
    assert "1,000 lines" in page


def test_a_page_has_the_settings_of_every_contender_of_any_size() -> None:
    small = _result({"bucketlake-spark4": [1.0], "polars-limit": [0.4], "delta-merge": [7.0]})
    page = page_of(BENCHMARK, small, _result({"bucketlake-spark4": [9.0]}))
    assert [name for name in small["contenders"] if f"<summary>{name}:" not in page] == []


def test_a_busy_machine_makes_figures_provisional() -> None:
    result = _result({"polars-limit": [1.0]})
    assert "Provisional" not in page_of(BENCHMARK, result)
    for step in result["contenders"]["polars-limit"]["rounds"][0].values():
        step["other_cpu_share"] = 0.5
    assert "**Provisional**: other processes used 50%" in page_of(BENCHMARK, result)


def test_rows_by_task_are_those_of_the_last_shuffle_that_held_the_batch() -> None:
    stages = [
        {"stage": 1, "rows": 220, "rows_max_over_mean": 3.0},
        {"stage": 2, "rows": 222, "rows_max_over_mean": 1.1},
        {"stage": 3, "rows": 4, "rows_max_over_mean": 9.0},
    ]
    result = _result({"bucketlake-spark4": [1.0]}, stages=stages)
    assert evenness(Result(result), "bucketlake-spark4") == 1.1


def test_worker_memory_is_what_the_work_added_over_the_largest_file_group() -> None:
    memory = {"worker_idle_bytes": 100, "worker_peak_bytes": 160, "largest_group_arrow_bytes": 20}
    result = Result(_result({"bucketlake-spark4": [1.0]}, **memory))
    found = worker_memory(result, "bucketlake-spark4", "upsert")
    assert found is not None
    assert found.ratio == 3.0
