"""What a resize would do: limits, candidates in their order, and where to split (RFC-42)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError
from bucketlake.format.hashing_metadata import HashingMetadata, NodeStats
from bucketlake.hashing.ring import Ring
from bucketlake.hashing.xx_hash import RING_HASH_MAX, hash_ring_keys
from bucketlake.index.ring_state import RingState, file_id_of_node
from bucketlake.model.file_name import BaseFileName, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.schema import RECORD_KEY
from bucketlake.read.slice_reader import SliceReader
from bucketlake.services.resize.candidates import (
    Candidate,
    candidates_of_ring,
    split_points,
    within_limits,
)
from bucketlake.services.resize.service import ResizeLimits
from tests.ring_tables import keys_in

INSTANT = InstantTime("20260101000000000")
LIMITS = ResizeLimits(max_file_size=100, split_threshold=2.0, merge_threshold=0.2)
TOP = RING_HASH_MAX


def slice_of(prefix: str, size_bytes: int, partition: str = "a") -> FileSlice:
    file_id = file_id_of_node(prefix)
    base = DataFile(partition, BaseFileName(file_id, "1-0-1", INSTANT), size_bytes)
    return FileSlice(partition, file_id, INSTANT, base)


def ring_of(*values: int) -> Ring:
    return Ring.of({value: f"n{value}" for value in values})


def slices_of(
    ring: Ring, sizes: Sequence[int | None], partition: str = "a"
) -> dict[int, FileSlice]:
    return {
        position: slice_of(ring.prefixes[position], size, partition)
        for position, size in enumerate(sizes)
        if size is not None
    }


def candidates(
    ring: Ring,
    sizes: Sequence[int | None],
    limits: ResizeLimits = LIMITS,
    *,
    count_min: int = 1,
    count_max: int = 100,
) -> list[Candidate]:
    state = RingState(HashingMetadata("a", INSTANT, 1, 0, ring))
    points_of = split_points(NO_READER, state, (), "middle")
    slices = slices_of(ring, sizes)
    return [
        *candidates_of_ring(
            "a", ring, slices, limits, count_min=count_min, count_max=count_max, points_of=points_of
        )
    ]


def splits(found: Sequence[Candidate]) -> list[tuple[int, tuple[int, ...]]]:
    return [(one.values[0], one.points) for one in found if one.is_split]


def merges(found: Sequence[Candidate]) -> list[tuple[int, ...]]:
    return [one.values for one in found if not one.is_split]


class _NoReader:
    def read(self, file_slice: FileSlice, columns: Sequence[str]) -> Iterator[pa.Table]:
        raise AssertionError(f"nobody asked for {columns} of {file_slice.file_id}")


class _Keys:
    """Reads record keys that are given, in chunks."""

    def __init__(self, *chunks: Sequence[str]) -> None:
        self.chunks = chunks

    def read(self, file_slice: FileSlice, columns: Sequence[str]) -> Iterator[pa.Table]:
        assert file_slice.file_id == file_id_of_node("n1000")
        assert [*columns] == [RECORD_KEY]
        for chunk in self.chunks:
            yield pa.table({RECORD_KEY: pa.array(chunk, pa.string())})


NO_READER = cast(SliceReader, _NoReader())


# ---- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_file_size", 0),
        ("max_file_size", 1.5),
        ("max_file_size", True),
        ("split_into", 1),
        ("split_into", "3"),
        ("max_bytes", 0),
        ("max_partitions", 0),
        ("max_groups", -1),
        ("split_threshold", -1),
        ("split_threshold", float("nan")),
        ("split_threshold", "2"),
        ("merge_threshold", float("inf")),
        ("merge_threshold", True),
        ("merge_threshold", 1.1),  # More than half of split_threshold.
        ("split_at", "end"),
    ],
)
def test_limits_out_of_range_are_config_errors_that_name_the_argument(
    name: str, value: object
) -> None:
    with pytest.raises(ConfigError, match=name):
        ResizeLimits(**cast("dict[str, Any]", {name: value}))


def test_limits_of_none_are_no_limits_and_thresholds_are_parts_of_the_file_size() -> None:
    limits = ResizeLimits(1000, 3, 1.5, max_bytes=None, max_partitions=None, max_groups=None)
    assert (limits.split_bytes, limits.merge_bytes) == (3000, 1500)


# ---- candidates --------------------------------------------------------------------------------


def test_groups_above_the_threshold_are_split_and_the_largest_comes_first() -> None:
    ring = ring_of(100, 200, 300, 400)
    found = candidates(ring, [201, 200, 500, 300])
    assert splits(found) == [(300, (250,)), (400, (350,)), (100, (middle_of(ring, 100),))]
    assert merges(found) == []


def middle_of(ring: Ring, value: int) -> int:
    middle = ring.middle(value)
    assert middle is not None
    return middle


def test_the_largest_groups_get_the_buckets_that_the_maximum_leaves() -> None:
    ring = ring_of(100, 200, 300, 400)
    found = candidates(ring, [400, 300, 500, 600], count_max=6)
    assert [value for value, _ in splits(found)] == [400, 300]
    assert candidates(ring, [400, 300, 500, 600], count_max=4) == []


def test_a_split_makes_as_many_parts_as_its_size_asks_for() -> None:
    ring = ring_of(100, 200, 300)
    limits = ResizeLimits(max_file_size=100, split_into=8)
    found = dict(splits(candidates(ring, [None, 201, 950], limits)))
    assert found == {
        200: (133, 166),  # Of 2.01 file sizes, three parts.
        300: (212, 225, 237, 250, 262, 275, 287),
    }


def test_a_split_of_several_parts_takes_no_more_than_the_room_that_is_left() -> None:
    ring = ring_of(100, 200, 300)
    limits = ResizeLimits(max_file_size=100, split_into=8)
    found = candidates(ring, [None, 900, 950], limits, count_max=6)
    assert dict(splits(found)) == {300: (225, 250, 275)}
    found = candidates(ring, [None, 900, 950], limits, count_max=11)
    assert {value: len(points) + 1 for value, points in splits(found)} == {300: 8, 200: 2}


def test_a_range_of_one_hash_is_not_split_and_leaves_its_room_to_others() -> None:
    ring = ring_of(100, 101, 200)
    assert splits(candidates(ring, [None, 9000, 300], count_max=4)) == [(200, (150,))]


def test_only_neighbours_that_are_small_together_are_merged() -> None:
    ring = ring_of(100, 200, 300, 400, 500)
    assert merges(candidates(ring, [10, 50, 10, 10, 50])) == [(300, 400)]
    assert merges(candidates(ring, [10, 50, 10, 50, 50])) == []
    assert merges(candidates(ring, [50, 20, 20, 20, 50])) == [(200, 300)], "above the threshold"
    assert merges(candidates(ring, [50, 1, 1, 1, 50])) == [(200, 300, 400)]


def test_a_group_that_must_stay_separates_its_neighbours() -> None:
    ring = ring_of(100, 200, 300, 400)
    assert merges(candidates(ring, [50, 10, None, 10])) == []


def test_a_merge_goes_across_the_end_of_the_ring() -> None:
    ring = ring_of(100, 200, 300, 400)
    found = candidates(ring, [10, 50, 50, 10])
    assert merges(found) == [(400, 100)]
    after = ring.with_children(found[0].children(ring, INSTANT))
    assert after.values.tolist() == [100, 200, 300]
    assert after.range_of(100).start == 300


def test_all_nodes_of_a_ring_merge_into_one_at_most() -> None:
    ring = ring_of(100, 200, 300, 400)
    (merge,) = candidates(ring, [0, 0, 0, 0])
    assert sorted(merge.values) == [100, 200, 300, 400]
    assert len(ring.with_children(merge.children(ring, INSTANT))) == 1
    assert candidates(ring_of(100), [0]) == []


@pytest.mark.parametrize("count_min", [1, 2, 3, 4, 5])
def test_merges_keep_the_least_number_of_buckets(count_min: int) -> None:
    ring = ring_of(100, 200, 300, 400, 500)
    found = candidates(ring, [1, 1, 1, 1, 1], count_min=count_min)
    assert len(ring) - sum(len(one.values) - 1 for one in found) == max(count_min, 1)


def test_what_is_split_is_not_merged_and_gives_room_to_merges() -> None:
    ring = ring_of(100, 200, 300)
    found = candidates(ring, [300, 10, 10], count_min=3)
    assert [value for value, _ in splits(found)] == [100]
    assert merges(found) == [(200, 300)]


def test_the_children_of_candidates_partition_the_old_range_and_follow_from_the_instant() -> None:
    ring = ring_of(100, 200)
    (split,) = candidates(ring, [None, 300])
    children = split.children(ring, INSTANT)
    assert [child.value for child in children] == [150, 200]
    assert children == split.children(ring, INSTANT)
    other = split.children(ring, InstantTime("20260101000000001"))
    prefixes = {child.file_id_prefix for child in (*children, *other)}
    assert len(prefixes) == 4


# ---- limits of one resize ----------------------------------------------------------------------


def some(partition: str, size: int, *, split: bool = True) -> Candidate:
    held = slice_of(f"n{size}", size, partition)
    return Candidate(partition, (held,), (size,), (size - 1,) if split else ())


def chosen_sizes(found: Sequence[Candidate], **limits: int | None) -> list[int]:
    unlimited: dict[str, int | None] = {"max_bytes": None, "max_groups": None}
    wanted = ResizeLimits(**cast("dict[str, Any]", unlimited | limits))
    return [one.size_bytes for one in within_limits(found, wanted)]


def test_splits_come_before_merges_and_large_before_small() -> None:
    found = [some("a", 5), some("a", 900, split=False), some("b", 7), some("b", 6)]
    assert chosen_sizes(found) == [7, 6, 5, 900]


def test_bytes_limit_a_resize_before_partitions_and_groups() -> None:
    found = [some("a", 90), some("b", 60), some("c", 30), some("a", 20)]
    assert chosen_sizes(found, max_bytes=150, max_partitions=3, max_groups=4) == [90, 60]
    assert chosen_sizes(found, max_bytes=149) == [90]
    assert chosen_sizes(found, max_groups=3, max_bytes=1000) == [90, 60, 30]
    assert chosen_sizes(found, max_partitions=1, max_bytes=1000) == [90, 20]
    assert chosen_sizes(found, max_partitions=2, max_bytes=200) == [90, 60, 20]
    assert chosen_sizes(found, max_partitions=1, max_groups=1) == [90]


def test_a_group_larger_than_the_bytes_is_resized_alone() -> None:
    assert chosen_sizes([some("a", 5000), some("a", 10)], max_bytes=100) == [5000]


# ---- split points ------------------------------------------------------------------------------


def points(
    ring: Ring,
    policy: str,
    value: int,
    parts: int,
    *,
    reader: object = NO_READER,
    stats: Mapping[str, NodeStats] | None = None,
    hash_fields: tuple[str, ...] = (),
) -> list[int] | None:
    state = RingState(HashingMetadata("a", INSTANT, 1, 0, ring, stats or {}))
    points_of = split_points(cast(SliceReader, reader), state, hash_fields, policy)
    found = points_of(slice_of(f"n{value}", 1), value, parts)
    return None if found is None else [*found]


def test_a_middle_split_takes_the_middle_as_hudi_does() -> None:
    assert points(ring_of(100, 205), "middle", 205, 2) == [152]
    assert points(ring_of(100, 205), "middle", 205, 3) == [135, 170]
    # The range across the ring's end.
    assert points(ring_of(TOP - 10, 9), "middle", 9, 2) == [TOP]
    assert points(ring_of(TOP - 10, 20), "middle", 20, 2) == [4]
    assert points(ring_of(100, 101), "middle", 101, 2) is None


def hashes(keys: Sequence[str]) -> Any:
    return hash_ring_keys(pa.array(keys))


def test_a_balanced_split_halves_the_keys_wherever_they_lie() -> None:
    ring = Ring.of({1000: "n1000", 900_000_000: "b"})
    low = keys_in(900_000_000, 950_000_000, 90)
    high = keys_in(950_000_000, TOP, 10)
    (point,) = points(ring, "balanced", 1000, 2, reader=_Keys(low[:40], [*low[40:], *high])) or []
    found = hashes([*low, *high])
    assert int((found <= point).sum()) == 50
    assert 900_000_000 < point < 950_000_000


def test_a_balanced_split_of_several_parts_gives_each_an_equal_number_of_keys() -> None:
    ring = Ring.of({1000: "n1000", 900_000_000: "b"})
    keys = keys_in(900_000_000, 1_200_000_000, 99)
    found = points(ring, "balanced", 1000, 3, reader=_Keys(keys)) or []
    counts = np.diff([0, *(int((hashes(keys) <= point).sum()) for point in found), 99])
    assert counts.tolist() == [33, 33, 33]


@pytest.mark.parametrize("keys", [[], ["only"]], ids=["no keys", "one key"])
def test_a_balanced_split_of_too_few_keys_falls_back_to_the_middle(keys: list[str]) -> None:
    ring = Ring.of({1000: "n1000", 900_000_000: "b"})
    assert points(ring, "balanced", 1000, 2, reader=_Keys(keys)) == [ring.middle(1000)]


def test_a_balanced_split_of_one_hot_key_puts_its_hash_at_the_end_of_a_part() -> None:
    (key,) = keys_in(900_000_000, TOP, 1)
    ring = Ring.of({1000: "n1000", 900_000_000: "b"})
    assert points(ring, "balanced", 1000, 2, reader=_Keys([key] * 50)) == [int(hashes([key])[0])]


def test_a_balanced_split_whose_keys_all_lie_at_the_end_falls_back_to_the_middle() -> None:
    (key,) = keys_in(0, TOP, 1)
    end = int(hashes([key])[0])
    ring = Ring.of({end: "n1000", end - 1000: "b"})
    state = RingState(HashingMetadata("a", INSTANT, 1, 0, ring))
    points_of = split_points(cast(SliceReader, _Keys([key] * 9)), state, (), "balanced")
    assert points_of(slice_of("n1000", 1), end, 2) == [end - 500]


@pytest.mark.parametrize(("parts", "places"), [(2, [3]), (4, [1, 3, 5]), (8, range(7))])
def test_a_balanced_split_uses_a_stored_distribution_and_reads_no_key(
    parts: int, places: Sequence[int]
) -> None:
    quantiles = (110, 120, 130, 140, 150, 160, 170)
    stats = {"n1000": NodeStats(80, quantiles)}
    ring = Ring.of({1000: "n1000", 100: "b"})
    found = points(ring, "balanced", 1000, parts, stats=stats)
    assert found == [quantiles[place] - 1 for place in places]


def test_a_stored_distribution_that_does_not_cut_the_range_falls_back_to_the_middle() -> None:
    stats = {"n1000": NodeStats(80, (101, 101, 101, 101, 101, 101, 101))}
    ring = Ring.of({1000: "n1000", 100: "b"})
    assert points(ring, "balanced", 1000, 2, stats=stats) == [550]


def test_hash_fields_choose_what_is_hashed_for_a_balanced_split() -> None:
    ring = Ring.of({1000: "n1000", 900_000_000: "b"})
    names = keys_in(900_000_000, 1_500_000_000, 20)
    keys = [f"id:{name},shop:{place}" for place, name in enumerate(names)]
    (point,) = points(ring, "balanced", 1000, 2, reader=_Keys(keys), hash_fields=("id",)) or []
    assert int((hashes(names) <= point).sum()) == 10


def test_log_files_count_for_the_size_of_a_candidate() -> None:
    held = slice_of("n1", 100)
    log = DataFile("a", LogFileName(held.file_id, INSTANT, 1, "1-0-1"), 50)
    both = FileSlice("a", held.file_id, INSTANT, held.base_file, (log,))
    assert Candidate("a", (both,), (1,), (0,)).size_bytes == 150
