"""Rows that are filtered together: Arrow makes a table of a set for each part of the rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.flow.stage import in_runs
from bucketlake.read.arrow_reader import PlannedRows, gathered
from bucketlake.read.read_plan import plan_read
from bucketlake.read.request import ReadRequest
from bucketlake.storage.memory import forget
from bucketlake.table import handle_of


def test_chunks_are_gathered_until_they_have_enough_rows() -> None:
    chunks = [pa.table({"n": range(size)}) for size in (3, 3, 9, 1, 1)]
    assert [len(rows) for rows in gathered(iter(chunks), 5)] == [6, 9, 2]
    assert [len(rows) for rows in gathered(iter(chunks), 0)] == [3, 3, 9, 1, 1]
    assert [*gathered(iter([]), 5)] == []


def test_runs_have_a_weight_and_keep_the_order() -> None:
    assert in_runs("abcdef", [1, 1, 1, 5, 1, 1], 2) == [["a", "b"], ["c", "d"], ["e", "f"]]
    assert in_runs("abc", [1, 1, 1], 0) == [["a"], ["b"], ["c"]]
    assert in_runs("", [], 3) == []


@pytest.mark.parametrize("buckets", [32, 128])
def test_set_is_looked_up_as_often_however_many_files_have_the_rows(buckets: int) -> None:
    forget("sets")
    table = bl.create_table(
        "memory://sets", schema="id bigint, n int", record_key="id", index=bl.SimpleBucket(buckets)
    )
    table.upsert(pa.table({"id": range(4_000), "n": range(4_000)}))
    handle = handle_of(table)
    keys = pa.table({"id": range(0, 8_000, 2)})
    pinned = handle.pin(ReadRequest(keys=keys))
    plan = plan_read(pinned, handle.index_of(pinned.snapshot))
    assert len(plan.jobs) == buckets
    rows = PlannedRows.of_plan(pinned.snapshot.storage, plan)
    found = [part for part in rows.of(*plan.jobs) if len(part)]
    assert [len(part) for part in found] == [2_000]  # One look-up for all of them.
    assert table.count(keys=keys) == table.to_arrow(keys=keys).num_rows == 2_000
