"""Records of ``column_stats`` and ``partition_stats``: bounds and counts of a column.

A record is about a column in a file, or in a whole partition; then it has the partition path in
place of the file name. Bounds are stored as wrapped values. In index version V2 a *value type* says
how to read the wrapped value; in V1 (tables of version 6) the wrapper alone does. Where a column
has nulls only, Hudi writes no bounds for log files and perhaps zeros for base files.
:mod:`bucketlake.format.metadata_record.bounds` converts Arrow columns to wrapped values and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.avro.cursor import Cursor, Ints
from bucketlake.format.avro.read_columns import Make, read_column, spread
from bucketlake.format.avro.tree import AvroNode, Wire
from bucketlake.format.avro.wrappers import LOCAL_DATE, WRAPPERS, read_wrapped
from bucketlake.format.avro.write_columns import Part, join, write_column
from bucketlake.format.metadata_record.record_schema import (
    BOOLEAN,
    INT,
    LONG,
    NULLABLE,
    TEXT,
    RecordKind,
    read_payloads,
    record_frame,
)

STATS_KINDS = (RecordKind.COLUMN_STATS, RecordKind.PARTITION_STATS)

VALUE_TYPE = pa.struct([pa.field("ordinal", pa.int32(), nullable=False), ("info", pa.string())])
"""Type of the column of value types."""

_BOUNDS = (*WRAPPERS, LOCAL_DATE)  # Hudi never writes a bound of an array, the branch after these.
_VALUE_TYPE = AvroNode(Wire.RECORD, VALUE_TYPE, NULLABLE, children=(INT, TEXT))


@dataclass(frozen=True, slots=True, eq=False)
class WrappedValues:
    """Values of several types, a value or null for each row.

    Parameters
    ----------
    count : int
        Number of rows.
    parts : mapping of int to (ndarray, pyarrow.Array)
        By branch of the union, rows in ascending order and their values.
    """

    count: int
    parts: Mapping[int, tuple[Ints, pa.Array]]

    @classmethod
    def gather(cls, count: int, pieces: Iterable[tuple[int, Ints, pa.Array]]) -> Self:
        """Put values together from pieces: a branch, rows in any order, and their values."""
        by_branch: dict[int, list[tuple[Ints, pa.Array]]] = {}
        for branch, rows, values in pieces:
            if len(rows):
                by_branch.setdefault(branch, []).append((rows, values))
        parts = {}
        for branch, held in by_branch.items():
            rows = np.concatenate([rows for rows, _ in held])
            values = pa.concat_arrays([values for _, values in held])
            if (rows[1:] < rows[:-1]).any():
                order = np.argsort(rows)
                rows, values = rows[order], values.take(pa.array(order))
            parts[branch] = (rows, values)
        return cls(count, parts)

    def take(self, indices: Ints) -> Self:
        """Return the values of some rows, in the order of their indices."""
        pieces = []
        for branch, (rows, values) in self.parts.items():
            places = np.full(self.count, -1)
            places[rows] = np.arange(len(rows))
            found = places[indices]
            held = np.flatnonzero(found >= 0)
            pieces.append((branch, held, values.take(pa.array(found[held]))))
        return self.gather(len(indices), pieces)

    def only(self, rows: Ints) -> Self:
        """Return the values of some rows; the other rows stay, without values."""
        pieces = (
            (branch, held[np.isin(held, rows)], values.filter(pa.array(np.isin(held, rows))))
            for branch, (held, values) in self.parts.items()
        )
        return self.gather(self.count, pieces)

    @property
    def branches(self) -> Ints:
        """The branch of each row; 0 if it has no value."""
        branches = np.zeros(self.count, np.int64)
        for branch, (rows, _) in self.parts.items():
            branches[rows] = branch
        return branches

    def stored(self, rows: Ints) -> pa.Array:
        """Return the values of some rows that all have values of one branch, without wrappers."""
        (branch,) = set(self.branches[rows].tolist())
        held, values = self.parts[branch]
        return values.take(pa.array(np.searchsorted(held, rows)))


@dataclass(frozen=True, slots=True, eq=False)
class ColumnStats:
    """Statistics as columns of equal length, a row for each record.

    Parameters
    ----------
    names : pyarrow.Array of string
        File name, with the leading dot of a log file; or partition path.
    columns : pyarrow.Array of string
        Name of the column.
    minima, maxima : WrappedValues
        Bounds of values that are not null.
    value_counts, null_counts, stored_bytes, uncompressed_bytes : pyarrow.Array of int64
        Number of rows including nulls, number of nulls, and sizes of the column's chunks.
    is_deleted, is_tight_bound : pyarrow.Array of bool
        Whether the record is a removal, and whether it replaces older records.
    value_types : pyarrow.Array of struct
        ``ordinal`` and ``info`` of the value type; null in index version V1.
    """

    names: pa.Array
    columns: pa.Array
    minima: WrappedValues
    maxima: WrappedValues
    value_counts: pa.Array
    null_counts: pa.Array
    stored_bytes: pa.Array
    uncompressed_bytes: pa.Array
    is_deleted: pa.Array
    is_tight_bound: pa.Array
    value_types: pa.Array

    def __len__(self) -> int:
        return len(self.names)

    def take(self, indices: Ints) -> Self:
        """Return some rows, in the order of their indices."""
        arrow = pa.array(indices)
        columns = (getattr(self, field.name) for field in fields(self))
        return type(self)(
            *(c.take(indices if isinstance(c, WrappedValues) else arrow) for c in columns)
        )

    @classmethod
    def concat(cls, parts: Sequence[ColumnStats]) -> Self:
        """Put the rows of several statistics one after the other; there is at least one."""
        starts = np.cumsum([0, *(len(part) for part in parts)])
        joined = []
        for field in fields(cls):
            columns = [getattr(part, field.name) for part in parts]
            if isinstance(columns[0], WrappedValues):
                pieces = (
                    (branch, rows + start, values)
                    for start, column in zip(starts[:-1].tolist(), columns, strict=True)
                    for branch, (rows, values) in column.parts.items()
                )
                joined.append(WrappedValues.gather(int(starts[-1]), pieces))
            else:
                joined.append(pa.concat_arrays(columns))
        return cls(*joined)


# The types of a record's fields; None is a wrapped value.
_NODES = (TEXT, TEXT, None, None, LONG, LONG, LONG, LONG, BOOLEAN, BOOLEAN, _VALUE_TYPE)


def encode_column_stats(kind: RecordKind, stats: ColumnStats) -> pa.BinaryArray:
    """Encode a record for each row of statistics; ``kind`` is one of ``STATS_KINDS``."""
    return encode_several_column_stats([(kind, len(stats))], stats)


def encode_several_column_stats(
    kinds: Sequence[tuple[RecordKind, int]], stats: ColumnStats
) -> pa.BinaryArray:
    """Encode a record for each row of statistics of several kinds.

    The cost of a call is far above that of a row.

    Parameters
    ----------
    kinds : sequence of (RecordKind, int)
        Kinds of ``STATS_KINDS``, each with the number of its rows, in order of the rows.
    stats : ColumnStats
        All rows.
    """
    assert {kind for kind, _ in kinds} <= {*STATS_KINDS}, "kinds of statistics"
    if len(stats.names) == 0:
        return pa.array([], pa.binary())
    starts = [pa.repeat(record_frame(kind)[0], count) for kind, count in kinds]
    _, end = record_frame(kinds[0][0])  # All kinds have the same payload field.
    parts: list[Part] = [pa.concat_arrays(starts)]
    for node, field in zip(_NODES, fields(stats), strict=True):
        column = getattr(stats, field.name)
        parts += [_write_wrapped(column)] if node is None else write_column(node, column)
    return join([*parts, pa.scalar(end)])


def decode_column_stats(values: pa.BinaryArray, path: str) -> tuple[Ints, ColumnStats]:
    """Decode records of ``column_stats`` or ``partition_stats``.

    Parameters
    ----------
    values : pyarrow.BinaryArray
        Values of an HFile.
    path : str
        The file, for messages.

    Returns
    -------
    kinds : ndarray of int64, shape (n_records,)
        ``COLUMN_STATS`` or ``PARTITION_STATS``.
    stats : ColumnStats
        A row for each value.

    Raises
    ------
    FormatError
        If a value is malformed, or no statistics; the error names the file.
    """
    columns: list[Make | WrappedValues] = []

    def read(cursor: Cursor) -> None:
        for node in _NODES:
            columns.append(_read_wrapped(cursor) if node is None else read_column(node, cursor))

    kinds = read_payloads(values, path, STATS_KINDS, read)
    made = [column if isinstance(column, WrappedValues) else column() for column in columns]
    return kinds, ColumnStats(*made)


def _read_wrapped(cursor: Cursor) -> WrappedValues:
    before, branches = cursor.position, cursor.longs()
    after, cursor.position = cursor.position, before
    known = (branches >= 0) & (branches <= len(_BOUNDS))
    cursor.require(known, "a bound of a single value", "another branch")
    cursor.position = after
    return WrappedValues(len(branches), read_wrapped(cursor, branches, _BOUNDS))


def _write_wrapped(values: WrappedValues) -> pa.BinaryArray:
    written = pa.array([b"\0"] * values.count, pa.binary())  # Branch 0, null.
    for branch, (rows, present) in values.parts.items():
        head = pa.scalar(bytes([2 * branch]))
        found = join([head, *write_column(_BOUNDS[branch - 1], present)])
        is_here = np.zeros(values.count, np.bool_)
        is_here[rows] = True
        written = pc.if_else(pa.array(is_here), spread(found, rows, values.count), written)
    return written
