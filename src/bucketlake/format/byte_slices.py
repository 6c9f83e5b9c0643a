"""Bytes of files: copying many slices at once, and how much packed bytes may unpack to."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def copy_slices(
    data: bytes | bytearray, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> pa.BinaryArray:
    """Copy slices of a byte string into an array.

    Parameters
    ----------
    data : bytes or bytearray
        At most 2 GiB.
    starts, sizes : ndarray of int64, shape (n_pieces,)
        Ascending, without overlap, and within the bytes.

    Examples
    --------
    >>> copy_slices(b"abcdef", np.array([0, 3]), np.array([2, 3])).to_pylist()
    [b'ab', b'def']
    """
    if len(starts) == 0:
        return pa.array([], pa.binary())
    # A binary array over all bytes, in which wanted slices and gaps alternate.
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[::2], bounds[1::2] = starts, starts + sizes
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    alternating = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    return alternating.take(pa.array(np.arange(0, len(bounds), 2)))


# ---- How much packed bytes of a file may unpack to -----------------------------------------------

UNPACKED_BYTES: Final = 1 << 24
"""What a packed block may unpack to in any case."""

_RATIO: Final = 32  # For larger blocks. Commit metadata shrinks to a tenth.


def unpacked_bytes_max(packed_bytes: int) -> int:
    """Return the greatest size to which a block of some bytes is unpacked.

    >>> unpacked_bytes_max(100), unpacked_bytes_max(1 << 20)
    (16777216, 33554432)
    """
    return max(UNPACKED_BYTES, _RATIO * packed_bytes)
