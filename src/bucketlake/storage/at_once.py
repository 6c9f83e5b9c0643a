"""Requests to storage that need not wait for each other, such as the listings of many partitions.

How many are under way at once is told by the storage: a request to an object store takes tens of
milliseconds, whatever it asks for; one to local disk is over before another thread has begun.
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
    """Make a request for each item, as many at once as the storage likes.

    Parameters
    ----------
    storage : Storage
        What the requests go to.
    request : callable
        Makes one, from any thread.
    items : iterable
        What to ask for.
    answered : callable, optional
        Told after each answer how many there are by now.

    Returns
    -------
    list
        The answers, in order of the items. The first error is raised, in that order; some of the
        requests after it have been made then.
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
