"""Texts of a column as rows of 64-bit words: their hashes, and their comparison.

Texts lie anywhere in a buffer. A step copies up to 64 bytes of each text of a block into the rows
of a matrix and sets the bytes behind the end of a text to zero. The copies are the only access to
memory at random, all further work is on the matrix. The hashes are for caches on local disk: no
table stores them, and another version of this module may compute other hashes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hashing.index_key import Bytes, Positions, text_buffers

# ---- Mixing of hashes ----------------------------------------------------------------------------
#
# 32-bit hashes with a common pattern become even 64-bit numbers (splitmix64).

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)

_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a well mixed number for each number; different ones for different numbers.

    Examples
    --------
    >>> mix(np.array([0], np.uint64)).tolist()
    [16294208416658607535]
    """
    with np.errstate(over="ignore"):
        mixed = values + _INCREMENT
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MULTIPLIERS[0]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLIERS[1]
        mixed ^= mixed >> np.uint64(31)
        return mixed


TextHashes: TypeAlias = npt.NDArray[np.uint64]
WordArray: TypeAlias = npt.NDArray[np.uint64]  # Shape (n_texts, n_words).

HASH_VERSION = 1
"""Changes whenever the hash of a text changes."""

PADDING_BYTES = 64
"""How many bytes follow the last text of a buffer, so that whole rows can be copied."""

_WORD_BYTES = 8
_ROW_BYTES_MAX = 64
_ROWS_AT_ONCE = 1 << 14  # The matrix of a block fits into the processor's cache.
_HALF = np.uint64(32)
_WORD_FACTORS = mix(np.arange(_ROW_BYTES_MAX // _WORD_BYTES, dtype=np.uint64)) | np.uint64(1)
_STEP_FACTOR = np.uint64(0x9FB21C651E98DF25)
_LENGTH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts in a buffer, in any order.

    Attributes
    ----------
    data : ndarray of uint8
        Bytes of the texts, any bytes between them, and ``PADDING_BYTES`` after the last text.
    starts : ndarray of int64, shape (n_texts,)
        Where each text begins.
    lengths : ndarray of int64, shape (n_texts,), or int
        How many bytes each text has; a number if all have the same length.
    """

    data: Bytes
    starts: Positions
    lengths: Positions | int

    @classmethod
    def of_array(cls, keys: pa.Array) -> Self:
        """Copy the texts of a column; a null is an empty text.

        Raises
        ------
        InputError
            If the column is not text.
        """
        data, offsets = text_buffers(keys)
        own = data[int(offsets[0]) : int(offsets[-1])]
        padded = np.concatenate([own, np.zeros(PADDING_BYTES, np.uint8)])
        starts, lengths = (offsets - offsets[0])[:-1], np.diff(offsets)
        are_equal = len(lengths) and (lengths == lengths[0]).all()
        return cls(padded, starts, int(lengths[0]) if are_equal else lengths)

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Positions | slice) -> Self:
        """Return the texts at some rows, in that order."""
        lengths = self.lengths
        own = lengths if isinstance(lengths, int) else lengths[rows]
        return type(self)(self.data, self.starts[rows], own)

    def blocks(self) -> Iterator[tuple[slice, Self]]:
        """Yield parts of a size that the processor's cache holds, and their rows."""
        for first in range(0, len(self), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            yield rows, self.take(rows)

    def length_max(self) -> int:
        """Return the length of the longest text."""
        lengths = self.lengths
        return lengths if isinstance(lengths, int) else int(lengths.max(initial=0))

    def rows_from(self, at: int, count: int) -> WordArray:
        """Return a row of words for each text, from its byte ``at`` on.

        A row also has the bytes that follow the text, up to its size.
        """
        size = count * _WORD_BYTES
        views = np.ndarray((len(self.data) - size + 1,), f"V{size}", self.data, strides=(1,))
        return views[self.starts + at if at else self.starts].view("<u8").reshape(-1, count)

    def clear_after_end(self, words: WordArray, at: int) -> None:
        """Set the bytes to zero that follow the text in each row of words from ``at`` on."""
        size = words.shape[1] * _WORD_BYTES
        if not isinstance(self.lengths, int):
            words &= _masks(size)[np.minimum(self.lengths - at, size)]
        elif self.lengths - at < size:  # Only the last word of each row is incomplete.
            words[:, -1] &= _masks(size)[self.lengths - at, -1]


def hash_texts(texts: Texts) -> TextHashes:
    """Return a well mixed 64-bit hash of each text.

    Examples
    --------
    >>> hash_texts(Texts.of_array(pa.array(["k1", "k2"]))).tolist()
    [12826643888650097382, 6051819849719563098]
    """
    hashes = np.empty(len(texts), np.uint64)
    for rows, block in texts.blocks():
        sums = np.empty(len(block), np.uint64)
        sums[:] = block.lengths
        sums *= _LENGTH_FACTOR
        for at, longer, count in _steps(block):
            part = block.take(longer)
            words = part.rows_from(at, count)
            part.clear_after_end(words, at)
            for column, factor in zip(words.T, _WORD_FACTORS, strict=False):
                mixed = column * factor
                mixed ^= mixed >> _HALF
                mixed *= _STEP_FACTOR + np.uint64(2 * at)
                sums[longer] += mixed
        hashes[rows] = mix(sums)
    return hashes


def same_texts(left: Texts, right: Texts) -> npt.NDArray[np.bool_]:
    """Return whether both texts of each pair have the same bytes."""
    same = np.array(np.broadcast_to(np.equal(left.lengths, right.lengths), len(left)))
    if not same.all():
        rows = np.flatnonzero(same)
        same[rows] = same_texts(left.take(rows), right.take(rows))
        return same
    for at, longer, count in _steps(left):
        part = left.take(longer)
        words = part.rows_from(at, count)
        words ^= right.take(longer).rows_from(at, count)
        part.clear_after_end(words, at)
        differing = words[:, 0]
        for column in words.T[1:]:
            differing |= column
        same[longer] &= differing == 0
    return same


@dataclass(frozen=True, slots=True, eq=False)
class TextTable:
    """Distinct texts that other texts are looked up in; made once, for any number of lookups.

    The hashes are sorted, and divided into cells of one text on average. A lookup goes through a
    cell, and compares the texts whose hashes are equal.

    Attributes
    ----------
    texts : Texts
        The texts.
    order : ndarray of int64, shape (n_texts,)
        Their positions, by hash.
    hashes : ndarray of uint64, shape (n_texts,)
        Their hashes, ascending.
    first : ndarray of int64, shape (n_cells + 1,)
        The first of the hashes of each cell, and the number of texts.
    """

    texts: Texts
    order: Positions
    hashes: TextHashes
    first: Positions

    @classmethod
    def of_array(cls, keys: pa.Array) -> Self:
        """Make the table of the texts of a column."""
        texts = Texts.of_array(keys)
        hashes = hash_texts(texts)
        order = np.argsort(hashes)
        hashes = hashes[order]
        cell_count = 1 << len(keys).bit_length()
        counts = np.bincount(_cells(hashes, cell_count), minlength=cell_count)
        return cls(texts, order, hashes, np.append(0, np.cumsum(counts)))

    def places_of(self, keys: pa.Array) -> tuple[Positions, Positions]:
        """Return which texts of a column are in the table, and where they are in its column.

        Examples
        --------
        >>> table = TextTable.of_array(pa.array(["b", "a"]))
        >>> [found.tolist() for found in table.places_of(pa.array(["a", "c", "b", "a"]))]
        [[0, 2, 3], [1, 0, 1]]
        """
        texts = Texts.of_array(keys)
        hashes = hash_texts(texts)
        places = np.full(len(texts), -1)
        cells = _cells(hashes, len(self.first) - 1)
        at, ends = self.first[cells], self.first[cells + 1]
        rows = np.flatnonzero(at < ends)
        at = at[rows]
        while len(rows):
            hits = np.flatnonzero(self.hashes[at] == hashes[rows])
            hit, found = rows[hits], self.order[at[hits]]
            same = same_texts(texts.take(hit), self.texts.take(found))
            places[hit[same]] = found[same]
            at += 1
            is_open = (at < ends[rows]) & (places[rows] < 0)
            rows, at = rows[is_open], at[is_open]
        found_rows = np.flatnonzero(places >= 0)
        return found_rows, places[found_rows]


def _cells(hashes: TextHashes, cell_count: int) -> Positions:
    """Return the cell of each hash, ascending with the hash; the count is a power of two."""
    bits = np.uint64(cell_count.bit_length() - 1)
    return ((hashes >> np.uint64(1)) >> (np.uint64(63) - bits)).astype(np.int64)


def _steps(texts: Texts) -> Iterator[tuple[int, Positions | slice, int]]:
    """Yield the steps over all bytes: where each starts, the rows that reach it, its words."""
    length_max = texts.length_max()
    for at in range(0, length_max, _ROW_BYTES_MAX):
        size = min(length_max - at, _ROW_BYTES_MAX)
        longer: Positions | slice = slice(None)
        if at and not isinstance(texts.lengths, int):
            longer = np.flatnonzero(texts.lengths > at)
        yield at, longer, -(-size // _WORD_BYTES)


@cache
def _masks(size: int) -> WordArray:
    """Return for each number of bytes up to ``size`` a row that keeps so many first bytes."""
    kept = np.tri(size + 1, size, -1, np.uint8) * np.uint8(0xFF)
    return kept.view("<u8")
