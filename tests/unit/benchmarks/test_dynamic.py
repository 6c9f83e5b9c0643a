"""The benchmark of dynamic buckets: what its page makes of the figures, and what it measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.common.rows import DataSet
from benchmarks.dynamic import BENCHMARK, FILLS, GROWN, KINDS, OURS, SIZES, TITLES
from benchmarks.workloads.bucket_sizes import FIRST_BUCKETS, GROWTH_FACTOR, BucketSizes
from benchmarks.workloads.cache_fills import CacheFills
from tests.unit.benchmarks.pages import contender, content, measured, page_of


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    found = DataSet(tmp_path)
    found.facts_path.write_text('{"seed": 7}')
    return found


def _result(upserts: dict[str, float], rate: float = 3.0, fullest: float = 1.1) -> dict[str, Any]:
    fill = measured(
        1.0, keys=1_000, fill_cpu_seconds=1e-3 / rate, memory_bytes=7_000, disk_bytes=27_000
    )
    size = measured(1.0, limit=100, buckets=9, fullest=fullest, median=1.0)
    grown = measured(
        1.0,
        before_repair=8.0,
        fullest=1.0,
        files=32,
        first_upsert_cpu_seconds=0.1,
        last_upsert_cpu_seconds=0.2,
        repair_cpu_seconds=0.3,
    )
    tables = {
        name: contender({s: measured(each, data_files=4, largest_file_rows=9) for s in TITLES})
        for name, each in upserts.items()
    }
    cache = contender({"make": measured(1.0, index_bytes=12_000)} | dict.fromkeys(FILLS, fill))
    growth = dict.fromkeys(SIZES, size) | dict.fromkeys(GROWN, grown)
    alone = {"cache": cache, "growth": contender(growth, **{"rows of a bucket": 100})}
    return content({**tables, **alone}, bucket_rows=100)


def test_aims_that_are_missed_are_shown_as_missed() -> None:
    upserts = {"bucketlake-spark4": 2.0, "simple-cow": 1.0, "hudi-rli-cow": 14.0}
    text = page_of(BENCHMARK, _result(upserts, rate=1.0, fullest=1.3))
    assert (
        "at most 1.5x the time of simple-cow | 2.00x (2.00 to 2.00) | 2.00x "
        "| **missed** | **missed** |" in text
    )
    assert "at least 8x faster than hudi-rli-cow | 7.00x (7.00 to 7.00) | 7.00x | **miss" in text
    assert "at least 2 | **1.00** (1.00 to 1.00) | **missed** |" in text
    assert "| rows, copy-on-write | 100 | 9 | 1.00 | 1.30 | **missed** |" in text


def test_aims_that_are_met_are_shown_as_met() -> None:
    text = page_of(
        BENCHMARK, _result({"bucketlake-spark4": 1.0, "simple-cow": 1.0, "hudi-rli-cow": 14.0})
    )
    assert "missed" not in text
    assert (
        "| SimpleBucket | 8.00 | 0.10 | 0.20 | one rescale at the end: 0.30 | 32 | 1.00 |" in text
    )


def test_every_kind_of_index_is_in_one_run() -> None:
    names = [contender.name for contender in BENCHMARK.contenders]
    assert {*KINDS, *OURS.values()} <= {*names}
    assert len(set(names)) == len(names)
    text = page_of(BENCHMARK, _result(dict.fromkeys(KINDS, 1.0)))
    assert all(f"| {kind} | 1.0 | 1.0 | 1.0 | 4 | 9 |" in text for kind in KINDS.values())


def test_buckets_that_are_filled_by_rows_have_no_more_than_their_limit(
    data: DataSet, tmp_path: Path
) -> None:
    growth = BucketSizes({"bucket_rows": 50})
    growth.fill(data, tmp_path / "table", "rows")
    assert growth.seen["fullest"] == 1.0
    assert growth.seen["buckets"] >= FIRST_BUCKETS * GROWTH_FACTOR


def test_each_fill_of_the_cache_reads_every_shard(data: DataSet, tmp_path: Path) -> None:
    cache = CacheFills({"cache_keys": 2_000})
    cache.make(data, tmp_path / "table")
    assert cache.seen["index_files"] == FIRST_BUCKETS
    cache.fill(data, tmp_path / "table", "0")  # It asserts that all were built.
    assert cache.seen["disk_bytes"] > 2_000 * 20
