"""Statistics of the columns of one data file: bounds, counts and sizes.

Tasks compute them of each file that they write, and the metadata table is built with those of the
files that exist; both use the same functions. The bounds of a base file come from its footer. The
data of a column are read only if the footer does not tell the bounds: Parquet leaves NaN out, and
has no statistics of long texts, of INT96, and in bucketlake's files of binary columns. A log file
has the bounds of the rows in its data blocks.

No value of a column is outside of its bounds. NaN is greater than every number, as in Spark. Long
texts are cut.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketlake.format.avro.wrappers import WRAPPERS
from bucketlake.format.base_file import NAN_COLUMNS, BaseFileReader
from bucketlake.format.log_block import BlockKind, LogBlock, read_log_blocks
from bucketlake.format.log_data import decode_data_block
from bucketlake.format.metadata_record.bounds import StoredType, ValueType, has_bounds, wrap_bounds
from bucketlake.format.metadata_record.column_stats import (
    VALUE_TYPE,
    ColumnStats,
    WrappedValues,
    decode_column_stats,
    encode_column_stats,
)
from bucketlake.format.metadata_record.schema import RecordKind
from bucketlake.format.parquet_layout import ROW_GROUP_ROWS_MAX
from bucketlake.metadata.merged_statistics import unite_statistics
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ
from bucketlake.model.file_name import LogFileName
from bucketlake.model.schema import with_meta
from bucketlake.storage.base import Storage

TEXT_BYTES_MAX = 1024
"""Length to which bounds of texts and of binary columns are cut."""

_DATA = frozenset({BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA, BlockKind.HFILE_DATA})
_SIZE = np.dtype("<u4")
_WRAPPED = {branch: node.arrow for branch, node in enumerate(WRAPPERS, 1)}
_LAST_CHARACTER, _SURROGATES_FIRST, _SURROGATES_LAST = 0x10FFFF, 0xD800, 0xDFFF


def stored_file_statistics(
    storage: Storage, path: str, columns: pa.Schema, size_bytes: int | None = None
) -> ColumnStats:
    """Return the statistics of a file that exists.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    path : str
        Path of a base file or log file.
    columns : pyarrow.Schema
        Columns of the table, also meta columns, of which statistics are wanted.
    size_bytes : int, optional
        Size of the file, if known.

    Returns
    -------
    ColumnStats
        A row for each column, see :func:`base_file_statistics` and :func:`log_file_statistics`.
    """
    if LogFileName.from_file_name(path.rpartition("/")[2]) is not None:
        return log_file_statistics(read_log_blocks(storage, path, size_bytes), columns, path)
    with BaseFileReader(storage, path, size_bytes) as reader:
        return base_file_statistics(reader, columns, path)


def base_file_statistics(reader: BaseFileReader, columns: pa.Schema, path: str) -> ColumnStats:
    """Return the statistics of a base file.

    Parameters
    ----------
    reader : BaseFileReader
        The file.
    columns : pyarrow.Schema
        Columns of the table, also meta columns, of which statistics are wanted.
    path : str
        Path of the file.

    Returns
    -------
    ColumnStats
        A row for each column that has bounds. A column that the file lacks has only nulls.
    """
    footer = reader.footer
    places = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    types = {field.name: field.type for field in with_meta(reader.schema)}
    nan_columns = reader.key_values.get(NAN_COLUMNS)
    with_nan = None if nan_columns is None else frozenset[str](json.loads(nan_columns))
    found: dict[str, tuple[pa.DataType, _Range | None]] = {}
    for field in columns:
        place = places.get(field.name)
        if place is not None and has_bounds(types[field.name]):
            data_type = types[field.name]
            found[field.name] = data_type, _range_in_footer(footer, place, data_type, with_nan)
        elif field.name not in types and has_bounds(field.type):
            found[field.name] = field.type, _Range(footer.num_rows, footer.num_rows)
    unknown = [name for name, (_, known) in found.items() if known is None]
    read = _ranges_in_data(reader, unknown) if unknown else {}
    sizes = {name: _chunk_sizes(footer, places[name]) for name in found if name in places}
    return _column_stats(
        path,
        [
            _Column(name, StoredType.of_column(held), known or read[name], *sizes.get(name, (0, 0)))
            for name, (held, known) in found.items()
        ],
    )


def log_file_statistics(blocks: Iterable[LogBlock], columns: pa.Schema, path: str) -> ColumnStats:
    """Return the statistics of a log file.

    Parameters
    ----------
    blocks : iterable of LogBlock
        The blocks of the file.
    columns : pyarrow.Schema
        As for :func:`base_file_statistics`.
    path : str
        Path of the file.

    Returns
    -------
    ColumnStats
        A row for each column that has bounds; sizes are 0, as in Hudi. Deleted keys do not count.
        A log file without rows has no value types either.
    """
    parts = [_block_statistics(block, columns, path) for block in blocks if block.kind in _DATA]
    if not parts:
        null = StoredType(ValueType.NULL)
        names = [field.name for field in columns if has_bounds(field.type)]
        return _column_stats(path, [_Column(name, null, _Range()) for name in names])
    if len(parts) == 1:
        return parts[0]
    stats = ColumnStats.concat(parts)  # Hudi appended to log files before table version 8.
    groups = stats.columns.dictionary_encode()
    places = groups.indices.to_numpy().astype(np.int64)
    return unite_statistics(stats, places, len(groups.dictionary), path)


def rows_statistics(rows: pa.Table, columns: pa.Schema, path: str) -> ColumnStats:
    """Return the statistics of the rows of a log file; see :func:`log_file_statistics`."""
    found = []
    for field in columns:
        place = rows.schema.get_field_index(field.name)
        absent = place < 0 or pa.types.is_null(rows.schema.field(place).type)
        data_type = field.type if absent else rows.schema.field(place).type
        if has_bounds(data_type):
            nulls = _Range(rows.num_rows, rows.num_rows)
            held = nulls if absent else _range_of(rows.column(place))
            found.append(_Column(field.name, StoredType.of_column(data_type), held))
    return _column_stats(path, found)


def pack_statistics(stats: ColumnStats) -> str:
    """Print the statistics of one file as text, to send them from a task to the driver."""
    bare = replace(stats, names=pa.nulls(len(stats), pa.string()))
    records = encode_column_stats(RecordKind.COLUMN_STATS, bare).to_pylist()
    sizes = np.array([len(records), *map(len, records)], _SIZE)
    return base64.b64encode(zlib.compress(b"".join([sizes.tobytes(), *records]), 1)).decode()


def unpack_statistics(packed: Sequence[tuple[str, str]]) -> ColumnStats:
    """Parse the statistics of several files at once; undoes :func:`pack_statistics`.

    Parameters
    ----------
    packed : sequence of (str, str)
        Paths of the files, and their statistics; at least one.
    """
    sizes, contents, names = [], [], []
    for path, text in packed:
        data = zlib.decompress(base64.b64decode(text))
        count = int(np.frombuffer(data, _SIZE, 1)[0])
        start = _SIZE.itemsize * (count + 1)
        sizes.append(np.frombuffer(data, _SIZE, count, _SIZE.itemsize))
        contents.append(data[start:])
        names += [path.rpartition("/")[2]] * count
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(contents))]
    records = pa.Array.from_buffers(pa.binary(), len(names), buffers)
    _, stats = decode_column_stats(records, "statistics of a task")
    return replace(stats, names=pa.array(names, pa.string()))


@dataclass(frozen=True, slots=True)
class _Range:
    """Counts of values, and bounds of those that are not null, as wrappers store them."""

    rows: int = 0
    nulls: int = 0
    low: Any = None
    high: Any = None

    @classmethod
    def of_parts(cls, parts: Sequence[_Range]) -> _Range:
        """Return the range of all parts of a column."""
        held = [part for part in parts if part.nulls < part.rows]
        rows, nulls = sum(part.rows for part in parts), sum(part.nulls for part in parts)
        if not held:
            return cls(rows, nulls)
        lows = [part.low for part in held]
        numbers = [low for low in lows if low == low]  # NaN is not equal to itself.
        highs = [part.high for part in held]
        nan = next((high for high in highs if high != high), None)
        return cls(rows, nulls, min(numbers or lows), max(highs) if nan is None else nan)


@dataclass(frozen=True, slots=True)
class _Column:
    """Statistics of a column of a file."""

    name: str
    stored_as: StoredType
    range: _Range
    stored_bytes: int = 0
    uncompressed_bytes: int = 0


def _column_stats(path: str, columns: Sequence[_Column]) -> ColumnStats:
    count, name = len(columns), path.rpartition("/")[2]
    no = pa.array(np.zeros(count, np.bool_))
    types = [
        {"ordinal": int(column.stored_as.value_type), "info": column.stored_as.info}
        for column in columns
    ]
    return ColumnStats(
        names=pa.array([name] * count, pa.string()),
        columns=pa.array([column.name for column in columns], pa.string()),
        minima=_wrapped(columns, [_cut_low(column.range.low) for column in columns]),
        maxima=_wrapped(columns, [_cut_high(column.range.high) for column in columns]),
        value_counts=pa.array([column.range.rows for column in columns], pa.int64()),
        null_counts=pa.array([column.range.nulls for column in columns], pa.int64()),
        stored_bytes=pa.array([column.stored_bytes for column in columns], pa.int64()),
        uncompressed_bytes=pa.array([c.uncompressed_bytes for c in columns], pa.int64()),
        is_deleted=no,
        is_tight_bound=no,
        value_types=pa.array(types, VALUE_TYPE),
    )


def _wrapped(columns: Sequence[_Column], values: Sequence[Any]) -> WrappedValues:
    by_branch: dict[int, list[int]] = {}
    for row, value in enumerate(values):
        if value is not None:
            by_branch.setdefault(columns[row].stored_as.branch, []).append(row)
    pieces = (
        (branch, np.array(rows), pa.array([values[row] for row in rows], _WRAPPED[branch]))
        for branch, rows in by_branch.items()
    )
    return WrappedValues.gather(len(columns), pieces)


# Bounds in footers.

_Parse: TypeAlias = Callable[[Any], Any]


def _range_in_footer(
    footer: pq.FileMetaData, place: int, data_type: pa.DataType, with_nan: frozenset[str] | None
) -> _Range | None:
    """Return the range of a column; None if the footer does not tell it."""
    column = footer.schema.column(place)
    parse = _parser_of(data_type, column)
    is_floating = pa.types.is_floating(data_type)
    if parse is None or (is_floating and with_nan is None):
        return None
    has_nan = is_floating and column.path in (with_nan or ())
    parts = []
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(place)
        found = chunk.statistics
        if found is None or not found.has_null_count:
            return None
        rows, nulls = chunk.num_values, found.null_count
        if nulls == rows:
            parts.append(_Range(rows, nulls))
        elif found.has_min_max:
            parts.append(_Range(rows, nulls, parse(found.min_raw), parse(found.max_raw)))
        elif has_nan:
            parts.append(_Range(rows, nulls, np.nan, np.nan))
        else:
            return None
    whole = _Range.of_parts(parts)
    return replace(whole, high=np.nan) if has_nan else whole


def _parser_of(data_type: pa.DataType, column: pq.ColumnSchema) -> _Parse | None:
    """Return the function from a bound in a footer to the value in a wrapper; None without one."""
    logical = json.loads(column.logical_type.to_json())
    physical, kind = column.physical_type, logical["Type"]
    if pa.types.is_decimal(data_type) and kind == "Decimal":
        return _shortest if physical in ("INT32", "INT64") else _shortest_of_bytes
    if pa.types.is_string(data_type) and kind == "String":
        return bytes.decode
    is_plain = kind in ("None", "Date") or (kind == "Int" and logical["isSigned"])
    is_micros = kind == "Timestamp" and logical["timeUnit"] == "microseconds"
    return _same if (is_plain or is_micros) and physical == _PHYSICAL.get(data_type) else None


_PHYSICAL: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INT32",
    pa.int64(): "INT64",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.binary(): "BYTE_ARRAY",
    pa.date32(): "INT32",
    TIMESTAMP: "INT64",
    TIMESTAMP_NTZ: "INT64",
}


def _same(value: Any) -> Any:
    return value


def _shortest_of_bytes(unscaled: bytes) -> bytes:
    return _shortest(int.from_bytes(unscaled, "big", signed=True))


def _shortest(unscaled: int) -> bytes:
    """Return the shortest big-endian form of a decimal's unscaled value."""
    size_bytes = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return unscaled.to_bytes(size_bytes, "big", signed=True)


def _chunk_sizes(footer: pq.FileMetaData, place: int) -> tuple[int, int]:
    """Return the stored and the uncompressed size of a column."""
    chunks = [footer.row_group(group).column(place) for group in range(footer.num_row_groups)]
    return (
        sum(chunk.total_compressed_size for chunk in chunks),
        sum(chunk.total_uncompressed_size for chunk in chunks),
    )


# Bounds of data.


def _ranges_in_data(reader: BaseFileReader, names: Sequence[str]) -> dict[str, _Range]:
    parts: dict[str, list[_Range]] = {name: [] for name in names}
    for chunk in reader.iter_chunks(names, rows_max=ROW_GROUP_ROWS_MAX):
        for name, held in parts.items():
            held.append(_range_of(chunk[name]))
    return {name: _Range.of_parts(held) for name, held in parts.items()}


def _range_of(values: pa.ChunkedArray) -> _Range:
    rows, nulls = len(values), values.null_count
    if nulls == rows:
        return _Range(rows, nulls)
    found = pc.min_max(values)  # Without NaN, unless all values are NaN.
    ends = wrap_bounds(pa.array([found["min"], found["max"]], values.type))
    low, high = ends.stored(np.arange(2)).to_pylist()
    if pa.types.is_floating(values.type):
        has_nan = pc.any(pc.is_nan(values)).as_py()
        # Parquet does not distinguish the two zeros either.
        low, high = low or -0.0, np.nan if has_nan else high or 0.0
    return _Range(rows, nulls, low, high)


def _block_statistics(block: LogBlock, columns: pa.Schema, path: str) -> ColumnStats:
    if block.kind is BlockKind.PARQUET_DATA:
        with BaseFileReader.of_bytes(block.content, block.path) as reader:
            stats = base_file_statistics(reader, columns, path)
        zeros = pa.array(np.zeros(len(stats), np.int64))
        return replace(stats, stored_bytes=zeros, uncompressed_bytes=zeros)
    return rows_statistics(decode_data_block(block, columns.names), columns, path)


# Long texts.


def _cut_low(value: Any) -> Any:
    """Return a value that is not greater, and not long."""
    if isinstance(value, bytes):
        return value[:TEXT_BYTES_MAX]
    return _start_of(value) if isinstance(value, str) else value


def _cut_high(value: Any) -> Any:
    """Return a value that is not less, and not long if there is one."""
    if isinstance(value, bytes) and len(value) > TEXT_BYTES_MAX:
        held = value[:TEXT_BYTES_MAX].rstrip(b"\xff")
        return held[:-1] + bytes([held[-1] + 1]) if held else value
    if isinstance(value, str) and (start := _start_of(value)) != value:
        start = start.rstrip(chr(_LAST_CHARACTER))
        return start[:-1] + _next_character(start[-1]) if start else value
    return value


def _start_of(text: str) -> str:
    return text.encode()[:TEXT_BYTES_MAX].decode(errors="ignore")


def _next_character(character: str) -> str:
    following = ord(character) + 1
    return chr(_SURROGATES_LAST + 1 if following == _SURROGATES_FIRST else following)
