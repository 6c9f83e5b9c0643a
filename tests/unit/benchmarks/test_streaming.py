"""The benchmark of a long stream: its pace, and what its page makes of the figures."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.streaming import BENCHMARK, WARM_UP, percentile, windows
from benchmarks.workloads.small_batches import LARGE, SMALL
from benchmarks.workloads.stream import pace
from tests.unit.benchmarks.pages import contender, content, page_of

GIVEN = {"minutes": 30.0, "batch_rows": 100, "micro_rows": 10, "micro_keys": [100, 1_000]}


def _result(batches: int, minutes: float, large: float) -> dict[str, Any]:
    batch = {
        "upsert": 2.0,
        "seconds": 3.0,
        "upsert_cpu": 1.0,
        "cpu": 1.5,
        "compact": 0.5,
        **dict.fromkeys(("data_files", "log_files", "timeline_files"), 5),
        **dict.fromkeys(("archive_files", "metadata_files", "metadata_timeline_files"), 6),
        **dict.fromkeys(("python_bytes", "jvm_bytes", "heap_bytes"), 10**6),
    }
    shares = {"other_cpu_share": 0.0}
    run = {
        "elapsed": 60 * minutes,
        "batches": [{**batch, "batch": number} for number in range(batches)],
        **shares,
    }
    small = [
        {"table": table, "batch": number, "seconds": seconds, "cpu_seconds": seconds}
        # Those that do not count are slow.
        for number in range(WARM_UP + 3)
        for table, seconds in ((SMALL, 1.0), (LARGE, large if number >= WARM_UP else 99.0))
    ]
    contenders = {
        "stream": contender({"run": run}),
        "micro": contender({"batches": {"batches": small, **shares}}),
    }
    return content(contenders, **GIVEN)


@pytest.mark.parametrize(
    ("keys", "batches", "interval"), [(1_000, 20, 3_000), (1_001, 21, 2_857), (10, 1, 60_000)]
)
def test_the_stream_has_so_many_batches_that_half_of_its_rows_are_all_keys(
    keys: int, batches: int, interval: int
) -> None:
    assert pace({"batch_rows": 100, "minutes": 1.0}, keys) == (batches, interval)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99)] == [50.0, 95.0, 99.0]
    assert percentile([3.0], 0.99) == 3.0


@pytest.mark.parametrize("count", [1, 3, 5, 12])
def test_windows_have_every_batch_once_in_order(count: int) -> None:
    batches = [{"batch": number} for number in range(count)]
    assert [each for part in windows(batches) for each in part] == batches


def test_a_stream_that_reached_its_keys_and_ran_long_enough_meets_its_aims() -> None:
    text = page_of(BENCHMARK, _result(batches=20, minutes=31, large=1.5))
    assert "| the table grows to 1,000 keys | 1,000 | met |" in text
    assert "| a run of 30 minutes or more | 31.0 | met |" in text
    assert "| seconds | 1.00 | 1.50 | 1.50x | met |" in text


def test_a_stream_that_was_stopped_early_misses_its_aims() -> None:
    text = page_of(BENCHMARK, _result(batches=10, minutes=29, large=2.5))
    assert "| the table grows to 1,000 keys | 500 | **missed** |" in text
    assert "| a run of 30 minutes or more | 29.0 | **missed** |" in text
    assert "| seconds | 1.00 | 2.50 | 2.50x | **missed** |" in text


def test_a_question_that_was_not_asked_is_left_out_of_the_page() -> None:
    result = _result(batches=5, minutes=1, large=1.0)
    del result["contenders"]["micro"]
    assert "large table\n" not in page_of(BENCHMARK, result)


def test_processor_time_that_went_with_an_ended_worker_does_not_count() -> None:
    result = _result(batches=20, minutes=31, large=1.5)
    stream = result["contenders"]["stream"]["rounds"][0]["run"]["batches"]
    stream[3] |= {"cpu": -300.0, "upsert_cpu": -300.0}
    small = result["contenders"]["micro"]["rounds"][0]["batches"]["batches"]
    small[-1]["cpu_seconds"] = -70.0
    text = page_of(BENCHMARK, result)
    assert "67 for each second of processor time" in text  # 100 rows in 1.5 s.
    assert "| processor seconds | 1.00 | 1.50 | 1.50x | met |" in text
