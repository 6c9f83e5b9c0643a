"""Null elements of arrays, and the warning about them."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest

from bucketlake.errors import NullElementWarning
from bucketlake.model.arrays import columns_with_null_elements, warn_of_null_elements


def test_null_elements_are_found_at_any_depth() -> None:
    data = pa.table(
        {
            "plain": pa.array([[1], [None]], pa.list_(pa.int32())),
            "deep": pa.array([[[1], [None]], None], pa.list_(pa.list_(pa.int32()))),
            "field": pa.array([{"a": [None]}, None]),
            "map": pa.array([[("k", [None])], []], pa.map_(pa.string(), pa.list_(pa.int32()))),
            "none": pa.array([None, []], pa.list_(pa.int32())),
            "scalar": [None, 1],
        }
    )
    assert columns_with_null_elements(data) == ["plain", "deep[]", "field.a", "map{}"]


def test_null_elements_outside_a_slice_do_not_count() -> None:
    data = pa.table({"a": pa.array([[None], [1]], pa.list_(pa.int32()))})
    assert columns_with_null_elements(data.slice(1)) == []
    assert columns_with_null_elements(data.slice(0, 1)) == ["a"]


def test_warning_names_the_column_and_the_setting() -> None:
    with pytest.warns(NullElementWarning, match=r"column a\[\] .*write-old-list-structure=false"):
        warn_of_null_elements(["a[]"], "orders")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_null_elements([], "orders")
