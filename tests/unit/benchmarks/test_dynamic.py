"""The benchmark of dynamic buckets: what its page makes of the figures, and what it measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.common.race import contenders_of
from benchmarks.common.rows import DataSet
from benchmarks.dynamic.contenders.cache import Cache
from benchmarks.dynamic.contenders.growth import Growth
from benchmarks.dynamic.report import page
from benchmarks.dynamic.run import DynamicRace
from benchmarks.dynamic.steps import (
    CACHE,
    FILLS,
    FIRST_BUCKETS,
    GROWN,
    GROWTH,
    GROWTH_FACTOR,
    KINDS,
    MAKE,
    OURS,
    ROWS,
    SIZES,
    STEPS,
    fill_step,
    grow_step,
    size_step,
)


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    found = DataSet(tmp_path)
    found.facts_path.write_text('{"seed": 7}')
    return found


def _measured(seconds: float, **more: Any) -> dict[str, Any]:
    return {"seconds": seconds, "cpu_seconds": seconds, "other_cpu_share": 0.0, **more}


def _contender(*rounds: dict[str, Any], **settings: str) -> dict[str, Any]:
    return {"versions": {}, "settings": settings, "rounds": list(rounds)}


def _result(upserts: dict[str, float], rate: float = 3.0, fullest: float = 1.1) -> dict[str, Any]:
    fill = _measured(
        1.0, keys=1_000, fill_cpu_seconds=1e-3 / rate, memory_bytes=7_000, disk_bytes=27_000
    )
    size = _measured(1.0, limit=100, buckets=9, fullest=fullest, median=1.0)
    grown = _measured(
        1.0,
        before_repair=8.0,
        fullest=1.0,
        files=32,
        first_upsert_cpu_seconds=0.1,
        last_upsert_cpu_seconds=0.2,
        repair_cpu_seconds=0.3,
    )
    cache = {fill_step(number): fill for number in range(FILLS)}
    growth = {size_step(kind): size for kind in SIZES} | {grow_step(kind): grown for kind in GROWN}
    tables = {
        name: _contender(
            {step: _measured(each, data_files=4, largest_file_rows=9) for step in STEPS}
        )
        for name, each in upserts.items()
    }
    return {
        "data": {"rows": 1_000, "partitions": 2, "seed": 7, "updates": 200, "inserts": 20},
        "settings": {"buckets": 4, "driver_memory": "4g"},
        "machine": {
            "cores": 2,
            "processor": "a processor",
            "memory_bytes": 2**34,
            "system": "a system",
        },
        "contenders": {
            **tables,
            CACHE: _contender({MAKE: _measured(1.0, index_bytes=12_000), **cache}),
            GROWTH: _contender(growth, **{"rows of a bucket": "100"}),
        },
    }


def test_aims_that_are_missed_are_shown_as_missed() -> None:
    upserts = {"bucketlake-spark4": 2.0, "simple-cow": 1.0, "hudi-rli-cow": 14.0}
    text = page([_result(upserts, rate=1.0, fullest=1.3)])
    assert (
        "at most 1.5x the time of simple-cow | 2.00x (2.00 to 2.00) | 2.00x "
        "| **missed** | **missed** |" in text
    )
    assert "at least 8x faster than hudi-rli-cow | 7.00x (7.00 to 7.00) | 7.00x | **miss" in text
    assert "at least 2 | **1.00** (1.00 to 1.00) | **missed** |" in text
    assert "| rows, copy-on-write | 100 | 9 | 1.00 | 1.30 | **missed** |" in text


def test_aims_that_are_met_are_shown_as_met() -> None:
    text = page([_result({"bucketlake-spark4": 1.0, "simple-cow": 1.0, "hudi-rli-cow": 14.0})])
    assert "missed" not in text
    assert (
        "| SimpleBucket | 8.00 | 0.10 | 0.20 | one rescale at the end: 0.30 | 32 | 1.00 |" in text
    )


def test_every_kind_of_index_is_in_one_run() -> None:
    ours = DynamicRace.families[0].contenders
    assert {*KINDS, *OURS.values()} <= {*ours}
    text = page([_result(dict.fromkeys(KINDS, 1.0))])
    assert all(f"| {kind} | 1.0 | 1.0 | 1.0 | 4 | 9 |" in text for kind in KINDS.values())
    assert len(set(contenders_of(DynamicRace.families))) == len(contenders_of(DynamicRace.families))


def test_buckets_that_are_filled_by_rows_have_no_more_than_their_limit(
    data: DataSet, tmp_path: Path
) -> None:
    growth = Growth({"bucket_rows": 50})
    getattr(growth, size_step(ROWS))(data, tmp_path / "table")
    seen = growth.observe(size_step(ROWS), tmp_path)
    assert seen["fullest"] == 1.0
    assert seen["buckets"] >= FIRST_BUCKETS * GROWTH_FACTOR


def test_each_fill_of_the_cache_reads_every_shard(data: DataSet, tmp_path: Path) -> None:
    cache = Cache({"cache_keys": 2_000})
    cache.make(data, tmp_path / "table")
    assert cache.observe(MAKE, tmp_path / "table")["index_files"] == FIRST_BUCKETS
    getattr(cache, fill_step(0))(data, tmp_path / "table")  # It asserts that all were built.
    assert cache.observe(fill_step(0), tmp_path)["disk_bytes"] > 2_000 * 20
