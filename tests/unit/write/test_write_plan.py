"""How slots are spread over tasks, and cut into parts where one task would hold too much."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.index.layout import SlotPlan
from bucketlake.index.partition import PartitionBucket
from bucketlake.index.setting import TableIndex
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.table_type import Operation
from bucketlake.write.tag import UNCOUNTED, TaggedRecords
from bucketlake.write.write_plan import (
    NO_TASK,
    RECORD_SIZE_BYTES_ESTIMATE,
    RECORDS_PER_TASK_MAX,
    Placement,
    WritePlan,
    plan_write,
)
from tests.table_index import of_table

GROUP_BYTES = RECORDS_PER_TASK_MAX * RECORD_SIZE_BYTES_ESTIMATE
"""A file group that takes as many records as a task."""

GROUPED = SimpleBucket(4, max_file_size=GROUP_BYTES)


def plan(records: list[int], tasks_wanted: int) -> WritePlan:
    counts = {("p", bucket): n for bucket, n in enumerate(records)}
    index = SimpleBucket(max(1, len(records)))
    return plan_write(Operation.UPSERT, counts, [], index.layout(), tasks_wanted=tasks_wanted)


@given(st.integers(1, 300), st.integers(1, 400), st.integers(1, 20_000))
def test_groups_of_one_size_are_spread_so_that_no_task_has_two_more_than_another(
    groups: int, tasks_wanted: int, records: int
) -> None:
    made = plan([records] * groups, tasks_wanted)
    held = Counter(group.task for group in made.slots)
    assert set(held) == set(range(made.task_count))
    assert max(held.values()) - min(held.values()) <= 1
    assert made.task_count >= min(groups, tasks_wanted)


def test_a_task_holds_few_records_unless_they_are_of_one_group() -> None:
    many = plan([RECORDS_PER_TASK_MAX // 2] * 32, 4)
    held = Counter[int]()
    for group in many.slots:
        held[group.task] += group.records
    assert many.task_count == 16
    assert max(held.values()) <= RECORDS_PER_TASK_MAX
    assert plan([10 * RECORDS_PER_TASK_MAX, 1], 1).task_count == 2


def test_the_heaviest_groups_do_not_share_a_task() -> None:
    made = plan([9_000, 8_000, 100, 100, 100, 100], 2)
    tasks = [group.task for group in made.slots]
    assert tasks[0] != tasks[1]


def test_a_plan_without_groups_has_one_task() -> None:
    assert plan([], 8).task_count == 1


def slice_of_bucket(bucket: int, partition: str = "p") -> FileSlice:
    file_id, instant = FileId(f"{bucket:08d}-0000-8abc-9abc-0123456789ab-0"), InstantTime("2" * 17)
    name = BaseFileName(file_id, "1-0-1", instant)
    return FileSlice(partition, file_id, instant, DataFile(partition, name, 10))


def parts_of(
    index: TableIndex,
    records: int,
    operation: Operation = Operation.UPSERT,
    slices: Sequence[FileSlice] = (),
) -> int:
    """Return the number of parts that bucket 1 is cut into."""
    made = plan_write(operation, {("p", 1): records}, slices, index.layout(), tasks_wanted=1)
    assert [slot.number for slot in made.slots] == [*range(len(made.slots))]
    if records != UNCOUNTED:
        assert sum(slot.records for slot in made.slots) == records
        assert max(slot.records for slot in made.slots) <= 1 + records // len(made.slots)
    assert [slot.part for slot in made.slots] == [*range(len(made.slots))]
    assert {slot.part_count for slot in made.slots} == {len(made.slots)}
    return len(made.slots)


def test_an_empty_bucket_is_cut_so_that_each_part_fills_a_task_and_a_file_group() -> None:
    many = 4 * RECORDS_PER_TASK_MAX
    assert parts_of(GROUPED, many) == 4
    assert parts_of(GROUPED, many - 1) == 3
    assert parts_of(GROUPED, RECORDS_PER_TASK_MAX) == 1
    tiny_groups = SimpleBucket(4, max_file_size=10)
    assert parts_of(tiny_groups, many) == 4
    large_groups = PartitionBucket({"x": 1}, 4, max_file_size=2 * GROUP_BYTES)
    assert parts_of(large_groups, many) == 2


def test_a_bucket_that_holds_rows_or_has_one_group_or_was_not_counted_is_not_cut() -> None:
    many, held = 4 * RECORDS_PER_TASK_MAX, [slice_of_bucket(1)]
    assert parts_of(GROUPED, many, slices=held) == 1
    assert parts_of(GROUPED, many, slices=[slice_of_bucket(2)]) == 4
    assert parts_of(GROUPED, many, Operation.INSERT_OVERWRITE, held) == 4
    assert parts_of(SimpleBucket(4), many) == 1
    assert parts_of(GROUPED, UNCOUNTED) == 1


def test_the_parts_of_a_bucket_are_written_by_different_tasks() -> None:
    counts = {("p", 0): 10, ("p", 1): 4 * RECORDS_PER_TASK_MAX, ("q", 0): 10}
    made = plan_write(Operation.UPSERT, counts, [], GROUPED.layout(), tasks_wanted=2)
    assert len({slot.task for slot in made.slots if slot.part_count == 4}) == 4
    assert {slot.task for slot in made.slots} == {*range(made.task_count)}


def slots_in_parts(counts: Sequence[int]) -> list[SlotPlan]:
    """Return slots 0, 1 … of a partition, cut into these numbers of parts."""
    parts = [(slot, i, count) for slot, count in enumerate(counts) for i in range(count)]
    return [
        SlotPlan("p", slot, (), 0, number, task=number, part=part, part_count=count)
        for number, (slot, part, count) in enumerate(parts)
    ]


@given(
    st.lists(st.tuples(st.text(max_size=4), st.integers(0, 4)), max_size=40),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.data(),
)
def test_every_key_is_in_one_part_of_its_slot_whichever_parts_a_task_has(
    records: list[tuple[str, int]], counts: list[int], data: st.DataObject
) -> None:
    slots = slots_in_parts(counts)
    keys = pa.array([key for key, _ in records], pa.string())
    wanted = np.array([slot for _, slot in records], np.int32)
    tagged = TaggedRecords(keys, ["p"], np.zeros(len(keys), np.int32), wanted)
    placement = Placement.of_slots(slots)
    tasks = placement.tasks_of(placement.positions(tagged)).tolist()
    for (key, slot), task in zip(records, tasks, strict=True):
        assert (task == NO_TASK) is (slot >= len(counts))
        assert task == NO_TASK or slots[task].slot == slot
        assert task == tasks[records.index((key, slot))]
    held = data.draw(st.lists(st.sampled_from(slots), unique_by=lambda slot: slot.number))
    held.sort(key=lambda slot: slot.number)
    numbers = [slot.number for slot in held]
    positions = Placement.of_slots(held).positions(tagged).tolist()
    found = [NO_TASK if position == NO_TASK else numbers[position] for position in positions]
    assert found == [task if task in numbers else NO_TASK for task in tasks]


@pytest.mark.parametrize("buckets", [1, 8])
@pytest.mark.parametrize("count", [2, 3, 16])
def test_the_parts_of_a_bucket_are_even(buckets: int, count: int) -> None:
    keys = pa.array([f"order-{n:06d}" for n in range(50_000)])
    layout = of_table(SimpleBucket(buckets)).layout()
    codes = np.zeros(len(keys), np.int32)
    tagged = TaggedRecords(keys, ["p"], codes, layout.slots_of_keys(keys, ["p"], codes))
    placement = Placement.of_slots(slots_in_parts([count]))
    tasks = placement.tasks_of(placement.positions(tagged))
    held = np.bincount(tasks[tasks != NO_TASK], minlength=count)
    assert held.min() > 0.8 * held.mean()
    assert held.max() < 1.2 * held.mean()


def test_a_plan_with_parts_names_each_of_them_once() -> None:
    first, second = slots_in_parts([2])
    for wrong in ([first, first], [second, first]):
        with pytest.raises(AssertionError, match="in order"):
            Placement.of_slots(wrong)


def test_records_that_are_tagged_for_four_shards_find_the_one_of_a_small_partition() -> None:
    keys = pa.array([f"k{n}" for n in range(400)])
    codes = np.arange(len(keys), dtype=np.int32) % 3
    tagged = TaggedRecords(keys, ["one", "four", "gone"], codes, shards_of_keys(keys, 4))
    counts = {"one": 1, "four": 4}
    slots = [("four", 0), ("four", 1), ("four", 2), ("four", 3), ("one", 0)]
    planned = [SlotPlan(*slot, (), 1, number) for number, slot in enumerate(slots)]
    placement = replace(Placement.of_slots(planned), shard_counts=counts)
    assert pickle.loads(pickle.dumps(placement)).shard_counts == counts
    found = placement.positions(tagged)
    assert {*found[codes == 2].tolist()} == {NO_TASK}
    for path, own in (("one", codes == 0), ("four", codes == 1)):
        shards = shards_of_keys(keys.filter(pa.array(own)), counts[path]).tolist()
        assert [slots[number] for number in found[own].tolist()] == [(path, n) for n in shards]
