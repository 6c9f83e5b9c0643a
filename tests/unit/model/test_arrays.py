"""Values by their positions; null elements of arrays, and the warning about them."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import NullElementWarning
from bucketlake.model.arrays import columns_with_null_elements, taken, warn_of_null_elements

NUMBERS = st.one_of(st.none(), st.integers(0, 9))


@given(
    data=st.data(),
    length=st.integers(0, 3),
    is_ragged=st.booleans(),
    value_type=st.sampled_from([pa.int8(), pa.float32(), pa.bool_(), pa.string()]),
)
def test_lists_are_taken_as_arrow_takes_them(
    data: st.DataObject, length: int, is_ragged: bool, value_type: pa.DataType
) -> None:
    bounds = (0, 3) if is_ragged else (length, length)
    items = st.lists(NUMBERS, min_size=bounds[0], max_size=bounds[1])
    each = st.one_of(st.none(), items) if is_ragged else items
    lists = pa.array(data.draw(st.lists(each, min_size=3, max_size=9)), pa.list_(pa.int8()))
    lists = lists.cast(pa.list_(pa.field("item", value_type)))
    lists = lists.slice(data.draw(st.integers(0, 2)))
    indices = pa.array(data.draw(st.lists(st.integers(0, len(lists) - 1))), pa.int64())
    found = taken(lists, indices)
    found.validate(full=True)
    assert found.equals(lists.take(indices))


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
