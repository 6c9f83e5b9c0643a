"""The hash ring: lookups across its end, splits, merges, and what is refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from bucketlake.errors import ConfigError, IndexStateError, InputError
from bucketlake.hashing.ring import (
    INITIAL_COUNT_MAX,
    ChildNode,
    HashRange,
    NodeTag,
    Ring,
    initial_ring,
)
from tests.ring_oracle import node_of

END = 2**31 - 1


def ring(*values: int) -> Ring:
    return Ring.of({value: str(value) for value in values})


def nodes(found: Ring) -> dict[int, str]:
    return dict(zip(found.values.tolist(), found.prefixes, strict=True))


def located(found: Ring, *hashes: int) -> list[int]:
    return found.locate(np.array(hashes, np.int32)).tolist()


def test_a_hash_belongs_to_the_first_node_at_or_after_it() -> None:
    assert located(ring(0, 5, 6, END), 0, 1, 5, 6, 7, END) == [0, 1, 1, 2, 3, 3]


def test_a_hash_behind_the_last_node_belongs_to_the_first() -> None:
    assert located(ring(5, 9), 9, 10, END, 0) == [1, 0, 0, 0]
    assert located(ring(7), 0, 7, 8, END) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "values",
    [
        list(range(1000)),
        list(range(END - 1000, END + 1)),
        [*range(0, 50_000, 7), *range(2**30, 2**30 + 9)],
        list(range(0, END, 2**18)),
    ],
    ids=["crowded at the start", "crowded at the end", "two crowds", "even"],
)
def test_crowded_rings_are_searched_like_others(values: list[int]) -> None:
    found = ring(*values)
    random = np.random.default_rng(5).integers(0, 2**31, 2000).tolist()
    near = [value + step for value in values[::97] for step in (-1, 0, 1)]
    hashes = [value for value in [*random, *near, 0, END] if 0 <= value <= END]
    assert located(found, *hashes) == [node_of(value, values) for value in hashes]


def test_no_hashes_have_no_nodes() -> None:
    assert located(ring(END)) == []


def test_the_node_before_is_found_across_the_end() -> None:
    found = ring(5, 8, 20)
    assert [found.former(value) for value in (5, 8, 20)] == [20, 5, 8]
    assert ring(5).former(5) == 5


def test_the_range_of_a_node_may_wrap_or_be_all() -> None:
    assert ring(5, END).range_of(5) == HashRange(END, 5)
    assert ring(5, END).range_of(5).width == 6
    assert ring(5, END).range_of(END).width == END - 5
    assert ring(7).range_of(7).width == 2**31
    assert HashRange(END - 1, 1).width == 3


@pytest.mark.parametrize(
    ("values", "value", "middle"),
    [
        ([END], END, 2**30 - 1),
        ([7], 7, 7 + 2**30),
        ([5, 6, 8], 6, None),
        ([5, 6, 8], 8, 7),
        ([0, END], 0, None),
        ([1, END], 1, 0),
        ([0, END - 1], 0, END),
        ([3, END - 4], 3, END),
    ],
)
def test_a_range_splits_at_its_middle_unless_it_holds_one_hash(
    values: list[int], value: int, middle: int | None
) -> None:
    assert ring(*values).middle(value) == middle


def test_a_range_is_cut_into_parts_of_equal_width() -> None:
    assert ring(100, END).even_points(100, 4) == [24, 49, 74]
    assert ring(1, END - 4).even_points(1, 3) == [END - 2, END]
    assert ring(3, 7).even_points(7, 4) == [4, 5, 6]
    assert ring(3, 7).even_points(7, 5) is None


def test_a_split_replaces_a_node_with_its_children() -> None:
    children = ring(10, END).split(10, [3, 7], ["a", "b", "c"])
    assert children == tuple(
        ChildNode(value, prefix, NodeTag.REPLACE)
        for value, prefix in [(3, "a"), (7, "b"), (10, "c")]
    )
    after = ring(10, END).with_children(children)
    assert nodes(after) == {3: "a", 7: "b", 10: "c", END: str(END)}


def test_a_wrapping_range_splits_on_both_sides_of_the_end() -> None:
    children = ring(10, 90).split(10, [END - 5, 4], ["a", "b", "c"])
    after = ring(10, 90).with_children(children)
    assert nodes(after) == {4: "b", 10: "c", 90: "90", END - 5: "a"}
    assert located(after, 91, END - 5, END, 4, 5) == [3, 3, 0, 0, 1]


@pytest.mark.parametrize(
    "points", [[], [10], [20], [21], [5], [-1], [2**31], [12, 12], [15, 12], [12, 25]]
)
def test_a_split_at_points_outside_the_range_or_its_order_is_refused(points: list[int]) -> None:
    found = ring(10, 20, END)
    with pytest.raises(InputError, match=r"its range \(10, 20\] cannot be cut"):
        found.split(20, points, ["p"] * (len(points) + 1))


def test_a_merge_leaves_its_last_node() -> None:
    after = ring(1, 2, 3).with_children(ring(1, 2, 3).merge([1, 2], "new"))
    assert nodes(after) == {2: "new", 3: "3"}


def test_a_merge_across_the_end_lets_the_first_node_hold_the_last_hashes() -> None:
    found = ring(10, 20, END)
    children = found.merge([END, 10], "new")
    assert children == (
        ChildNode(END, None, NodeTag.DELETE),
        ChildNode(10, "new", NodeTag.REPLACE),
    )
    after = found.with_children(children)
    assert nodes(after) == {10: "new", 20: "20"}
    assert located(after, END, 21, 20) == [0, 0, 1]


def test_all_nodes_merge_into_one() -> None:
    found = ring(10, 20, END)
    assert nodes(found.with_children(found.merge([20, END, 10], "new"))) == {10: "new"}


@pytest.mark.parametrize("values", [[], [10], [10, 10], [10, 30], [20, 10], [10, 20, 30, END, 10]])
def test_a_merge_of_nodes_that_are_not_neighbours_is_refused(values: list[int]) -> None:
    with pytest.raises(InputError, match="merge two or more neighbours"):
        ring(10, 20, 30, END).merge(values, "new")


def test_a_node_that_is_not_on_the_ring_is_named() -> None:
    found = ring(10, END)
    with pytest.raises(IndexStateError, match="a node at 11 was asked for"):
        found.split(11, [5], ["a", "b"])
    with pytest.raises(IndexStateError, match="a node at 11 was asked for"):
        found.merge([11, END], "new")
    with pytest.raises(IndexStateError, match="a node at 11 was asked for"):
        found.with_children([ChildNode(11, None, NodeTag.DELETE)])


def test_a_resize_that_leaves_no_node_is_refused() -> None:
    with pytest.raises(IndexStateError, match="deletes all nodes"):
        ring(10).with_children([ChildNode(10, None, NodeTag.DELETE)])


@pytest.mark.parametrize("count", [0, -1, INITIAL_COUNT_MAX + 1, 2**30])
def test_a_ring_cannot_begin_with_no_node_or_with_too_many(count: int) -> None:
    with pytest.raises(ConfigError, match=r"num\.buckets"):
        initial_ring("p", count)


def test_a_partition_may_begin_with_thousands_of_nodes() -> None:
    found = initial_ring("p", INITIAL_COUNT_MAX)
    assert len(found) == len(set(found.prefixes)) == INITIAL_COUNT_MAX
    assert found.values[-1] == END


def test_rings_of_the_same_nodes_are_equal_and_survive_pickling() -> None:
    assert ring(1, 2) == ring(2, 1)
    assert hash(ring(1, 2)) == hash(ring(2, 1))
    assert ring(1, 2) != ring(1, 3)
    assert Ring.of({1: "a"}) != Ring.of({1: "b"})
    assert ring(1, 2) != "ring"
    assert pickle.loads(pickle.dumps(ring(1, 2))) == ring(1, 2)


def test_a_ring_does_not_change_with_the_array_that_it_was_made_of() -> None:
    values = np.array([1, 5], np.int32)
    found = Ring(values, ("a", "b"))
    values[0] = 3
    assert found.values.tolist() == [1, 5]
    with pytest.raises(ValueError, match="read-only"):
        found.values[0] = 3
