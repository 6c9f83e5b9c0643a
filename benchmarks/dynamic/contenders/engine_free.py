"""Dynamic buckets without Spark: their cache and index, and their sizes as a partition grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.common.process import serve
from benchmarks.dynamic.contenders.cache import Cache
from benchmarks.dynamic.contenders.growth import Growth
from benchmarks.dynamic.steps import CACHE, GROWTH


def contenders(settings: Mapping[str, Any]) -> dict[str, Cache | Growth]:
    """Build what this process offers."""
    return {CACHE: Cache(settings), GROWTH: Growth(settings)}


if __name__ == "__main__":
    serve(contenders)
