"""Which part of a slot a record key belongs to, where several tasks share the slot.

The part follows from the whole record key, also where only some of its fields choose the slot. The
keys of a slot agree in their hash modulo a count, and each file has a filter made of mixed hashes
(``hashing/key_filter.py``). So the hash is mixed twice here: parts of a slot are even, and the
filter of a part's file works as well as that of any other file.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hashing.key_filter import key_hashes
from bucketlake.hashing.mix import mix


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
