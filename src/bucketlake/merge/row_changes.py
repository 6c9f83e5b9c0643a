"""Compares two states of some rows by key: which rows were inserted, updated and deleted.

Columns are compared at a time, also those inside lists, maps and structs. A row whose values are
all equal did not change, whatever commit wrote it again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.merge.incoming import BoolArray, IntArray, key_order
from bucketlake.model.arrays import one_array

INSERT, UPDATE, DELETE = "i", "u", "d"

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The rows that changed, as positions in the two states; -1 where a state has no such row.

    Attributes
    ----------
    before, after : ndarray of int64, shape (n_changes,)
        Never both -1.
    """

    before: IntArray
    after: IntArray

    @property
    def operations(self) -> pa.StringArray:
        """Hudi's letter for each change: ``i``, ``u`` or ``d``."""
        code = np.where(self.before == NOWHERE, 0, np.where(self.after == NOWHERE, 2, 1))
        return pa.array([INSERT, UPDATE, DELETE]).take(pa.array(code))

    def take(self, before: pa.Array, after: pa.Array) -> pa.Array:
        """Return a value of each change: that of the row before, or if there is none, after."""
        places = np.where(self.before == NOWHERE, len(before) + self.after, self.before)
        return pa.concat_arrays([before, after]).take(pa.array(places))

    def chosen(self, which: BoolArray | IntArray | slice) -> RowChanges:
        """Return some of the changes, or all in another order."""
        return RowChanges(self.before[which], self.after[which])

    def differ(self, before: pa.Table, after: pa.Table) -> BoolArray:
        """Return which of them change a value of some columns; an insert or a delete does."""
        found = np.ones(len(self), np.bool_)
        both = np.flatnonzero((self.before != NOWHERE) & (self.after != NOWHERE))
        old, new = pa.array(self.before[both]), pa.array(self.after[both])
        found[both] = differing(before.take(old), after.take(new))
        return found

    def __len__(self) -> int:
        return len(self.before)


def row_changes(keys_before: pa.Array, keys_after: pa.Array) -> RowChanges:
    """Pair the rows of two states by their keys; a row that one state lacks has no other.

    Parameters
    ----------
    keys_before, keys_after : pa.Array
        Record keys of the rows of each state. If a key is there several times, its first rows are
        a pair, then its second rows.

    Returns
    -------
    RowChanges
        Sorted by key. A pair is a change if its values differ, see :meth:`RowChanges.differ`.
    """
    count = len(keys_before)
    numbers = _numbered(pa.concat_arrays([keys_before, keys_after]), count)
    place = np.full(int(numbers.max(initial=-1)) + 1, NOWHERE)
    place[numbers[:count]] = np.arange(count)
    found = place[numbers[count:]]
    is_left = np.ones(count, np.bool_)
    is_left[found[found != NOWHERE]] = False
    gone = np.flatnonzero(is_left)
    pairs = RowChanges(
        np.concatenate([gone, found]),
        np.concatenate([np.full(len(gone), NOWHERE), np.arange(len(found))]),
    )
    return pairs.chosen(key_order(pairs.take(keys_before, keys_after)))


def images(rows: pa.Table, positions: IntArray, *, nullable: bool = False) -> pa.StructArray:
    """Return rows as structs; null for position -1. The fields are nullable if the caller says so.

    In an image that is missing, all values are.
    """
    absent = positions == NOWHERE
    taken = rows.take(pa.array(positions, mask=absent))
    fields = [field.with_nullable(field.nullable or nullable) for field in rows.schema]
    arrays = [column.combine_chunks() for column in taken.columns]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(absent))


def differing(one: pa.Table, other: pa.Table) -> BoolArray:
    """Return for each row whether two tables of one schema have different values in it."""
    found = np.zeros(one.num_rows, np.bool_)
    for left, right in zip(one.columns, other.columns, strict=True):
        found |= _differ(one_array(left), one_array(right))
    return found


def _numbered(keys: pa.Array, count: int) -> IntArray:
    """Return a number for each key of two states, the first of which has ``count`` keys.

    Two rows have equal numbers if they are the first rows of one key in their states, or the second
    ones, and so on.
    """
    indices = keys.dictionary_encode().indices
    codes: IntArray = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    ranks = np.concatenate([_ranks(codes[:count]), _ranks(codes[count:])])
    if not ranks.any():
        return codes
    both = np.unique(np.stack([codes, ranks]), axis=1, return_inverse=True)[1]
    return both.reshape(-1).astype(np.int64)


def _ranks(codes: IntArray) -> IntArray:
    """Return for each code how many equal codes are before it."""
    order = np.argsort(codes, kind="stable")
    ordered, places = codes[order], np.arange(len(codes))
    begins = np.ones(len(codes), np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return ranks


def _differ(one: pa.Array, other: pa.Array) -> BoolArray:
    """Compare two arrays of one type, value by value; null equals null, and NaN equals NaN."""
    has_one, has_other = are_valid(one), are_valid(other)
    found: BoolArray = has_one != has_other
    rows = np.flatnonzero(has_one & has_other)
    if len(rows) == 0:
        return found
    if len(rows) < len(one):
        chosen = pa.array(rows)
        one, other = one.take(chosen), other.take(chosen)
    found[rows] = _values_differ(one, other)
    return found


def _values_differ(one: pa.Array, other: pa.Array) -> BoolArray:
    """Compare two arrays of one type without nulls at their top."""
    kind = one.type
    if pa.types.is_struct(kind):
        found = np.zeros(len(one), np.bool_)
        for left, right in zip(one.flatten(), other.flatten(), strict=True):
            found |= _differ(left, right)
        return found
    if pa.types.is_nested(kind):
        return _lists_differ(one, other)
    found = ~np.asarray(pc.equal(one, other).to_numpy(zero_copy_only=False), np.bool_)
    if pa.types.is_floating(kind):
        nan = pc.and_(pc.is_nan(one), pc.is_nan(other)).to_numpy(zero_copy_only=False)
        found &= ~nan
    return found


def _lists_differ(one: pa.Array, other: pa.Array) -> BoolArray:
    """Compare lists or maps; two maps differ if their entries have another order."""
    if pa.types.is_map(one.type):
        one, other = _entries(one), _entries(other)
    lengths = pc.list_value_length(one).to_numpy(zero_copy_only=False)
    found: BoolArray = lengths != pc.list_value_length(other).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(~found)
    chosen = pa.array(rows)
    one, other = one.take(chosen), other.take(chosen)
    parents = pc.list_parent_indices(one).to_numpy(zero_copy_only=False)
    changed = parents[_differ(pc.list_flatten(one), pc.list_flatten(other))]
    found[rows[changed]] = True
    return found


def _entries(maps: pa.MapArray) -> pa.ListArray:
    """Return maps without nulls as lists of entries."""
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], ["key", "value"])
    return pa.ListArray.from_arrays(maps.offsets, entries)


def are_valid(values: pa.Array | pa.ChunkedArray) -> BoolArray:
    """Return which values are no nulls."""
    flags: BoolArray = pc.is_valid(values).to_numpy(zero_copy_only=False)
    return flags
