"""The pairs of rows that can match in a merge without Spark, made block by block.

The pairs of a join can be many more than its rows. So they are never all in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.merge.incoming import BoolArray, IntArray

BLOCK_PAIRS = 1 << 20
_NOTHING = -1


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The pairs of rows that are equal in what a merge equates; all pairs if it equates nothing.

    Attributes
    ----------
    stored, given : IntArray
        For each row of the table and of the source, the number of its values; -1 for values that
        the source lacks, and for nulls, which equal nothing.
    size : int
        The numbers are less than it.
    """

    stored: IntArray
    given: IntArray
    size: int

    @classmethod
    def of_keys(
        cls,
        keys: Sequence[tuple[pa.ChunkedArray, pa.ChunkedArray]],
        stored_count: int,
        given_count: int,
    ) -> Self:
        """Give the rows numbers by what is equated.

        Parameters
        ----------
        keys : sequence of (pa.ChunkedArray, pa.ChunkedArray)
            The two sides of each equation: of the table and of the source, of one type.
        stored_count, given_count : int
            Numbers of rows.

        Examples
        --------
        >>> ids = pa.chunked_array([["a", "b", None]]), pa.chunked_array([["b", "c", None, "b"]])
        >>> found = Candidates.of_keys([ids], 3, 4)
        >>> [(stored.tolist(), given.tolist()) for stored, given in found.blocks()]
        [([1, 1], [0, 3])]
        """
        stored, given, size = np.zeros(stored_count, int), np.zeros(given_count, int), 1
        for stored_key, given_key in keys:
            values = given_key.unique().drop_null()
            stored = _numbered(stored, stored_key, values)
            given = _numbered(given, given_key, values)
            size *= len(values)
            if size > given_count:
                distinct = np.unique(given[given >= 0])
                stored, given = _positions(stored, distinct), _positions(given, distinct)
                size = len(distinct)
        return cls(stored, given, size)

    @property
    def pair_count(self) -> int:
        """Number of pairs."""
        return int(self._given_per_number()[self.stored].sum())

    def matching(self) -> tuple[BoolArray, BoolArray]:
        """Return which rows of the table, and of the source, are in a pair."""
        is_stored = np.zeros(self.size + 1, np.bool_)
        is_stored[self.stored] = True
        is_stored[_NOTHING] = False
        return self._given_per_number()[self.stored] > 0, is_stored[self.given]

    def one_each(self) -> tuple[IntArray, IntArray]:
        """Return one pair of each row of the table that has some."""
        per_number, first, in_order = self._given_in_order()
        rows = np.flatnonzero(per_number[self.stored])
        return rows, in_order[first[self.stored[rows]]]

    def blocks(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the pairs as positions in the table and in the source, in at least one block.

        A block has all pairs of its rows of the table, in the order of these rows.
        """
        per_number, first, in_order = self._given_in_order()
        counts = per_number[self.stored]
        rows = np.flatnonzero(counts)
        ends = np.cumsum(counts[rows])
        start = 0
        while start == 0 or start < len(rows):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + BLOCK_PAIRS, "right")))
            held = rows[start:stop]
            lengths = counts[held]
            shifts = first[self.stored[held]] - (np.cumsum(lengths) - lengths)
            places = np.repeat(shifts, lengths) + np.arange(lengths.sum())
            yield np.repeat(held, lengths), in_order[places]
            start = stop

    def _given_in_order(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the rows of the source by number: how many, where they begin, and the rows."""
        per_number = self._given_per_number()
        in_order = np.argsort(self.given, kind="stable")[np.count_nonzero(self.given < 0) :]
        return per_number, np.cumsum(per_number) - per_number, in_order

    def _given_per_number(self) -> IntArray:
        """Return how many rows of the source have each number; the last entry, of -1, is 0."""
        return np.bincount(self.given[self.given >= 0], minlength=self.size + 1)


def _numbered(before: IntArray, key: pa.ChunkedArray, values: pa.Array) -> IntArray:
    """Return numbers of rows by another key, too."""
    found = pc.fill_null(pc.index_in(key, value_set=values), _NOTHING).to_numpy()
    return np.where((before < 0) | (found < 0), _NOTHING, before * len(values) + found)


def _positions(numbers: IntArray, distinct: IntArray) -> IntArray:
    """Return where numbers are among some; -1 for others."""
    found = np.full(len(numbers), _NOTHING)
    rows = np.flatnonzero(numbers >= 0)
    if len(distinct):
        places = np.searchsorted(distinct, numbers[rows])
        places = np.minimum(places, len(distinct) - 1)
        is_there = distinct[places] == numbers[rows]
        found[rows[is_there]] = places[is_there]
    return found
