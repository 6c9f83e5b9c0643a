"""XXH32 over whole Arrow columns, and the hash of a key on a hash ring (RFC-42).

Consistent hashing places a record key by XXH32 (seed 0) of the values of its hash fields, joined
without a separator. All texts of a block advance together: four lanes of 16 bytes, then words,
then single bytes. Texts of one length lie in memory at equal distances and are read in place. Other
texts are sorted by falling length, so that the texts with bytes left are always the first ones.
``index_key`` joins the values of a key, and ``ring`` finds the node of a hash.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hashing.index_key import Bytes, Hashes, Positions, join_index_keys

RING_HASH_MAX = 0x7FFFFFFF  # Hash rings have no sign bit.
RING_SIZE = RING_HASH_MAX + 1

_PRIME_1 = np.uint32(2654435761)
_PRIME_2 = np.uint32(2246822519)
_PRIME_3 = np.uint32(3266489917)
_PRIME_4 = np.uint32(668265263)
_PRIME_5 = np.uint32(374761393)
_LANE_STARTS = np.array(
    [[(2654435761 + 2246822519) % 2**32], [2246822519], [0], [2**32 - 2654435761]], np.uint32
)
_LANE_ROTATIONS = (1, 7, 12, 18)
_STRIPE_BYTES, _WORD_BYTES = 16, 4
_SHORT_MAX = np.iinfo(np.int16).max
_ROWS_AT_ONCE = 1 << 14  # The lanes of a block take 256 KiB.


def hash_ring_keys(
    record_keys: pa.Array | pa.ChunkedArray, hash_fields: Sequence[str] = ()
) -> npt.NDArray[np.int32]:
    """Hash the index key of each record key for a hash ring.

    Parameters
    ----------
    record_keys : Array or ChunkedArray of string type
        Keys as ``_hoodie_record_key`` stores them.
    hash_fields : sequence of str
        Names of the fields to hash; without a name, each key is one value. Their order does not
        matter: values count in the order of the key.

    Returns
    -------
    ndarray of int32, shape (n_keys,)
        Hashes in ``[0, RING_HASH_MAX]``.

    Raises
    ------
    InputError
        If the column is not text.

    Notes
    -----
    RFC-42. A null value is hashed as the four letters ``null``, and so is a null key.

    Examples
    --------
    >>> hash_ring_keys(pa.array(["k1", "f1:a,f2:b"]), ["f1", "f2"])
    array([ 113350462, 1234828371], dtype=int32)
    """
    blocks = [xx_hash_texts(*block) for block in join_index_keys(record_keys, hash_fields)]
    hashes = np.concatenate([np.empty(0, np.uint32), *blocks])
    return (hashes & np.uint32(RING_HASH_MAX)).view(np.int32)


def xx_hash_texts(data: Bytes, offsets: Positions) -> Hashes:
    """Return XXH32 with seed 0 of consecutive texts.

    Parameters
    ----------
    data : ndarray of uint8
        Bytes of the texts.
    offsets : ndarray of int64, shape (n_texts + 1,)
        Where each text begins, and where the last one ends.

    Returns
    -------
    ndarray of uint32, shape (n_texts,)
        The hashes, with all 32 bits.
    """
    hashes = np.empty(len(offsets) - 1, np.uint32)
    for first in range(0, len(hashes), _ROWS_AT_ONCE):
        block = offsets[first : first + _ROWS_AT_ONCE + 1]
        hashes[first : first + _ROWS_AT_ONCE] = _hash_block(data, block)
    return hashes


def _hash_block(data: Bytes, offsets: Positions) -> Hashes:
    lengths = np.diff(offsets)
    if (lengths == lengths[0]).all():
        return _hash_equal(data, int(offsets[0]), int(lengths[0]), len(lengths))
    # NumPy sorts numbers of 16 bits several times faster than longer ones.
    sortable = -lengths if lengths.max() > _SHORT_MAX else (-lengths).astype(np.int16)
    longest_first = np.argsort(sortable, kind="stable")
    hashes = np.empty(len(lengths), np.uint32)
    hashes[longest_first] = _hash_falling(data, offsets[longest_first], lengths[longest_first])
    return hashes


def _hash_equal(data: Bytes, start: int, length: int, count: int) -> Hashes:
    """Hash texts of one length that follow each other."""
    stripe_count, word_count = length // _STRIPE_BYTES, length % _STRIPE_BYTES // _WORD_BYTES

    def column(at: int, data_type: str) -> npt.NDArray[np.uint32]:
        texts = np.ndarray((count,), data_type, data.data, start + at, (length,))
        return texts.astype(np.uint32)

    hashes = np.full(count, _PRIME_5)
    if stripe_count:
        lanes = np.repeat(_LANE_STARTS, count, axis=1)
        words = np.empty_like(lanes)
        for stripe in range(stripe_count):
            for lane in range(4):
                words[lane] = column(stripe * _STRIPE_BYTES + lane * _WORD_BYTES, "<u4")
            _mix_stripe(lanes, words)
        hashes = _merge_lanes(lanes)
    hashes += np.uint32(length % 2**32)
    at = stripe_count * _STRIPE_BYTES
    for word in range(word_count):
        hashes = _mix_word(hashes, column(at + word * _WORD_BYTES, "<u4"))
    for byte in range(at + word_count * _WORD_BYTES, length):
        hashes = _mix_byte(hashes, column(byte, "u1"))
    return _mix_end(hashes)


def _hash_falling(data: Bytes, starts: Positions, lengths: Positions) -> Hashes:
    """Hash texts of falling lengths, which may lie anywhere."""
    # A word begins at any byte.
    words = np.ndarray((max(len(data) - 3, 0),), "<u4", data.data, 0, (1,))
    stripe_counts = lengths // _STRIPE_BYTES
    word_counts = lengths % _STRIPE_BYTES // _WORD_BYTES
    byte_counts = lengths % _WORD_BYTES

    hashes = np.full(len(starts), _PRIME_5)
    striped = int(np.count_nonzero(stripe_counts))
    if striped:
        lanes = np.repeat(_LANE_STARTS, striped, axis=1)
        places = starts[:striped] + np.arange(0, _STRIPE_BYTES, _WORD_BYTES)[:, np.newaxis]
        counts, left, stripe = stripe_counts[:striped], striped, 0
        while left:
            _mix_stripe(lanes[:, :left], words[places[:, :left] + stripe * _STRIPE_BYTES])
            stripe += 1
            left = int(np.searchsorted(-counts, -stripe))
        hashes[:striped] = _merge_lanes(lanes)
    hashes += lengths.astype(np.uint32)
    at = starts + stripe_counts * _STRIPE_BYTES
    for word in range(3):
        rows = np.flatnonzero(word_counts > word)
        hashes[rows] = _mix_word(hashes[rows], words[at[rows] + word * _WORD_BYTES])
    at += word_counts * _WORD_BYTES
    for byte in range(3):
        rows = np.flatnonzero(byte_counts > byte)
        hashes[rows] = _mix_byte(hashes[rows], data[at[rows] + byte].astype(np.uint32))
    return _mix_end(hashes)


def _mix_stripe(lanes: Hashes, words: Hashes) -> None:
    """Take 16 bytes of each text into its four lanes; uses up the words."""
    words *= _PRIME_2
    lanes += words
    np.right_shift(lanes, np.uint32(19), out=words)
    lanes <<= np.uint32(13)
    lanes |= words
    lanes *= _PRIME_1


def _merge_lanes(lanes: Hashes) -> Hashes:
    total = np.zeros(lanes.shape[1], np.uint32)
    for lane, bits in zip(lanes, _LANE_ROTATIONS, strict=True):
        total += _rotate(lane, bits)
    return total


def _mix_word(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotate(hashes + words * _PRIME_3, 17) * _PRIME_4


def _mix_byte(hashes: Hashes, values: Hashes) -> Hashes:
    return _rotate(hashes + values * _PRIME_5, 11) * _PRIME_1


def _mix_end(hashes: Hashes) -> Hashes:
    for bits, prime in ((15, _PRIME_2), (13, _PRIME_3)):
        hashes ^= hashes >> np.uint32(bits)
        hashes *= prime
    hashes ^= hashes >> np.uint32(16)
    return hashes


def _rotate(hashes: Hashes, bits: int) -> Hashes:
    return (hashes << np.uint32(bits)) | (hashes >> np.uint32(32 - bits))


# ---- XXH64 of one text, as the metadata table hashes the names of columns and partitions ---------
#
# Names are few, so plain integers are fast enough.

_PRIME_64_1 = 0x9E3779B185EBCA87
_PRIME_64_2 = 0xC2B2AE3D27D4EB4F
_PRIME_64_3 = 0x165667B19E3779F9
_PRIME_64_4 = 0x85EBCA77C2B2AE63
_PRIME_64_5 = 0x27D4EB2F165667C5
_MASK_64 = 2**64 - 1
_LANES = struct.Struct("<4Q")
_WORD = struct.Struct("<Q")
_HALF_WORD = struct.Struct("<I")


def xx_hash_64(data: bytes, seed: int = 0) -> int:
    """Return XXH64 as an unsigned number.

    Examples
    --------
    >>> hex(xx_hash_64(b""))
    '0xef46db3751d8e999'
    """
    at, value = 0, (seed + _PRIME_64_5) & _MASK_64
    if len(data) >= _LANES.size:
        lanes = [seed + _PRIME_64_1 + _PRIME_64_2, seed + _PRIME_64_2, seed, seed - _PRIME_64_1]
        while at <= len(data) - _LANES.size:
            words = _LANES.unpack_from(data, at)
            lanes = [_round_64(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += _LANES.size
        rotations = zip(lanes, _LANE_ROTATIONS, strict=True)
        value = sum(_rotate_64(lane, bits) for lane, bits in rotations) & _MASK_64
        for lane in lanes:
            value = ((value ^ _round_64(0, lane)) * _PRIME_64_1 + _PRIME_64_4) & _MASK_64
    value = (value + len(data)) & _MASK_64
    while at <= len(data) - _WORD.size:
        value ^= _round_64(0, _WORD.unpack_from(data, at)[0])
        value = (_rotate_64(value, 27) * _PRIME_64_1 + _PRIME_64_4) & _MASK_64
        at += _WORD.size
    if at <= len(data) - _HALF_WORD.size:
        value ^= (_HALF_WORD.unpack_from(data, at)[0] * _PRIME_64_1) & _MASK_64
        value = (_rotate_64(value, 23) * _PRIME_64_2 + _PRIME_64_3) & _MASK_64
        at += _HALF_WORD.size
    for byte in data[at:]:
        value ^= (byte * _PRIME_64_5) & _MASK_64
        value = (_rotate_64(value, 11) * _PRIME_64_1) & _MASK_64
    for bits, prime in ((33, _PRIME_64_2), (29, _PRIME_64_3), (32, 1)):
        value = ((value ^ (value >> bits)) * prime) & _MASK_64
    return value


def _round_64(lane: int, word: int) -> int:
    return (_rotate_64((lane + word * _PRIME_64_2) & _MASK_64, 31) * _PRIME_64_1) & _MASK_64


def _rotate_64(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK_64
