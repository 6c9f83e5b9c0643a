"""Delete blocks: the keys that a write deleted, with the ordering values of the deletes.

The content is Avro without a schema. An ordering value is in a wrapper that names its type; several
ordering fields are an array of wrappers. ``IntWrapper 0`` means that the delete has no ordering
value: it is a *commit-time delete*, which wins over everything written before. The merge applies
deletes to records.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import FormatError, InputError, UnsupportedFeatureError
from bucketlake.format.avro.cursor import RECORD_PADDING_BYTES, Cursor
from bucketlake.format.avro.read_columns import read_column, with_nulls_between
from bucketlake.format.avro.skipping import MalformedError, Skip, item_places, skip_all
from bucketlake.format.avro.tree import AvroNode, UnionNode, Wire
from bucketlake.format.avro.wrappers import BRANCHES, LOCAL_DATE, WRAPPERS, read_wrapped
from bucketlake.format.avro.write_columns import (
    ColumnPart,
    join,
    joined_bytes,
    varints,
    write_column,
)
from bucketlake.format.log_block import BlockKind, HeaderKey, LogBlock, encode_checked_block
from bucketlake.model.arrays import Ints
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import type_name
from bucketlake.model.file_name import InstantTime

DELETE_CONTENT_VERSION = 3

_START = struct.Struct(">ii")  # Content version, and the size of the Avro bytes.

_TEXT = AvroNode(Wire.STRING, pa.string(), UnionNode(value_branch=1, null_branch=0, branch_count=2))

_NULL, _INT, _ARRAY = 0, BRANCHES[pa.int32()], len(WRAPPERS) + 1
_NO_ORDERING = bytes([2 * _INT, 0])  # IntWrapper 0.
_ARRAY_OF_VALUES = bytes([2 * _ARRAY, 2])  # An ArrayWrapper, and the branch of its array.
_END_OF_ITEMS = b"\0"
_FIELD_COUNT_MAX = 63  # So that the count fits into one byte.


@dataclass(frozen=True, slots=True, eq=False)
class Deletes:
    """Deleted keys, as columns of equal length.

    Parameters
    ----------
    record_keys : pyarrow.Array of string
        Record keys, without nulls.
    partition_paths : pyarrow.Array of string
        Partition paths; null if the writer did not store them.
    is_commit_time : pyarrow.Array of bool
        Whether the delete has no ordering value.
    orderings : tuple of pyarrow.Array
        A column for each ordering field, with the type of the writer's wrappers. It is null for
        commit-time deletes. With several fields, it is also null where the value was null (0 in an
        int field). The tuple is empty if all deletes are commit-time deletes.
    """

    record_keys: pa.Array
    partition_paths: pa.Array
    is_commit_time: pa.Array
    orderings: tuple[pa.Array, ...]

    @classmethod
    def of_keys(cls, record_keys: pa.Array, partition_path: str) -> Deletes:
        """Return commit-time deletes of keys in one partition."""
        count = len(record_keys)
        paths = pa.repeat(partition_path, count)
        return cls(record_keys, paths, pa.repeat(True, count), ())


def decode_delete_block(block: LogBlock) -> Deletes:
    """Decode the deletes of a block, in its order.

    Raises
    ------
    FormatError
        If the content is malformed, or the ordering values of its deletes have several types; the
        error names file and byte.
    UnsupportedFeatureError
        If the content has version 1 or 2, which are objects of a Java library.

    Notes
    -----
    ``IntWrapper 0`` is always a commit-time delete. A value of 0 in an ordering field of type int
    cannot be distinguished from it; Hudi cannot either.
    """
    block.require_whole()
    data = _avro_content(block)

    def refuse(expected: str, found: str, offset: int) -> FormatError:
        return block.malformed(expected, found, _START.size + offset)

    size = len(data) - RECORD_PADDING_BYTES
    whole = Cursor(data, np.zeros(1, np.int64), np.full(1, size), refuse)
    places, _, whole.position = item_places(whole, _skip_delete)
    whole.require(whole.position == size, "the end of the deletes", "more bytes")
    deletes = whole.at(places, np.full(len(places), size))
    keys, paths = (read_column(_TEXT, deletes)() for _ in range(2))
    deletes.require(
        keys.is_valid().to_numpy(zero_copy_only=False), "a record key of a delete", "null"
    )
    return Deletes(keys, paths, *_read_orderings(deletes))


def encode_delete_block(
    deletes: Deletes, *, instant: InstantTime, schema_json: str | None = None
) -> bytes:
    """Encode deletes as a block.

    Parameters
    ----------
    deletes : Deletes
        The deletes. Ordering values keep their types, because a reader compares them with those of
        records without conversion. A null ordering value is written as no ordering value.
    instant : InstantTime
        The instant that writes the block.
    schema_json : str, optional
        Avro JSON of the table's records, for the header; the content does not use it.

    Raises
    ------
    InputError
        If no wrapper can hold the type or a decimal of an ordering column.
    """
    texts = (deletes.record_keys, deletes.partition_paths)
    parts = [part for text in texts for part in write_column(_TEXT, text.cast(pa.string()))]
    items = joined_bytes([*parts, *_write_orderings(deletes)])
    avro = b"".join([_count_of_items(len(deletes.record_keys)), items, _END_OF_ITEMS])
    headers = {HeaderKey.INSTANT_TIME: str(instant)}
    if schema_json is not None:
        headers[HeaderKey.SCHEMA] = schema_json
    start = _START.pack(DELETE_CONTENT_VERSION, len(avro))
    return encode_checked_block(BlockKind.DELETE, headers, start, avro)


def encode_birth_block(instant: InstantTime) -> bytes:
    """Encode the log file that opens a file group of the metadata table: 80 bytes, no delete."""
    return encode_delete_block(Deletes.of_keys(pa.array([], pa.string()), ""), instant=instant)


def _avro_content(block: LogBlock) -> bytes:
    content = block.content
    if len(content) < _START.size:
        raise block.malformed("a content version and a size", f"{len(content)} bytes")
    version, size = _START.unpack_from(content)
    if version in (1, 2):
        where = f"{block.path} at byte {block.offset_bytes}"
        feature = f"version {version} of delete blocks, which old tables have"
        raise UnsupportedFeatureError(feature, where, "compact the table with Hudi")
    if version != DELETE_CONTENT_VERSION:
        raise block.malformed(f"content version {DELETE_CONTENT_VERSION}", version)
    if size != len(content) - _START.size:
        raise block.malformed(f"a size of {len(content) - _START.size}", size, _START.size // 2)
    return bytes(content[_START.size :]) + bytes(RECORD_PADDING_BYTES)


def _skip_wrapped(data: bytes, at: int) -> int:
    branch = data[at]
    if branch & 1 or branch > 2 * _ARRAY:
        raise MalformedError
    skip = _SKIPS[branch // 2]
    return at + 1 if skip is None else skip(data, at + 1)


def _skip_array(data: bytes, at: int) -> int:
    """Skip an ArrayWrapper with one block of items, the only form that writers produce."""
    if data[at] != _ARRAY_OF_VALUES[1]:
        raise MalformedError
    count, at = data[at + 1], at + 2
    if count & 1 or not 0 < count <= 2 * _FIELD_COUNT_MAX:
        raise MalformedError
    for _ in range(count // 2):
        is_local_date = data[at] == 2 * _ARRAY
        at = _skip_local_date(data, at + 1) if is_local_date else _skip_wrapped(data, at)
    if data[at]:
        raise MalformedError
    return at + 1


_skip_local_date = skip_all((LOCAL_DATE,))
_skip_texts = skip_all((_TEXT, _TEXT))
_SKIPS: tuple[Skip | None, ...] = (None, *(skip_all((node,)) for node in WRAPPERS), _skip_array)


def _skip_delete(data: bytes, at: int) -> int:
    return _skip_wrapped(data, _skip_texts(data, at))


def _read_orderings(cursor: Cursor) -> tuple[pa.Array, tuple[pa.Array, ...]]:
    """Read the flags of commit-time deletes, and the columns of ordering values."""
    places, branches = cursor.position, cursor.longs()
    is_array = branches == _ARRAY
    if not is_array.any():
        has_value, column = _one_column(cursor, places, branches, WRAPPERS)
        return pa.array(~has_value), () if column is None else (column,)
    single = np.flatnonzero(~is_array)
    alone = cursor.at(cursor.position[single], cursor.end[single])
    has_value, _ = _one_column(alone, places[single], branches[single], WRAPPERS)
    expected = "several ordering values, as of the other deletes"
    alone.require(~has_value, expected, "one", places[single])
    rows = np.flatnonzero(is_array)
    columns = _read_arrays(cursor.at(cursor.position[rows] + 1, cursor.end[rows]))
    return pa.array(~is_array), tuple(
        with_nulls_between(column, rows, len(places)) for column in columns
    )


def _read_arrays(cursor: Cursor) -> list[pa.Array]:
    """Read the columns of several ordering fields; each delete has all fields."""
    before, counts = cursor.position, cursor.longs()
    field_count = int(counts[0])
    expected = f"{field_count} ordering values"
    cursor.require(counts == field_count, expected, "another count", before)
    columns = []
    for _ in range(field_count):
        places, branches = cursor.position, cursor.longs()
        _, column = _one_column(cursor, places, branches, (*WRAPPERS, LOCAL_DATE))
        column = pa.nulls(len(places), pa.int32()) if column is None else column
        is_int = column.type == pa.int32()
        columns.append(column.fill_null(0) if is_int else column)  # Null is 0, an int, to Hudi.
    return columns


def _one_column(
    cursor: Cursor, places: Ints, branches: Ints, wrappers: Sequence[AvroNode]
) -> tuple[npt.NDArray[np.bool_], pa.Array | None]:
    """Read wrapped values, which must have one type; return None if all are null or 0.

    Nulls and ``IntWrapper 0`` may be among them.
    """
    has_value = branches != _NULL
    found = read_wrapped(cursor, branches, wrappers)
    if _INT in found:
        rows, values = found[_INT]
        kept = np.flatnonzero(values.to_numpy())
        has_value[rows] = values.to_numpy() != 0
        found[_INT] = (rows[kept], values.take(pa.array(kept)))
    kinds = {branch: pair for branch, pair in found.items() if len(pair[0])}
    if len(kinds) > 1:
        names = " and ".join(str(values.type) for _, values in kinds.values())
        at = int(places[max(rows[0] for rows, _ in kinds.values())])
        raise cursor.refuse("ordering values of one type", names, at)
    columns = [with_nulls_between(values, rows, len(branches)) for rows, values in kinds.values()]
    return has_value, columns[0] if columns else None


def _write_orderings(deletes: Deletes) -> list[ColumnPart]:
    columns = [_wrapped(column) for column in deletes.orderings]
    if len(columns) > 1:
        assert len(columns) <= _FIELD_COUNT_MAX, "more ordering fields than a delete can have"
        head = pa.scalar(_ARRAY_OF_VALUES + _count_of_items(len(columns)))
        columns = [join([head, *columns, pa.scalar(_END_OF_ITEMS)])]
    if not columns:
        assert pc.all(deletes.is_commit_time).as_py() is not False, "ordering values are missing"
        return [pa.scalar(_NO_ORDERING)]
    return [pc.if_else(deletes.is_commit_time, pa.scalar(_NO_ORDERING), columns[0])]


def _wrapped(values: pa.Array) -> pa.BinaryArray:
    """Put values into the wrapper of their type; null becomes no ordering value."""
    values = _as_compared(values)
    kind = pa.decimal128(30, 15) if pa.types.is_decimal128(values.type) else values.type
    branch = BRANCHES.get(kind)
    if branch is None:
        problem = f"a delete block cannot hold type {type_name(values.type)}"
        raise InputError("ordering value", problem, "order by a column of a scalar type")
    named = pa.table({"ordering value": values.drop_null()})
    target = pa.schema({"ordering value": kind})
    (present,) = cast_table(named, target, where="deletes").combine_chunks().columns
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    parts = write_column(WRAPPERS[branch - 1], present.combine_chunks())
    written = join([pa.scalar(bytes([2 * branch])), *parts])
    found = with_nulls_between(written, np.flatnonzero(is_valid), len(values))
    return pc.coalesce(found, pa.scalar(_NO_ORDERING))


def _as_compared(values: pa.Array) -> pa.Array:
    """Return values in the form that Hudi's readers compare with records: times are numbers.

    They read a timestamp as a long (microseconds) and a date as an int (days), and fail on wrappers
    of timestamps and dates. The date 1970-01-01 becomes int 0, which means no ordering value.
    """
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return values.cast(pa.int32()) if pa.types.is_date32(values.type) else values


def _count_of_items(count: int) -> bytes:
    return joined_bytes([varints(np.array([count]))]).to_pybytes() if count else b""
