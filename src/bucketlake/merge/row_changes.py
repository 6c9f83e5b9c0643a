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

_NOWHERE = -1


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
        code = np.where(self.before == _NOWHERE, 0, np.where(self.after == _NOWHERE, 2, 1))
        return pa.array([INSERT, UPDATE, DELETE]).take(pa.array(code))

    def take(self, before: pa.Array, after: pa.Array) -> pa.Array:
        """Return a value of each change: that of the row before, or if there is none, after."""
        places = np.where(self.before == _NOWHERE, len(before) + self.after, self.before)
        return pa.concat_arrays([before, after]).take(pa.array(places))

    def chosen(self, which: BoolArray | slice) -> RowChanges:
        """Return some of the changes."""
        return RowChanges(self.before[which], self.after[which])

    def __len__(self) -> int:
        return len(self.before)


def row_changes(
    keys_before: pa.Array,
    keys_after: pa.Array,
    before: pa.Table | None = None,
    after: pa.Table | None = None,
) -> RowChanges:
    """Compare two states of some rows.

    Parameters
    ----------
    keys_before, keys_after : pa.Array
        Record keys of the rows of each state. If a key is there several times, its first rows are
        compared with each other, then its second rows.
    before, after : pa.Table, optional
        The columns to compare, with equal schemas; by default each key in both states is an update.

    Returns
    -------
    RowChanges
        Sorted by key.
    """
    count = len(keys_before)
    numbers = _numbered(pa.concat_arrays([keys_before, keys_after]), count)
    place = np.full(int(numbers.max(initial=-1)) + 1, _NOWHERE)
    place[numbers[:count]] = np.arange(count)
    found = place[numbers[count:]]
    both = np.flatnonzero(found != _NOWHERE)
    if before is not None and after is not None:
        both = both[differing(before.take(pa.array(found[both])), after.take(pa.array(both)))]
    is_left = np.ones(count, np.bool_)
    is_left[found[found != _NOWHERE]] = False
    gone, new = np.flatnonzero(is_left), np.flatnonzero(found == _NOWHERE)
    nowhere = np.full(len(new), _NOWHERE), np.full(len(gone), _NOWHERE)
    changes = RowChanges(
        np.concatenate([gone, found[both], nowhere[0]]),
        np.concatenate([nowhere[1], both, new]),
    )
    keys = pa.concat_arrays(
        [keys_before.take(pa.array(gone)), keys_after.take(pa.array(np.concatenate([both, new])))]
    )
    order = key_order(keys)
    return RowChanges(changes.before[order], changes.after[order])


def images(rows: pa.Table, positions: IntArray, *, nullable: bool = False) -> pa.StructArray:
    """Return rows as structs; null for position -1. The fields are nullable if the caller says so.

    In an image that is missing, all values are.
    """
    absent = positions == _NOWHERE
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
    has_one, has_other = _valid(one), _valid(other)
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


def _valid(array: pa.Array) -> BoolArray:
    flags: BoolArray = array.is_valid().to_numpy(zero_copy_only=False)
    return flags
