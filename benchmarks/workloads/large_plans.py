"""The plan of a write to a table of very many file groups (see `large_table.py`).

A plan is everything that an upsert of bucketlake does before its tasks write files: it opens the
table, counts the records, lists the touched partitions, locates the keys in the record-level index
where there is one, and plans. The call ends there by an error, and the write is rolled back after
the clock. Each write changes 100 file groups: one in each of 100 partitions, or 100 in one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import bucketlake as bl
from benchmarks.common.process import REPOSITORY
from benchmarks.common.rows import DataSet
from benchmarks.common.usage import reset_high_water_mark, status_bytes
from benchmarks.systems.engine_free import EngineFree
from benchmarks.workloads import large_table
from benchmarks.workloads.large_table import RECORD, SCHEMA, SIMPLE, day, key
from bucketlake.write.pack import PackedRecords
from bucketlake.write.record_index.group_plan import PlaceStage
from bucketlake.write.write_plan import WritePlan

CHANGED_GROUPS = 100
KEYS_OF_ALL_BUCKETS = 2_000  # So many keys miss none of 100 buckets.
REPEATS = 5


class _Planned(Exception):  # noqa: N818 -- nothing is wrong.
    """A write has its plan."""


class LargePlans(EngineFree):
    """Plan writes of each kind of index."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._folders, self._groups = settings["folders"], settings["groups"]
        told = {"file groups": self._groups, "changed file groups": CHANGED_GROUPS}
        super().__init__(partitions=self._folders, **told)

    def make(self, _data: DataSet, table: Path) -> None:
        """Make a table for each kind of index, in processes of their own."""
        for kind in (SIMPLE, RECORD):
            arguments = [str(table / kind), kind, str(self._folders), str(self._groups)]
            command = [sys.executable, "-m", large_table.__name__, *arguments]
            subprocess.run(command, check=True, cwd=REPOSITORY)

    def plan(self, _data: DataSet, table: Path, kind: str, where: str) -> None:
        """Plan a write several times, and keep what each took."""
        if where == "spread":
            rows = self._spread
        elif kind == SIMPLE:
            rows = self._dense(KEYS_OF_ALL_BUCKETS)
        else:  # As many keys are in the index of a partition.
            rows = self._dense(min(CHANGED_GROUPS, self._groups // self._folders))
        self.seen = {"plans": [_measured(str(table / kind), rows) for _ in range(REPEATS)]}

    @property
    def _spread(self) -> pa.Table:
        """A row in each of many partitions."""
        count = min(CHANGED_GROUPS, self._folders)
        return _rows([key(0)] * count, [day(n * self._folders // count) for n in range(count)])

    def _dense(self, keys: int) -> pa.Table:
        """Rows with so many keys in one partition."""
        return _rows([key(number) for number in range(keys)], [day(0)] * keys)


def _rows(keys: list[str], days: list[str]) -> pa.Table:
    return pa.table({"id": keys, "day": days, "at": [5] * len(keys)}, schema=SCHEMA)


def _measured(path: str, rows: pa.Table) -> dict[str, float]:
    """Plan an upsert; return seconds, the memory that it took, and its number of file groups."""
    process = os.getpid()
    held = status_bytes(process, "VmRSS")
    reset_high_water_mark(process)
    groups: list[int] = []
    wall, cpu = time.perf_counter(), time.process_time()
    taken: list[float] = []

    def stop(plan: WritePlan, *_others: object) -> None:
        taken.extend((time.perf_counter() - wall, time.process_time() - cpu))
        groups.append(len(plan.slots))
        raise _Planned

    with (
        patch.object(PackedRecords, "write", lambda _, plan, __: stop(plan)),
        patch.object(PlaceStage, "of", stop),
        suppress(_Planned),
    ):
        bl.open_table(path).upsert(rows)
    peak = status_bytes(process, "VmHWM")
    return {
        "plan_seconds": taken[0],
        "plan_cpu_seconds": taken[1],
        "plan_groups": groups[0],
        "peak_bytes": peak,
        "taken_bytes": peak - held,
    }
