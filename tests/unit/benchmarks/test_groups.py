"""The benchmark of file groups: which tables it compares, and what a page makes of the figures."""

from __future__ import annotations

from typing import Any

from benchmarks.groups import BENCHMARK, TITLES, file_group_count
from tests.unit.benchmarks.pages import contender, content, measured, page_of


def _result(cpu_seconds: dict[str, float]) -> dict[str, Any]:
    contenders = {
        name: contender(
            {step: measured(2.0, data_files=16) | {"cpu_seconds": cpu} for step in TITLES}
        )
        for name, cpu in cpu_seconds.items()
    }
    return content(contenders, groups=4)


def test_a_pair_of_tables_has_as_many_files() -> None:
    assert file_group_count({"partitions": 8, "buckets": 4, "groups": 4}) == 8 * 16


def test_all_contenders_are_in_one_process_so_that_they_share_a_warm_session() -> None:
    assert {each.process for each in BENCHMARK.contenders} == {"bucketlake"}


def test_an_upsert_that_takes_more_processor_time_than_the_aim_allows_is_shown_as_missed() -> None:
    cpu = {"groups-cow": 1.1, "simple-cow": 1.0, "groups-mor": 1.3, "simple-mor": 1.0}
    text = page_of(BENCHMARK, _result(cpu))
    assert "| copy_on_write | upsert | 1.10 | 1.00 | met |" in text
    assert "| merge_on_read | upsert | 1.30 | 1.00 | **missed** |" in text


def test_a_contender_without_rounds_is_left_out_of_the_page() -> None:
    result = _result({"groups-cow": 1.1, "simple-cow": 1.0})
    result["contenders"]["groups-mor"] = {"rounds": [], "error": "it broke\nmore"}
    text = page_of(BENCHMARK, result)
    assert "- groups-mor: it broke" in text
    assert "merge_on_read |" not in text
