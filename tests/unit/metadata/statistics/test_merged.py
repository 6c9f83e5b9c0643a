"""Merging statistics: whatever the parts, a reader of the whole misses none of their values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.format.metadata_record.bounds import (
    StoredType,
    ValueType,
    unwrap_bounds,
    wrap_bounds,
)
from bucketlake.format.metadata_record.record_schema import (
    VALUE_TYPE,
    ColumnStats,
    WrappedValues,
)
from bucketlake.metadata.statistics.merged import (
    merge_layers,
    unite_statistics,
)

PATH = "partition_stats/f.hfile"
INT = pa.int32()
NAN = math.nan


@dataclass(frozen=True)
class Part:
    """One record: the values that it is about, or bounds that are not known."""

    values: tuple[Any, ...]
    data_type: pa.DataType = INT
    nulls: int = 0
    knows_bounds: bool = True

    def stats(self, name: str = "f") -> ColumnStats:
        held = sorted(self.values, key=lambda value: (value != value, value))
        known = held if self.knows_bounds and held else [None]
        stored = StoredType.of_column(self.data_type)
        return ColumnStats(
            pa.array([name]),
            pa.array(["c"]),
            wrap_bounds(pa.array(known[:1], self.data_type)),
            wrap_bounds(pa.array(known[-1:], self.data_type)),
            pa.array([len(held) + self.nulls]),
            pa.array([self.nulls]),
            pa.array([10]),
            pa.array([20]),
            pa.array([False]),
            pa.array([False]),
            pa.array([{"ordinal": int(stored.value_type), "info": stored.info}], VALUE_TYPE),
        )


def bounds_of(stats: ColumnStats, data_type: pa.DataType) -> list[tuple[Any, Any]]:
    types = stats.value_types
    low = unwrap_bounds(stats.minima, types, data_type, PATH, is_minimum=True)
    high = unwrap_bounds(stats.maxima, types, data_type, PATH, is_minimum=False)
    return list(zip(low.to_pylist(), high.to_pylist(), strict=True))


def united(*parts: Part) -> ColumnStats:
    stats = ColumnStats.concat([part.stats(f"f{i}") for i, part in enumerate(parts)])
    return unite_statistics(stats, np.zeros(len(parts), np.int64), 1, PATH)


def numbers_of(stats: ColumnStats) -> list[int]:
    columns = (
        stats.value_counts,
        stats.null_counts,
        stats.stored_bytes,
        stats.uncompressed_bytes,
    )
    return [column[0].as_py() for column in columns]


VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-5, 5)),
    (pa.int64(), st.integers(-(2**60), 2**60)),
    (pa.float64(), st.floats()),
    (pa.string(), st.text(max_size=3)),
    (pa.binary(), st.binary(max_size=3)),
    (pa.decimal128(9, 2), st.decimals(-999, 999, places=2)),
]


@given(data=st.data())
def test_united_bounds_are_those_of_all_values(data: st.DataObject) -> None:
    groups, parts = [], []
    of_group = data.draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=3))
    for group, (kind, values) in enumerate(of_group):
        for _ in range(data.draw(st.integers(1, 3))):
            held = tuple(data.draw(st.lists(values, max_size=2)))
            known = data.draw(st.integers(0, 5)) > 0
            parts.append(Part(held, kind, data.draw(st.integers(0, 2)), known))
            groups.append(group)
    stats = ColumnStats.concat([part.stats(f"f{i}") for i, part in enumerate(parts)])
    found = unite_statistics(stats, np.array(groups), len(of_group), PATH)
    for group, (kind, _) in enumerate(of_group):
        members = [part for part, place in zip(parts, groups, strict=True) if place == group]
        values = [value for part in members for value in part.values]
        values.sort(key=lambda value: (value != value, value))
        is_known = all(part.knows_bounds for part in members if part.values)
        expected = (values[0], values[-1]) if values and is_known else (None, None)
        row = found.take(np.array([group]))
        assert str(bounds_of(row, kind)) == str([expected]) or bounds_of(row, kind) == [expected]
        nulls = sum(part.nulls for part in members)
        sizes = [10 * len(members), 20 * len(members)]
        assert numbers_of(row) == [len(values) + nulls, nulls, *sizes]
        newest = max(i for i, place in enumerate(groups) if place == group)
        assert row.names.to_pylist() == [f"f{newest}"]
        stored = StoredType.of_column(kind)
        assert row.value_types[0].as_py() == {"ordinal": stored.value_type, "info": stored.info}


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        (Part((1,), pa.int32()), Part((2**40,), pa.int64()), (1, 2**40)),
        (Part((2**40,), pa.int64()), Part((1,), pa.int32()), (1, 2**40)),
        (Part((1.5,), pa.float32()), Part((-1.0,), pa.float64()), (-1.0, 1.5)),
        (Part((3,), pa.int32()), Part((2.5, NAN), pa.float64()), (2.5, NAN)),
        (
            Part((Decimal("1.25"),), pa.decimal128(5, 2)),
            Part((Decimal("7.5000"),), pa.decimal128(9, 4)),
            (Decimal("1.2500"), Decimal("7.5000")),
        ),
    ],
    ids=["int", "int later", "float", "int and double", "decimal"],
)
def test_bounds_of_a_widened_column_are_united_in_the_widest_type(
    older: Part, newer: Part, expected: tuple[Any, Any]
) -> None:
    kind = max((newer.data_type, older.data_type), key=lambda held: held.bit_width)
    found = united(older, newer)
    assert str(bounds_of(found, kind)) == str([expected])
    assert found.value_types[0].as_py()["ordinal"] == StoredType.of_column(kind).value_type


def test_large_integers_as_doubles_are_rounded_outwards() -> None:
    large = 2**53 + 1
    found = united(Part((-large, large), pa.int64()), Part((0.0,), pa.float64()))
    ((low, high),) = bounds_of(found, pa.float64())
    assert Decimal(low) < -large
    assert large < Decimal(high)


def test_types_that_cannot_be_united_leave_no_bounds() -> None:
    found = united(Part((1,), pa.int32()), Part(("a",), pa.string()))
    assert (found.minima.parts, found.maxima.parts) == ({}, {})
    assert numbers_of(found)[:2] == [2, 0]


def test_zeros_that_hudi_writes_for_nulls_do_not_count() -> None:
    zeros = replace(
        Part((), nulls=2).stats(), minima=wrap_bounds(pa.array([0], pa.int32())),
        maxima=wrap_bounds(pa.array([0], pa.int32())),
    )  # fmt: skip
    stats = ColumnStats.concat([zeros, Part((5, 7)).stats()])
    found = unite_statistics(stats, np.zeros(2, np.int64), 1, PATH)
    assert bounds_of(found, pa.int32()) == [(5, 7)]


def test_log_file_of_deletes_does_not_hide_the_type() -> None:
    # Hudi's statistics of a log file without records have the value type NULL.
    deletes = replace(
        Part(()).stats(),
        value_types=pa.array([{"ordinal": int(ValueType.NULL), "info": None}], VALUE_TYPE),
    )
    stats = ColumnStats.concat([Part((5,)).stats(), deletes])
    found = unite_statistics(stats, np.zeros(2, np.int64), 1, PATH)
    assert found.value_types[0].as_py()["ordinal"] == ValueType.INT
    assert bounds_of(found, pa.int32()) == [(5, 5)]


def test_bounds_without_a_value_type_are_united_by_their_wrappers() -> None:
    # Index version V1.
    stats = replace(
        ColumnStats.concat([Part((5,)).stats(), Part((3,)).stats()]),
        value_types=pa.nulls(2, VALUE_TYPE),
    )
    found = unite_statistics(stats, np.zeros(2, np.int64), 1, PATH)
    assert found.value_types.null_count == 1
    assert bounds_of(found, pa.int32()) == [(3, 5)]


@pytest.mark.parametrize("how", ["tight", "was removed"])
def test_newer_record_replaces_the_older_one(how: str) -> None:
    yes = pa.array([True])
    older, newer = Part((1,)).stats("old"), Part((5,)).stats("new")
    if how == "tight":
        newer = replace(newer, is_tight_bound=yes)
    else:
        older = replace(older, is_deleted=yes)
    _, found = merge_layers(np.zeros(2, np.int64), ColumnStats.concat([older, newer]), PATH)
    assert bounds_of(found, pa.int32()) == [(5, 5)]
    assert numbers_of(found) == [1, 0, 10, 20]
    assert found.is_tight_bound.to_pylist() == [how == "tight"]


def test_removal_is_newer_than_the_record_so_that_the_key_is_gone() -> None:
    removal = replace(Part((5,)).stats("new"), is_deleted=pa.array([True]))
    stats = ColumnStats.concat([Part((1,)).stats("old"), removal])
    codes, found = merge_layers(np.zeros(2, np.int64), stats, PATH)
    assert (len(codes), len(found)) == (0, 0)


def test_merged_records_are_in_the_order_of_their_codes() -> None:
    yes = pa.array([True])
    older = [Part((i,)).stats(f"old{i}") for i in range(4)]
    newer = [
        replace(stats, is_tight_bound=yes) if i % 2 else stats
        for i in range(4)
        for stats in [Part((10 + i,)).stats(f"new{i}")]
    ]
    stats = ColumnStats.concat([*reversed(older), *newer])
    codes, found = merge_layers(np.array([3, 2, 1, 0, 0, 1, 2, 3]), stats, PATH)
    assert codes.tolist() == [0, 1, 2, 3]
    assert bounds_of(found, pa.int32()) == [(0, 10), (11, 11), (2, 12), (13, 13)]
    assert found.names.to_pylist() == [f"new{i}" for i in range(4)]
    assert found.is_tight_bound.to_pylist() == [False, True, False, True]


def test_unknown_counts_stay_unknown() -> None:
    unknown = replace(Part((1,)).stats(), null_counts=pa.nulls(1, pa.int64()))
    stats = ColumnStats.concat([unknown, Part((2,)).stats()])
    found = unite_statistics(stats, np.zeros(2, np.int64), 1, PATH)
    assert found.null_counts.to_pylist() == [None]
    assert bounds_of(found, pa.int32()) == [(1, 2)]


def test_rows_of_wrapped_values_are_taken_in_any_order() -> None:
    values = WrappedValues(3, {2: (np.array([0, 2]), pa.array([5, 7], pa.int32()))})
    taken = values.take(np.array([2, 1, 0, 2]))
    assert taken.branches.tolist() == [2, 0, 2, 2]
    assert taken.stored(np.array([0, 2, 3])).to_pylist() == [7, 5, 7]
