"""The resize benchmark's checks and its page: a figure is only as good as these."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from benchmarks.common.process import ContenderError
from benchmarks.common.rows import DataSet
from benchmarks.resize import report
from benchmarks.resize.contenders.engine_free import Lookups, RescaledTable, ResizedTable
from benchmarks.resize.disk import disk_usage, growth
from benchmarks.resize.run import check_split, group_count
from benchmarks.resize.steps import (
    COMPLETE,
    CONSISTENT,
    GROWING,
    HUDI_BLOOM,
    HUDI_CONSISTENT,
    KINDS,
    LOOKUP,
    LOOKUPS,
    RESCALE,
    UPSERT,
    UPSERT_LINKED,
    UPSERT_TWICE,
    steps_of,
)


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    """640 orders, ten for each bucket of the largest table that grows."""
    rows = pa.table(
        {
            "order_id": [f"ord-{number:016d}" for number in range(640)],
            "region": ["eu-west"] * 640,
            "quantity": pa.array(range(640), pa.int32()),
            "updated_at": pa.array([1] * 640, pa.int64()),
        }
    )
    data = DataSet(tmp_path / "data")
    data.load.mkdir(parents=True)
    pq.write_table(rows, data.load / "part.parquet")
    data.facts_path.write_text('{"rows": 640}')
    return data


def test_a_file_with_two_names_counts_once_on_disk(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    before = disk_usage(tmp_path)
    os.link(tmp_path / "a", tmp_path / "b")
    linked = disk_usage(tmp_path)
    (tmp_path / "c").write_bytes(b"x" * 1000)
    written = growth(linked, disk_usage(tmp_path))
    assert growth(before, linked) == {"added_bytes": 0, "added_block_bytes": 0, "added_names": 1}
    assert (written["added_bytes"], written["added_names"]) == (1000, 1)


def test_a_resize_moves_two_buckets_and_a_rescale_moves_all(tmp_path: Path, data: DataSet) -> None:
    resized, rescaled = ResizedTable(), RescaledTable()
    path = tmp_path / "16-buckets"
    for contender in (resized, rescaled):
        table = path.with_name(f"16-buckets-{type(contender).__name__}")
        contender.load(data, table)
        sums = contender.read(table)
        sizes = sorted(bucket.size_bytes for bucket in bl.open_table(str(table)).buckets())
        contender.change(data, table)
        assert contender.read(table) == sums
        assert sums["rows"] == 160
        moved = contender.observe("change", table)["moved_bytes"]
        assert moved == sum(sizes[-2:] if contender is resized else sizes)


def test_a_lookup_tells_keys_by_second() -> None:
    lookups = Lookups()
    lookups.modulo(DataSet(Path()), Path())
    assert lookups.observe("modulo", Path())["keys_per_second"] > 0


def test_a_resize_that_left_a_bucket_whole_is_refused() -> None:
    check_split("ours", 4, 8)
    with pytest.raises(ContenderError, match="ours has 7 buckets after its resize, and had 4"):
        check_split("ours", 4, 7)


def test_a_table_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContenderError, match="ours has an unreadable table"):
        group_count("ours", tmp_path)


def _result() -> dict[str, Any]:
    """One round: links add a tenth of the bytes, dual write as much again."""

    def step(contender: str, name: str) -> dict[str, Any]:
        added = {UPSERT_LINKED: 110_000, UPSERT_TWICE: 200_000}.get(name, 100_000)
        return {
            "seconds": 3.0 if contender == RESCALE else 2.0,
            "cpu_seconds": 1.5,
            "other_cpu_share": 0.0,
            "added_bytes": added,
            "added_block_bytes": 2 * added,
            "added_names": 37,
            "moved_bytes": 4_000_000,
            "keys_per_second": 50_000_000,
        }

    return {
        "data": {
            "rows": 6_400,
            "partitions": 8,
            "seed": 7,
            "updates": 900,
            "inserts": 100,
        },
        "settings": {"rounds": 1, "buckets": 4, "driver_memory": "4g"},
        "machine": {"cores": 2, "memory_bytes": 2**34, "processor": "p", "system": "s"},
        "contenders": {
            name: {
                "versions": {},
                "settings": {},
                "rounds": [{each: step(name, each) for each in steps_of(name)}],
            }
            for name in (*KINDS, *GROWING, LOOKUP)
        },
    }


def test_a_page_answers_all_four_questions() -> None:
    page = report.page([_result()])
    assert "about 100 rows in each bucket" in page
    assert "| 64 buckets | resize: 2 buckets split | 2.00 | 1.50 | 4.00 | 0.10 |" in page
    assert "| 64 buckets | rescale to 128 buckets | 3.00 | 1.50 | 4.00 | 0.10 |" in page
    assert ("| bucketlake, virtual logs | 110.0 | 1.10x | 220.0 | 2.00 | 1.5 | 500 | 37 |") in page
    assert "| Hudi, dual write | 200.0 | 2.00x |" in page
    assert "found 1.10x: met" in page
    assert f"| {HUDI_BLOOM} | 2.00 | 1.5 | 2.00 | 1.5 | 2.00 | 1.5 |" in page
    assert "Hash and lookup together: 25 million keys a second." in page


def test_virtual_logs_that_write_too_much_miss_their_aim() -> None:
    result = _result()
    result["contenders"][CONSISTENT]["rounds"][0][UPSERT_LINKED]["added_bytes"] = 116_000
    assert "found 1.16x: **missed**" in report.page([result])


def test_a_contender_that_failed_has_no_figures_but_a_reason() -> None:
    result = _result()
    result["contenders"][HUDI_CONSISTENT] = {"rounds": [], "error": "wrong rows\nat line 1"}
    page = report.page([result])
    assert "- hudi-consistent: wrong rows\n" in page
    assert "Hudi, dual write" not in page


def test_what_is_measured_of_a_contender_depends_on_its_question() -> None:
    assert steps_of(LOOKUP) == LOOKUPS
    assert UPSERT_LINKED in steps_of(CONSISTENT)
    assert UPSERT_LINKED not in steps_of(HUDI_CONSISTENT)
    assert {UPSERT, UPSERT_TWICE, COMPLETE} <= set(steps_of(HUDI_CONSISTENT))
