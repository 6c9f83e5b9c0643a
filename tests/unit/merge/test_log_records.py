"""The merge of log entries, block by block."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake.merge.combining import Gaps
from bucketlake.merge.incoming import IncomingRecords, comparable
from bucketlake.merge.log_records import (
    deleted_keys,
    merged_entries,
    merged_slice,
    merged_versions,
    row_versions,
)
from bucketlake.model.schema import RECORD_KEY

SCHEMA = pa.schema([(RECORD_KEY, pa.string()), ("ts", pa.int64()), ("v", pa.int64())])


def block(
    *rows: tuple[str, int, int | None],
    deletes: bool = False,
    resets: bool = False,
    partial: tuple[str, ...] | None = None,
) -> IncomingRecords:
    """Return a block of rows (key, ordering value, v), or of deletes, without v."""
    keys = pa.array([key for key, *_ in rows], pa.string())
    ts = pa.array([ts for _, ts, _ in rows], pa.int64())
    whole = pa.table([keys, ts, pa.array([v for *_, v in rows], pa.int64())], schema=SCHEMA)
    count = len(rows)
    absent = [n for n in SCHEMA.names if n not in (partial or SCHEMA.names)]
    for name in absent:
        place = SCHEMA.get_field_index(name)
        whole = whole.set_column(place, SCHEMA.field(name), pa.nulls(count, pa.int64()))
    columns = pa.table({}) if deletes else whole
    flags, unset = np.full(count, deletes), {name: np.ones(count, np.bool_) for name in absent}
    resets_of = np.full(count, resets)
    return IncomingRecords(keys, columns, (comparable(ts),), flags, resets_of, unset=unset)


def merged(*blocks: IncomingRecords, compares: bool = True) -> IncomingRecords:
    return merged_entries(blocks, SCHEMA, compares=compares)


def rows_of(found: IncomingRecords) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.columns.to_pylist()]


@pytest.mark.parametrize("compares", [False, True])
def test_without_entries_nothing_survives(compares: bool) -> None:
    for blocks in ((), (block(),)):
        found = merged(*blocks, compares=compares)
        assert len(found) == 0
        assert found.columns.schema == SCHEMA
        assert found.unset == {}


def test_deleted_keys_are_told_also_where_a_later_row_brings_them_back() -> None:
    blocks = (
        block(("a", 1, 1)),
        block(("b", 1, None), ("c", 1, None), deletes=True),
        block(("b", 2, 2)),
        block(("d", 1, None), deletes=True),
    )
    assert [keys.to_pylist() for keys in deleted_keys(blocks)] == [["b", "c"], ["d"]]


def test_the_last_entry_of_a_key_survives_where_values_do_not_compare() -> None:
    found = merged(
        block(("a", 9, 1), ("b", 9, 1)),
        block(("c", 1, None), ("b", 0, None), deletes=True),
        block(("a", 0, 2), ("c", 0, 3)),
        compares=False,
    )
    assert rows_of(found) == [("a", 0, 2), ("c", 0, 3)]
    assert found.keys.to_pylist() == ["a", "c", "b"]
    assert found.deleted.tolist() == [False, False, True]


def test_the_greatest_entry_of_a_key_survives_and_the_later_of_equal_ones() -> None:
    found = merged(
        block(("alone", 0, 7), ("a", 5, 1), ("b", 5, 1), ("a", 5, 2)),
        block(("b", 4, None), ("c", 4, None), ("a", 4, None), deletes=True),
        block(("c", 4, 4), ("b", 5, 3)),
    )
    assert {*rows_of(found)} == {("alone", 0, 7), ("a", 5, 2), ("b", 5, 3), ("c", 4, 4)}
    assert not found.deleted.any()
    again = merged(block(("c", 4, 4)), block(("c", 4, None), deletes=True))
    assert (rows_of(again), again.deleted.tolist()) == ([], [True])
    assert [values.to_pylist() for values in again.ordering] == [[4]]


def test_a_row_says_which_columns_it_does_not_have() -> None:
    found = merged(
        block(("a", 5, 1), ("b", 5, 1)),
        block(("a", 6, None), ("c", 6, None), partial=(RECORD_KEY, "ts")),
        block(("gone", 1, None), deletes=True),
    )
    (column,) = found.unset
    by_key = dict(
        zip([row[0] for row in rows_of(found)], found.unset[column].tolist(), strict=True)
    )
    assert {*rows_of(found)} == {("a", 6, 1), ("b", 5, 1), ("c", 6, None)}
    assert (column, by_key) == ("v", {"a": False, "b": False, "c": True})
    assert found.keys.to_pylist()[-1] == "gone"
    base = pa.table([["c", "d", "gone"], [1, 1, 1], [8, 9, 0]], schema=SCHEMA)
    chunks = merged_slice(found, iter([base.slice(0, 2), base.slice(2)]), ("ts",))
    rows = [tuple(row.values()) for chunk in chunks for row in chunk.to_pylist()]
    assert rows == [("c", 6, 8), ("d", 1, 9), ("a", 6, 1), ("b", 5, 1)]


def test_a_row_after_a_commit_time_delete_counts_whatever_value_the_delete_has() -> None:
    """Such a delete has no ordering value; what its column holds instead says nothing."""
    gone = block(("a", 9, None), ("b", 9, None), deletes=True, resets=True)
    found = merged(block(("a", 20, 1), ("b", 20, 1)), gone, block(("a", 5, 2)))
    assert rows_of(found) == [("a", 5, 2)]
    assert found.keys.to_pylist() == ["a", "b"]
    assert found.is_reset.tolist() == [False, True]


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
    assert {name: flags.tolist() for name, flags in found.unset.items()} == {"v": [True]}


ENTRY = st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.none() | st.integers(0, 2))
KINDS = st.sampled_from([{}, {}, {"partial": (RECORD_KEY, "ts")}, {"deletes": True},
                         {"deletes": True, "resets": True}])  # fmt: skip
BLOCKS = st.lists(
    st.tuples(st.lists(ENTRY, min_size=1, max_size=4), KINDS, st.booleans()), min_size=1, max_size=6
)


@settings(max_examples=200)
@given(drawn=BLOCKS, base_keys=st.sets(st.sampled_from("abcde")),
       compares=st.booleans(), gaps=st.sampled_from([None, Gaps(nulls=True)]))  # fmt: skip
def test_versions_of_keys_are_those_of_slices_merged_step_by_step(
    drawn: list[Any], base_keys: set[str], compares: bool, gaps: Gaps | None
) -> None:
    steps = list(itertools.accumulate(is_next for *_, is_next in drawn))
    fields, blocks = ("ts",) if compares else (), [block(*rows, **how) for rows, how, _ in drawn]
    if not compares:  # Then no delete has an ordering value.
        blocks = [replace(one, ordering=(), is_reset=one.deleted) for one in blocks]
    base = pa.Table.from_pylist(
        [{RECORD_KEY: k, "ts": 1, "v": 7} for k in sorted(base_keys)], SCHEMA
    )
    records, at = merged_versions(blocks, steps, SCHEMA, compares=compares, gaps=gaps)
    touched = pa.array(sorted({key for one in blocks for key in one.keys.to_pylist()}))
    stored = base.filter(pc.is_in(base[RECORD_KEY], value_set=touched))
    rows, changes, at = row_versions(records, at, stored, fields, gaps)
    is_change = changes.differ(rows, rows)
    held = [*rows.to_pylist(), None]
    found = [
        (step, held[old], held[new])
        for step, old, new in zip(at[is_change].tolist(), changes.before[is_change].tolist(),
                                  changes.after[is_change].tolist(), strict=True)
    ]  # fmt: skip
    states = []
    for step in range(steps[-1] + 1):
        so_far = [one for one, place in zip(blocks, steps, strict=True) if place <= step]
        entries = merged_entries(so_far, SCHEMA, compares=compares, gaps=gaps)
        chunks = merged_slice(entries, iter([base]), fields, gaps)
        states.append({row[RECORD_KEY]: row for chunk in chunks for row in chunk.to_pylist()})
    expected = [
        (step, before.get(key), after.get(key))
        for step, (before, after) in enumerate(itertools.pairwise(states), 1)
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)
