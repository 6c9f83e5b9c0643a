"""Where the new keys of a write go: plans of file groups, cuts, and the tasks of shards."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.flow.stage import spread
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.index.groups_for_new_keys import OwnBuckets, SmallGroups
from bucketlake.index.layout import SlotPlan
from bucketlake.metadata.record_index.shards import IndexShards, Shard
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.write import write_plan
from bucketlake.write.record_index.group_plan import (
    GroupPlanner,
    dead_groups,
    weight_of_rows,
)
from bucketlake.write.record_index.index_writer import removed_shards
from bucketlake.write.record_index.locate import LOOKUP, PLACE, RANK, LookupResult, Routes
from bucketlake.write.record_index.lookups import LookupPlacement, plan_lookups
from bucketlake.write.tag import TaggedRecords
from bucketlake.write.write_plan import RECORD_SIZE_BYTES_ESTIMATE, WritePlan, weight_of

INSTANT = InstantTime("20240101120000000")
LIMITS = SmallGroups(1_000, 800)
ROW_BYTES = 10.0


def _stored(shard: Shard) -> FileSlice:
    return FileSlice("record_index", shard.file_id, InstantTime(""), None)


def live(*groups: tuple[str, str, int]) -> dict[tuple[str, FileId], FileSlice]:
    """Return live slices by group; of each its partition, file id and size."""
    found = {}
    for path, name, size in groups:
        file_id = FileId(name)
        base = DataFile(path, BaseFileName(file_id, "1-0-1", INSTANT), size)
        found[path, file_id] = FileSlice(path, file_id, INSTANT, base)
    return found


class Lookups(NamedTuple):
    lookups: list[SlotPlan]
    placement: LookupPlacement


def lookup_plan(counts: dict[str, int], shards: IndexShards) -> Lookups:
    return Lookups(*plan_lookups(counts, shards, {}, tasks_wanted=4))


class Planned(NamedTuple):
    write: WritePlan
    routes: Routes


def result(number: int, new: dict[int, int] | None = None, **groups: Any) -> LookupResult:
    """Return what a lookup found: new keys by partition, and records by group ``partition__id``."""
    held = tuple((*name.split("__"), count) for name, count in groups.items())
    total = sum(groups.values()) + sum((new or {}).values())
    return LookupResult(number, total, held, tuple((new or {}).items()), 0, 0)  # type: ignore[arg-type]


def plan(
    planned: Lookups,
    found: list[LookupResult],
    held: dict[tuple[str, FileId], FileSlice],
    shards: IndexShards,
    **settings: Any,
) -> Planned:
    defaults: dict[str, Any] = {
        "stored": {},
        "removal": (),
        "instant": INSTANT,
        "tasks_wanted": 4,
        "used": lambda _: (),
        "filling": LIMITS,
        "row_bytes": ROW_BYTES,
        "rows_of": lambda _: 0,
        "replaced": {},
    }
    fixed = {"lookups": planned.lookups, "partitions": planned.placement.partitions}
    fixed |= {"found": found, "live": held, "shards": shards}
    return Planned(*GroupPlanner(**(defaults | settings | fixed)).plan())


def slots_of(planned: Planned, lookup: int, place: int, ranks: list[int]) -> list[int]:
    count = len(ranks)
    located = pa.table(
        {
            LOOKUP: pa.array([lookup] * count, pa.int32()),
            PLACE: pa.array([place] * count, pa.int32()),
            RANK: pa.array(ranks, pa.int32()),
        }
    )
    return planned.routes.slots(located).tolist()


def test_new_keys_fill_small_groups_with_updates_first_and_then_new_groups() -> None:
    held = live(("p", "with", 600), ("p", "without", 700), ("p", "large", 900), ("q", "other", 1))
    shards = IndexShards(None, {"p": 1})
    lookups = lookup_plan({"p": 260}, shards)
    planned = plan(lookups, [result(0, {0: 250}, p__with=10)], held, shards)
    records = {
        slot.slices[0].file_id if slot.slices else slot.slot: slot.records
        for slot in planned.write.slots
    }
    # 40 rows fit into the group with updates, 30 into the other one, 100 into each new group.
    assert records == {"with": 50, "without": 30, 0: 100, 1: 80}
    assert slots_of(planned, 0, -1, [0, 39, 40, 69, 70, 169, 170, 249]) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert slots_of(planned, 0, 0, [-1]) == [0]


def slots_by_group(planned: Planned) -> dict[str, tuple[int, int]]:
    """Return number and records of each slot, by stored group, or by the number of a new one."""
    return {
        slot.slices[0].file_id if slot.slices else f"new {slot.slot}": (slot.slot, slot.records)
        for slot in planned.write.slots
    }


def test_slots_of_stored_groups_have_the_numbers_after_those_of_new_groups() -> None:
    """The number of a new group makes its id, so each partition counts from 0."""
    held = live(("p", "a", 990), ("p", "b", 990), ("q", "c", 990))
    shards = IndexShards(None, {"p": 1, "q": 1})
    lookups = lookup_plan({"p": 200, "q": 3}, shards)
    found = [result(0, {0: 101}, p__a=1, p__b=2), result(1, q__c=3)]
    planned = plan(lookups, found, held, shards)
    assert slots_by_group(planned) == {
        "a": (2, 1),
        "b": (3, 2),
        "new 0": (0, 100),
        "new 1": (1, 1),
        "c": (0, 3),
    }
    assert [slot.number for slot in planned.write.slots] == [0, 1, 2, 3, 4]
    assert slots_of(planned, 0, 1, [-1]) == [1]
    assert slots_of(planned, 1, 0, [-1]) == [4]


def test_records_of_one_group_add_up_over_the_lookups_that_found_it() -> None:
    shards = IndexShards(None, {"p": 2})
    lookups = lookup_plan({"p": 9}, shards)
    found = [result(0, p__a=4, p__gone=0), result(1, p__a=5)]
    planned = plan(lookups, found, live(("p", "a", 990)), shards)
    assert slots_by_group(planned) == {"a": (0, 9)}
    assert slots_of(planned, 1, 0, [-1]) == [0]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (39, {"a": 39}),
        (40, {"a": 40}),
        (41, {"a": 40, "b": 1}),
        (42, {"a": 40, "b": 1, "new 0": 1}),
        (141, {"a": 40, "b": 1, "new 0": 100}),
        (142, {"a": 40, "b": 1, "new 0": 100, "new 1": 1}),
    ],
)
def test_no_group_is_written_that_gets_no_record(keys: int, expected: dict[str, int]) -> None:
    """The last free row of a group counts, and a group that is just full needs no other one."""
    held = live(("p", "a", 600), ("p", "b", 590), ("p", "full", 595))
    rooms = {"a": 40, "b": 1, "full": 0}
    filling = FixedRooms(1_000, 800, rooms)
    shards = IndexShards(None, {"p": 1})
    planned = plan(lookup_plan({"p": keys}, shards), [result(0, {0: keys})], held, shards,
                   filling=filling)  # fmt: skip
    assert {name: records for name, (_, records) in slots_by_group(planned).items()} == expected


@dataclass(frozen=True)
class FixedRooms(SmallGroups):
    """Small groups with given rooms."""

    rooms: dict[str, int]

    def room(self, held: FileSlice, row_bytes: float, rows_of: object) -> int:
        return self.rooms[held.file_id]


def bucket(number: int, name: str = "aaaa") -> FileId:
    return FileId(f"{number:08d}-{name}-4000-8000-000000000000-0")


def test_new_keys_of_a_shard_fill_its_own_buckets_by_their_rows_and_then_new_ones() -> None:
    """A bucket has the rows of its base file and, as an estimate, those of its log files."""
    held = live(*((path, bucket(n), 10) for path, n in (("p", 0), ("p", 1), ("q", 0))))
    rows = {("p", bucket(0)): 95, ("p", bucket(1)): 40, ("q", bucket(0)): 99}
    gone = {"p": [bucket(4), FileId("random-0")], "q": []}
    shards = IndexShards(None, {"p": 2, "q": 1})
    lookups = lookup_plan({"p": 99, "q": 99}, shards)
    found = [result(0, {0: 10}), result(1, {0: 61}), result(2, {1: 3})]
    filling = OwnBuckets(100, None)
    planned = plan(
        lookups, found, held, shards, filling=filling, used=gone.__getitem__,
        rows_of=lambda one: rows[one.partition_path, one.file_id],
        stored={path: [_stored(Shard(0, path))] for path in "pq"},
    )  # fmt: skip
    found_slots = {
        (slot.partition_path, slot.slices[0].file_id if slot.slices else slot.slot): slot.records
        for slot in planned.write.slots
    }
    assert found_slots == {
        ("p", bucket(0)): 5,
        ("p", 6): 5,  # Shard 0 had bucket 4.
        ("p", bucket(1)): 60,
        ("p", 3): 1,
        ("q", bucket(0)): 1,
        ("q", 1): 2,
    }
    groups = [group for shard in planned.write.shards for group in shard.groups.items()]
    assert len(groups) == 6
    for number, (path, file_id) in groups:
        slot = planned.write.slots[number]
        assert path == slot.partition_path
        if slot.slices:
            assert file_id == slot.slices[0].file_id
        else:
            assert file_id == filling.new_group_id(INSTANT, slot.partition_path, slot.slot)


def test_a_write_has_the_replaced_groups_and_spreads_slots_and_shards_over_tasks() -> None:
    shards = IndexShards(None, {"p": 2, "q": 2})
    replaced = {"p": (FileId("old"),)}
    lookups = lookup_plan({"p": 150, "q": 50}, shards)
    found = [result(0, {0: 100}), result(1, {0: 100}), result(2, {1: 10}), result(3, {1: 10})]
    planned = plan(lookups, found, {}, shards, replaced=replaced, tasks_wanted=2)
    assert planned.write.replaced == replaced
    weights = [weight_of(slot) for slot in planned.write.slots]
    weights += [(shard.new + shard.gone) * 16 for shard in planned.write.shards]
    tasks = [part.task for part in (*planned.write.slots, *planned.write.shards)]
    assert tasks == spread(weights, planned.write.task_count)
    assert len({*tasks}) == planned.write.task_count > 1


def test_new_and_gone_keys_of_a_shard_add_up_over_its_lookups() -> None:
    shards = IndexShards(None, {"p": 1})
    one = lookup_plan({"p": 9}, shards)
    (only,) = one.lookups
    twice = one._replace(lookups=[only, replace(only, number=1)])
    found = [replace(result(0, {0: 3}), gone=2), replace(result(1, {0: 4}), gone=5)]
    planned = plan(twice, found, {}, shards)
    [shard] = planned.write.shards
    assert (shard.number, shard.new, shard.gone) == (0, 7, 7)
    assert planned.routes.shard_of_lookup.tolist() == [0, 0]
    with pytest.raises(ValueError, match="zip"):
        plan(twice, found[:1], {}, shards)


def test_a_global_index_opens_no_shards_with_a_new_partition() -> None:
    shards = IndexShards(3)
    lookups = lookup_plan({"p": 9}, shards)
    planned = plan(lookups, [result(0), result(1, {0: 2}), result(2)], {}, shards)
    assert [(shard.shard, shard.new, shard.opens) for shard in planned.write.shards] == [
        (Shard(1), 2, False)
    ]
    assert planned.routes.shard_of_lookup.tolist() == [-1, 0, -1]


def test_shards_of_replaced_partitions_are_planned_with_their_entries() -> None:
    shards = IndexShards(None, {"p": 1, "q": 2})
    stored = {
        path: [_stored(Shard(n, path)) for n in range(count)]
        for path, count in (("p", 1), ("q", 2))
    }
    lookups = lookup_plan({"p": 9}, shards)
    found = [result(0, {0: 3})]
    for partitions in (("q",), None):
        planned = plan(lookups, found, {}, shards, stored=stored, removal=partitions)
        of_p = () if partitions else None
        assert [
            (plan.number, plan.shard, plan.new, plan.stored, plan.replaced)
            for plan in planned.write.shards
        ] == [
            (0, Shard(0, "p"), 3, None if partitions else stored["p"][0], of_p),
            (1, Shard(0, "q"), 0, stored["q"][0], partitions),
            (2, Shard(1, "q"), 0, stored["q"][1], partitions),
        ]


def test_bytes_of_a_stored_row_are_guessed_from_the_rows_in_memory() -> None:
    assert weight_of_rows(1_000, 4) == 125.0  # Half of the bytes in memory.
    assert weight_of_rows(3, 3) == 1.0
    assert weight_of_rows(0, 0) == RECORD_SIZE_BYTES_ESTIMATE


def test_the_new_keys_of_several_lookups_share_groups() -> None:
    shards = IndexShards(None, {"p": 3, "q": 1})
    lookups = lookup_plan({"p": 130, "q": 5}, shards)
    found = [result(0, {0: 60}), result(1, {0: 50}), result(2), result(3, {1: 5})]
    planned = plan(lookups, found, {}, shards)
    assert [(s.partition_path, s.slot, s.records) for s in planned.write.slots] == [
        ("p", 0, 100),
        ("p", 1, 10),
        ("q", 0, 5),
    ]
    assert slots_of(planned, 0, -1, [0, 59]) == [0, 0]
    assert slots_of(planned, 1, -1, [0, 39, 40, 49]) == [0, 0, 1, 1]
    assert slots_of(planned, 3, -2, [0, 4]) == [2, 2]


def test_each_shard_with_changed_keys_has_a_plan_and_new_partitions_open_all_theirs() -> None:
    shards = IndexShards(None, {"new": 2, "old": 2})
    stored = {"old": [_stored(Shard(n, "old")) for n in range(2)]}
    lookups = lookup_plan({"new": 4, "old": 4}, shards)
    found = [result(0, {0: 3}), result(1), result(2, {1: 2}), result(3, old__a=1)]
    planned = plan(lookups, found, live(("old", "a", 900)), shards, stored=stored)
    assert [(p.shard, p.new, p.opens) for p in planned.write.shards] == [
        (Shard(0, "new"), 3, True),
        (Shard(1, "new"), 0, True),
        (Shard(0, "old"), 2, False),
    ]
    assert planned.routes.shard_of_lookup.tolist() == [0, 1, 2, -1]
    ((slot, (path, _)),) = planned.write.shards[0].groups.items()
    assert (slot, path) == (0, "new")
    tasks = {slot.task for slot in planned.write.slots} | {p.task for p in planned.write.shards}
    assert max(tasks) < planned.write.task_count


def test_entries_of_replaced_partitions_are_removed_by_their_shards() -> None:
    partitioned = {path: [_stored(Shard(0, path))] for path in ("gone", "kept")}
    assert [s.data_partition for s, _ in removed_shards(("gone",), partitioned)] == ["gone"]
    assert [s.data_partition for s, _ in removed_shards(None, partitioned)] == ["gone", "kept"]
    assert list(removed_shards((), partitioned)) == []
    in_one = {None: [_stored(Shard(n)) for n in range(3)]}
    assert [s for s, _ in removed_shards(("gone",), in_one)] == [Shard(n) for n in range(3)]


def test_groups_of_entries_that_are_not_live_are_dead() -> None:
    found = [result(0, p__a=2, p__b=1), result(1, q__c=0)]
    assert dead_groups(found, live(("p", "a", 1))) == {("p", "b")}


@given(
    counts=st.dictionaries(st.sampled_from("abc"), st.integers(1, 60), min_size=1),
    shard_count=st.integers(1, 4),
    is_global=st.booleans(),
    records_max=st.integers(1, 20),
)
def test_every_key_belongs_to_the_lookup_of_its_shard_and_partition(
    counts: dict[str, int], shard_count: int, is_global: bool, records_max: int
) -> None:
    shards = (
        IndexShards(shard_count)
        if is_global
        else IndexShards(None, {path: shard_count + n for n, path in enumerate(sorted(counts))})
    )
    before = write_plan.RECORDS_PER_TASK_MAX
    write_plan.RECORDS_PER_TASK_MAX = records_max
    try:
        planned = lookup_plan(counts, shards)
    finally:
        write_plan.RECORDS_PER_TASK_MAX = before
    paths = sorted(counts)
    rows = [(path, f"k{path}{n}") for path in paths for n in range(counts[path])]
    codes = np.array([paths.index(path) for path, _ in rows], np.int32)
    keys = pa.array([key for _, key in rows])
    tagged = TaggedRecords(keys, paths, codes, np.zeros(len(rows), np.int32))
    numbers = planned.placement.numbers(tagged)
    for (path, key), number in zip(rows, numbers.tolist(), strict=True):
        lookup = planned.lookups[number]
        (shard,) = shards_of_keys(pa.array([key]), shards.count(path)).tolist()
        assert lookup.key == ("" if is_global else path, shard)
    parts = Counter((lookup.key, lookup.part) for lookup in planned.lookups)
    assert set(parts.values()) == {1}, "each part of a shard is looked up once"
    assert [lookup.number for lookup in planned.lookups] == list(range(len(planned.lookups)))
