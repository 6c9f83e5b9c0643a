"""The reads of a turn, the same for every system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.common.rows import DataSet
from benchmarks.common.spark import checksum
from benchmarks.merge_on_read.steps import FEW_COLUMNS, FEW_SUMS


class MergedReads(ABC):
    """Read all columns, or a few, of a table that a contender knows how to read."""

    @abstractmethod
    def frame(self, table: Path, columns: Sequence[str] | None = None) -> DataFrame: ...

    def read_all(self, _data: DataSet, table: Path) -> dict[str, int]:
        return checksum(self.frame(table))

    def read_few(self, _data: DataSet, table: Path) -> dict[str, int]:
        return checksum(self.frame(table, FEW_COLUMNS), FEW_SUMS)

    def read_after(self, data: DataSet, table: Path) -> dict[str, int]:
        return self.read_all(data, table)
