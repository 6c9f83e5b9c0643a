"""What systems and workloads without a Spark session share."""

from __future__ import annotations

import gc
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa


class EngineFree:
    """Facts of this process, and nothing left to run between steps."""

    def __init__(self, **settings: object) -> None:
        self.settings = settings
        self.seen: dict[str, Any] = {}  # What the last step observed.

    def settle(self) -> None:
        """Collect garbage of the last step."""
        gc.collect()
        self.seen = {}

    def observe(self, _step: str, _table: Path) -> dict[str, Any]:
        """Return what the last step observed."""
        return self.seen

    def facts(self) -> dict[str, Any]:
        """Return versions and settings."""
        versions = {
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
            "numpy": np.__version__,
        }
        return {"versions": versions, "settings": self.settings}


def rates(work: Callable[[], object], count: int, rounds: int) -> dict[str, Any]:
    """Return how many of so many items a second are done, by the processor time of the thread."""
    found = []
    for _ in range(rounds):
        started = time.thread_time()
        work()
        found.append(count / (time.thread_time() - started))
    numbers = {"rate": statistics.median(found), "least": min(found), "most": max(found)}
    return {name: round(number) for name, number in numbers.items()}


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the processor time that work takes, of all threads."""
    before = time.process_time()
    work()
    return time.process_time() - before
