"""Encodings, statistics and row groups, by the rows alone."""

from __future__ import annotations

import pyarrow as pa

from bucketlake.format.parquet_layout import (
    ROW_GROUP_BYTES_MAX,
    ROW_GROUP_ROWS_MAX,
    choose_layout,
    row_group_rows,
)
from bucketlake.model.column_type import TIMESTAMP, list_of, map_of
from bucketlake.model.schema import COMMIT_SEQNO, RECORD_KEY

N = 400


def sample() -> pa.Table:
    few, many = [f"v{i % 3}" for i in range(N)], [f"v{i}" for i in range(N)]
    return pa.table(
        {
            COMMIT_SEQNO: pa.array(few),
            RECORD_KEY: pa.array(few),
            "few": pa.array(few),
            "many": pa.array(many),
            "number": pa.array(range(N), pa.int32()),
            "time": pa.array(range(N), pa.int64()).cast(TIMESTAMP),
            "price": pa.array([i * 0.5 for i in range(N)]),
            "rate": pa.array([0.19] * N),
            "flag": pa.array([True] * N),
            "blob": pa.array([b"x"] * N),
            "tags": pa.array([few[:2]] * N, list_of(pa.string())),
            "scores": pa.array([[("k", i)] for i in range(N)], map_of(pa.int64())),
            "place": pa.array([{"city": "x", "no": i} for i in range(N)]),
        }
    )


def test_columns_that_repeat_get_a_dictionary_and_whole_numbers_deltas() -> None:
    layout = choose_layout(sample())
    assert set(layout.dictionary) == {
        "few", "rate", "blob", "tags.list.element", "scores.key_value.key", "place.city",
    }  # fmt: skip
    assert set(layout.encodings) == {"number", "time", "scores.key_value.value", "place.no"}
    assert set(layout.encodings.values()) == {"DELTA_BINARY_PACKED"}


def test_statistics_are_left_out_where_nobody_prunes_by_them() -> None:
    statistics = choose_layout(sample()).statistics
    assert RECORD_KEY in statistics
    assert {"few", "number", "time", "price", "place.no"} <= set(statistics)
    assert not {COMMIT_SEQNO, "blob"} & set(statistics)


def test_row_groups_are_bounded_in_rows_and_bytes() -> None:
    assert row_group_rows(sample()) == ROW_GROUP_ROWS_MAX
    wide = pa.table({"blob": pa.array(["x" * 10_000] * N)})
    assert row_group_rows(wide) == ROW_GROUP_BYTES_MAX // 10_004
    assert row_group_rows(pa.table({"blob": pa.array(["x" * 10**6] * 8)})) == 1024
    assert row_group_rows(wide.slice(0, 0)) >= 1
