"""Mixing of hashes: 32-bit hashes with a common pattern become even 64-bit numbers (splitmix64)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a well mixed number for each number; different ones for different numbers.

    Examples
    --------
    >>> mix(np.array([0], np.uint64)).tolist()
    [16294208416658607535]
    """
    with np.errstate(over="ignore"):
        mixed = values + _INCREMENT
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MULTIPLIERS[0]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLIERS[1]
        mixed ^= mixed >> np.uint64(31)
        return mixed
