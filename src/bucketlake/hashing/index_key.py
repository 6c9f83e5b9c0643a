"""From stored record keys to the values that choose a bucket, and to their hash (RFC-29, RFC-42).

A record key of several fields is stored as ``f1:v1,f2:v2``. The simple index uses Java's list hash
over the values of the hash fields; a hash ring uses XXH32 of the joined values. Nothing in a key is
escaped, so Hudi splits a key by a rule that must be followed exactly, or two writers would choose
different buckets:

- A key without ``,`` or without ``:`` is one value, unchanged.
- Otherwise a comma ends a field if the next colon or comma of the key is a colon, and if there is a
  colon before the comma. A field's name ends at its first colon.
- If no field's name is among the hash fields, the whole key is one value; so it is without
  hash fields.

Hudi 0.14 and 0.15 split by another rule (:class:`SplitFields`), which tables of version 6 may have.

The code states the rule for positions, so that it splits all keys of a column at once. The tests
compare it with a simple parser of one key. ``index/`` computes the bucket from the hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.model.arrays import Mask, spans_of

_COMMA, _COLON = ord(","), ord(":")
_ROWS_AT_ONCE = 1 << 14  # The positions of so many rows fit into the processor's cache.
_NULL_TEXT = b"__null__"
_EMPTY_TEXT = b"__empty__"
_JOINED_NULL = "null"  # Java's text of a null.


class SplitFields(tuple[str, ...]):
    """Hash fields of a table whose keys Hudi 0.14 or 0.15 splits, all of their names.

    Those releases split each key that has a colon, also a key of one field:

    - Every comma ends a part, and the first colon of a part its name. Empty parts at the end of a
      key do not count.
    - The values are those of parts whose name is a hash field, and parts without a colon. There
      may be none.

    Examples
    --------
    >>> hash_index_keys(pa.array(["a:b", "id:b", "id:b,c"]), SplitFields(["id"])).tolist()
    [1, 129, 4098]
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SplitFields) and tuple(self) == tuple(other)

    def __ne__(self, other: object) -> bool:
        return not self == other  # That of a tuple compares the names alone.

    def __hash__(self) -> int:
        return hash(tuple(self))


def hash_index_keys(
    record_keys: pa.Array | pa.ChunkedArray, hash_fields: Sequence[str] = ()
) -> npt.NDArray[np.int32]:
    """Hash the index key of each record key.

    Parameters
    ----------
    record_keys : Array or ChunkedArray of string type
        Keys as ``_hoodie_record_key`` stores them.
    hash_fields : sequence of str or SplitFields
        Names of the fields to hash; without a name, each key is one value. Their order does not
        matter: values are hashed in the order of the key.

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
    names = _Names.of(hash_fields)
    hashes = [_hash_array(chunk, names) for chunk in chunks]
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
    names = _Names.of(hash_fields)
    for chunk in chunks:
        data, offsets = text_buffers(chunk, _JOINED_NULL)
        for first in range(0, len(chunk), _ROWS_AT_ONCE):
            rows = offsets[first : first + _ROWS_AT_ONCE + 1]
            fields = _split_rows(data, rows, names)
            yield (data, rows) if fields is None else _join_fields(data, rows, fields, names)


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of the hash fields, and the rule by which keys are split."""

    names: list[bytes]
    are_split: bool

    @classmethod
    def of(cls, hash_fields: Sequence[str]) -> _Names:
        return cls([name.encode() for name in hash_fields], isinstance(hash_fields, SplitFields))


def _hash_array(keys: pa.Array, names: _Names) -> npt.NDArray[np.int32]:
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


def _hash_rows(data: Bytes, offsets: Positions, names: _Names) -> Hashes:
    fields = _split_rows(data, offsets, names)
    if fields is None:
        return hash_spans(data, offsets[:-1], offsets[1:]) + _POWER_1
    return _hash_fields(data, offsets, fields, names)


def _split_rows(data: Bytes, offsets: Positions, names: _Names) -> _Fields | None:
    """Split the keys of a block into fields; None if no key can have a hash field."""
    if not (names.names or names.are_split):
        return None
    block = data[offsets[0] : offsets[-1]]
    colons, commas = block == _COLON, block == _COMMA
    # Most blocks have only plain keys.
    if not (colons.any() and (names.are_split or commas.any())):
        return None
    at = np.flatnonzero(colons | commas)
    is_colon = colons[at]
    at += offsets[0]
    fields = _split_regular(offsets, at, is_colon)
    if fields is None:
        split = _split_parts if names.are_split else _split_any
        fields = split(offsets, at, is_colon)
    return fields


@dataclass(frozen=True, slots=True)
class _Fields:
    """Positions of the field names and values of composite keys, in order of the keys.

    A value without a name begins where its name would.
    """

    row: Positions
    name_start: Positions
    value_start: Positions
    value_end: Positions

    @property
    def is_named(self) -> Mask:
        return self.value_start > self.name_start

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


def _split_parts(offsets: Positions, at: Positions, is_colon: Mask) -> _Fields:
    """Split keys at every comma, as :class:`SplitFields`; a key without a colon is one value."""
    row_count = len(offsets) - 1
    row = np.searchsorted(offsets, at, side="right") - 1
    has_colon = np.zeros(row_count, np.bool_)
    has_colon[row[is_colon]] = True
    ends_part = ~is_colon & has_colon[row]
    rows = np.concatenate([np.arange(row_count), row[ends_part]])
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    starts = np.concatenate([offsets[:-1], at[ends_part] + 1])[order]
    is_last = np.append(rows[1:] != rows[:-1], True)
    ends = np.append(starts[1:] - 1, 0)
    ends[is_last] = offsets[1:]
    last_filled = np.full(row_count, -1)
    filled = np.flatnonzero(ends > starts)
    last_filled[rows[filled]] = filled  # The last one of a row stays.
    counts = (np.arange(len(rows)) <= last_filled[rows]) | ~has_colon[rows]
    rows, starts, ends = rows[counts], starts[counts], ends[counts]
    colons = np.append(at[is_colon], offsets[-1])
    first_colon = colons[np.searchsorted(colons[:-1], starts)]
    return _Fields(rows, starts, np.where(first_colon < ends, first_colon + 1, starts), ends)


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


def _hash_fields(data: Bytes, offsets: Positions, fields: _Fields, names: _Names) -> Hashes:
    """Hash keys, some of them composite; a key without a hash field is one value, or none."""
    fields = _wanted(data, fields, names)
    counts = np.bincount(fields.row, minlength=len(offsets) - 1)
    whole = np.flatnonzero(counts == 0)
    hashes = np.ones(len(counts), np.uint32)
    if not names.are_split:
        # Hudi's code loops forever if the last field of a key contains a colon and is not hashed.
        # Here the field is skipped, like other fields that are not hashed.
        hashes[whole] = hash_spans(data, offsets[whole], offsets[whole + 1]) + _POWER_1
    parts = np.flatnonzero(counts)
    hashes[parts] = _fold_lists(_value_hashes(data, fields), counts[parts])
    return hashes


def _join_fields(
    data: Bytes, offsets: Positions, fields: _Fields, names: _Names
) -> tuple[Bytes, Positions]:
    """Join keys, some of them composite; a key without a hash field is one value, or none."""
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
        ends = np.concatenate([ends, offsets[whole if names.are_split else whole + 1]])[order]
    lengths = ends - starts
    joined_ends = np.cumsum(lengths)
    sources = np.repeat(starts - joined_ends + lengths, lengths)
    sources += np.arange(len(sources))
    last_of_row = np.append(rows[1:] != rows[:-1], True)
    return data[sources], np.concatenate([np.zeros(1, np.int64), joined_ends[last_of_row]])


def _wanted(data: Bytes, fields: _Fields, names: _Names) -> _Fields:
    """Return the hash fields; of split keys also the values that have no name."""
    if _are_in_order(data, fields, names.names):
        return fields
    chosen = _is_named(data, fields, names.names)
    return fields.where(chosen | ~fields.is_named if names.are_split else chosen)


def _are_in_order(data: Bytes, fields: _Fields, names: list[bytes]) -> bool:
    """Return whether the fields are the hash fields in their order, as those of most keys are."""
    if not names or len(fields.row) % len(names):
        return False
    starts = fields.name_start.reshape(-1, len(names))
    lengths = (fields.value_start - 1).reshape(starts.shape) - starts
    return all(
        (lengths[:, at] == len(name)).all() and _starts_with(data, starts[:, at], name).all()
        for at, name in enumerate(names)
    )


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
    """Return which fields have this text as their value, behind a name."""
    is_as_long = fields.value_end - fields.value_start == len(text)
    candidates = np.flatnonzero(is_as_long & fields.is_named)
    return candidates[_starts_with(data, fields.value_start[candidates], text)]


def _starts_with(data: Bytes, starts: Positions, text: bytes) -> Mask:
    """Return where a text begins; compares words of up to eight bytes, which may overlap."""
    same = np.ones(len(starts), np.bool_)
    if not text or not len(starts):
        return same
    width = min(8, 1 << (len(text).bit_length() - 1))
    words = np.ndarray((len(data) - width + 1,), f"<u{width}", data.data, 0, (1,))
    for at in (*range(0, len(text) - width, width), len(text) - width):
        same &= words[starts + at] == int.from_bytes(text[at : at + width], "little")
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


# ---- Java's string hash over whole Arrow columns -------------------------------------------------
#
# ``String.hashCode`` is a polynomial in 31 over UTF-16 code units, modulo 2**32. Since 31 is odd,
# it has an inverse modulo 2**32. If ``P[i]`` is the sum of ``unit[j] * 31**-j`` for ``j < i``,
# then::
#
#     hash(units[start:end]) == (P[end] - P[start]) * 31**(end - 1)
#
# So one multiplication and one running sum over a column's buffer hash texts of any length. The
# buffer is processed in blocks that fit the processor's cache. Positions are relative to the block,
# so that all blocks use the same table of powers. Callers decide what to do with a hash.

Bytes: TypeAlias = npt.NDArray[np.uint8]
Hashes: TypeAlias = npt.NDArray[np.uint32]
Positions: TypeAlias = npt.NDArray[np.int64]

_MULTIPLIER = 31
_INVERSE = pow(_MULTIPLIER, -1, 1 << 32)
_BLOCK_UNITS = 1 << 15  # A block's running sum takes 128 KiB: measured best of 2**14 ... 2**18.


def hash_strings(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int32]:
    """Hash texts as Java's ``String.hashCode`` does.

    Parameters
    ----------
    keys : Array or ChunkedArray of string, large_string, string_view or dictionary of these
        The texts. A null hashes to 0, as in a Java list.

    Returns
    -------
    ndarray of int32, shape (n_keys,)
        The hashes, in the order of the keys.

    Raises
    ------
    InputError
        If the column is not text, or contains bytes that are not UTF-8.

    Examples
    --------
    >>> hash_strings(pa.array(["k1", "", None, "ключ"]))
    array([    3366,        0,        0, 33309882], dtype=int32)
    """
    hashes = hash_index_keys(keys).view(np.uint32)  # Each is that of a list with one text.
    hashes -= _POWER_1
    return hashes.view(np.int32)


def text_buffers(keys: pa.Array, null_text: str = "") -> tuple[Bytes, Positions]:
    """Return a text column's bytes and its ``n + 1`` offsets into them; a null is ``null_text``."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if not _is_text(keys.type):
        raise InputError("record keys", f"a column of {keys.type}", "pass a column of strings")
    if not pa.types.is_string(keys.type) and not pa.types.is_large_string(keys.type):
        keys = keys.cast(pa.large_string())
    if keys.null_count:
        keys = keys.fill_null(null_text)  # In Arrow, a null may have any bytes.
    data, offsets = spans_of(keys)
    return data, offsets.astype(np.int64, copy=False)


def hash_spans(data: Bytes, starts: Positions, ends: Positions) -> Hashes:
    """Hash the texts ``data[start:end]`` of UTF-8 bytes.

    Parameters
    ----------
    data : ndarray of uint8
        Bytes of the texts, and any bytes between them.
    starts, ends : ndarray of int64, shape (n_spans,)
        Begin and end of each text; ascending, without overlap.

    Returns
    -------
    ndarray of uint32, shape (n_spans,)
        The hashes, as unsigned numbers for further arithmetic modulo 2**32.

    Raises
    ------
    InputError
        If a text is not UTF-8.
    """
    hashes = np.empty(len(starts), np.uint32)
    sums = np.zeros(_BLOCK_UNITS + 1, np.uint32)  # Reused for all blocks: allocation is slow.
    first = 0
    while first < len(starts):
        start = starts[first]
        last = int(np.searchsorted(ends, start + _BLOCK_UNITS, side="right"))
        if last <= first:
            hashes[first] = _hash_long_text(data[start : ends[first]], sums)
            first += 1
            continue
        block = data[start : ends[last - 1]]
        here = slice(first, last)
        hashes[here] = _hash_block(block, starts[here] - start, ends[here] - start, sums)
        first = last
    return hashes


def powers_of_31(count: int) -> Hashes:
    """Return ``31**0 … 31**(count - 1)`` modulo 2**32."""
    return _powers(_MULTIPLIER, count)


def _is_text(data_type: pa.DataType) -> bool:
    is_view = getattr(pa.types, "is_string_view", None)
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or (is_view is not None and is_view(data_type))
    )


def _hash_block(block: Bytes, starts: Positions, ends: Positions, sums: Hashes) -> Hashes:
    if block.max(initial=0) < 0x80:
        return _hash_units(block, starts, ends, sums)
    units_before = _count_units(block)
    units = _decode_units(block)
    return _hash_units(units, units_before[starts], units_before[ends], sums)


def _hash_units(
    units: npt.NDArray[Any], starts: Positions, ends: Positions, sums: Hashes
) -> Hashes:
    """Hash spans of a block's code units; ``sums[0]`` is 0, the rest of ``sums`` is scratch."""
    inverse_powers, end_powers = _tables()
    terms = sums[1 : len(units) + 1]
    np.multiply(units, inverse_powers[: len(units)], out=terms, dtype=np.uint32)
    np.cumsum(terms, out=terms)
    return (sums[ends] - sums[starts]) * end_powers[ends]


def _count_units(block: Bytes) -> Positions:
    """Return, for each byte position, how many UTF-16 units lie before it."""
    # A lead byte starts one unit; the lead byte of a four-byte character starts a surrogate pair.
    counts = ((block & 0xC0) != 0x80).astype(np.int64)
    counts += block >= 0xF0
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _decode_units(block: Bytes) -> npt.NDArray[np.uint16]:
    try:
        # Lone surrogates are not valid UTF-8, but Java writes them; they are hashed as units.
        text = block.tobytes().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        around = block[max(error.start - 8, 0) : error.start + 8].tobytes()
        raise InputError(
            "record keys", f"bytes that are not UTF-8, near {around!r}", "encode the keys as UTF-8"
        ) from None
    return np.frombuffer(text.encode("utf-16-le", "surrogatepass"), np.uint16)


def _hash_long_text(text: Bytes, sums: Hashes) -> np.uint32:
    """Hash one text that is longer than a block, piece by piece."""
    whole = np.zeros(1, np.int64)
    units = text if text.max() < 0x80 else _decode_units(text)
    total = 0
    for at in range(0, len(units), _BLOCK_UNITS):
        piece = units[at : at + _BLOCK_UNITS]
        (part,) = _hash_units(piece, whole, whole + len(piece), sums)
        total = (total * pow(_MULTIPLIER, len(piece), 1 << 32) + int(part)) % (1 << 32)
    return np.uint32(total)


@cache
def _tables() -> tuple[Hashes, Hashes]:
    """Return ``31**-i``, and ``31**(i - 1)``, for the positions of a block."""
    inverse = _powers(_INVERSE, _BLOCK_UNITS)
    # Only empty texts end at position 0; their sum is 0, so any factor is right.
    ends = np.concatenate([np.zeros(1, np.uint32), _powers(_MULTIPLIER, _BLOCK_UNITS)])
    return inverse, ends


def _powers(base: int, count: int) -> Hashes:
    powers = np.ones(count, np.uint32)
    filled = 1
    while filled < count:  # Double the filled part: few steps, and exact modulo 2**32.
        more = min(filled, count - filled)
        powers[filled : filled + more] = powers[:more] * np.uint32(pow(base, filled, 1 << 32))
        filled += more
    return powers
