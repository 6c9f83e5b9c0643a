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
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import bucketlake as bl
from benchmarks.common.engine_free import EngineFree
from benchmarks.common.process import REPOSITORY
from benchmarks.common.rows import DataSet
from benchmarks.common.usage import reset_high_water_mark, status_bytes
from benchmarks.record_index.contenders import large_table
from benchmarks.record_index.contenders.large_table import SCHEMA, day, key
from benchmarks.record_index.steps import KINDS, RECORD, SIMPLE
from bucketlake.write.pack import PackedRecords
from bucketlake.write.record_index.group_plan import GroupPlan
from bucketlake.write.record_index.place import PlaceStage
from bucketlake.write.write_plan import WritePlan

CHANGED_GROUPS = 100
KEYS_OF_ALL_BUCKETS = 2_000  # So many keys miss none of 100 buckets.
REPEATS = 5


class _Planned(Exception):  # noqa: N818 -- nothing is wrong.
    """A write has its plan."""


class Scale(EngineFree):
    """Plan writes of each kind of index."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._folders, self._groups = settings["folders"], settings["groups"]
        self.settings = {
            "partitions": str(self._folders),
            "file groups": str(self._groups),
            "changed file groups": str(CHANGED_GROUPS),
        }
        self._seen: dict[str, Any] = {}

    def make(self, _data: DataSet, table: Path) -> None:
        """Make a table for each kind of index, in processes of their own."""
        for kind in KINDS:
            arguments = [str(table / kind), kind, str(self._folders), str(self._groups)]
            command = [sys.executable, "-m", large_table.__name__, *arguments]
            subprocess.run(command, check=True, cwd=REPOSITORY)

    def plan_simple_spread(self, _data: DataSet, table: Path) -> None:
        self._plan(table / SIMPLE, self._spread)

    def plan_simple_dense(self, _data: DataSet, table: Path) -> None:
        self._plan(table / SIMPLE, self._dense(KEYS_OF_ALL_BUCKETS))

    def plan_record_spread(self, _data: DataSet, table: Path) -> None:
        self._plan(table / RECORD, self._spread)

    def plan_record_dense(self, _data: DataSet, table: Path) -> None:
        in_folder = self._groups // self._folders  # As many keys are in the index of a partition.
        self._plan(table / RECORD, self._dense(min(CHANGED_GROUPS, in_folder)))

    def observe(self, step: str, _table: Path) -> dict[str, Any]:
        return self._seen if step.startswith("plan") else {}

    @property
    def _spread(self) -> pa.Table:
        """A row in each of many partitions."""
        count = min(CHANGED_GROUPS, self._folders)
        return _rows([key(0)] * count, [day(n * self._folders // count) for n in range(count)])

    def _dense(self, keys: int) -> pa.Table:
        """Rows with so many keys in one partition."""
        return _rows([key(number) for number in range(keys)], [day(0)] * keys)

    def _plan(self, table: Path, rows: pa.Table) -> None:
        """Plan the write several times, and keep what each took."""
        plans = [_measured(str(table), rows) for _ in range(REPEATS)]
        best = min(plans, key=lambda plan: plan["plan_cpu_seconds"])
        self._seen = {**best, "plans": plans}


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

    def stop(_: object, plan: WritePlan | GroupPlan, *_others: object) -> None:
        taken.extend((time.perf_counter() - wall, time.process_time() - cpu))
        write = plan.write if isinstance(plan, GroupPlan) else plan
        groups.append(len(write.slots))
        raise _Planned

    with (
        patch.object(PackedRecords, "write", stop),
        patch.object(PlaceStage, "of", staticmethod(partial(stop, None))),
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
