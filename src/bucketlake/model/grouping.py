"""Values by their key: the lists and the sums of each key, in the order in which keys appear."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key, in their order.

    Examples
    --------
    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    found: dict[_Key, list[_Value]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def summed(pairs: Iterable[tuple[_Key, int]]) -> Counter[_Key]:
    """Return the sum of the numbers of each key; 0 for other keys.

    Examples
    --------
    >>> summed([("a", 1), ("b", 2), ("a", 3)])["a"]
    4
    """
    sums: Counter[_Key] = Counter()
    for key, number in pairs:
        sums[key] += number
    return sums
