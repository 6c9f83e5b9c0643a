"""Results as the runner writes them, and the page of a benchmark that has them."""

from __future__ import annotations

from typing import Any

from benchmarks.common import report
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.figures import Result


def page_of(benchmark: Benchmark, *contents: dict[str, Any]) -> str:
    return report.page_text(benchmark.name, benchmark.page, [Result(each) for each in contents])


def measured(seconds: float, **more: Any) -> dict[str, Any]:
    return {"seconds": seconds, "cpu_seconds": seconds, "other_cpu_share": 0.0, **more}


def contender(*rounds: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {"versions": {"spark": "4"}, "settings": settings, "rounds": list(rounds)}


def content(contenders: dict[str, dict[str, Any]], **settings: Any) -> dict[str, Any]:
    return {
        "data": {"rows": 1_000, "partitions": 2, "seed": 7, "updates": 200, "inserts": 20},
        "settings": {"buckets": 4, "driver_memory": "4g", **settings},
        "machine": {"cores": 2, "memory_bytes": 2**34, "processor": "p", "system": "s"},
        "contenders": contenders,
    }
