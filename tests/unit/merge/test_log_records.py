"""The merge of log entries, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.merge.incoming import comparable
from bucketlake.merge.log_records import LogEntries, LogMerge, LogSurvivors
from bucketlake.merge.slice_merge import SliceMerge
from bucketlake.model.schema import RECORD_KEY

SCHEMA = pa.schema([(RECORD_KEY, pa.string()), ("ts", pa.int64()), ("v", pa.int64())])


def block(
    *rows: tuple[str, int, int | None],
    deletes: bool = False,
    resets: bool = False,
    partial: tuple[str, ...] | None = None,
) -> LogEntries:
    """Return a block of rows (key, ordering value, v), or of deletes, without v."""
    keys = pa.array([key for key, *_ in rows], pa.string())
    ts = pa.array([ts for _, ts, _ in rows], pa.int64())
    whole = pa.table([keys, ts, pa.array([v for *_, v in rows], pa.int64())], schema=SCHEMA)
    count = len(rows)
    columns = None if deletes else whole
    if partial is not None:
        absent = [n for n in SCHEMA.names if n not in partial]
        for name in absent:
            place = SCHEMA.get_field_index(name)
            whole = whole.set_column(place, SCHEMA.field(name), pa.nulls(count, pa.int64()))
        columns = whole
    flags = np.full(count, deletes)
    return LogEntries(keys, (comparable(ts),), flags, np.full(count, resets), columns, partial)


def merged(*blocks: LogEntries, compares: bool = True) -> LogSurvivors:
    merge = LogMerge(SCHEMA, compares)
    for each in blocks:
        merge.add(each)
    return merge.survivors()


def rows_of(found: LogSurvivors) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.records.columns.to_pylist()]


@pytest.mark.parametrize("compares", [False, True])
def test_without_entries_nothing_survives(compares: bool) -> None:
    for blocks in ((), (block(),)):
        found = merged(*blocks, compares=compares)
        assert len(found.records) == 0
        assert found.records.columns.schema == SCHEMA
        assert found.unset is None


def test_deleted_keys_are_told_also_where_a_later_row_brings_them_back() -> None:
    merge = LogMerge(SCHEMA, True)
    for each in (
        block(("a", 1, 1)),
        block(("b", 1, None), ("c", 1, None), deletes=True),
        block(("b", 2, 2)),
        block(("d", 1, None), deletes=True),
    ):
        merge.add(each)
    assert [keys.to_pylist() for keys in merge.deleted_keys()] == [["b", "c"], ["d"]]


def test_the_last_entry_of_a_key_survives_where_values_do_not_compare() -> None:
    found = merged(
        block(("a", 9, 1), ("b", 9, 1)),
        block(("c", 1, None), ("b", 0, None), deletes=True),
        block(("a", 0, 2), ("c", 0, 3)),
        compares=False,
    )
    assert rows_of(found) == [("a", 0, 2), ("c", 0, 3)]
    assert found.records.keys.to_pylist() == ["a", "c", "b"]
    assert found.records.deleted.tolist() == [False, False, True]


def test_the_greatest_entry_of_a_key_survives_and_the_later_of_equal_ones() -> None:
    found = merged(
        block(("alone", 0, 7), ("a", 5, 1), ("b", 5, 1), ("a", 5, 2)),
        block(("b", 4, None), ("c", 4, None), ("a", 4, None), deletes=True),
        block(("c", 4, 4), ("b", 5, 3)),
    )
    assert {*rows_of(found)} == {("alone", 0, 7), ("a", 5, 2), ("b", 5, 3), ("c", 4, 4)}
    assert not found.records.deleted.any()
    again = merged(block(("c", 4, 4)), block(("c", 4, None), deletes=True))
    assert (rows_of(again), again.records.deleted.tolist()) == ([], [True])
    assert [values.to_pylist() for values in again.records.ordering] == [[4]]


def test_a_row_says_which_columns_it_does_not_have() -> None:
    found = merged(
        block(("a", 5, 1), ("b", 5, 1)),
        block(("a", 6, None), ("c", 6, None), partial=(RECORD_KEY, "ts")),
        block(("gone", 1, None), deletes=True),
    )
    unset = found.unset
    assert unset is not None
    by_key = dict(zip([row[0] for row in rows_of(found)], unset.tolist(), strict=True))
    assert {*rows_of(found)} == {("a", 6, 1), ("b", 5, 1), ("c", 6, None)}
    assert by_key == {"a": [False] * 3, "b": [False] * 3, "c": [False, False, True]}
    assert found.records.keys.to_pylist()[-1] == "gone"
    base = pa.table([["c", "d", "gone"], [1, 1, 1], [8, 9, 0]], schema=SCHEMA)
    chunks = SliceMerge(found, SCHEMA, ("ts",)).run(iter([base.slice(0, 2), base.slice(2)]))
    rows = [tuple(row.values()) for chunk in chunks for row in chunk.to_pylist()]
    assert rows == [("c", 6, 8), ("d", 1, 9), ("a", 6, 1), ("b", 5, 1)]


def test_a_row_after_a_commit_time_delete_counts_whatever_value_the_delete_has() -> None:
    """Such a delete has no ordering value; what its column holds instead says nothing."""
    gone = block(("a", 9, None), ("b", 9, None), deletes=True, resets=True)
    found = merged(block(("a", 20, 1), ("b", 20, 1)), gone, block(("a", 5, 2)))
    assert rows_of(found) == [("a", 5, 2)]
    assert found.records.keys.to_pylist() == ["a", "b"]
    assert found.records.is_reset.tolist() == [False, True]


@pytest.mark.parametrize("ordering", [(5, 6, 7), (5, 5, 5)])
def test_a_part_of_a_row_takes_no_values_from_before_a_delete(
    ordering: tuple[int, int, int],
) -> None:
    first, deleted, part = ordering
    found = merged(
        block(("a", first, 1)),
        block(("a", deleted, None), deletes=True),
        block(("a", part, None), partial=(RECORD_KEY, "ts")),
    )
    assert rows_of(found) == [("a", part, None)]
    assert found.unset is not None
    assert found.unset.tolist() == [[False, False, True]]
