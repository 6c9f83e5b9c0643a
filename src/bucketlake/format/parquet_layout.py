"""The Parquet layout of a base file: encodings, statistics, rows per row group.

The layout was chosen by measurement (docs/spec/types.md, "Layout"), among those that the vectorised
readers of Spark 3.5 and 4, Hudi 1.2.0 and hudi-rs support. It depends only on the rows, not on how
they are split into batches, so two attempts of a task make the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.model.arrays import map_entries, one_array
from bucketlake.model.by_schema import by_schema
from bucketlake.model.column_type import LIST_ELEMENT
from bucketlake.model.schema import COMMIT_SEQNO, FILE_NAME, META_NAMES, RECORD_KEY

SAMPLE_ROWS = 4096
"""Number of rows that determine the size of a row group; Spark's readers decode as many at once."""

ROW_GROUP_ROWS_MAX = 262_144
ROW_GROUP_BYTES_MAX = 128 * 2**20  # Size as Arrow data.
LARGE_ROWS_BYTES_MAX = 32 * 2**20
"""Size of a row group of large rows, of which ``SAMPLE_ROWS`` have more bytes than this."""

_TINY_ROWS = 256
_WRITE_BATCH_ROWS = 16_384
_LARGE_BATCH_BYTES, _PAGE_BYTES = 8 * 2**20, 2**20
_NARROW_BYTES = _LARGE_BATCH_BYTES // _WRITE_BATCH_ROWS
_ZSTD_LEVEL = 1
_CODEC, _TINY_CODEC, _NO_CODEC = "zstd", "snappy", "none"
_SAMPLE_VALUES, _SAMPLE_BYTES = 4096, 4 * 2**20
_RUNS, _RUN_VALUES = 4, 4096
_DICTIONARY_VALUE_BYTES_MAX = 64 * 2**10  # A dictionary of longer values has only a few.

_REPEATS_OF_TEXT, _REPEATS_OF_NUMBER = 4, 8
"""How often each value must occur in a row group, on average, so that a dictionary pays."""

_UNIQUE = frozenset({COMMIT_SEQNO, RECORD_KEY})
_NEVER_FILTERED = frozenset({COMMIT_SEQNO, FILE_NAME})


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Arguments of a Parquet writer; columns are named by the path of the leaf.

    ``floating`` is no argument: the floating leaves, without items of lists and maps.
    """

    compression: str | dict[str, str]
    compression_level: int | dict[str, int] | None
    dictionary: tuple[str, ...]
    encodings: dict[str, str]
    statistics: tuple[str, ...]
    floating: tuple[str, ...]
    write_batch_size: int


def choose_layout(group: pa.Table, unbounded: frozenset[str] = frozenset()) -> ColumnLayout:
    """Choose the layout of a file from its first row group.

    Parameters
    ----------
    group : pyarrow.Table
        The rows of the first row group.
    unbounded : frozenset of str
        Paths of leaves that must have no statistics.

    Notes
    -----
    Integers, dates and timestamps are delta-packed: this is smaller than a dictionary or zstd on
    plain values, and cheaper to write. Strings and other types get a dictionary if their values
    repeat in the row group, estimated from a sample: a dictionary of distinct values is expensive
    to build. Columns by which no reader prunes have no statistics. A page ends with a batch of the
    writer, so batches of long values are short. Vectors, and floating items of lists of which zstd
    saves less than a fifth, are not compressed: writes would take twice and reads seven times as
    long. For a tiny file, a dictionary and zstd cost more time than they save bytes.
    """
    known, codecs, columns, undecided = _known_layout(group.schema, unbounded)
    if _is_tiny(group):
        return known
    dictionary, widest = [*known.dictionary], 0
    plain = {path for path, codec in codecs.items() if codec == _NO_CODEC}
    for name, path, leaf in _leaves_of(group.select(columns)):
        width = _width_bytes(name, leaf)
        widest = max(widest, width)
        if path in undecided and _repeats(leaf, width):
            dictionary.append(path)
        elif _is_item(path) and pa.types.is_floating(leaf.type) and not _shrinks(leaf):
            plain.add(path)
    batch = max(1, _PAGE_BYTES // widest) if widest > _NARROW_BYTES else _WRITE_BATCH_ROWS
    leaves = tuple(dictionary), known.encodings, known.statistics, known.floating
    if not plain:
        return ColumnLayout(_CODEC, _ZSTD_LEVEL, *leaves, batch)
    chosen = {path: _NO_CODEC if path in plain else _CODEC for path in codecs}
    levels = {path: _ZSTD_LEVEL for path in codecs if path not in plain}
    return ColumnLayout(chosen, levels, *leaves, batch)


def _is_tiny(group: pa.Table) -> bool:
    """Return whether a row group, and so its file, has few rows of few bytes."""
    return int(group.num_rows) <= _TINY_ROWS and _has_at_most(_PAGE_BYTES, group)


def _has_at_most(bytes_max: int, rows: pa.Table) -> bool:
    # The sizes that Arrow tells are not less, unless texts repeat in a dictionary.
    if not _has_codes(rows.schema) and (
        rows.get_total_buffer_size() <= bytes_max or rows.nbytes <= bytes_max
    ):
        return True
    return _table_bytes(rows) <= bytes_max


@by_schema
def _known_layout(
    schema: pa.Schema, unbounded: frozenset[str]
) -> tuple[ColumnLayout, dict[str, str], list[str], frozenset[str]]:
    """Return what the columns decide of a layout.

    Also return the codecs of a tiny file by the paths of the leaves, the columns whose values
    decide the rest, and the paths of the leaves of which they decide whether there is a dictionary.
    """
    dictionary, encodings, statistics, floating = [], {}, [], []
    columns, undecided = dict[str, None](), []
    codecs: dict[str, str] = {}
    for name, path, leaf in _leaves_of(schema.empty_table()):
        if _is_whole_number(leaf.type):
            encodings[path] = "DELTA_BINARY_PACKED"
        elif name in META_NAMES and pa.types.is_dictionary(leaf.type):
            dictionary.append(path)
        elif not pa.types.is_boolean(leaf.type):
            columns[name] = None
            undecided += [] if path in _UNIQUE or _is_vector(leaf) else [path]
        is_filtered = path not in _NEVER_FILTERED and path not in unbounded
        has_order = not (pa.types.is_binary(leaf.type) or _is_vector(leaf))
        if is_filtered and has_order and not _is_item(path):
            statistics.append(path)
        if _is_bounded_floating(path, leaf):
            floating.append(path)
        codecs[path] = _NO_CODEC if _is_vector(leaf) else _TINY_CODEC
    leaves = tuple(dictionary), encodings, tuple(statistics), tuple(floating)
    codec = codecs if _NO_CODEC in codecs.values() else _TINY_CODEC
    layout = ColumnLayout(codec, None, *leaves, _WRITE_BATCH_ROWS)
    return layout, codecs, [*columns], frozenset(undecided)


def holds_floating(data_type: pa.DataType) -> bool:
    """Return whether a type is floating, or holds floating values."""
    if pa.types.is_dictionary(data_type):
        return False
    fields = [data_type.field(i) for i in range(data_type.num_fields)]
    return pa.types.is_floating(data_type) or any(holds_floating(field.type) for field in fields)


def paths_with_nan(rows: pa.Table) -> Iterator[str]:
    """Yield the paths of floating leaves that have a NaN, without items of lists and maps."""
    for _, path, leaf in _leaves_of(rows):
        if _is_bounded_floating(path, leaf) and pc.is_nan(leaf).true_count:
            yield path


def row_group_rows(sample: pa.Table) -> int:
    """Return how many rows a row group may have that begins with a sample, if all rows are alike.

    The bounds are in docs/spec/types.md: of rows, of bytes, and of bytes of large rows.
    """
    size_bytes, rows = max(_table_bytes(sample), 1), int(sample.num_rows)
    is_large = SAMPLE_ROWS * size_bytes > LARGE_ROWS_BYTES_MAX * rows
    bytes_max = LARGE_ROWS_BYTES_MAX if is_large else ROW_GROUP_BYTES_MAX
    return min(max(bytes_max * rows // size_bytes, 1), ROW_GROUP_ROWS_MAX)


def fitting_rows(rows: pa.Table) -> int:
    """Return how many of these rows, the first ones, the bytes of a row group admit."""
    count, total = int(rows.num_rows), 0
    if count <= SAMPLE_ROWS and _has_at_most(LARGE_ROWS_BYTES_MAX, rows):
        return count
    for first, size_bytes in zip(
        range(0, count, SAMPLE_ROWS), _sizes_of_samples(rows), strict=True
    ):
        total += size_bytes
        if first and (size_bytes > LARGE_ROWS_BYTES_MAX or total > ROW_GROUP_BYTES_MAX):
            return first
        if size_bytes > LARGE_ROWS_BYTES_MAX:
            count = min(count, SAMPLE_ROWS)
            while count > 1 and size_bytes > LARGE_ROWS_BYTES_MAX:
                count = max(count * LARGE_ROWS_BYTES_MAX // size_bytes, 1)
                size_bytes = _table_bytes(rows.slice(0, count))
            return count
    return count


def _sizes_of_samples(rows: pa.Table) -> list[int]:
    """Return the size of each ``SAMPLE_ROWS`` of rows."""
    starts = np.arange(0, rows.num_rows, SAMPLE_ROWS)
    counts = np.diff(starts, append=rows.num_rows)
    total = np.zeros(len(starts), np.int64)
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_nested(column.type):
            own = rows.select([name])
            total += [_table_bytes(own.slice(start, SAMPLE_ROWS)) for start in starts.tolist()]
            continue
        leaf = one_array(column)
        lengths = _text_lengths(name, leaf)
        if lengths is None:
            total += counts * _width_bits(leaf.type) // 8
        else:
            known = lengths.fill_null(0).to_numpy(zero_copy_only=False)
            total += 4 * counts + np.add.reduceat(known, starts, dtype=np.int64)
    sizes: list[int] = total.tolist()
    return sizes


def _table_bytes(rows: pa.Table) -> int:
    return sum(_size_bytes(name, leaf) for name, _, leaf in _leaves_of(rows))


def _leaves_of(rows: pa.Table) -> Iterator[tuple[str, str, pa.Array]]:
    """Yield the name of the column, the Parquet path and the values of each leaf."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        for path, leaf in _leaves(one_array(column), name):
            yield name, path, leaf


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


def _is_item(path: str) -> bool:
    """Return whether a leaf has items of lists or maps: no reader prunes by them."""
    return f".list.{LIST_ELEMENT}" in path or ".key_value." in path


def _is_vector(leaf: pa.Array) -> bool:
    """Return whether a leaf has the bytes of vectors, which neither repeat nor have an order."""
    return bool(pa.types.is_fixed_size_binary(leaf.type))


def _is_bounded_floating(path: str, leaf: pa.Array) -> bool:
    return bool(pa.types.is_floating(leaf.type)) and not _is_item(path)


def _is_whole_number(data_type: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)
    return any(is_kind(data_type) for is_kind in kinds)


def _repeats(leaf: pa.Array, width: int) -> bool:
    """Return whether a dictionary is worth its cost; strings need fewer repetitions."""
    if not len(leaf) or width > _DICTIONARY_VALUE_BYTES_MAX:
        return False
    # Values from everywhere, because neighbours are often alike.
    count = min(len(leaf), _SAMPLE_VALUES, _SAMPLE_BYTES // max(width, 1))
    sample = leaf
    if count < len(leaf):
        sample = leaf.take(pa.array(np.arange(count) * len(leaf) // count))
    if pa.types.is_dictionary(leaf.type):
        sample = sample.dictionary_decode()  # The layout depends on the values alone.
    is_text = pa.types.is_string(sample.type) or pa.types.is_binary(sample.type)
    distinct = int(pc.count_distinct(sample).as_py())
    # As many values as this, each as frequent as the others, would have shown so many on average.
    values = len(leaf) / (_REPEATS_OF_TEXT if is_text else _REPEATS_OF_NUMBER)
    shown = -values * float(np.expm1(-count / values))
    return distinct <= shown


def _shrinks(numbers: pa.Array) -> bool:
    """Return whether zstd saves a fifth of numbers, by runs of them from everywhere."""
    starts = np.arange(_RUNS) * max(len(numbers) - _RUN_VALUES, 0) // _RUNS
    runs = [numbers.slice(start, _RUN_VALUES).to_numpy(zero_copy_only=False) for start in starts]
    sample = np.concatenate(runs).tobytes()
    return 5 * len(pa.Codec(_CODEC, _ZSTD_LEVEL).compress(sample)) <= 4 * len(sample)


def _width_bytes(name: str, leaf: pa.Array) -> int:
    """Return the average size of a value; what is narrow may be narrower than the result.

    Nothing depends on the width of narrow values, and Arrow tells a bound in one call.
    """
    count = max(len(leaf), 1)
    at_most = int(leaf.nbytes) // count
    is_exact = at_most > _NARROW_BYTES or _is_coded(name, leaf.type)
    return _size_bytes(name, leaf) // count if is_exact else at_most


@by_schema
def _has_codes(schema: pa.Schema) -> bool:
    return any(map(_is_coded, schema.names, schema.types))


def _is_coded(name: str, data_type: pa.DataType) -> bool:
    return name not in META_NAMES and bool(pa.types.is_dictionary(data_type))


def _size_bytes(name: str, leaf: pa.Array) -> int:
    lengths = _text_lengths(name, leaf)
    if lengths is None:
        return len(leaf) * _width_bits(leaf.type) // 8
    return 4 * len(leaf) + int(pc.sum(lengths).as_py() or 0)


def _text_lengths(name: str, leaf: pa.Array) -> pa.Array | None:
    """Return the lengths of texts or bytes; None for values of another type."""
    if _is_coded(name, leaf.type):
        return pc.binary_length(leaf.dictionary).take(leaf.indices)
    is_text = pa.types.is_string(leaf.type) or pa.types.is_binary(leaf.type)
    return pc.binary_length(leaf) if is_text else None


def _width_bits(data_type: pa.DataType) -> int:
    return 32 if pa.types.is_dictionary(data_type) else int(data_type.bit_width)
