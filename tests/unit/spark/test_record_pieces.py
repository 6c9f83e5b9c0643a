"""Rows packed for a shuffle come out as they went in, each at its task."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.spark import record_pieces
from bucketlake.spark.record_pieces import PIECE_BYTES_MAX, chunks, pack, unpack
from tests.bounds import set_bounds


def some_rows(count: int) -> pa.Table:
    number = range(count)
    return pa.table(
        {
            "n": pa.array(number, pa.int64()),
            "text": [None if i % 7 == 3 else f"t{i}" for i in number],
            "flag": [i % 3 == 0 for i in number],
            "list": [[{"x": i}] * (i % 3) for i in number],
        }
    )


def by_task(tasks: np.ndarray, packed: pa.BinaryArray) -> dict[int, pa.Table]:
    found = defaultdict(list)
    for task, piece in zip(tasks.tolist(), range(len(packed)), strict=True):
        found[task] += unpack(packed[piece])
    return {task: pa.Table.from_batches(batches) for task, batches in found.items()}


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(0, 20))
def test_each_task_gets_its_rows_in_their_order(tasks: list[int], cut: int) -> None:
    rows = some_rows(len(tasks))
    rows = pa.concat_tables([rows.slice(0, cut), rows.slice(cut)])
    numbers = np.sort(np.array(tasks, np.int32))
    found = by_task(*pack(rows, numbers))
    expected = {task: rows.filter(pa.array(numbers == task)) for task in sorted({*tasks})}
    assert {task: table.to_pylist() for task, table in found.items()} == {
        task: table.to_pylist() for task, table in expected.items()
    }


def test_pieces_stay_short_even_where_rows_are_long() -> None:
    rows = pa.table({"n": range(40), "text": ["x" * (PIECE_BYTES_MAX // 4)] * 40})
    tasks, packed = pack(rows, np.zeros(40, np.int32))
    assert max(len(piece.as_buffer()) for piece in packed) <= PIECE_BYTES_MAX * 1.1
    assert by_task(tasks, packed)[0].equals(rows)


def test_a_row_longer_than_a_piece_is_a_piece_of_its_own() -> None:
    rows = pa.table({"text": ["x" * (2 * PIECE_BYTES_MAX)] * 2})
    tasks, packed = pack(rows, np.zeros(2, np.int32))
    assert len(packed) == 2
    assert by_task(tasks, packed)[0].equals(rows)


def test_batches_are_put_together_up_to_a_number_of_rows_or_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_bounds(monkeypatch, record_pieces, PIECE_ROWS=10, CHUNK_BYTES=1000)
    short = pa.record_batch({"n": range(4)})
    wide = pa.record_batch({"text": ["x" * 1000]})
    assert [table.num_rows for table in chunks([short] * 7)] == [12, 12, 4]
    assert [table.num_rows for table in chunks([wide] * 3)] == [1, 1, 1]
    assert list(chunks([])) == []
    assert list(chunks([short.slice(0, 0)])) == []
