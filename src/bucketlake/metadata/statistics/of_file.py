"""Statistics of the columns of one data file: bounds, counts and sizes.

Tasks compute them of each file that they write, and the metadata table is built with those of the
files that exist; both use the same functions. The bounds of a base file come from its footer. The
data of a column are read only if the footer does not tell the bounds: Parquet leaves NaN out, and
has no statistics of long texts, of INT96, and in bucketlake's files of binary columns. A log file
has the bounds of the rows in its data blocks.

No value of a column is outside of its bounds. NaN is greater than every number, as in Spark, and
stored as infinity. Long texts are cut.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketlake.format.avro.wrappers import WRAPPERS
from bucketlake.format.base_file import (
    NAN_COLUMNS,
    BaseFileReader,
    EncodedBaseFile,
    encode_base_file,
)
from bucketlake.format.log_block import BlockKind, LogBlock, log_blocks_of, read_log_blocks
from bucketlake.format.log_data import decode_data_block
from bucketlake.format.metadata_record.bounds import StoredType, ValueType, has_bounds, wrap_bounds
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import VALUE_TYPE, ColumnStats, WrappedValues
from bucketlake.format.parquet_layout import ROW_GROUP_ROWS_MAX
from bucketlake.metadata.record_index.definition_file import columns_with_statistics
from bucketlake.model.by_schema import by_schema
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ
from bucketlake.model.field_path import column_of, field_at, roots_of
from bucketlake.model.file_name import log_instant
from bucketlake.model.grouping import grouped
from bucketlake.model.schema import COMMIT_TIME, META_NAMES, PARTITION_PATH, RECORD_KEY, with_meta
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.base import Buffer, Storage, at_once
from bucketlake.timeline.open_table import OpenTable

TEXT_BYTES_MAX = 1024
"""Length to which bounds of texts and of binary columns are cut."""
_SHORT = TEXT_BYTES_MAX // 4  # Characters of a text that is not cut.

_INDEXED = "indexed"  # The role of a column with statistics, for errors.
_DATA = frozenset({BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA, BlockKind.HFILE_DATA})
_WRAPPED = {branch: node.arrow for branch, node in enumerate(WRAPPERS, 1)}
_LAST_CHARACTER, _SURROGATES_FIRST, _SURROGATES_LAST = 0x10FFFF, 0xD800, 0xDFFF


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """Statistics of one column in a file, or in a part of it.

    Attributes
    ----------
    row_count, null_count : int
        Number of rows including nulls, and number of nulls.
    low, high : object
        Bounds of the values that are not null, as their wrappers store them; those of decimals are
        unscaled integers, because bytes have another order. None without values.
    stored_bytes, uncompressed_bytes : int
        Sizes of the column.
    """

    row_count: int = 0
    null_count: int = 0
    low: Any = None
    high: Any = None
    stored_bytes: int = 0
    uncompressed_bytes: int = 0

    @classmethod
    def of_parts(cls, parts: Sequence[Self]) -> Self:
        """Return the range of all parts of a column."""
        if len(parts) == 1:
            return parts[0]  # The usual case, for each column of each written file.
        lows = [part.low for part in parts if part.null_count < part.row_count]
        highs = [part.high for part in parts if part.null_count < part.row_count]
        return cls(
            sum(part.row_count for part in parts),
            sum(part.null_count for part in parts),
            min(lows, default=None),
            max(highs, default=None),
            sum(part.stored_bytes for part in parts),
            sum(part.uncompressed_bytes for part in parts),
        )


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Statistics of a file: its columns by name, each with its value type."""

    columns: Mapping[str, tuple[StoredType, ColumnRange]]

    def cut(self) -> Self:
        """Return the statistics with short bounds, as tasks send them to the driver."""
        short = {
            name: (kind, replace(held, low=_cut_low(held.low), high=_cut_high(held.high)))
            for name, (kind, held) in self.columns.items()
            if isinstance(held.high, str | bytes) and max(len(held.low), len(held.high)) > _SHORT
        }
        return type(self)({**self.columns, **short}) if short else self


NamedStatistics: TypeAlias = tuple[str, FileStatistics]
"""The name of a file, and its statistics."""


def unite_files(files: Sequence[FileStatistics]) -> tuple[FileStatistics, frozenset[str]]:
    """Unite the statistics of files.

    Returns
    -------
    FileStatistics
        The columns that have one type in all files.
    set of str
        The columns that have several types (``metadata/statistics/merged.py``). A file without
        rows has no type.
    """
    by_column: dict[str, list[tuple[StoredType, ColumnRange]]] = {}
    if len(files) == 1 and all(
        kind.value_type != ValueType.NULL for kind, _ in files[0].columns.values()
    ):
        return files[0], frozenset()
    for file in files:
        for name, held in file.columns.items():
            if held[0].value_type != ValueType.NULL:
                by_column.setdefault(name, []).append(held)
    united, differing = {}, []
    for name, parts in by_column.items():
        stored_as = parts[0][0]
        if any(kind is not stored_as and kind != stored_as for kind, _ in parts):
            differing.append(name)
        else:
            united[name] = stored_as, ColumnRange.of_parts([held for _, held in parts])
    return FileStatistics(united), frozenset(differing)


def column_stats_of(files: Iterable[NamedStatistics]) -> ColumnStats:
    """Return the statistics of some files, by file name, as columns: a row for each column.

    They say that their bounds are tight. Those of Hudi never do, and may be wrong
    (``metadata/statistics/merged.py``).
    """
    rows = [
        (file_name, name, stored_as, held)
        for file_name, statistics in files
        for name, (stored_as, held) in statistics.columns.items()
    ]
    ranges = [held for _, _, _, held in rows]
    types = [stored_as for _, _, stored_as, _ in rows]
    rows_of = grouped((stored_as, row) for row, stored_as in enumerate(types))
    return ColumnStats(
        names=pa.array([file_name for file_name, _, _, _ in rows], pa.string()),
        columns=pa.array([name for _, name, _, _ in rows], pa.string()),
        minima=_wrapped(rows_of, [held.low for held in ranges], _cut_low),
        maxima=_wrapped(rows_of, [held.high for held in ranges], _cut_high),
        value_counts=pa.array([held.row_count for held in ranges], pa.int64()),
        null_counts=pa.array([held.null_count for held in ranges], pa.int64()),
        stored_bytes=pa.array([held.stored_bytes for held in ranges], pa.int64()),
        uncompressed_bytes=pa.array([held.uncompressed_bytes for held in ranges], pa.int64()),
        is_deleted=pa.array(np.zeros(len(rows), np.bool_)),
        is_tight_bound=pa.array(np.ones(len(rows), np.bool_)),
        value_types=pa.StructArray.from_arrays(
            [
                pa.array([held.value_type for held in types], pa.int32()),
                pa.array([held.info for held in types], pa.string()),
            ],
            fields=list(VALUE_TYPE),
        ),
    )


def _wrapped(
    rows_of: Mapping[StoredType, Sequence[int]], values: Sequence[Any], cut: Callable[[Any], Any]
) -> WrappedValues:
    pieces = []
    for stored_as, every in rows_of.items():
        rows = [row for row in every if values[row] is not None]
        if not rows:
            continue
        branch, held = stored_as.branch, [values[row] for row in rows]
        if stored_as.value_type == ValueType.DECIMAL:
            held = [*map(_shortest, held)]
        elif isinstance(held[0], str | bytes):
            held = [cut(value) if len(value) > _SHORT else value for value in held]
        pieces.append((branch, np.array(rows), pa.array(held, _WRAPPED[branch])))
    return WrappedValues.gather(len(values), pieces)


# Files.


def statistics_of_file(
    storage: Storage, path: str, columns: pa.Schema, size_bytes: int | None = None
) -> FileStatistics:
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
    """
    if log_instant(path) is not None:
        return log_file_statistics(read_log_blocks(storage, path, size_bytes), columns)
    with BaseFileReader(storage, path, size_bytes) as reader:
        return base_file_statistics(reader, columns)


def statistics_of_content(content: Buffer, columns: pa.Schema, path: str) -> FileStatistics:
    """Return the statistics of a file from its bytes; see :func:`statistics_of_file`."""
    if log_instant(path) is not None:
        return log_file_statistics(log_blocks_of(content, path), columns)
    with BaseFileReader.of_bytes(content, path) as reader:
        return base_file_statistics(reader, columns)


def short_statistics(
    content: Buffer, columns: pa.Schema | None, path: str
) -> FileStatistics | None:
    """Return the statistics of a file, cut, from its bytes; None if no columns are wanted."""
    return None if columns is None else statistics_of_content(content, columns, path).cut()


def short_statistics_of_written(
    file: EncodedBaseFile, columns: pa.Schema | None, path: str
) -> FileStatistics | None:
    """Return the statistics of a new base file, cut; None if no columns are wanted."""
    return None if columns is None else _statistics_of_encoded(file, columns, path).cut()


def short_base_file_statistics(
    reader: BaseFileReader, columns: pa.Schema | None
) -> FileStatistics | None:
    """Return the statistics of a base file, cut; None if no columns are wanted."""
    return None if columns is None else base_file_statistics(reader, columns).cut()


def base_file_statistics(reader: BaseFileReader, columns: pa.Schema) -> FileStatistics:
    """Return the statistics of a base file.

    Parameters
    ----------
    reader : BaseFileReader
        The file.
    columns : pyarrow.Schema
        Columns of the table, also meta columns, of which statistics are wanted. Those of types
        without an order have none. A column that the file lacks has only nulls.
    """
    tells_nan = NAN_COLUMNS in reader.key_values
    measured = _measured(reader.footer, reader.schema, columns, tells_nan=tells_nan)
    found, unknown = _statistics_in_footer(reader.footer, measured)
    return _with_ranges_in_data(reader, found, unknown)


def _statistics_of_encoded(file: EncodedBaseFile, columns: pa.Schema, path: str) -> FileStatistics:
    """Return the statistics of a new base file, as :func:`base_file_statistics` finds them."""
    measured = _measured_in_new(file.schema, columns)
    found, unknown = _statistics_in_footer(file.footer, measured)
    if not unknown:  # Otherwise the file need not be opened.
        return FileStatistics(found)
    with BaseFileReader.of_bytes(file.data, path) as reader:
        return _with_ranges_in_data(reader, found, unknown)


_Found: TypeAlias = dict[str, tuple[StoredType, ColumnRange]]
_Parse: TypeAlias = Callable[[Any], Any]
_Measured: TypeAlias = tuple[str, StoredType, int | None, _Parse | None]
"""A column, its type, its place in the footer if the file has it, and what parses its bounds."""


def _statistics_in_footer(
    footer: pq.FileMetaData, measured: Iterable[_Measured]
) -> tuple[_Found, list[str]]:
    """Return the statistics that a footer tells, and the columns that it does not tell."""
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    found: _Found = {}
    unknown = []
    for name, stored_as, place, parse in measured:
        if place is None:
            found[name] = stored_as, ColumnRange(footer.num_rows, footer.num_rows)
        else:
            held = parse and _range_in_footer([group.column(place) for group in groups], parse)
            unknown += [name] if held is None else []
            found[name] = stored_as, held or ColumnRange()
    return found, unknown


@by_schema
def _measured_in_new(schema: pa.Schema, columns: pa.Schema) -> list[_Measured]:
    """Return the columns of a new file that have bounds."""
    return [*_measured(encode_base_file([], schema).footer, schema, columns, tells_nan=True)]


def _measured(
    footer: pq.FileMetaData, schema: pa.Schema, columns: pa.Schema, *, tells_nan: bool
) -> Iterator[_Measured]:
    """Yield the columns of a file that have bounds.

    Statistics of Parquet leave NaN out, unless ``tells_nan``: then a column with a NaN has none.
    """
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    stored = with_meta(schema)
    for field in columns:
        held = field_at(stored, field.name)
        data_type = (held or field).type
        if not has_bounds(data_type) or (held and field.name not in places):
            continue
        place, parse = places[field.name] if held else None, None
        if place is not None and (tells_nan or not pa.types.is_floating(data_type)):
            column = footer.schema.column(place)
            parse = _parser_of(data_type, column.physical_type, column.logical_type.to_json())
        yield field.name, StoredType.of_column(data_type), place, parse


def _with_ranges_in_data(
    reader: BaseFileReader, found: _Found, unknown: Sequence[str]
) -> FileStatistics:
    """Return statistics with the ranges of the unknown columns, which are read."""
    footer = reader.footer
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    for name, held in _ranges_in_data(reader, unknown).items():
        stored, uncompressed = _chunk_sizes(footer, places[name])
        sized = replace(held, stored_bytes=stored, uncompressed_bytes=uncompressed)
        found[name] = found[name][0], sized
    return FileStatistics(found)


def log_file_statistics(blocks: Iterable[LogBlock], columns: pa.Schema) -> FileStatistics:
    """Return the statistics of a log file.

    Sizes are 0, as in Hudi. Deleted keys do not count; a log file without rows has no value types.

    Parameters
    ----------
    blocks : iterable of LogBlock
        The blocks of the file.
    columns : pyarrow.Schema
        As for :func:`base_file_statistics`.
    """
    held = [block for block in blocks if block.kind in _DATA]
    if not held:
        absent = StoredType(ValueType.NULL), ColumnRange()
        return FileStatistics({f.name: absent for f in columns if has_bounds(f.type)})
    parts = [_block_statistics(block, columns) for block in held]
    if len(parts) == 1:
        return parts[0]
    # Before table version 8, several commits wrote to one log file, perhaps with several types.
    types = [{name: stored_as for name, (stored_as, _) in part.columns.items()} for part in parts]
    if any(found != types[0] for found in types):
        names = [name for name in columns.names if all(name in found for found in types)]
        wanted = pa.schema([columns.field(name) for name in names])
        roots = pa.schema([field for field in wanted if "." not in field.name])
        parts = [rows_statistics(cast_table(decode_data_block(block, roots.names), roots), roots)
                 for block in held]  # fmt: skip
    return FileStatistics(
        {
            name: (stored_as, ColumnRange.of_parts([part.columns[name][1] for part in parts]))
            for name, (stored_as, _) in parts[0].columns.items()
        }
    )


def rows_statistics(rows: pa.Table, columns: pa.Schema) -> FileStatistics:
    """Return the statistics of the rows of a log file; see :func:`log_file_statistics`."""
    found = {}
    for field in columns:
        stored = field_at(rows.schema, field.name)
        is_absent = stored is None or pa.types.is_null(stored.type)
        if is_absent and field.name in META_NAMES:
            continue  # Readers make such columns of others.
        data_type = field.type if stored is None or is_absent else stored.type
        if has_bounds(data_type):
            nulls = ColumnRange(rows.num_rows, rows.num_rows)
            held = (
                nulls if is_absent else _range_of(_chunked(column_of(rows, field.name, _INDEXED)))
            )
            found[field.name] = StoredType.of_column(data_type), held
    return FileStatistics(found)


def _block_statistics(block: LogBlock, columns: pa.Schema) -> FileStatistics:
    if block.kind is not BlockKind.PARQUET_DATA:
        return rows_statistics(decode_data_block(block, _roots(columns.names)), columns)
    with BaseFileReader.of_bytes(block.content, block.path) as reader:
        return _without_sizes(base_file_statistics(reader, columns))


def parquet_block_statistics(
    content: EncodedBaseFile, columns: pa.Schema, path: str
) -> FileStatistics:
    """Return the statistics of a new log file whose only rows are in a Parquet block."""
    return _without_sizes(_statistics_of_encoded(content, columns, path))


def _without_sizes(statistics: FileStatistics) -> FileStatistics:
    return FileStatistics(
        {
            name: (kind, ColumnRange(held.row_count, held.null_count, held.low, held.high))
            for name, (kind, held) in statistics.columns.items()
        }
    )


# Ranges in footers.


def _range_in_footer(chunks: Sequence[pq.ColumnChunkMetaData], parse: _Parse) -> ColumnRange | None:
    """Return the range of a column; None if the footer does not tell it."""
    parts = []
    for chunk in chunks:
        found = chunk.statistics
        if found is None or not found.has_null_count:
            return None
        low = high = None
        if found.has_min_max:
            try:
                low, high = parse(found.min_raw), parse(found.max_raw)
            except UnicodeDecodeError:  # Another writer has cut a text within a character.
                return None
        elif found.null_count < chunk.num_values:
            return None
        sizes = chunk.total_compressed_size, chunk.total_uncompressed_size
        parts.append(ColumnRange(chunk.num_values, found.null_count, low, high, *sizes))
    return ColumnRange.of_parts(parts)


def _chunk_sizes(footer: pq.FileMetaData, place: int) -> tuple[int, int]:
    stored = sum(chunk.total_compressed_size for chunk in _chunks(footer, place))
    return stored, sum(chunk.total_uncompressed_size for chunk in _chunks(footer, place))


def _chunks(footer: pq.FileMetaData, place: int) -> Iterator[pq.ColumnChunkMetaData]:
    return (footer.row_group(group).column(place) for group in range(footer.num_row_groups))


@lru_cache(maxsize=256)
def _parser_of(data_type: pa.DataType, physical: str, logical_json: str) -> _Parse | None:
    """Return the function from a bound in a footer to that of a range; None without one."""
    logical = json.loads(logical_json)
    kind = logical["Type"]
    if pa.types.is_decimal(data_type) and kind == "Decimal":
        return _same if physical in ("INT32", "INT64") else _integer_of
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


def _integer_of(unscaled: bytes) -> int:
    return int.from_bytes(unscaled, "big", signed=True)


def _shortest(unscaled: int) -> bytes:
    """Return the shortest big-endian form of a decimal's unscaled value."""
    size_bytes = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return unscaled.to_bytes(size_bytes, "big", signed=True)


# Ranges in data.


def _ranges_in_data(reader: BaseFileReader, names: Sequence[str]) -> dict[str, ColumnRange]:
    if not names:
        return {}
    parts: dict[str, list[ColumnRange]] = {name: [] for name in names}
    for chunk in reader.iter_chunks(_roots(names), rows_max=ROW_GROUP_ROWS_MAX):
        for name, held in parts.items():
            held.append(_range_of(_chunked(column_of(chunk, name, _INDEXED))))
    return {name: ColumnRange.of_parts(held) for name, held in parts.items()}


def _roots(paths: Sequence[str]) -> list[str]:
    return roots_of(paths, ())  # No column of a table has a dot in its name.


def _chunked(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _range_of(values: pa.ChunkedArray) -> ColumnRange:
    rows, nulls = len(values), values.null_count
    if nulls == rows:
        return ColumnRange(rows, nulls)
    found = pc.min_max(values)  # Without NaN, unless all values are NaN.
    ends = wrap_bounds(pa.array([found["min"], found["max"]], values.type))
    low, high = ends.stored(np.arange(2)).to_pylist()
    if pa.types.is_decimal(values.type):
        low, high = _integer_of(low), _integer_of(high)
    if pa.types.is_floating(values.type):
        has_nan = pc.any(pc.is_nan(values)).as_py()
        # Statistics of Parquet do not distinguish the two zeros. NaN is stored as infinity: Spark
        # keeps what Hudi reads in a cache that skips a batch by its greatest number.
        low = math.inf if low != low else low or -0.0
        high = math.inf if has_nan else high or 0.0
    return ColumnRange(rows, nulls, low, high)


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
    if 4 * len(text) <= TEXT_BYTES_MAX:
        return text
    return text.encode()[:TEXT_BYTES_MAX].decode(errors="ignore")


def _next_character(character: str) -> str:
    following = ord(character) + 1
    return chr(_SURROGATES_LAST + 1 if following == _SURROGATES_FIRST else following)


# ---- Which columns of a table have statistics in its metadata table, and those of written files --
#
# Tasks compute the statistics of the files that they write and send them along with the write
# statistics. ``metadata/statistics/merged.py`` makes records of them.

STATISTICS = frozenset({MetadataPartition.COLUMN_STATS, MetadataPartition.PARTITION_STATS})
"""The partitions of the metadata table with statistics."""

USUAL_COLUMNS_MAX = 32


def usual_columns(schema: pa.Schema, *, has_value_types: bool = True) -> tuple[str, ...]:
    """Return the columns that have statistics unless a table says otherwise, as in Hudi.

    Bounds without value types (``TableVersion.has_value_types``) hold fewer types.

    Examples
    --------
    >>> usual_columns(pa.schema({"id": pa.string(), "tags": pa.list_(pa.string())}))
    ('_hoodie_commit_time', '_hoodie_partition_path', '_hoodie_record_key', 'id')
    """
    bounded = [
        field.name for field in schema if has_bounds(field.type, has_value_types=has_value_types)
    ]
    return (COMMIT_TIME, PARTITION_PATH, RECORD_KEY, *bounded[:USUAL_COLUMNS_MAX])


def indexed_columns(table: OpenTable, schema: pa.Schema) -> pa.Schema | None:
    """Return the columns of which the metadata table has statistics.

    Parameters
    ----------
    table : OpenTable
    schema : pyarrow.Schema
        Its columns, without meta columns.

    Returns
    -------
    pyarrow.Schema or None
        Columns of the schema, and meta columns. None if the metadata table has no statistics.
    """
    if not table.config.written_metadata_partitions & STATISTICS:
        return None
    has_types = table.config.rules.has_value_types
    names = columns_with_statistics(table) or usual_columns(schema, has_value_types=has_types)
    # Hudi's jobs may list fields inside structs.
    found = [field_at(with_meta(schema), name) for name in names]
    return pa.schema([field for field in found if field is not None and has_bounds(field.type)])


def with_statistics(
    storage: Storage,
    stats: Sequence[WriteStat],
    columns: pa.Schema | None,
    sources: Mapping[str, str] = MappingProxyType({}),
) -> list[WriteStat]:
    """Give statistics to written files that have none, because the index is younger than the task.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    stats : sequence of WriteStat
        The files.
    columns : pyarrow.Schema or None
        From :func:`indexed_columns`.
    sources : mapping of str to str
        Paths of files by the paths of copies that are still to be made of them.
    """
    if columns is None or all(stat.statistics is not None for stat in stats):
        return list(stats)

    def read(stat: WriteStat) -> WriteStat:
        if stat.statistics is not None or not stat.path:
            return stat
        path = sources.get(stat.path, stat.path)
        found = statistics_of_file(storage, path, columns, stat.file_size_bytes or None)
        return replace(stat, statistics=found.cut())

    return list(at_once(storage, read, stats))


def statistics_by_partition(stats: Iterable[WriteStat]) -> dict[str, list[NamedStatistics]]:
    """Return the statistics of written files, by data partition."""
    return grouped(
        (stat.partition_path, (stat.path.rpartition("/")[2], stat.statistics))
        for stat in stats
        if stat.statistics is not None
    )
