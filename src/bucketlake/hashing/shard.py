"""The shard of a key in the metadata table: which of a partition's file groups has its entry."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hashing.java_hash import hash_strings


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
