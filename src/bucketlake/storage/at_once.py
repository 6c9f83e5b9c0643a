"""Parallel requests to storage, such as the listings of many partitions.

The storage says how many requests run at once. A request to an object store takes tens of
milliseconds; a request to local disk is faster than the start of a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bucketlake.storage.base import Storage

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def at_once(
    storage: Storage,
    request: Callable[[_Item], _Answer],
    items: Iterable[_Item],
    answered: Callable[[int], None] | None = None,
) -> list[_Answer]:
    """Make a request for each item, in parallel as far as the storage allows.

    Parameters
    ----------
    storage : Storage
        The storage that gets the requests.
    request : callable
        Makes one request, from any thread.
    items : iterable
        The items.
    answered : callable, optional
        Called after each answer with the number of answers so far.

    Returns
    -------
    list
        The answers, in order of the items. The first error in that order is raised; some later
        requests may have been made then.
    """
    asked = list(items)
    width = min(storage.requests_at_once, len(asked))
    if width < 2:
        return _collected(map(request, asked), answered)
    with ThreadPoolExecutor(width) as pool:
        return _collected(pool.map(request, asked), answered)


def _collected(answers: Iterable[_Answer], answered: Callable[[int], None] | None) -> list[_Answer]:
    found: list[_Answer] = []
    for answer in answers:
        found.append(answer)
        if answered is not None:
            answered(len(found))
    return found
