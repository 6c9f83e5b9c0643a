"""Hudi's record-level index, partitioned and global, of both table types.

The settings, and why a Hudi engineer should agree with each, are in
``benchmarks/record_index/contenders/hudi.py``. The load is the fastest that Hudi has: `bulk_insert`
without the index, and then `CREATE INDEX`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common.hudi import SESSION
from benchmarks.common.process import serve
from benchmarks.common.rows import DataSet
from benchmarks.common.spark import start_session
from benchmarks.dynamic.steps import GLOBAL, PARTITIONED, TABLE_TYPES
from benchmarks.record_index.contenders.hudi import HudiRecordIndex


class HudiWithIndex(HudiRecordIndex):
    """Load a table and its index."""

    def load(self, data: DataSet, table: Path) -> None:
        super().load(data, table)
        self.build(data, table)


def contenders(settings: Mapping[str, Any]) -> dict[str, HudiWithIndex]:
    """Build what this process offers."""
    spark = start_session("hudi", settings, SESSION)
    return {
        names[short]: HudiWithIndex(spark, table_type, partitioned=partitioned)
        for names, partitioned in ((PARTITIONED, True), (GLOBAL, False))
        for short, table_type in TABLE_TYPES.items()
    }


if __name__ == "__main__":
    serve(contenders)
