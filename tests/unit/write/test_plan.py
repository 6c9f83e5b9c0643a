"""How file groups are spread over tasks."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bucketlake.index.simple import SimpleBucket
from bucketlake.model.table_type import Operation
from bucketlake.write.plan import RECORDS_PER_TASK_MAX, WritePlan, plan_write


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
