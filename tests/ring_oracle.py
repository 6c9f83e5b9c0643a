"""XXH32 and the hash ring, said as loops over one key: the oracle of the columnar code."""

from __future__ import annotations

from collections.abc import Sequence

from tests.hash_oracle import index_key

_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def xx_hash_32(data: bytes) -> int:
    """Return XXH32 with seed 0."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = _PRIMES
    at = 0
    if len(data) < 16:
        value = prime_5
    else:
        lanes = [prime_1 + prime_2, prime_2, 0, -prime_1]
        while at + 16 <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[at : at + 4], "little")
                lanes[lane] = _rotate(lanes[lane] + word * prime_2, 13) * prime_1
                at += 4
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    value += len(data)
    while at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little")
        value = _rotate(value + word * prime_3, 17) * prime_4
        at += 4
    for byte in data[at:]:
        value = _rotate(value + byte * prime_5, 11) * prime_1
    value %= 2**32
    value = (value ^ value >> 15) * prime_2 % 2**32
    value = (value ^ value >> 13) * prime_3 % 2**32
    return value ^ value >> 16


def joined_index_key(record_key: str | None, hash_fields: Sequence[str] = ()) -> str:
    """Return the text that is hashed for a record key."""
    values = [None] if record_key is None else index_key(record_key, hash_fields)
    return "".join("null" if value is None else value for value in values)


def ring_hash(record_key: str | None, hash_fields: Sequence[str] = ()) -> int:
    """Return the place of a record key on a hash ring."""
    return xx_hash_32(joined_index_key(record_key, hash_fields).encode()) & 0x7FFFFFFF


def node_of(hash_value: int, values: Sequence[int]) -> int:
    """Return the position of the first node at or after a hash; behind the last one, the first."""
    return next((i for i, value in enumerate(values) if value >= hash_value), 0)


def _rotate(value: int, bits: int) -> int:
    value %= 2**32
    return (value << bits | value >> 32 - bits) % 2**32
