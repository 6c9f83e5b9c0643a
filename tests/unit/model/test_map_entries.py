"""Entries and lengths of map arrays."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.model.arrays import map_entries, map_lengths

KIND = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("maps", "keys", "lengths"),
    [
        (pa.array([], KIND), [], []),
        (pa.array([None], KIND), [], [None]),
        (
            pa.array([[("a", 1), ("b", None)], None, [], [("c", 3)]], KIND),
            ["a", "b", "c"],
            [2, None, 0, 1],
        ),
        (pa.array([[("a", 1)], None, [("b", 2)], [("c", 3)]], KIND).slice(1, 2), ["b"], [None, 1]),
        (pa.array([[("a", 1)], [("b", 2)]], KIND).slice(2), [], []),
    ],
    ids=["empty", "null", "mixed", "slice", "end"],
)
def test_entries_are_those_of_present_maps(
    maps: pa.MapArray, keys: list[str], lengths: list[int | None]
) -> None:
    assert map_entries(maps)[0].to_pylist() == keys
    assert len(map_entries(maps)[1]) == len(keys)
    assert map_lengths(maps).to_pylist() == lengths


def test_entries_of_views_beside_a_null_map_are_given() -> None:
    kind = pa.map_(pa.string_view(), pa.int8())
    assert map_entries(pa.array([[("a", 1)], None], kind))[0].to_pylist() == ["a"]


def test_entries_under_a_null_map_are_left_out() -> None:
    offsets = pa.array([0, 1, 2], pa.int32())
    hidden = pa.MapArray.from_arrays(
        offsets, ["a", "b"], pa.array([1, 2]), mask=pa.array([True, False])
    )
    assert [entries.to_pylist() for entries in map_entries(hidden)] == [["b"], [2]]
    assert map_lengths(hidden).to_pylist() == [None, 1]
