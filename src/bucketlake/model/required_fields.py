"""Required fields of structs: filling them where the struct itself is null.

These values cannot be read, but Arrow's Parquet writer rejects a null in a required field.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def has_required_fields(data_type: pa.DataType) -> bool:
    """Return whether a type contains a struct with a required field."""
    children = [data_type.field(i) for i in range(data_type.num_fields)]
    required = pa.types.is_struct(data_type) and any(not child.nullable for child in children)
    return required or any(has_required_fields(child.type) for child in children)


def without_nulls(array: pa.Array) -> pa.Array:
    """Replace each null by any value."""
    if array.null_count == 0:
        return array
    padded = pa.concat_arrays([array, pa.array([_placeholder(array.type)], array.type)])
    places = np.arange(len(array))
    places[pc.is_null(array).to_numpy(zero_copy_only=False)] = len(array)
    return padded.take(pa.array(places))


def _placeholder(data_type: pa.DataType) -> Any:
    if pa.types.is_list(data_type) or pa.types.is_map(data_type):
        return []
    if pa.types.is_struct(data_type):
        return {f.name: None if f.nullable else _placeholder(f.type) for f in data_type}
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return ""
    return False if pa.types.is_boolean(data_type) else 0
