"""Values of Hudi's meta columns, for tests that make base files without a write."""

from __future__ import annotations

import pyarrow as pa

from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import META_NAMES


def meta_columns(
    instant: InstantTime,
    group_number: int,
    record_keys: pa.Array,
    partition_path: str,
    file_name: str,
    *,
    first_row: int = 0,
) -> dict[str, pa.Array]:
    """Return the five meta columns of new rows, by name."""
    count = len(record_keys)
    rows = range(first_row, first_row + count)
    columns = (
        constant_column(instant, count),
        pa.array([f"{instant}_{group_number}_{row}" for row in rows], pa.string()),
        record_keys,
        constant_column(partition_path, count),
        constant_column(file_name, count),
    )
    return dict(zip(META_NAMES, columns, strict=True))


def constant_column(value: str, count: int) -> pa.DictionaryArray:
    """Return a column of one value, as a dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([value]))
