"""The benchmark of file groups: which tables it compares, and what a page makes of the figures."""

from __future__ import annotations

from typing import Any

from benchmarks.groups import report
from benchmarks.groups.run import GroupsRace
from benchmarks.groups.steps import CONTENDERS, STEPS, file_group_count


def _result(cpu_seconds: dict[str, float]) -> dict[str, Any]:
    def measured(cpu: float) -> dict[str, float]:
        return {"seconds": 2.0, "cpu_seconds": cpu, "other_cpu_share": 0.0, "data_files": 16}

    return {
        "data": {"rows": 1_000, "partitions": 2, "seed": 7},
        "settings": {"buckets": 2, "groups": 4, "driver_memory": "4g"},
        "machine": {
            "cores": 2,
            "processor": "a processor",
            "memory_bytes": 2**34,
            "system": "a system",
        },
        "contenders": {
            name: {
                "versions": {},
                "settings": {},
                "rounds": [{step: measured(cpu) for step in STEPS}],
            }
            for name, cpu in cpu_seconds.items()
        },
    }


def test_a_pair_of_tables_has_as_many_files() -> None:
    assert file_group_count(partitions=8, buckets=4, groups=4) == 8 * 16


def test_all_contenders_are_in_one_process_so_that_they_share_a_warm_session() -> None:
    (family,) = GroupsRace.families
    assert family.contenders == CONTENDERS


def test_an_upsert_that_takes_more_processor_time_than_the_aim_allows_is_shown_as_missed() -> None:
    text = report.page(
        [_result({"groups-cow": 1.1, "simple-cow": 1.0, "groups-mor": 1.3, "simple-mor": 1.0})]
    )
    assert "| copy_on_write | upsert | 1.10 | 1.00 | met |" in text
    assert "| merge_on_read | upsert | 1.30 | 1.00 | **missed** |" in text


def test_a_contender_without_rounds_is_left_out_of_the_page() -> None:
    result = _result({"groups-cow": 1.1, "simple-cow": 1.0})
    result["contenders"]["groups-mor"] = {"rounds": [], "error": "it broke\nmore"}
    text = report.page([result])
    assert "- groups-mor: it broke" in text
    assert "merge_on_read |" not in text
