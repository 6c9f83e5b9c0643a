"""The order of commits: bucketlake's writers decide one after the other, without a lock.

Between a writer's check for conflicts and its commit another one must not commit unseen. A lock
would keep it out only as long as its lease lasts, and a writer may sleep longer. So each commit
takes the next number in a row first: one small object, put if absent. Whoever takes number n has
seen everything that number n - 1 did, since it first helps that one to its end; whoever finds the
number taken looks again and checks again.

A number that was taken decides nothing: ``timeline/outcome.py`` does. One whose writer died before
the decision is passed over.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass

from bucketlake.config.inner_path import require_instant
from bucketlake.config.layout import COMMIT_ORDER_FOLDER
from bucketlake.errors import AlreadyExistsError, FormatError, ObjectNotFoundError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage

_DIGITS = 12
_KEPT = 8  # Only the last one is ever asked for; others may still be on their way to it.


@dataclass(frozen=True, slots=True)
class Turn:
    """A number in the order of commits, and the instant that took it."""

    number: int
    instant: InstantTime


def last_turn(storage: Storage) -> Turn | None:
    """Return the newest number that was taken; None before the first."""
    while True:
        numbers = _numbers(storage)
        if not numbers:
            return None
        with suppress(ObjectNotFoundError):  # Dropped since the listing, as one of too many.
            path = _path(numbers[-1])
            instant, _, claim = storage.read(path).decode(errors="replace").partition(" ")
            if not claim:
                raise FormatError(path, "an instant and a claim", repr(instant)[:80])
            require_instant(instant, path)
            return Turn(numbers[-1], InstantTime(instant))


def take_turn(storage: Storage, instant: InstantTime, after: Turn | None) -> bool:
    """Take the number after another one.

    False where it is taken, perhaps by a lost put of ours; or was taken, and dropped since: whoever
    was slow finds its path free again.
    """
    number = 1 if after is None else after.number + 1
    path, content = _path(number), f"{instant} {uuid.uuid4().hex}".encode()
    try:
        storage.put_if_absent(path, content)
    except AlreadyExistsError:
        # Clients repeat a put whose answer was lost, and then meet their own object.
        if _content(storage, path) != content:
            return False
    if _numbers(storage)[-1] >= number + _KEPT:
        storage.delete(path)  # Ours, or if it was in time, one of too many by now.
        return False
    if number > _KEPT:
        storage.delete(_path(number - _KEPT))
    return True


def stray_turns(storage: Storage) -> list[str]:
    """Return the paths of numbers that should have been dropped, as ones of too many."""
    return [_path(number) for number in _numbers(storage)[:-_KEPT]]


def _content(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except ObjectNotFoundError:  # One of too many since.
        return None


def _path(number: int) -> str:
    return f"{COMMIT_ORDER_FOLDER}/{number:0{_DIGITS}d}"


def _numbers(storage: Storage) -> list[int]:
    names = (o.path.rpartition("/")[2] for o in storage.list(COMMIT_ORDER_FOLDER, recursive=False))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())
