"""Rows are sorted once on their way to tasks, and cut there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.flow import stage
from bucketlake.flow.stage import NO_TASK, NumberedRows, in_task_order
from bucketlake.model.arrays import number_order
from tests.spies import forbid

SENT = st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 5)), max_size=60)


@given(SENT, st.sampled_from([1, 70_000, 2**33]), st.integers(1, 9))
def test_tasks_get_their_rows_by_number_in_the_order_of_arrival(
    sent: list[tuple[int, int]], scale: int, parts: int
) -> None:
    tasks = np.array([task for task, _ in sent], np.int32)
    numbers = np.array([number for _, number in sent], np.int64) * scale
    rows = pa.table({"at": range(len(sent)), "number": numbers})
    pieces = [rows.slice(start, parts) for start in range(0, len(rows), parts)]
    routed = [
        in_task_order(tasks[start : start + parts], piece["number"].to_numpy(), piece)
        for start, piece in zip(range(0, len(rows), parts), pieces, strict=True)
    ]
    for task in range(4):
        received = [rows.slice(0, 0)]
        for found, table in routed:
            assert (np.diff(found) >= 0).all()
            received.append(table.filter(pa.array(found == task)))
        numbered = NumberedRows.of(pa.concat_tables(received), "number")
        for number in range(6):
            own = numbered.take(number * scale)
            expected = [i for i, pair in enumerate(sent) if pair == (task, number)]
            assert own["at"].to_pylist() == expected
            assert own["at"].num_chunks <= 1
    kept = sum(len(table) for _, table in routed)
    assert kept == sum(task != NO_TASK for task, _ in sent)


def test_rows_in_long_runs_are_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch, stage, "number_order")
    numbers = np.repeat([3, 1, 3], 1000)
    numbered = NumberedRows.of(pa.table({"n": numbers, "at": range(3000)}), "n")
    assert numbered.take(3)["at"].to_pylist() == [*range(1000), *range(2000, 3000)]
    assert len(numbered.take(2)) == 0


@given(st.lists(st.integers(0, 2**40)))
def test_order_of_numbers_is_that_of_a_stable_sort(numbers: list[int]) -> None:
    given_numbers = np.array(numbers, np.int64)
    expected = sorted(range(len(numbers)), key=numbers.__getitem__)
    assert number_order(given_numbers).tolist() == expected
