"""Tables of many columns: the work grows with their number, not with its square."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl

WIDTHS = (15, 45, 105)


def table_of(width: int, table_type: str) -> tuple[bl.Table, pa.Table]:
    names = ["id", *(f"c{i}" for i in range(width))]
    rows = pa.table({name: ["x"] for name in names})
    table = bl.create_table(
        f"memory://wide_{width}_{table_type}/t",
        schema=rows.schema,
        record_key="id",
        index=bl.SimpleBucket(1),
        table_type=table_type,  # type: ignore[arg-type]
    )
    table.upsert(rows)
    return table, rows


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions some work calls, in all of its threads."""
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    threading.setprofile(counted)
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type] # The way to end it.
    return count


WORK: dict[str, Callable[[bl.Table, pa.Table], object]] = {
    "upsert": lambda table, rows: table.upsert(rows),
    "read": lambda table, rows: table.to_arrow(),
    "read_by_other_case": lambda table, rows: table.to_arrow(
        columns=[name.upper() for name in rows.column_names]
    ),
    "update": lambda table, rows: table.update({"c3": "'y'"}),
    "merge": lambda table, rows: (
        table.merge(rows, on="t.id = s.id").when_matched_update({"c1": "s.c1"}).execute()
    ),
    "changes": lambda table, rows: table.changes_to_arrow(since="000"),
}


@pytest.mark.parametrize(
    ("table_type", "names"),
    [
        ("copy_on_write", ["upsert", "merge", "changes"]),
        ("merge_on_read", ["update", "read", "read_by_other_case"]),
    ],
)
def test_each_further_column_takes_as_many_calls_as_the_one_before(
    table_type: str, names: list[str]
) -> None:
    tables = [table_of(width, table_type) for width in WIDTHS]
    for name in names:
        work = WORK[name]
        for each in tables:  # Imports and caches come first.
            work(*each)
        counts = [calls_of(partial(work, *each)) for each in tables]
        pairs = zip(pairwise(counts), pairwise(WIDTHS), strict=True)
        first, later = ((b - a) / (wide - narrow) for (a, b), (narrow, wide) in pairs)
        assert later < 1.2 * first, f"{name}: {first:.0f} calls a column, then {later:.0f}"
