"""The Parquet layout of a base file: encodings, statistics, rows per row group.

The layout was chosen by measurement (docs/spec/types.md, "Layout"), among those that the vectorised
readers of Spark 3.5 and 4, Hudi 1.2.0 and hudi-rs support. It depends only on the rows, not on how
they are split into batches, so two attempts of a task make the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.model.column_type import LIST_ELEMENT
from bucketlake.model.map_entries import map_entries
from bucketlake.model.schema import COMMIT_SEQNO, FILE_NAME, META_NAMES, RECORD_KEY

SAMPLE_ROWS = 4096
"""Number of rows that determine the encodings, and the size of row groups."""

ROW_GROUP_ROWS_MAX = 262_144
ROW_GROUP_BYTES_MAX = 128 * 2**20  # Size as Arrow data, estimated from the sample.
_ROW_GROUP_ROWS_MIN = 1024

_REPEATS_OF_TEXT, _REPEATS_OF_NUMBER = 4, 8
"""How often each value must occur in a row group, on average, so that a dictionary pays."""

_UNIQUE = frozenset({COMMIT_SEQNO, RECORD_KEY})
_NEVER_FILTERED = frozenset({COMMIT_SEQNO, FILE_NAME})


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Arguments of a Parquet writer; columns are named by the path of the leaf."""

    dictionary: tuple[str, ...]
    encodings: dict[str, str]
    statistics: tuple[str, ...]


def choose_layout(group: pa.Table, unbounded: Collection[str] = ()) -> ColumnLayout:
    """Choose the layout of a file from its first row group.

    Parameters
    ----------
    group : pyarrow.Table
        The rows of the first row group.
    unbounded : collection of str
        Paths of leaves that must have no statistics.

    Notes
    -----
    Integers, dates and timestamps are delta-packed: this is smaller than a dictionary or zstd on
    plain values, and cheaper to write. Strings and other types get a dictionary if their values
    repeat in the row group, estimated from a sample: a dictionary of distinct values is expensive
    to build. Columns by which no reader prunes have no statistics.
    """
    dictionary, encodings, statistics = [], {}, []
    for path, leaf in _sample_leaves(_sample(group)):
        if _is_whole_number(leaf.type):
            encodings[path] = "DELTA_BINARY_PACKED"
        elif path not in _UNIQUE and _repeats(leaf, group.num_rows):
            dictionary.append(path)
        is_filtered = path not in _NEVER_FILTERED and path not in unbounded
        if is_filtered and not pa.types.is_binary(leaf.type):
            statistics.append(path)
    return ColumnLayout(tuple(dictionary), encodings, tuple(statistics))


def _sample(group: pa.Table) -> pa.Table:
    """Return rows from everywhere in a row group: neighbours are often alike."""
    if group.num_rows <= SAMPLE_ROWS:
        return group
    rows = np.arange(SAMPLE_ROWS) * group.num_rows // SAMPLE_ROWS
    return group.take(pa.array(rows))


def holds_floating(data_type: pa.DataType) -> bool:
    """Return whether a type is floating, or holds floating values."""
    if pa.types.is_dictionary(data_type):
        return False
    fields = [data_type.field(i) for i in range(data_type.num_fields)]
    return pa.types.is_floating(data_type) or any(holds_floating(field.type) for field in fields)


def floating_leaves(rows: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield the floating leaves of rows with their Parquet paths."""
    floating = [field.name for field in rows.schema if holds_floating(field.type)]
    for path, leaf in _sample_leaves(rows.select(floating)):
        if pa.types.is_floating(leaf.type):
            yield path, leaf


def paths_with_nan(rows: pa.Table) -> Iterator[str]:
    """Yield the paths of floating leaves that have a NaN."""
    return (path for path, leaf in floating_leaves(rows) if pc.any(pc.is_nan(leaf)).as_py())


def row_group_rows(sample: pa.Table) -> int:
    """Return the number of rows of a row group, limited in rows and in bytes."""
    size_bytes = sum(_size_bytes(leaf) for _, leaf in _sample_leaves(sample))
    fitting = ROW_GROUP_BYTES_MAX * int(sample.num_rows) // max(size_bytes, 1)
    return min(max(fitting, _ROW_GROUP_ROWS_MIN), ROW_GROUP_ROWS_MAX)


def _sample_leaves(sample: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        values = column.combine_chunks()
        if name not in META_NAMES and pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()  # The layout depends on the values alone.
        yield from _leaves(values, name)


def _leaves(array: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    """Yield the leaf columns of an array with their Parquet paths."""
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


def _repeats(sample: pa.Array, group_rows: int) -> bool:
    """Return whether a dictionary is worth its cost; strings need fewer repetitions."""
    if pa.types.is_dictionary(sample.type):
        return True
    if pa.types.is_boolean(sample.type) or len(sample) == 0:
        return False
    is_text = pa.types.is_string(sample.type) or pa.types.is_binary(sample.type)
    repeats = _REPEATS_OF_TEXT if is_text else _REPEATS_OF_NUMBER
    distinct = int(pc.count_distinct(sample).as_py())
    # As many values as this, each as frequent as the others, would have shown so many on average.
    values = group_rows / repeats
    shown = -values * float(np.expm1(-len(sample) / values))
    return distinct <= shown


def _size_bytes(leaf: pa.Array) -> int:
    if pa.types.is_string(leaf.type) or pa.types.is_binary(leaf.type):
        return 4 * len(leaf) + int(pc.sum(pc.binary_length(leaf)).as_py() or 0)
    width_bits = 32 if pa.types.is_dictionary(leaf.type) else leaf.type.bit_width
    return len(leaf) * width_bits // 8
