"""Resizes of a directory: halves, buddies, and writes of that time (RFC-29, extendible hashing)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import CommitConflictError, ConfigError
from bucketlake.format.json_fields import parse_checked
from bucketlake.hashing.directory import Directory, Suffix, first_directory, hash_directory_keys
from bucketlake.index.ring_engine import EXTENDIBLE
from bucketlake.index.stored_setting import SETTING_FILE
from bucketlake.model.file_slice import FileSlice
from bucketlake.services.resize.candidates import Candidate, candidates_of_directory, split_ends
from bucketlake.services.resize.service import ResizeLimits
from tests.hash_oracle import bucket_of
from tests.inside import storage_of
from tests.ring_tables import (
    MERGE_ALL,
    copies_of,
    is_pending,
    keyed,
    make_table,
    require_sound,
    ring_of,
    rows,
    timeline_of,
    values,
)
from tests.tables.test_resize_plans import slices_of

EXECUTE = {"max_file_size": 1 << 40, "merge_threshold": 0.0}
LIMITS = ResizeLimits(max_file_size=100, split_threshold=2.0, merge_threshold=0.5)
WHOLE = Suffix(0, 0)


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(new_path: Callable[[], str], table_type: str) -> bl.Table:
    """A table of 80 rows in partitions a and b, with two buckets each."""
    made = make_table(new_path(), bl.ExtendibleBucket(2, max_depth=6), table_type=table_type)
    made.upsert(rows(range(80), days="ab"))
    return made


def suffixes_of(table: bl.Table, partition: str = "a") -> list[str]:
    directory = ring_of(table, partition)
    assert isinstance(directory, Directory)
    return [suffix.text for suffix in directory.suffixes]


def candidates(
    directory: Directory, sizes: Sequence[int | None], *keys: int, depth_max: int = 20
) -> list[Candidate]:
    """Return what is planned for buckets of these sizes, whose keys are at these places."""

    def positions_of(file_slice: FileSlice) -> np.ndarray:
        at = directory.prefixes.index(file_slice.file_id.removesuffix("-0"))
        suffix = directory.suffixes[at]
        return np.array([k for k in sorted(keys) if suffix.start <= k <= suffix.end], np.int32)

    return [
        *candidates_of_directory(
            "a",
            directory,
            slices_of(directory, sizes),
            LIMITS,
            depth_max=depth_max,
            positions_of=positions_of,
        )
    ]


# ---- What is planned ----------------------------------------------------------------------------


def test_a_large_bucket_is_split_until_its_parts_are_small() -> None:
    """Of 64 keys, the quarter 00 has most; each key takes 10 bytes, and a bucket at most 200."""
    quarter = Suffix(0b00, 2)
    many = np.linspace(quarter.start, quarter.end, 54).astype(np.int32)
    rest = [Suffix(value, 2).end for value in (1, 2, 3)] + [
        Suffix(1, 1).start + n for n in range(7)
    ]
    positions = np.sort(np.concatenate([many, np.array(rest, np.int32)]))
    ends = split_ends(WHOLE, positions, 640, 200, depth_max=20)
    found = Directory.of({end: f"n{end}" for end in ends})
    assert [suffix.text for suffix in found.suffixes] == ["0000", "1000", "0100", "1100", "10", "1"]


def test_a_split_ends_at_the_greatest_depth() -> None:
    positions = np.arange(40, dtype=np.int32)  # Their first 25 bits are equal.
    assert len(split_ends(WHOLE, positions, 400, 100, depth_max=3)) == 4
    assert [len(split_ends(WHOLE, positions, 400, 100, depth_max=d)) for d in (0, 1)] == [1, 2]


@pytest.mark.parametrize("positions", [[], [5] * 9])
def test_a_bucket_whose_keys_have_one_hash_is_not_split(positions: list[int]) -> None:
    assert split_ends(WHOLE, np.array(positions, np.int32), 900, 100, depth_max=20) == [WHOLE.end]


def test_large_buckets_are_split_and_small_buddies_are_merged() -> None:
    directory = first_directory("a", 8)  # 000 100 010 110 001 101 011 111
    spread = [*range(0, 1 << 31, 1 << 24)]
    found = candidates(directory, [25, 25, 25, 26, 300, 10, 10, 900], *spread)
    splits = [one for one in found if one.is_split]
    assert [one.values for one in splits] == [(Suffix(7, 3).end,), (Suffix(1, 3).end,)]
    assert [len(one.new_values) for one in splits] == [8, 2]
    assert [one.values for one in found if not one.is_split] == [
        (Suffix(0, 3).end, Suffix(4, 3).end)
    ]


def test_only_buddies_with_a_file_group_each_are_merged() -> None:
    directory = Directory.of_suffixes(
        {Suffix(0, 1): "a", Suffix(1, 2): "b", Suffix(3, 3): "c", Suffix(7, 3): "d"}
    )
    assert [one.values for one in candidates(directory, [1, 1, 1, 1])] == [
        (Suffix(3, 3).end, Suffix(7, 3).end)
    ]
    assert candidates(directory, [1, 1, 1, None]) == []


def test_a_merge_across_the_middle_of_two_pairs_is_not_planned() -> None:
    directory = first_directory("a", 4)
    found = candidates(directory, [None, 1, 1, None])
    assert found == [], "10 and 01 are neighbours, but no buddies"


# ---- What is done -------------------------------------------------------------------------------


def test_a_split_and_merges_lead_through_directories_that_hold_each_key_once(
    table: bl.Table,
) -> None:
    assert suffixes_of(table) == ["0", "1"]
    report = table.resize(max_file_size=3_000, split_threshold=1.0, merge_threshold=0.0)
    assert {found.action for found in report.buckets} == {"split"}
    assert {found.old_suffixes for found in report.buckets} == {("0",), ("1",)}
    assert {found.old_ranges for found in report.buckets} == {()}
    assert {len(text) for text in suffixes_of(table)} >= {3}, "parts are split again"
    of_a = [text for found in report.buckets if found.partition_path == "a"
            for text in found.new_suffixes]  # fmt: skip
    assert sorted(of_a) == sorted(suffixes_of(table))
    assert values(table) == keyed(range(80))
    require_sound(table)
    for bucket in table.buckets():
        assert bucket.hash_suffix is not None
        assert bucket.hash_range is None
        known = suffixes_of(table, bucket.partition_path)
        assert known[bucket.bucket_id or 0] == bucket.hash_suffix
    for number in range(0, 80, 7):
        [at] = table.locate(f"k{number}")
        suffix = suffixes_of(table, at.partition_path)[at.bucket_id or 0]
        assert bucket_of(f"k{number}", 1 << len(suffix)) == int(suffix, 2)
        found = table.explain(where=f"id = 'k{number}' AND day = '{at.partition_path}'")
        assert (found.file_groups_kept, found.bucket_ids) == (1, (at.bucket_id,))
        assert values(table, where=f"id = 'k{number}'") == keyed([number])
    rounds = 0
    while table.resize(**MERGE_ALL).buckets:
        rounds += 1
        assert values(table) == keyed(range(80))
    assert rounds >= 3
    assert (suffixes_of(table, "a"), suffixes_of(table, "b")) == (["*"], ["*"])
    require_sound(table)


def test_writes_during_a_resize_are_read_before_and_after_it(table: bl.Table) -> None:
    plan = table.resize(
        max_file_size=3_000, split_threshold=1.0, merge_threshold=0.0, schedule_only=True
    )
    assert plan.scheduled is not None
    table.upsert(rows(range(40, 100), 1, days="ab"))
    table.delete(rows(range(10), days="ab").select(["id", "day"]))
    expected = keyed(range(10, 40)) | keyed(range(40, 100), 1)
    assert values(table) == expected
    is_served = table.config().table_type.value == "MERGE_ON_READ"
    assert bool(copies_of(table, plan.scheduled)) is is_served
    report = table.resize(**EXECUTE)
    assert (plan.scheduled in report.instants) is is_served
    assert not is_pending(table, plan.scheduled)
    assert values(table) == expected
    require_sound(table)


def test_a_plan_that_is_rolled_back_leaves_the_directory_as_it_was(table: bl.Table) -> None:
    before = suffixes_of(table)
    plan = table.resize(max_file_size=1, merge_threshold=0.0, schedule_only=True)
    assert plan.scheduled is not None
    table.upsert(rows(range(70, 90), 1, days="ab"))
    table.rollback(plan.scheduled)
    assert suffixes_of(table) == before
    assert values(table) == keyed(range(70)) | keyed(range(70, 90), 1)
    assert copies_of(table, plan.scheduled) == []
    table.upsert(rows(range(60, 80), 2, days="ab"))
    assert values(table) == keyed(range(60)) | keyed(range(60, 80), 2) | keyed(range(80, 90), 1)


def test_a_resize_that_is_undone_gives_the_directory_of_before(table: bl.Table) -> None:
    before = suffixes_of(table)
    [resize] = table.resize(max_file_size=1, merge_threshold=0.0).instants
    assert suffixes_of(table) != before
    table.rollback(resize)
    assert suffixes_of(table) == before
    assert values(table) == keyed(range(80))
    require_sound(table)


def test_an_overwrite_keeps_the_directory_and_replaces_its_file_groups(table: bl.Table) -> None:
    table.resize(max_file_size=3_000, split_threshold=1.0, merge_threshold=0.0)
    before = suffixes_of(table), set(ring_of(table).prefixes)
    table.insert_overwrite(rows(range(0, 40, 2), 5, days="a"))
    assert suffixes_of(table) == before[0]
    assert before[1].isdisjoint(ring_of(table).prefixes)
    expected = keyed(range(1, 80, 2)) | keyed(range(0, 40, 2), 5)
    assert values(table) == expected
    require_sound(table)


def test_time_travel_finds_the_directory_of_its_time(table: bl.Table) -> None:
    [first] = [commit.requested_at for commit in timeline_of(table).completed_commits()]
    table.resize(max_file_size=1, merge_threshold=0.0)
    table.upsert(rows(range(80), 1, days="ab"))
    assert values(table, as_of=first, where="id = 'k5'") == keyed([5])
    assert values(table, where="id = 'k5'") == keyed([5], 1)


def test_no_bucket_is_split_beyond_the_greatest_depth(new_path: Callable[[], str]) -> None:
    table = make_table(new_path(), bl.ExtendibleBucket(1, max_depth=2))
    table.upsert(rows(range(40)))
    table.resize(max_file_size=1, merge_threshold=0.0)
    assert suffixes_of(table) == ["00", "10", "01", "11"]
    assert table.resize(max_file_size=1, merge_threshold=0.0).buckets == ()


@pytest.mark.parametrize("option", [{"split_into": 3}, {"split_at": "balanced"}])
def test_a_split_other_than_in_halves_is_an_error(
    table: bl.Table, option: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match="split in halves: leave"):
        table.resize(**option, dry_run=True)  # type: ignore[arg-type]


# ---- What is stored -----------------------------------------------------------------------------


def test_the_engine_is_recorded_and_a_plan_names_no_class_of_hudi(table: bl.Table) -> None:
    storage = storage_of(table)
    assert parse_checked(storage.read(SETTING_FILE), SETTING_FILE) == {
        "version": 1,
        "index": {
            "engine": "EXTENDIBLE_HASHING",
            "bucketCount": 2,
            "maxDepth": 6,
            "hashFields": [],
        },
        "hasVersions": False,
    }
    plan = table.resize(max_file_size=1, merge_threshold=0.0, schedule_only=True)
    timeline = timeline_of(table)
    [pending] = timeline.pending_clusterings()
    held = timeline.read_clustering_plan(storage, pending)
    assert held.strategy_class == "", "Hudi would execute a plan with a class"
    assert held.extra == {"bucket.index.ext.engine": "EXTENDIBLE_HASHING"}
    assert held.groups[0].resize is not None
    children = json.loads(held.groups[0].resize.child_nodes)
    assert {*children[0]} == {"suffix", "localDepth", "fileIdPrefix", "tag"}
    table.resize(**EXECUTE)
    timeline = timeline_of(table)
    engines = {
        done.requested_at: timeline.read_commit(storage, done).extra.get("bucket.index.ext.engine")
        for done in timeline.completed_commits()
    }
    assert set(engines.values()) == {"EXTENDIBLE_HASHING"}
    assert plan.scheduled in engines


def test_a_version_is_a_file_beside_a_marker_and_file_ids_are_no_bucket_numbers(
    table: bl.Table,
) -> None:
    [resize] = table.resize(max_file_size=1, merge_threshold=0.0).instants
    folder = f"{EXTENDIBLE.folder}/a/"
    names = {found.path.removeprefix(folder) for found in storage_of(table).list(folder[:-1])}
    assert {f"{resize}.extendible_meta", f"{resize}.commit"} < names
    for bucket in table.buckets():
        assert set("abcdef") & set(bucket.file_id[:8]), bucket.file_id


def test_writers_with_another_number_of_buckets_find_the_first_directory(
    new_path: Callable[[], str],
) -> None:
    table = make_table(new_path(), bl.ExtendibleBucket(2))
    table.upsert(rows(range(4)))
    source = table.index.bound(storage_of(table), timeline_of(table)).layout()  # type: ignore[union-attr]
    other = bl.ExtendibleBucket(4).bound(storage_of(table), timeline_of(table)).layout()
    assert len(other.state("a").ring) == len(source.state("a").ring) == 2
    empty = bl.ExtendibleBucket(8).bound(storage_of(table), timeline_of(table)).layout()
    raced = bl.ExtendibleBucket(4).bound(storage_of(table), timeline_of(table)).layout()
    raced.state("new")  # Not stored yet.
    empty.pinned(["new"], creates=True)
    with pytest.raises(CommitConflictError, match="made the directory of partition 'new'"):
        raced.pinned(["new"], creates=True)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0,), "from 1 to"),
        ((5, 2), "from 1 to 4, for a max_depth of 2"),
        ((1 << 17,), "from 1 to 65536"),
        ((2, 31), "from 0 to 30"),
        ((2, -1), "from 0 to 30"),
        ((True,), "from 1 to"),
        ((2, 3, ["a", "a"]), "name each field once"),
    ],
)
def test_settings_that_make_no_directory_are_an_error(
    arguments: tuple[object, ...], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        bl.ExtendibleBucket(*arguments)  # type: ignore[arg-type]


def test_a_number_of_buckets_is_rounded_up_to_a_power_of_two(new_path: Callable[[], str]) -> None:
    table = make_table(new_path(), bl.ExtendibleBucket(3))
    table.upsert(rows(range(40)))
    assert suffixes_of(table) == ["00", "10", "01", "11"]
    positions = hash_directory_keys(pa.array([f"k{n}" for n in range(40)]))
    assert len(set(ring_of(table).locate(positions).tolist())) == 4
