"""From stored record keys to the values that choose a bucket, and to their hash (RFC-29, RFC-42).

A record key of several fields is stored as ``f1:v1,f2:v2``. The simple index uses Java's list hash
over the values of the hash fields; a hash ring uses XXH32 of the joined values. Nothing in a key is
escaped, so Hudi splits a key by a rule that must be followed exactly, or two writers would choose
different buckets:

- A key without ``,`` or without ``:`` is one value, unchanged.
- Otherwise a comma ends a field if the next colon or comma of the key is a colon, and if there is a
  colon before the comma. A field's name ends at its first colon.
- If no field's name is among the hash fields, the whole key is one value.

The code states the rule for positions, so that it splits all keys of a column at once. The tests
compare it with a simple parser of one key. ``index/`` computes the bucket from the hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hashing.java_hash import (
    Bytes,
    Hashes,
    Positions,
    hash_spans,
    powers_of_31,
    text_buffers,
)

_COMMA, _COLON = ord(","), ord(":")
_ROWS_AT_ONCE = 1 << 14  # The positions of so many rows fit into the processor's cache.
_NULL_TEXT = b"__null__"
_EMPTY_TEXT = b"__empty__"
_JOINED_NULL = "null"  # Java's text of a null.

Mask = npt.NDArray[np.bool_]


def hash_index_keys(
    record_keys: pa.Array | pa.ChunkedArray, hash_fields: Sequence[str] = ()
) -> npt.NDArray[np.int32]:
    """Hash the index key of each record key.

    Parameters
    ----------
    record_keys : Array or ChunkedArray of string type
        Keys as ``_hoodie_record_key`` stores them.
    hash_fields : sequence of str
        Names of the fields to hash; empty, or one empty name, for all of them. Their order does
        not matter: values are hashed in the order of the key.

    Returns
    -------
    ndarray of int32, shape (n_keys,)
        Java's ``List.hashCode`` of the values, possibly negative.

    Examples
    --------
    >>> hash_index_keys(pa.array(["k1", "f1:a,f2:b"]), ["f2"])
    array([3397,  129], dtype=int32)
    """
    chunks = record_keys.chunks if isinstance(record_keys, pa.ChunkedArray) else [record_keys]
    hashes = [_hash_array(chunk, _wanted_names(hash_fields)) for chunk in chunks]
    return np.concatenate([np.empty(0, np.int32), *hashes])


def join_index_keys(
    record_keys: pa.Array | pa.ChunkedArray, hash_fields: Sequence[str] = ()
) -> Iterator[tuple[Bytes, Positions]]:
    """Join the values of each record key's hash fields, without a separator (RFC-42).

    Parameters
    ----------
    record_keys : Array or ChunkedArray of string type
        Keys as ``_hoodie_record_key`` stores them.
    hash_fields : sequence of str
        As in :func:`hash_index_keys`.

    Yields
    ------
    data : ndarray of uint8
        UTF-8 bytes that hold the joined texts of a block of keys. A null value, or a null key, is
        ``null``.
    offsets : ndarray of int64, shape (n_keys_of_the_block + 1,)
        Where each joined text begins in ``data``, and where the last one ends.
    """
    chunks = record_keys.chunks if isinstance(record_keys, pa.ChunkedArray) else [record_keys]
    names = _wanted_names(hash_fields)
    for chunk in chunks:
        data, offsets = text_buffers(chunk, _JOINED_NULL)
        for first in range(0, len(chunk), _ROWS_AT_ONCE):
            rows = offsets[first : first + _ROWS_AT_ONCE + 1]
            fields = _split_rows(data, rows)
            yield (data, rows) if fields is None else _join_fields(data, rows, fields, names)


def _wanted_names(hash_fields: Sequence[str]) -> list[bytes]:
    names = list(hash_fields)
    return [] if names == [""] else [name.encode() for name in names]


def _hash_array(keys: pa.Array, names: list[bytes]) -> npt.NDArray[np.int32]:
    if pa.types.is_dictionary(keys.type):
        hashes = _hash_array(keys.dictionary, names)
        # A null key hashes as a list of one null, like a null in the dictionary.
        indices: Positions = keys.indices.cast(pa.int64()).fill_null(len(hashes)).to_numpy()
        return np.append(hashes, np.int32(_POWER_1))[indices]
    data, offsets = text_buffers(keys)
    hashes = np.empty(len(keys), np.uint32)
    for first in range(0, len(keys), _ROWS_AT_ONCE):
        rows = offsets[first : first + _ROWS_AT_ONCE + 1]
        hashes[first : first + _ROWS_AT_ONCE] = _hash_rows(data, rows, names)
    return hashes.view(np.int32)


def _hash_rows(data: Bytes, offsets: Positions, names: list[bytes]) -> Hashes:
    fields = _split_rows(data, offsets)
    if fields is None:
        return hash_spans(data, offsets[:-1], offsets[1:]) + _POWER_1
    return _hash_fields(data, offsets, fields, names)


def _split_rows(data: Bytes, offsets: Positions) -> _Fields | None:
    """Split the keys of a block into fields; None if no key can have fields."""
    block = data[offsets[0] : offsets[-1]]
    colons, commas = block == _COLON, block == _COMMA
    if not (colons.any() and commas.any()):  # Most blocks have only plain keys.
        return None
    at = np.flatnonzero(colons | commas)
    is_colon = colons[at]
    at += offsets[0]
    fields = _split_regular(offsets, at, is_colon)
    return _split_any(offsets, at, is_colon) if fields is None else fields


@dataclass(frozen=True, slots=True)
class _Fields:
    """Positions of the field names and values of composite keys, in order of the keys."""

    row: Positions
    name_start: Positions
    value_start: Positions
    value_end: Positions

    def where(self, chosen: Mask) -> _Fields:
        return _Fields(
            self.row[chosen],
            self.name_start[chosen],
            self.value_start[chosen],
            self.value_end[chosen],
        )


def _split_regular(offsets: Positions, at: Positions, is_colon: Mask) -> _Fields | None:
    """Split keys that all have the same number of fields and no colon or comma in a value.

    Parameters
    ----------
    offsets : ndarray of int64, shape (n_keys + 1,)
        Begin of each key, and the end of the last key.
    at, is_colon : ndarray, shape (n_marks,)
        Positions of all colons and commas, and whether each is a colon.

    Returns
    -------
    _Fields or None
        None if a key has another form; then :func:`_split_any` must split the keys.
    """
    row_count = len(offsets) - 1
    mark_count, rest = divmod(len(at), row_count)
    if rest or mark_count < 3 or mark_count % 2 == 0:
        return None
    marks, kinds = at.reshape(row_count, mark_count), is_colon.reshape(row_count, mark_count)
    in_row = (marks[:, 0] >= offsets[:-1]) & (marks[:, -1] < offsets[1:])
    if not (in_row.all() and kinds[:, 0::2].all()) or kinds[:, 1::2].any():
        return None
    colons, commas = marks[:, 0::2], marks[:, 1::2]
    rows = np.repeat(np.arange(row_count), colons.shape[1])
    names = np.column_stack([offsets[:-1], commas + 1])
    ends = np.column_stack([commas, offsets[1:]])
    return _Fields(rows, names.ravel(), (colons + 1).ravel(), ends.ravel())


def _split_any(offsets: Positions, at: Positions, is_colon: Mask) -> _Fields:
    """Split keys of any form; a key without a colon or without a comma has no fields."""
    row = np.searchsorted(offsets, at, side="right") - 1
    counts = np.bincount(row, minlength=len(offsets) - 1)
    colon_counts = np.bincount(row[is_colon], minlength=len(counts))
    composite = ((colon_counts > 0) & (colon_counts < counts))[row]
    at, row, is_colon = at[composite], row[composite], is_colon[composite]
    opens_value, ends_field = _classify(len(counts), at, row, is_colon)

    row, starts, separators = row[opens_value], at[opens_value] + 1, at[ends_field]
    is_first = _first_of_row(row)
    is_last = np.append(is_first[1:], True)[: len(row)]
    names, ends = np.empty_like(starts), np.empty_like(starts)
    names[is_first], names[~is_first] = offsets[row[is_first]], separators + 1
    ends[is_last], ends[~is_last] = offsets[row[is_last] + 1], separators
    return _Fields(row, names, starts, ends)


def _classify(row_count: int, at: Positions, row: Positions, is_colon: Mask) -> tuple[Mask, Mask]:
    """Return which marks are the colon after a field's name, and which the comma after a field."""
    colons = np.flatnonzero(is_colon)
    first_colons = colons[_first_of_row(row[colons])]
    first_of_row = np.zeros(row_count, np.int64)
    first_of_row[row[first_colons]] = at[first_colons]
    ends_field = np.zeros(len(at), np.bool_)
    ends_field[:-1] = ~is_colon[:-1] & is_colon[1:] & (row[1:] == row[:-1])
    ends_field &= at > first_of_row[row]
    opens_value = np.zeros(len(at), np.bool_)
    opens_value[first_colons] = True
    opens_value[1:] |= ends_field[:-1]
    return opens_value, ends_field


def _first_of_row(rows: Positions) -> Mask:
    first = np.ones(len(rows), np.bool_)
    first[1:] = rows[1:] != rows[:-1]
    return first


def _hash_fields(data: Bytes, offsets: Positions, fields: _Fields, names: list[bytes]) -> Hashes:
    """Hash keys, some of them composite; a key without a hash field is one value."""
    fields = _wanted(data, fields, names)
    counts = np.bincount(fields.row, minlength=len(offsets) - 1)
    whole = np.flatnonzero(counts == 0)
    hashes = np.empty(len(counts), np.uint32)
    # Hudi's code loops forever if the last field of a key contains a colon and is not hashed. Here
    # the field is skipped, like other fields that are not hashed.
    hashes[whole] = hash_spans(data, offsets[whole], offsets[whole + 1]) + _POWER_1
    parts = np.flatnonzero(counts)
    hashes[parts] = _fold_lists(_value_hashes(data, fields), counts[parts])
    return hashes


def _join_fields(
    data: Bytes, offsets: Positions, fields: _Fields, names: list[bytes]
) -> tuple[Bytes, Positions]:
    """Join keys, some of them composite; a key without a hash field is one value."""
    fields = _wanted(data, fields, names)
    row_count = len(offsets) - 1
    has_field = np.zeros(row_count, np.bool_)
    has_field[fields.row] = True
    whole = np.flatnonzero(~has_field)

    starts, ends = fields.value_start.copy(), fields.value_end.copy()
    empty = _holds(data, fields, _EMPTY_TEXT)
    ends[empty] = starts[empty]
    null = _holds(data, fields, _NULL_TEXT)  # ``__null__`` contains the letters ``null``.
    starts[null] += 2
    ends[null] -= 2

    rows = fields.row
    if len(whole):
        rows = np.concatenate([rows, whole])
        order = np.argsort(rows, kind="stable")  # The values of a key stay in their order.
        rows = rows[order]
        starts = np.concatenate([starts, offsets[whole]])[order]
        ends = np.concatenate([ends, offsets[whole + 1]])[order]
    lengths = ends - starts
    joined_ends = np.cumsum(lengths)
    sources = np.repeat(starts - joined_ends + lengths, lengths)
    sources += np.arange(len(sources))
    last_of_row = np.append(rows[1:] != rows[:-1], True)
    return data[sources], np.concatenate([np.zeros(1, np.int64), joined_ends[last_of_row]])


def _wanted(data: Bytes, fields: _Fields, names: list[bytes]) -> _Fields:
    """Return the hash fields; without names, these are all fields."""
    return fields.where(_is_named(data, fields, names)) if names else fields


def _is_named(data: Bytes, fields: _Fields, names: list[bytes]) -> Mask:
    named = np.zeros(len(fields.row), np.bool_)
    lengths = fields.value_start - 1 - fields.name_start
    for name in names:
        candidates = np.flatnonzero(lengths == len(name))
        named[candidates] |= _starts_with(data, fields.name_start[candidates], name)
    return named


def _value_hashes(data: Bytes, fields: _Fields) -> Hashes:
    hashes = hash_spans(data, fields.value_start, fields.value_end)
    for text in (_NULL_TEXT, _EMPTY_TEXT):  # Null and empty text hash to 0.
        hashes[_holds(data, fields, text)] = 0
    return hashes


def _holds(data: Bytes, fields: _Fields, text: bytes) -> Positions:
    """Return which fields have this text as their value."""
    candidates = np.flatnonzero(fields.value_end - fields.value_start == len(text))
    return candidates[_starts_with(data, fields.value_start[candidates], text)]


def _starts_with(data: Bytes, starts: Positions, text: bytes) -> Mask:
    same = np.ones(len(starts), np.bool_)
    for i, byte in enumerate(text):
        same &= data[starts + i] == byte
    return same


def _fold_lists(elements: Hashes, counts: Positions) -> Hashes:
    """Return Java's list hash of consecutive lists; ``counts`` are their lengths, at least 1."""
    most = int(counts.max(initial=1))
    if len(elements) == most * len(counts):  # Usual case: all keys have the same fields.
        table = elements.reshape(len(counts), most)
        hashes = np.ones(len(counts), np.uint32)
        for column in range(most):
            hashes = hashes * _POWER_1 + table[:, column]
        return hashes
    powers = powers_of_31(most + 1)
    ends = np.cumsum(counts)
    after = np.repeat(ends, counts) - 1 - np.arange(len(elements))
    terms = np.add.reduceat(elements * powers[after], ends - counts, dtype=np.uint32)
    return terms + powers[counts]


_POWER_1 = np.uint32(31)
