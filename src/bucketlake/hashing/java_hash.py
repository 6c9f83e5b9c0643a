"""Java's string hash over whole Arrow columns.

``String.hashCode`` is a polynomial in 31 over UTF-16 code units, modulo 2**32. Since 31 is odd, it
has an inverse modulo 2**32. If ``P[i]`` is the sum of ``unit[j] * 31**-j`` for ``j < i``, then::

    hash(units[start:end]) == (P[end] - P[start]) * 31**(end - 1)

So one multiplication and one running sum over a column's buffer hash texts of any length. The
buffer is processed in blocks that fit the processor's cache. Positions are relative to the block,
so that all blocks use the same table of powers. Callers decide what to do with a hash.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import InputError

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
    if isinstance(keys, pa.ChunkedArray):
        parts = [hash_strings(chunk) for chunk in keys.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)
    if pa.types.is_dictionary(keys.type):
        return _hash_dictionary(keys)
    data, offsets = text_buffers(keys)
    return hash_spans(data, offsets[:-1], offsets[1:]).view(np.int32)


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
    width = np.int32 if pa.types.is_string(keys.type) else np.int64
    _, offset_buffer, data_buffer = keys.buffers()
    if len(keys) == 0 or offset_buffer is None:
        return np.empty(0, np.uint8), np.zeros(len(keys) + 1, np.int64)
    raw = np.frombuffer(offset_buffer, width)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", np.uint8)
    return data, raw.astype(np.int64, copy=False)


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


def _hash_dictionary(keys: pa.DictionaryArray) -> npt.NDArray[np.int32]:
    # An extra element for nulls; a null inside the dictionary already hashes to 0.
    hashes = np.append(hash_strings(keys.dictionary), np.int32(0))
    indices: Positions = keys.indices.cast(pa.int64()).fill_null(len(hashes) - 1).to_numpy()
    return hashes[indices]


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
