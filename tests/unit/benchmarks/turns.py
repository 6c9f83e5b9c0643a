"""Turns without a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common.rows import DataSet
from benchmarks.common.turn import Measured, Turn


def turn_of(name: str, folder: Path = Path(), **settings: Any) -> Turn:
    def run(step: str, data: DataSet, table: Path) -> Measured:
        raise AssertionError(f"{step} of {table} is not run")

    return Turn(name, (), DataSet(folder), folder, settings, None, run)
