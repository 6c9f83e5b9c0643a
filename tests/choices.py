"""How many combinations of a test's parameters are run: few each time, all in a deep run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any, TypeVar

One = TypeVar("One")

DEEP = os.environ.get("BUCKETLAKE_DEEP") == "1"
"""Whether this is a deep run, which takes hours."""


def combinations(*choices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combine parameters: every choice of each in some combination; in a deep run all of them.

    The choices of each parameter are gone through in turn, each at its own pace, so the number of
    combinations is that of the longest list.

    Examples
    --------
    >>> combinations(["a", "b", "c"], [1, 2])
    [('a', 1), ('b', 2), ('c', 1)]
    """
    if DEEP:
        return list(itertools.product(*choices))
    count = max(map(len, choices))
    return [tuple(one[i % len(one)] for one in choices) for i in range(count)]


def some(found: Sequence[One], most: int) -> list[One]:
    """Return at most so many, spread evenly, with the first and the last; in a deep run all.

    Examples
    --------
    >>> some(range(100), 4)
    [0, 33, 66, 99]
    """
    if DEEP or len(found) <= most:
        return list(found)
    return [found[turn * (len(found) - 1) // (most - 1)] for turn in range(most)]
