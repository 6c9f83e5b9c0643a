"""A bloom filter of record keys, and the shards and parts that keys belong to.

The filter shows that a key is not in a file, without reading the file. The bits are computed from
one hash of each key, the hash that also chooses the bucket. It is mixed first, because keys of a
bucket have equal hashes modulo the bucket count. Hudi's own filter hashes each key 30 times and
takes 431 kB per file; only Hudi's BLOOM index reads it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hashing.index_key import hash_index_keys, hash_strings
from bucketlake.hashing.texts import mix

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


# ---- The shard of a key in the metadata table, and the part of a slot that it belongs to ---------
#
# The shard is the file group of a metadata partition that has its entry. Parts are for tasks that
# share a slot.


def shards_of_keys(keys: pa.Array | pa.ChunkedArray, shard_count: int) -> npt.NDArray[np.int32]:
    """Return the shard of each key.

    Parameters
    ----------
    keys : Array or ChunkedArray of string type
        Keys of entries, for example record keys in the record-level index.
    shard_count : int
        Number of file groups. With a partitioned index, those of the keys' partition.

    Returns
    -------
    ndarray of int32, shape (n_keys,)
        Positions among the file groups in order of their ids, each in ``[0, shard_count)``.

    Raises
    ------
    InputError
        If the column is not text, or contains bytes that are not UTF-8.

    Examples
    --------
    >>> shards_of_keys(pa.array(["k000001", "polygenelubricants", ""]), 10)
    array([4, 8, 0], dtype=int32)
    """
    assert shard_count > 0, "a partition has file groups"
    # The lowest hash has no positive counterpart of 32 bits.
    hashes = np.abs(hash_strings(keys).astype(np.int64))
    return (hashes % shard_count).astype(np.int32)


# ---- Which part of a slot a record key belongs to, where several tasks share the slot ------------
#
# The part follows from the whole record key, also where only some of its fields choose the slot.
# The keys of a slot agree in their hash modulo a count, and each file has a filter made of mixed
# hashes. So the hash is mixed twice here: parts of a slot are even, and
# the filter of a part's file works as well as that of any other file.


def parts_of_keys(
    keys: pa.Array | pa.ChunkedArray, counts: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """Return the part of each record key.

    Parameters
    ----------
    keys : Array or ChunkedArray of string type, shape (n_keys,)
        Record keys.
    counts : ndarray of int32, shape (n_keys,)
        Parts that the slot of each key is cut into.

    Returns
    -------
    ndarray of int32, shape (n_keys,)
        Parts, each in ``[0, count)``: ranges of the mixed hash of equal width.

    Examples
    --------
    >>> parts_of_keys(pa.array(["k1", "k2", "k3", "k1"]), np.full(4, 3, np.int32)).tolist()
    [0, 1, 0, 0]
    """
    heads = mix(mix(key_hashes(keys).astype(np.uint64))) >> np.uint64(32)
    return ((heads * counts.astype(np.uint64)) >> np.uint64(32)).astype(np.int32)
