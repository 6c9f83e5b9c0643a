"""Two states of rows compared by key, against plain Python, over nested and odd values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.merge.row_changes import differing, row_changes

NESTED = pa.struct([("x", pa.float64()), ("l", pa.list_(pa.struct([("y", pa.int32())])))])
MAP = pa.map_(pa.string(), pa.list_(pa.string()))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [None, 0, 1]),
        (pa.float64(), [None, 0.0, math.nan, 1.5]),
        (pa.binary(), [None, b"", b"a"]),
        (pa.list_(pa.int64()), [None, [], [None], [1], [1, 2], [2, 1]]),
        (NESTED, [None, {"x": None, "l": None}, {"x": math.nan, "l": []}, {"x": 1.0, "l": None},
                  {"x": 1.0, "l": [None]}, {"x": 1.0, "l": [{"y": None}]},
                  {"x": 1.0, "l": [{"y": 3}, {"y": 4}]}, {"x": 1.0, "l": [{"y": 3}, {"y": 5}]}]),
        (MAP, [None, [], [("a", None)], [("a", [])], [("a", ["b"])], [("a", ["b"]), ("c", [])]]),
    ],
    ids=str,
)  # fmt: skip
def test_values_differ_unless_they_are_the_same(kind: pa.DataType, values: list[Any]) -> None:
    pairs = [(one, other) for one in range(len(values)) for other in range(len(values))]
    held = pa.array([None, *values], kind).slice(1)  # Of a slice, offsets do not begin with 0.
    tables = [pa.table({"v": held.take(pa.array(side))}) for side in zip(*pairs, strict=True)]
    expected = [one != other for one, other in pairs]
    assert differing(*tables).tolist() == expected
    assert differing(*(table.slice(3) for table in tables)).tolist() == expected[3:]


def test_rows_of_a_key_are_paired_in_their_order() -> None:
    before = pa.table({"k": ["b", "a", "b", "d"], "v": [1, 2, 3, 4]})
    after = pa.table({"k": ["c", "b", "b", "a", "b"], "v": [9, 1, 8, 2, 7]})
    keys = [table["k"].combine_chunks() for table in (before, after)]
    found = row_changes(*keys)
    found = found.chosen(found.differ(before.select(["v"]), after.select(["v"])))
    pairs = list(zip(found.before.tolist(), found.after.tolist(), strict=True))
    assert pairs == [(2, 2), (-1, 4), (-1, 0), (3, -1)]
    assert found.operations.to_pylist() == ["u", "i", "i", "d"]


def test_many_rows_are_compared_with_a_dictionary() -> None:
    random = np.random.default_rng(5)
    states = []
    for _ in range(2):
        chosen = random.permutation(3000)[:2000]
        rows = {f"key {n}": None if n % 7 == 0 else int(n) for n in chosen}
        rows |= {f"key {n}": int(random.integers(3)) for n in chosen[:500]}
        states.append(rows)
    before, after = states
    tables = [pa.table({"v": pa.array(list(s.values()), pa.int64())}) for s in states]
    keys = [pa.array(list(s)) for s in states]
    found = row_changes(*keys)
    found = found.chosen(found.differ(*tables))
    changed = {k for k in before.keys() | after.keys() if before.get(k, "") != after.get(k, "")}
    of_row = [
        keys[0 if a < 0 else 1][b if a < 0 else a].as_py()
        for b, a in zip(found.before.tolist(), found.after.tolist(), strict=True)
    ]
    assert of_row == sorted(changed)


def test_empty_states_have_no_changes() -> None:
    empty, none = pa.table({"v": pa.array([], pa.int64())}), pa.array([], pa.string())
    assert row_changes(none, none).differ(empty, empty).tolist() == []
