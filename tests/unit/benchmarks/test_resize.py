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
from benchmarks.resize import BENCHMARK, CHANGES, KINDS, LOOKUPS
from benchmarks.systems.order_tables import disk_usage, growth
from benchmarks.workloads.growing_table import RescaledTable, ResizedTable
from benchmarks.workloads.pending_resize import (
    HUDI_CONSISTENT,
    OURS_CONSISTENT,
    PENDING,
    WRITES,
    check_split,
    group_count,
)
from benchmarks.workloads.ring_lookups import RingLookups
from tests.unit.benchmarks.pages import contender, content, measured, page_of
from tests.unit.benchmarks.turns import turn_of


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
    for system, moves_all in ((ResizedTable({}), False), (RescaledTable({}), True)):
        table = tmp_path / type(system).__name__
        system.load(data, table, "16")
        sums = system.read(data, table)
        sizes = sorted(bucket.size_bytes for bucket in bl.open_table(str(table)).buckets())
        system.change(data, table, "16")
        assert system.read(data, table) == sums
        assert sums["rows"] == 160
        moved = system.observe("change", table)["moved_bytes"]
        assert moved == sum(sizes if moves_all else sizes[-2:])


def test_a_lookup_tells_keys_by_second() -> None:
    lookups = RingLookups()
    lookups.modulo(DataSet(Path()), Path())
    assert lookups.seen["rate"] > 0


def test_a_resize_that_left_a_bucket_whole_is_refused() -> None:
    check_split(turn_of("ours"), 4, 8)
    with pytest.raises(ContenderError, match="ours has 7 buckets after its resize, and had 4"):
        check_split(turn_of("ours"), 4, 7)


def test_a_table_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContenderError, match="ours has an unreadable table"):
        group_count(turn_of("ours"), tmp_path)


def _steps_of(name: str) -> tuple[str, ...]:
    growing = tuple(row.step for row in CHANGES if row.contender == name)
    pending = PENDING.get(name, ())
    writes = (*WRITES, *pending, *(("schedule", "complete") if pending else ()))
    return growing or (tuple(LOOKUPS) if name == "lookup" else writes)


def _result() -> dict[str, Any]:
    """One round: links add a tenth of the bytes, dual write as much again."""

    def step(name: str, step: str) -> dict[str, Any]:
        added = {"upsert_linked": 110_000, "upsert_twice": 200_000}.get(step, 100_000)
        return measured(
            3.0 if name == "rescale" else 2.0,
            added_bytes=added,
            added_block_bytes=2 * added,
            added_names=37,
            moved_bytes=4_000_000,
            rate=50_000_000,
        ) | {"cpu_seconds": 1.5}

    names = [each.name for each in BENCHMARK.contenders]
    found = content({n: contender({each: step(n, each) for each in _steps_of(n)}) for n in names})
    found["data"] |= {"rows": 6_400, "updates": 900, "inserts": 100}
    return found


def test_a_page_answers_all_four_questions() -> None:
    page = page_of(BENCHMARK, _result())
    assert "about 100 rows in each bucket" in page
    assert "| 64 buckets | resize: 2 buckets split | 2.00 | 1.50 | 4.00 | 0.10 |" in page
    assert "| 64 buckets | rescale to 128 buckets | 3.00 | 1.50 | 4.00 | 0.10 |" in page
    assert ("| bucketlake, virtual logs | 110.0 | 1.10x | 220.0 | 2.00 | 1.5 | 500 | 37 |") in page
    assert "| Hudi, dual write | 200.0 | 2.00x |" in page
    assert "found 1.10x: met" in page
    assert f"| {KINDS[-1].name} | 2.00 | 1.5 | 2.00 | 1.5 | 2.00 | 1.5 |" in page
    assert "Hash and lookup together: 25 million keys a second." in page


def test_virtual_logs_that_write_too_much_miss_their_aim() -> None:
    result = _result()
    result["contenders"][OURS_CONSISTENT]["rounds"][0]["upsert_linked"]["added_bytes"] = 116_000
    assert "found 1.16x: **missed**" in page_of(BENCHMARK, result)


def test_a_contender_that_failed_has_no_figures_but_a_reason() -> None:
    result = _result()
    result["contenders"][HUDI_CONSISTENT] = {"rounds": [], "error": "wrong rows\nat line 1"}
    page = page_of(BENCHMARK, result)
    assert "- hudi-consistent: wrong rows\n" in page
    assert "Hudi, dual write" not in page
