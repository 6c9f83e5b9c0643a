"""XXH64 of one text, as the metadata table hashes the names of columns and partitions.

Names are few, so plain integers are fast enough. ``xx_hash`` has XXH32 over whole columns.
"""

from __future__ import annotations

import struct

_PRIME_1 = 0x9E3779B185EBCA87
_PRIME_2 = 0xC2B2AE3D27D4EB4F
_PRIME_3 = 0x165667B19E3779F9
_PRIME_4 = 0x85EBCA77C2B2AE63
_PRIME_5 = 0x27D4EB2F165667C5
_MASK = 2**64 - 1
_LANES = struct.Struct("<4Q")
_WORD = struct.Struct("<Q")
_HALF_WORD = struct.Struct("<I")
_LANE_ROTATIONS = (1, 7, 12, 18)


def xx_hash_64(data: bytes, seed: int = 0) -> int:
    """Return XXH64 as an unsigned number.

    Examples
    --------
    >>> hex(xx_hash_64(b""))
    '0xef46db3751d8e999'
    """
    at, value = 0, (seed + _PRIME_5) & _MASK
    if len(data) >= _LANES.size:
        lanes = [seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2, seed, seed - _PRIME_1]
        while at <= len(data) - _LANES.size:
            words = _LANES.unpack_from(data, at)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += _LANES.size
        rotations = zip(lanes, _LANE_ROTATIONS, strict=True)
        value = sum(_rotate(lane, bits) for lane, bits in rotations) & _MASK
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _PRIME_1 + _PRIME_4) & _MASK
    value = (value + len(data)) & _MASK
    while at <= len(data) - _WORD.size:
        value ^= _round(0, _WORD.unpack_from(data, at)[0])
        value = (_rotate(value, 27) * _PRIME_1 + _PRIME_4) & _MASK
        at += _WORD.size
    if at <= len(data) - _HALF_WORD.size:
        value ^= (_HALF_WORD.unpack_from(data, at)[0] * _PRIME_1) & _MASK
        value = (_rotate(value, 23) * _PRIME_2 + _PRIME_3) & _MASK
        at += _HALF_WORD.size
    for byte in data[at:]:
        value ^= (byte * _PRIME_5) & _MASK
        value = (_rotate(value, 11) * _PRIME_1) & _MASK
    for bits, prime in ((33, _PRIME_2), (29, _PRIME_3), (32, 1)):
        value = ((value ^ (value >> bits)) * prime) & _MASK
    return value


def _round(lane: int, word: int) -> int:
    return (_rotate((lane + word * _PRIME_2) & _MASK, 31) * _PRIME_1) & _MASK


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK
