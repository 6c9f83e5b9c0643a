"""Merging statistics: of two records with one key, and of files to statistics of a partition.

Statistics are *united*: the bounds hold the values of all parts, counts and sizes are summed. If a
column was widened, its bounds have several value types; the united bounds have the widest. If the
bounds of a part are not known, those of the whole are not known, so that no reader skips its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.avro.cursor import Ints
from bucketlake.format.metadata_record.bounds import (
    StoredType,
    ValueType,
    read_bounds,
    stored_types,
    wrap_bounds,
)
from bucketlake.format.metadata_record.column_stats import (
    ColumnStats,
    WrappedValues,
)

_Piece: TypeAlias = tuple[int, Ints, pa.Array]  # A branch, rows, and their values.

_NONE = -1


def merge_layers(codes: Ints, stats: ColumnStats, path: str) -> tuple[Ints, ColumnStats]:
    """Merge all records of each key.

    A record replaces the older ones if its bounds are tight, or if it is a removal. Otherwise they
    are united.

    Parameters
    ----------
    codes : ndarray of int64, shape (n_rows,)
        A number for the key of each record.
    stats : ColumnStats
        The records in order of age.
    path : str
        The file, for messages.

    Returns
    -------
    codes : ndarray of int64
        The keys that are not removed, ascending.
    stats : ColumnStats
        The record of each of them.
    """
    is_deleted = stats.is_deleted.to_numpy(zero_copy_only=False)
    is_tight = stats.is_tight_bound.to_numpy(zero_copy_only=False)
    rows = np.arange(len(codes))
    count = int(codes.max(initial=-1)) + 1
    tight = _last_rows(np.flatnonzero(is_tight & ~is_deleted), codes, count)
    deleted = _last_rows(np.flatnonzero(is_deleted), codes, count)
    counting = np.flatnonzero((rows >= tight[codes]) & (rows > deleted[codes]))
    found, groups, sizes = np.unique(codes[counting], return_inverse=True, return_counts=True)
    is_alone = sizes[groups] == 1
    alone, several = counting[is_alone], counting[~is_alone]
    keys, merged = codes[alone], stats.take(alone)  # These keep their tight bounds.
    if len(several):
        united_keys, own = np.unique(codes[several], return_inverse=True)
        united = unite_statistics(stats.take(several), own, len(united_keys), path)
        keys = np.concatenate([keys, united_keys])
        merged = ColumnStats.concat([merged, united])
    return found, merged.take(np.argsort(keys))


def unite_statistics(stats: ColumnStats, groups: Ints, count: int, path: str) -> ColumnStats:
    """Unite the statistics of each group of rows.

    Parameters
    ----------
    stats : ColumnStats
        Statistics. The rows of a group are about one column and in order of age.
    groups : ndarray of int64, shape (n_rows,)
        The group of each row. Every group has a row.
    count : int
        Number of groups.
    path : str
        The file, for messages.

    Returns
    -------
    ColumnStats
        A row for each group, with the names of its newest row. The bounds are not tight.
    """
    kinds = _Kinds.of(stats)
    newest = _last_rows(np.arange(len(groups)), groups, count)
    typed = _last_rows(np.flatnonzero(kinds.have_types[kinds.codes]), groups, count)
    typed = np.where(typed == _NONE, newest, typed)
    minima: list[_Piece] = []
    maxima: list[_Piece] = []
    for target, rows in _by_target(_bounded_rows(stats, groups, count), groups, kinds):
        kind = kinds.kinds[target]
        own = _last_rows(rows[kinds.codes[rows] == target], groups, count)
        typed = np.where(own == _NONE, typed, own)
        lows = kinds.read(stats.minima, rows, kind, path, is_minimum=True)
        highs = kinds.read(stats.maxima, rows, kind, path, is_minimum=False)
        minima += kind.wrap(*_extremes(lows, groups[rows], lowest=True), kind.minimum)
        maxima += kind.wrap(*_extremes(highs, groups[rows], lowest=False), kind.maximum)
    no = pa.array(np.zeros(count, np.bool_))
    return ColumnStats(
        stats.names.take(pa.array(newest)),
        stats.columns.take(pa.array(newest)),
        WrappedValues.gather(count, minima),
        WrappedValues.gather(count, maxima),
        _sums(stats.value_counts, groups, count),
        _sums(stats.null_counts, groups, count),
        _sums(stats.stored_bytes, groups, count),
        _sums(stats.uncompressed_bytes, groups, count),
        is_deleted=no,
        is_tight_bound=no,
        value_types=stats.value_types.take(pa.array(typed)),
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """How bounds are stored: the value type, and the branches of minimum and maximum."""

    stored_as: StoredType
    minimum: int
    maximum: int

    def widens_to(self, wider: _Kind) -> bool:
        if self.stored_as == wider.stored_as:
            return self == wider
        return self.stored_as.widens_to(wider.stored_as)

    def wrap(self, rows: Ints, bounds: pa.Array, branch: int) -> list[_Piece]:
        """Return bounds as pieces of wrapped values; undoes :meth:`_Kinds.read`."""
        if self.stored_as.arrow is None:
            return [(branch, rows, bounds)]
        parts = wrap_bounds(bounds).parts.items()
        return [(branch, rows[at], values) for branch, (at, values) in parts]


@dataclass(frozen=True, slots=True, eq=False)
class _Kinds:
    """The distinct kinds of some statistics, and the code of each row: its place among them."""

    codes: Ints
    kinds: tuple[_Kind, ...]

    @classmethod
    def of(cls, stats: ColumnStats) -> _Kinds:
        places, types = stored_types(stats.value_types)
        facts = np.stack([places, stats.minima.branches, stats.maxima.branches])
        distinct, codes = np.unique(facts, axis=1, return_inverse=True)
        kinds = tuple(_Kind(types[place], low, high) for place, low, high in distinct.T.tolist())
        return cls(codes.reshape(-1), kinds)

    @property
    def have_types(self) -> npt.NDArray[np.bool_]:
        """Whether each kind says the type of its column; Hudi's statistics of no rows do not."""
        return np.array([kind.stored_as.value_type != ValueType.NULL for kind in self.kinds])

    def widest(self, codes: list[int]) -> int:
        """Return the code of a kind to which all others can be widened; ``_NONE`` without such."""
        for code in codes:
            if all(self.kinds[other].widens_to(self.kinds[code]) for other in codes):
                return code
        return _NONE

    def read(
        self, wrapped: WrappedValues, rows: Ints, target: _Kind, path: str, *, is_minimum: bool
    ) -> pa.Array:
        """Return the bounds of some rows as values of one type, which can be compared."""
        arrow = target.stored_as.arrow
        pieces, places = [], []
        for code in np.unique(self.codes[rows]).tolist():
            at = np.flatnonzero(self.codes[rows] == code)
            values: pa.Array | None = wrapped.stored(rows[at])
            if arrow is not None:
                stored_as = self.kinds[code].stored_as
                values = read_bounds(values, stored_as, arrow, path, is_minimum=is_minimum)
            pieces.append(pa.nulls(len(at), arrow) if values is None else values)
            places.append(at)
        return pa.concat_arrays(pieces).take(pa.array(np.argsort(np.concatenate(places))))


def _bounded_rows(stats: ColumnStats, groups: Ints, count: int) -> Ints:
    """Return the rows with values, of the groups in which all such rows have bounds."""
    # Where all values are null there are no bounds, although Hudi may write zeros.
    all_null = pc.fill_null(pc.equal(stats.value_counts, stats.null_counts), False)
    has_values = ~all_null.to_numpy(zero_copy_only=False)
    lacks = has_values & ((stats.minima.branches == 0) | (stats.maxima.branches == 0))
    is_unknown = np.zeros(count, np.bool_)
    is_unknown[groups[lacks]] = True
    return np.flatnonzero(has_values & ~is_unknown[groups])


def _by_target(rows: Ints, groups: Ints, kinds: _Kinds) -> Iterator[tuple[int, Ints]]:
    """Yield the code of each kind of united bounds, with the rows of the groups that get it."""
    pairs = np.unique(np.stack([groups[rows], kinds.codes[rows]]), axis=1)
    held, starts, sizes = np.unique(pairs[0], return_index=True, return_counts=True)
    targets = pairs[1, starts]
    for place in np.flatnonzero(sizes > 1).tolist():  # Columns that were widened.
        codes = pairs[1, starts[place] : starts[place] + sizes[place]]
        targets[place] = kinds.widest(codes.tolist())
    of_row = targets[np.searchsorted(held, groups[rows])]
    for target in np.unique(targets[targets != _NONE]).tolist():
        yield target, rows[of_row == target]


def _extremes(values: pa.Array, groups: Ints, *, lowest: bool) -> tuple[Ints, pa.Array]:
    """Return the groups without a null, ascending, and the lowest or highest value of each.

    NaN is greater than every number, as in Spark.
    """
    table = pa.table({"group": groups, "value": values})
    keys = [("group", "ascending"), ("value", "ascending")]
    order = pc.sort_indices(table, sort_keys=keys).to_numpy()  # NaN and then nulls come last.
    ordered = groups[order]
    is_edge = np.append(ordered[1:] != ordered[:-1], True)
    places = order[np.roll(is_edge, 1) if lowest else is_edge]
    unknown = groups[values.is_null().to_numpy(zero_copy_only=False)]
    places = places[~np.isin(groups[places], unknown)]
    return groups[places], values.take(pa.array(places))


def _last_rows(rows: Ints, groups: Ints, count: int) -> Ints:
    """Return the last of some rows in each group; ``_NONE`` if it has none of them."""
    last = np.full(count, _NONE, np.int64)
    last[groups[rows]] = rows  # For repeated groups the last assignment stays.
    return last


def _sums(numbers: pa.Array, groups: Ints, count: int) -> pa.Array:
    """Return the sum of each group; null if it has a null."""
    sums, is_null = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    np.add.at(sums, groups, pc.fill_null(numbers, 0).to_numpy())
    is_null[groups[numbers.is_null().to_numpy(zero_copy_only=False)]] = True
    return pa.array(sums, mask=is_null)
