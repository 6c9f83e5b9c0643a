"""Incoming records of one file group: their keys, ordering values and delete flags, as columns.

This module collapses duplicate keys of a batch to one record each, and makes ordering values
comparable in Hudi's order. :meth:`IncomingRecords.wins_over` decides which record wins over a
stored row, for merges of file groups and of slices with logs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.hashing.texts import TextTable
from bucketlake.model.arrays import is_everything, mask_of, one_array
from bucketlake.model.field_path import column_of, field_at
from bucketlake.model.schema import IS_DELETED

ORDERING = "ordering"  # The role of ordering fields, for errors.

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
_Rows: TypeAlias = IntArray | slice
ColumnFlags: TypeAlias = Mapping[str, BoolArray]
"""Flags of the values of some columns, by column."""

_FEW_KEYS = 512  # Arrow sorts these in less time than it takes to find their heads.
_HEAD_BYTES = 8
_MASKS = np.array([2**64 - 2 ** (8 * (_HEAD_BYTES - n)) for n in range(_HEAD_BYTES + 1)], np.uint64)
"""By number: a word that has so many bytes, the first ones."""
_MARKER_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_null,
)


@dataclass(frozen=True)
class IncomingRecords:
    """Records to be written to one file group, or the entries of a log block, as columns.

    Attributes
    ----------
    keys : pa.StringArray, shape (n_records,)
        Record keys, without nulls.
    columns : pa.Table, shape (n_records, n_fields)
        Data columns in the table's schema; for deletes by key only some of them, or none.
    ordering : tuple of pa.Array
        Comparable ordering values, see :func:`comparable`; empty under commit-time ordering.
    deleted : ndarray of bool, shape (n_records,)
        True if a record deletes its key.
    is_reset : ndarray of bool, shape (n_records,)
        True for a commit-time delete, which wins over all earlier writes, see
        :func:`commit_time_deletes`, and for a record that follows one of its key in the batch.
    is_whole : ndarray of bool, shape (n_records,), or None
        True if a record takes no values of the stored row, because another record of its batch
        deletes the key before; None if there is no such record.
    unset : mapping of str to ndarray of bool
        Which rows of ``columns`` have no value, by column, in parts of rows and in records that
        were merged from them; without the columns in which each row has one.
    erased : pa.Array, shape (n_records,), or None
        In a table with groups of columns: the comparable ordering value of the newest delete of the
        key in the batch, null without one; None if there is no delete.
    is_sorted : bool
        Whether the records are known to be in the order of their keys.
    """

    keys: pa.Array
    columns: pa.Table
    ordering: tuple[pa.Array, ...]
    deleted: BoolArray
    is_reset: BoolArray
    is_whole: BoolArray | None = None
    unset: ColumnFlags = field(default_factory=dict)
    erased: pa.Array | None = None
    is_sorted: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def whole(self) -> BoolArray:
        """Whether a record takes no values of the stored row."""
        return np.zeros(len(self), np.bool_) if self.is_whole is None else self.is_whole

    @property
    def erases(self) -> pa.Array:
        """The comparable ordering value up to which a record deletes its key; null without one."""
        own = pa.nulls(len(self), self.ordering[0].type) if self.erased is None else self.erased
        return pc.if_else(pa.array(self.deleted & ~self.is_reset), self.ordering[0], own)

    def take(self, positions: IntArray) -> Self:
        """Return the records at ``positions``, in that order; all of them are not copied."""
        if is_everything(positions, len(self)):
            return self
        indices = pa.array(positions)
        return self._some(lambda held: held.take(indices), positions)

    def slice(self, start: int, end: int) -> Self:
        """Return the records of a range, without a copy."""
        count, is_sorted = end - start, self.is_sorted
        return self._some(lambda held: held.slice(start, count), slice(start, end), is_sorted)

    def _some(self, chosen: Callable[[Any], Any], which: _Rows, is_sorted: bool = False) -> Self:
        """Return some records: ``chosen`` takes them out of Arrow data, ``which`` are the rows."""
        return type(self)(
            chosen(self.keys),
            chosen(self.columns),
            tuple(map(chosen, self.ordering)),
            self.deleted[which],
            self.is_reset[which],
            None if self.is_whole is None else self.is_whole[which],
            {name: flags[which] for name, flags in self.unset.items()},
            None if self.erased is None else chosen(self.erased),
            is_sorted,
        )

    def in_key_order(self, positions: IntArray) -> IntArray:
        """Return ascending positions of records in the order of their keys."""
        if self.is_sorted:
            return positions
        is_all = is_everything(positions, len(self))
        return positions[key_order(self.keys if is_all else self.keys.take(pa.array(positions)))]

    def followed_by(self, others: Self) -> Self:
        """Return these records, then others with the same columns."""
        is_whole = None
        if self.is_whole is not None or others.is_whole is not None:
            is_whole = np.concatenate([self.whole, others.whole])
        erased = None
        if self.erased is not None or others.erased is not None:
            erased = pa.concat_arrays([self.erases, others.erases])
        return type(self)(
            pa.concat_arrays([self.keys, others.keys]),
            pa.concat_tables([self.columns, others.columns]).combine_chunks(),
            tuple(
                pa.concat_arrays(list(each))
                for each in zip(self.ordering, others.ordering, strict=True)
            ),
            np.concatenate([self.deleted, others.deleted]),
            np.concatenate([self.is_reset, others.is_reset]),
            is_whole,
            erased=erased,
        )

    @cached_property
    def key_table(self) -> TextTable:
        """The table in which the keys of all stored chunks are looked up."""
        return TextTable.of_array(self.keys)

    def wins_over(
        self,
        stored: pa.Table,
        rows: IntArray,
        positions: IntArray,
        ordering_fields: Sequence[str],
    ) -> BoolArray:
        """Return which records win over the stored rows of their keys.

        Parameters
        ----------
        stored : pa.Table
            Stored rows, including the ordering fields.
        rows : ndarray of int64, shape (n_pairs,)
            Positions of stored rows.
        positions : ndarray of int64, shape (n_pairs,)
            For each of these rows, the position of the record with the same key.
        ordering_fields : sequence of str
            Ordering fields: a record wins unless its ordering value is less. Without fields every
            record wins.

        Returns
        -------
        ndarray of bool, shape (n_pairs,)
        """
        if not ordering_fields or len(rows) == 0:
            return np.ones(len(rows), np.bool_)
        at_rows, at_positions = pa.array(rows), pa.array(positions)
        new = tuple(values.take(at_positions) for values in self.ordering)
        columns = [column_of(stored, field, ORDERING) for field in ordering_fields]
        old = tuple(comparable(column.take(at_rows)) for column in columns)
        return self.is_reset[positions] | at_least(new, old)


def delete_flags(columns: pa.Table, marker: tuple[str, str] | None = None) -> BoolArray:
    """Return which rows delete their key, by ``_hoodie_is_deleted`` or a (field, value) marker."""
    flags = np.zeros(columns.num_rows, np.bool_)
    if IS_DELETED in columns.column_names:
        flags |= mask_of(columns[IS_DELETED].cast(pa.bool_()))  # May have no type.
    if marker is not None and marker_field(columns.schema, marker[0]) is not None:
        marks = column_of(columns, marker[0], "delete marker").cast(pa.string())
        flags |= mask_of(pc.equal(marks, marker[1]))
    return flags


def marker_field(schema: pa.Schema, name: str) -> pa.Field | None:
    """Return the column of a delete marker, perhaps in a struct; None if there is no such column.

    Hudi compares the marker with Java's text of the value. Only texts, integers and booleans have
    the same text in Arrow.

    Raises
    ------
    UnsupportedFeatureError
        If the column has another type.
    """
    found = field_at(schema, name)
    if found is None:
        return None
    if any(is_kind(found.type) for is_kind in _MARKER_TYPES):
        return found
    raise UnsupportedFeatureError(
        f"a delete marker in a column of type {found.type}",
        f"column {name}",
        "use a column of strings, integers or booleans, or a boolean column _hoodie_is_deleted",
    )


def commit_time_deletes(
    deleted: BoolArray, columns: pa.Table, ordering_fields: Sequence[str]
) -> BoolArray:
    """Return which deletes have no ordering value, or a value that a log file cannot distinguish.

    A delete has no ordering value if all ordering fields are null. With a single ordering field,
    an int 0 and the date 1970-01-01 also mean no value, because a delete block stores them in the
    same way. Under commit-time ordering no delete has an ordering value. The rule is the same for
    both table types, so that they delete the same rows.

    Parameters
    ----------
    deleted : ndarray of bool, shape (n_records,)
        True if a record deletes its key.
    columns : pa.Table, shape (n_records, n_fields)
        The records; ordering fields have the table's types.
    ordering_fields : sequence of str
        Ordering fields; empty under commit-time ordering.
    """
    found, orderings = deleted.copy(), [column_of(columns, f, ORDERING) for f in ordering_fields]
    for values in orderings:
        found &= values.is_null().to_numpy()
    if len(orderings) == 1:
        (values,) = orderings
        if pa.types.is_int32(values.type) or pa.types.is_date32(values.type):
            found |= deleted & mask_of(pc.equal(values.cast(pa.int32()), 0))
    return found


def comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert ordering values to values whose Arrow order is Hudi's order.

    A missing number becomes 0, Hudi's default ordering value. A missing value of another type stays
    null, which is less than all other values. Floating-point values become integers in Java's total
    order: -0.0 before 0.0, NaN last.
    """
    array = one_array(values)
    if pa.types.is_floating(array.type):
        bits = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False).copy()
        bits[np.isnan(bits)] = np.nan  # Java's comparison treats all NaN values as equal.
        as_int = bits.view(np.int64)
        return pa.array(as_int ^ ((as_int >> 63) & np.int64(2**63 - 1)))
    if pa.types.is_integer(array.type) or pa.types.is_decimal(array.type):
        return array.fill_null(_zero(array.type))
    return array


def _zero(data_type: pa.DataType) -> pa.Scalar:
    # A cast from an integer would fail for a decimal type with few digits.
    return pa.scalar(Decimal(0) if pa.types.is_decimal(data_type) else 0, data_type)


def at_least(left: tuple[pa.Array, ...], right: tuple[pa.Array, ...]) -> BoolArray:
    """Compare ordering values pair by pair: whether ``left`` is not less than ``right``.

    Several fields are compared as a tuple. Both sides come from :func:`comparable`.
    """
    result: BoolArray | None = None
    for new, old in zip(reversed(left), reversed(right), strict=True):
        greater, equal = _greater(new, old), _equal(new, old)
        result = greater | (equal if result is None else equal & result)
    assert result is not None, "event-time ordering needs an ordering field"
    return result


def codes_of_repeated_keys(keys: pa.Array) -> npt.NDArray[np.int32] | None:
    """Return equal numbers for equal keys; None if all keys differ."""
    if len(keys) <= _FEW_KEYS and pc.count_distinct(keys).as_py() == len(keys):
        return None
    heads = np.sort(_eight_bytes_after_common_prefix(keys))  # Faster than a table of all keys.
    if (heads[1:] != heads[:-1]).all():
        return None
    codes: npt.NDArray[np.int32] = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return None if codes.max() + 1 == len(codes) else codes


def distinct_rows(records: IncomingRecords, positions: IntArray | None) -> IntArray:
    """Choose one record per key: the one with the greatest ordering value.

    Parameters
    ----------
    records : IncomingRecords
        Any records of one partition.
    positions : ndarray of int64 or None
        Positions of the records in an input with an order: if ordering values are equal, the later
        record stays, and a commit-time delete counts against earlier records alone, as if each
        record was a write of its own. None for an input without an order, such as a DataFrame: then
        a commit-time delete stays, else the contents decide, so that two evaluations of a plan keep
        the same record.

    Returns
    -------
    ndarray of int64
        The rows of these records, ascending.
    """
    codes = codes_of_repeated_keys(records.keys)
    if codes is None:
        return np.arange(len(records))
    return _distinct(records, codes, positions)


def key_order(keys: pa.Array) -> IntArray:
    """Return the positions that sort keys by their UTF-8 bytes; equal keys keep their order.

    Keys of a file group often share a prefix and differ soon after it. So the eight bytes after the
    common prefix are sorted as integers; only keys that are equal in these bytes are compared.
    """
    if len(keys) <= _FEW_KEYS:
        return _positions(pc.array_sort_indices(keys))
    heads = _eight_bytes_after_common_prefix(keys)
    order: IntArray = np.argsort(heads).astype(np.int64, copy=False)  # A stable sort takes longer.
    ordered = heads[order]
    is_tied = ordered[1:] == ordered[:-1]
    if is_tied.any():
        tied = np.flatnonzero(np.append(is_tied, False) | np.insert(is_tied, 0, False))
        rows = np.sort(order[tied])
        order[tied] = rows[_positions(pc.array_sort_indices(keys.take(pa.array(rows))))]
    return order


def _distinct(
    records: IncomingRecords, codes: npt.NDArray[np.int32], positions: IntArray | None
) -> IntArray:
    repeated = np.flatnonzero(np.bincount(codes)[codes] > 1)
    winners = _winners(records.take(repeated), codes[repeated], positions, repeated)
    keep = np.ones(len(codes), np.bool_)
    keep[repeated] = False
    keep[winners] = True
    return np.flatnonzero(keep)


def _winners(
    repeated: IncomingRecords,
    codes: npt.NDArray[np.int32],
    positions: IntArray | None,
    places: IntArray,
) -> IntArray:
    order = order_of_repeated(repeated, codes, positions, places)
    ordered = codes[order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    winners: IntArray = places[order[last]]
    return winners


def order_of_repeated(
    repeated: IncomingRecords,
    codes: npt.NDArray[np.int32],
    positions: IntArray | None,
    places: IntArray,
) -> IntArray:
    """Return the order of records by key, then by what makes a record of a key the later one.

    Parameters
    ----------
    repeated : IncomingRecords
        The records.
    codes : ndarray of int32
        Equal numbers for equal keys.
    positions : ndarray of int64 or None
        As for :func:`distinct_rows`, of all records of the batch.
    places : ndarray of int64
        The places of these records among them.
    """
    at = None if positions is None else positions[places]
    keys = [pa.array(codes), *_after_resets(repeated.is_reset, codes, at), *repeated.ordering]
    if at is None or repeated.ordering:  # At equal ordering values a delete wins.
        keys.append(pa.array(repeated.deleted))
    keys.extend(_contents(repeated.columns) if at is None else [pa.array(at)])
    return sort_nulls_first(keys)


def _after_resets(
    is_reset: BoolArray, codes: npt.NDArray[np.int32], positions: IntArray | None
) -> list[pa.Array]:
    """Return what orders the records of a key before their ordering values do.

    A commit-time delete comes after all earlier records of its key, and before all later ones.
    """
    if not is_reset.any():
        return []
    if positions is None:
        return [pa.array(is_reset)]
    order = np.lexsort((positions, codes.astype(np.int64)))
    counted = np.empty(len(codes), np.int64)
    counted[order] = np.cumsum(is_reset[order])  # Within a key, it grows with each such delete.
    return [pa.array(counted), pa.array(~is_reset)]


def sort_nulls_first(keys: list[pa.Array | pa.ChunkedArray]) -> IntArray:
    """Return the positions that sort rows by several keys, a null before all values."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for i, key in enumerate(keys):
        if key.null_count:
            columns[f"valid{i}"] = pc.is_valid(key)
        columns[f"key{i}"] = key
    return _positions(
        pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns])
    )


def _positions(indices: pa.Array) -> IntArray:
    positions: IntArray = indices.to_numpy().astype(np.int64)
    return positions


def _contents(columns: pa.Table) -> list[pa.ChunkedArray | pa.Array]:
    return [
        _rendered(column) if pa.types.is_nested(column.type) else column
        for column in columns.columns
    ]


def _rendered(column: pa.ChunkedArray) -> pa.Array:
    # Arrow cannot sort nested values. The loop over rows is rare: only rows with repeated keys.
    return pa.array([json.dumps(v, default=str, sort_keys=True) for v in column.to_pylist()])


def _greater(new: pa.Array, old: pa.Array) -> BoolArray:
    return mask_of(pc.greater(new, old)) | mask_of(pc.and_(pc.is_valid(new), pc.is_null(old)))


def _equal(new: pa.Array, old: pa.Array) -> BoolArray:
    return mask_of(pc.equal(new, old)) | mask_of(pc.and_(pc.is_null(new), pc.is_null(old)))


def _eight_bytes_after_common_prefix(keys: pa.Array) -> npt.NDArray[np.uint64]:
    keys = keys.cast(pa.large_string())
    limits = pc.min_max(keys).as_py()
    low, high = limits["min"].encode(), limits["max"].encode()
    shared = next(
        (i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b),
        min(len(low), len(high)),
    )
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(data_buffer, np.uint8)
    if len(data) < _HEAD_BYTES:
        data = np.append(data, np.zeros(_HEAD_BYTES, np.uint8))
    last = len(data) - _HEAD_BYTES
    words = np.ndarray((last + 1,), "<u8", data, strides=(1,))  # The eight bytes at each position.
    sizes = np.diff(offsets)
    shortest, longest = sizes.min(), sizes.max()
    if shortest == longest:  # Then eight bytes that end with the key need no mask.
        shared = min(shared, max(0, shortest - _HEAD_BYTES))
    starts = offsets[:-1] + shared
    if starts[-1] <= last:
        heads = words[starts].byteswap()
    else:  # Drop what is before a head that begins near the end of the data.
        at = np.minimum(starts, last)
        heads = _shifted(words[at].byteswap(), starts - at)
    if shortest < shared + _HEAD_BYTES:  # Drop what is after the key.
        heads &= _MASKS[np.clip(sizes - shared, 0, _HEAD_BYTES)]
    return heads


def _shifted(
    words: npt.NDArray[np.uint64], byte_counts: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Shift each word to the left by some bytes; NumPy does not define a shift by all eight."""
    shifted = words << (np.minimum(byte_counts, 7) * 8).astype(np.uint64)
    return np.where(byte_counts < _HEAD_BYTES, shifted, np.uint64(0))
