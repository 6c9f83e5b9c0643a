"""The index without Spark: as its table grows, and the plan of a write to a very large table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.common.process import serve
from benchmarks.record_index.contenders.growth import Growth
from benchmarks.record_index.contenders.scale import Scale
from benchmarks.record_index.steps import GROWTH, SCALE


def contenders(settings: Mapping[str, Any]) -> dict[str, Growth | Scale]:
    """Build what this process offers."""
    return {GROWTH: Growth(), SCALE: Scale(settings)}


if __name__ == "__main__":
    serve(contenders)
