"""The benchmark of dynamic buckets: what its page makes of the figures, and what it measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.common.rows import DataSet
from benchmarks.dynamic import BENCHMARK, FILLS, GROWN, SIZES
from benchmarks.workloads.bucket_sizes import FIRST_BUCKETS, GROWTH_FACTOR, BucketSizes
from benchmarks.workloads.cache_fills import CacheFills
from tests.unit.benchmarks.pages import contender, content, measured, page_of


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    return DataSet(tmp_path)


def _result(rate: float = 3.0, fullest: float = 1.1) -> dict[str, Any]:
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
    cache = contender({"make": measured(1.0, index_bytes=12_000)} | dict.fromkeys(FILLS, fill))
    growth = dict.fromkeys(SIZES, size) | dict.fromkeys(GROWN, grown)
    growing = contender(growth, **{"rows of a bucket": 100})
    return content({"cache": cache, "growth": growing}, bucket_rows=100, cache_keys=1_000)


def test_aims_that_are_missed_are_shown_as_missed() -> None:
    text = page_of(BENCHMARK, _result(rate=1.0, fullest=1.3))
    assert "at least 2 | **1.00** (1.00 to 1.00) | **missed** |" in text
    assert "| rows, copy-on-write | 100 | 9 | 1.00 | 1.30 | **missed** |" in text


def test_aims_that_are_met_are_shown_as_met() -> None:
    text = page_of(BENCHMARK, _result())
    assert "missed" not in text
    assert (
        "| SimpleBucket | 8.00 | 0.10 | 0.20 | one rescale at the end: 0.30 | 32 | 1.00 |" in text
    )


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
