"""A bloom filter of record keys: shows that a key is not in a file, without reading the file.

The bits are computed from one hash of each key, the hash that also chooses the bucket. It is mixed
first, because keys of a bucket have equal hashes modulo the bucket count. Hudi's own filter hashes
each key 30 times and takes 431 kB per file; only Hudi's BLOOM index reads it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hashing.index_key import hash_index_keys
from bucketlake.hashing.mix import mix

BITS_PER_KEY = 8  # With five probes, about 2 % of absent keys seem present.
_PROBES = 5
_BYTES_MIN = 8


def key_hashes(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint32]:
    """Return the hash of each key, for making a filter and for :func:`may_contain`."""
    return hash_index_keys(keys).view(np.uint32)


def make_key_filter(hashes: npt.NDArray[np.uint32]) -> bytes:
    """Return a filter of the keys with these hashes; their order does not change the bytes.

    Examples
    --------
    >>> held = make_key_filter(key_hashes(pa.array(["a", "b"])))
    >>> may_contain(held, key_hashes(pa.array(["a", "z"]))).tolist()
    [True, False]
    """
    size = max(_BYTES_MIN, -(-len(hashes) * BITS_PER_KEY // 8))
    bits = np.zeros(size * 8, np.bool_)
    for positions in _positions(hashes, size * 8):
        bits[positions] = True
    return np.packbits(bits).tobytes()


def may_contain(key_filter: bytes, hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Return for each hash whether its key may be in the filter; False is certain."""
    bits = np.unpackbits(np.frombuffer(key_filter, np.uint8)).view(np.bool_)
    found = np.ones(len(hashes), np.bool_)
    for positions in _positions(hashes, len(bits)):
        found &= bits[positions]
    return found


def _positions(hashes: npt.NDArray[np.uint32], bit_count: int) -> list[npt.NDArray[np.uint64]]:
    """Return the bit positions of each key, one array per probe."""
    mixed = mix(hashes.astype(np.uint64))
    first, step = mixed & np.uint64(0xFFFFFFFF), (mixed >> np.uint64(32)) | np.uint64(1)
    return [(first + np.uint64(i) * step) % np.uint64(bit_count) for i in range(_PROBES)]
