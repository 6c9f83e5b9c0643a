"""The start-up benchmark: what a page makes of its figures."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.startup import BENCHMARK
from tests.unit.benchmarks.pages import contender, content, measured, page_of


def _result(seconds: dict[str, float], warmup_rounds: int = 1) -> dict[str, Any]:
    contenders = {
        name: contender({step: measured(each, session_seconds=1.0) for step in ("load", "upsert")})
        for name, each in seconds.items()
    }
    return content(contenders, warmup={"rows": 100, "rounds": warmup_rounds})


@pytest.mark.parametrize(("ours", "verdict"), [(4.0, "met"), (4.2, "**missed**")])
def test_a_page_says_whether_the_first_upsert_is_short_enough(ours: float, verdict: str) -> None:
    page = page_of(BENCHMARK, _result({"bucketlake-spark35": ours, "delta-merge": 10.0}))
    aim = "first upsert: at least 2.5x faster than delta-merge"
    found = f"{10 / ours:.2f}x ({10 / ours:.2f} to {10 / ours:.2f})"
    assert f"| bucketlake-spark35, {aim} | {found} | {verdict} |" in page


def test_a_page_says_whether_the_first_load_is_quicker_than_that_of_delta() -> None:
    page = page_of(BENCHMARK, _result({"bucketlake-spark35": 10.0, "delta-merge": 9.0}))
    assert "than delta-merge | 0.90x (0.90 to 0.90) | **missed** |" in page


def test_a_page_claims_a_check_only_where_there_was_one() -> None:
    seconds = {"bucketlake-spark35": 1.0}
    assert "column sums" in page_of(BENCHMARK, _result(seconds))
    assert "column sums" not in page_of(BENCHMARK, _result(seconds, warmup_rounds=0))
