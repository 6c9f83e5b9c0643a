"""How a base file's columns are laid out in Parquet: encodings, statistics, rows per row group.

Chosen by measurement on order-like rows (docs/spec/types.md, "Layout"), among what the vectorised
readers of Spark 3.5 and 4, Hudi 1.2.0 and hudi-rs take. Everything here depends on the rows alone,
not on how they were cut into batches, so two attempts of a task make the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.model.column_type import LIST_ELEMENT
from bucketlake.model.map_entries import map_entries
from bucketlake.model.schema import COMMIT_SEQNO, FILE_NAME, RECORD_KEY

SAMPLE_ROWS = 4096
"""Rows, from the first, by which encodings and the size of row groups are judged."""

ROW_GROUP_ROWS_MAX = 262_144
ROW_GROUP_BYTES_MAX = 128 * 2**20  # As Arrow data, by the sample.
_ROW_GROUP_ROWS_MIN = 1024

_UNIQUE = frozenset({COMMIT_SEQNO, RECORD_KEY})
_NEVER_FILTERED = frozenset({COMMIT_SEQNO, FILE_NAME})


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Arguments of a Parquet writer, by path of the leaf column."""

    dictionary: tuple[str, ...]
    encodings: dict[str, str]
    statistics: tuple[str, ...]


def choose_layout(sample: pa.Table) -> ColumnLayout:
    """Choose the layout of a file by its first rows.

    Whole numbers, dates and timestamps are delta-packed: smaller than a dictionary or zstd on
    plain values, and cheaper to write than both. Strings and the rest get a dictionary where the
    sample repeats itself; building one of distinct values costs more than all else. Statistics are
    left out where no reader prunes by them.
    """
    dictionary, encodings, statistics = [], {}, []
    for path, leaf in _sample_leaves(sample):
        if _is_whole_number(leaf.type):
            encodings[path] = "DELTA_BINARY_PACKED"
        elif path not in _UNIQUE and _repeats(leaf):
            dictionary.append(path)
        if path not in _NEVER_FILTERED and not pa.types.is_binary(leaf.type):
            statistics.append(path)
    return ColumnLayout(tuple(dictionary), encodings, tuple(statistics))


def row_group_rows(sample: pa.Table) -> int:
    """Count the rows of a row group that starts with a sample: bounded, and bounded in bytes."""
    size_bytes = sum(_size_bytes(leaf) for _, leaf in _sample_leaves(sample))
    fitting = ROW_GROUP_BYTES_MAX * int(sample.num_rows) // max(size_bytes, 1)
    return min(max(fitting, _ROW_GROUP_ROWS_MIN), ROW_GROUP_ROWS_MAX)


def _sample_leaves(sample: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        yield from _leaves(column.combine_chunks(), name)


def _leaves(array: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    """Yield the leaf columns below an array, as the paths that Parquet gives them."""
    if pa.types.is_struct(array.type):
        for field, child in zip(array.type, array.flatten(), strict=True):
            yield from _leaves(child, f"{path}.{field.name}")
    elif pa.types.is_list(array.type):
        yield from _leaves(array.flatten(), f"{path}.list.{LIST_ELEMENT}")
    elif pa.types.is_map(array.type):
        keys, values = map_entries(array)
        yield f"{path}.key_value.key", keys
        yield from _leaves(values, f"{path}.key_value.value")
    else:
        yield path, array


def _is_whole_number(data_type: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)
    return any(is_kind(data_type) for is_kind in kinds)


def _repeats(leaf: pa.Array) -> bool:
    """Whether a dictionary pays: strings gain by fewer repetitions than short fixed values do."""
    if pa.types.is_dictionary(leaf.type):
        return True
    if pa.types.is_boolean(leaf.type) or len(leaf) == 0:
        return False
    is_text = pa.types.is_string(leaf.type) or pa.types.is_binary(leaf.type)
    return int(pc.count_distinct(leaf).as_py()) * (4 if is_text else 16) <= len(leaf)


def _size_bytes(leaf: pa.Array) -> int:
    if pa.types.is_string(leaf.type) or pa.types.is_binary(leaf.type):
        return 4 * len(leaf) + int(pc.sum(pc.binary_length(leaf)).as_py() or 0)
    width_bits = 32 if pa.types.is_dictionary(leaf.type) else leaf.type.bit_width
    return len(leaf) * width_bits // 8
