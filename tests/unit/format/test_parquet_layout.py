"""Encodings, statistics and row groups, by the rows alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketlake.format.parquet_layout import (
    LARGE_ROWS_BYTES_MAX,
    ROW_GROUP_BYTES_MAX,
    ROW_GROUP_ROWS_MAX,
    choose_layout,
    fitting_rows,
    row_group_rows,
)
from bucketlake.model.column_type import TIMESTAMP, list_type, map_of
from bucketlake.model.schema import COMMIT_SEQNO, RECORD_KEY
from tests.spies import spy

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
            "tags": pa.array([few[:2]] * N, list_type(pa.string())),
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


def test_a_tiny_file_costs_no_look_at_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = spy(monkeypatch, pc, "count_distinct", lambda values: values)
    layout = choose_layout(sample().slice(0, 256))
    assert (layout.compression, layout.dictionary, asked) == ("snappy", (), [])
    assert layout.statistics == choose_layout(sample()).statistics
    for large in (sample().slice(0, 257), pa.table({"text": ["x" * 2**19] * 3})):
        assert choose_layout(large).compression == "zstd"


def test_statistics_are_left_out_where_nobody_prunes_by_them() -> None:
    statistics = choose_layout(sample()).statistics
    assert RECORD_KEY in statistics
    assert {"few", "number", "time", "price", "place.no"} <= set(statistics)
    assert not {COMMIT_SEQNO, "blob"} & set(statistics)


def test_row_groups_are_bounded_in_rows_and_bytes() -> None:
    assert row_group_rows(sample()) == ROW_GROUP_ROWS_MAX
    wide = pa.table({"text": pa.array(["x" * 1_000] * N)})
    assert row_group_rows(wide) == ROW_GROUP_BYTES_MAX // 1_004
    large = pa.table({"text": pa.array(["x" * 10_000] * (10 * N))})
    assert row_group_rows(large) == fitting_rows(large) == LARGE_ROWS_BYTES_MAX // 10_004
    assert row_group_rows(pa.table({"text": pa.array(["x" * 40 * 2**20])})) == 1
    assert row_group_rows(wide.slice(0, 0)) >= 1


@pytest.mark.parametrize("large_at", [0, 4_000, 10_000])
def test_large_rows_anywhere_end_a_row_group(large_at: int) -> None:
    sizes = np.full(12_000, 10)
    sizes[large_at : large_at + 100] = 2**20
    rows = pa.table({"text": pc.binary_repeat(pa.array(["x"] * len(sizes)), pa.array(sizes))})
    groups = []
    while rows.num_rows:
        groups.append(rows.slice(0, fitting_rows(rows)))
        rows = rows.slice(groups[-1].num_rows)
    assert max(group.nbytes for group in groups) <= LARGE_ROWS_BYTES_MAX
    assert len(groups) < 12


def test_texts_that_come_as_a_dictionary_have_the_same_layout() -> None:
    texts = pa.array([f"{number % 5}" * 9_000 for number in range(10 * N)])
    one, other = (pa.table({"text": held}) for held in (texts, texts.dictionary_encode()))
    assert fitting_rows(one) == fitting_rows(other) < 10 * N
    assert row_group_rows(one) == row_group_rows(other)
    assert choose_layout(one).dictionary == choose_layout(other).dictionary == ("text",)


@pytest.mark.parametrize("items", [10, 40])
def test_samples_are_bounded_by_values_and_bytes_however_long_the_lists_and_texts_are(
    items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = spy(monkeypatch, pc, "count_distinct", lambda values: values)
    lists = [[float(row + item) for item in range(items)] for row in range(1_000)]
    texts = [f"{row:05}" * 100 * items for row in range(1_000)]
    columns = [pa.array(lists), pa.array(texts), pa.array([b"x" * 2**17] * 1_000)]
    layout = choose_layout(pa.table(columns, ["vector", "text", "blob"]))
    assert not {"text", "blob"} & {*layout.dictionary}
    assert layout.write_batch_size * 2**17 <= 2**20
    assert [len(values) <= 4096 and values.nbytes <= 5 * 2**20 for values in asked] == [True] * 2


def test_items_that_zstd_does_not_shrink_are_not_compressed() -> None:
    rng = np.random.default_rng(3)
    noise, smooth = rng.random(200_000), np.arange(200_000.0) // 8
    offsets = pa.array(np.arange(0, 200_001, 100, dtype=np.int32))
    held = {name: pa.ListArray.from_arrays(offsets, each) for name, each in
            {"noise": noise, "smooth": smooth}.items()}  # fmt: skip
    layout = choose_layout(pa.table({**held, "price": noise[:2_000]}))
    assert layout.compression == {
        "noise.list.element": "none", "smooth.list.element": "zstd", "price": "zstd",
    }  # fmt: skip
    assert layout.compression_level == {"smooth.list.element": 1, "price": 1}


def test_texts_that_repeat_in_a_dictionary_count_with_their_whole_length() -> None:
    text = "x" * LARGE_ROWS_BYTES_MAX
    coded = pa.table({"text": pa.DictionaryArray.from_arrays(pa.array([0] * 4), pa.array([text]))})
    assert coded.nbytes < 2 * LARGE_ROWS_BYTES_MAX
    assert fitting_rows(coded) == fitting_rows(coded.cast(pa.schema({"text": pa.string()}))) == 1


def test_a_layout_is_found_again_for_other_rows_and_for_columns_without_statistics() -> None:
    first = choose_layout(sample())
    other = sample().set_column(3, "many", [["same"] * N])
    assert {*choose_layout(other).dictionary} == {*first.dictionary, "many"}
    assert {*choose_layout(sample(), frozenset(["price"])).statistics} == {
        *first.statistics
    } - {"price"}  # fmt: skip
    assert choose_layout(sample()) == first
