"""The order of commits: bucketlake's writers commit one after the other, without a lock.

No other writer may commit between a writer's check for conflicts and its commit. A lock is not
enough: its lease may end while the writer sleeps. So each commit first takes a turn, the next
number in a sequence: one small object, put if absent. A writer first finishes the commit of turn
n - 1, then checks for conflicts, then takes turn n. If turn n is already taken, it checks again.
``actions/turns.py`` has these steps; it gives a writer the :class:`Head` of the order.

A turn decides nothing; ``timeline/outcome.py`` decides. If a writer died between turn and decision,
its turn is skipped.

Each turn carries facts on from the turn before, so that a writer learns them from the object
that it reads anyway:

- whether the metadata table was ever turned on or off;
- the last turn of a build or removal of the metadata table: an earlier one that is not at its end
  finds there that it was overtaken;
- the greatest instant of all turns. Commits of later turns complete after it. Some instants are on
  no timeline yet, or only on that of the metadata table, so a writer would not see them there;
- the layout of the timeline, if a change of version ever moved it: a writer that opened the table
  before finds there that its timeline does not count any more, or soon will not.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from bucketlake.config.paths_of_table import COMMIT_ORDER_FOLDER, require_instant
from bucketlake.errors import FormatError, ObjectNotFoundError
from bucketlake.format.checksum import BLANK, DIGITS, is_sealed, seal
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage, numbered_objects, put_or_find
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.open_table import OpenTable

_DIGITS = 12
_METADATA_CHANGED = "metadata-changed"
_METADATA_TURN = "metadata="
_FLOOR = "floor="
_LAYOUT = "layout="
_CHECKSUM = "checksum="
_KEPT = 8  # Turns that are kept. Only the last one is needed; slow writers may look for older ones.


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn: a number in the order of commits, and the instant that took it.

    Attributes
    ----------
    number : int
        Position in the order.
    instant : InstantTime
        The instant that took the turn.
    metadata_changed : bool
        Whether the metadata table was turned on or off in this turn or before.
    metadata_instant : InstantTime or None
        The instant of the last turn that turned the metadata table on or off; None if an earlier
        release took it.
    later_instant : InstantTime or None
        The greatest instant of earlier turns, if it is later than that of this turn.
    layout : int or None
        Number of the timeline layout since this turn; None if no turn ever changed it.
    """

    number: int
    instant: InstantTime
    metadata_changed: bool = False
    metadata_instant: InstantTime | None = None
    later_instant: InstantTime | None = None
    layout: int | None = None

    @property
    def floor(self) -> InstantTime:
        """The greatest instant of this turn and all earlier turns."""
        return self.later_instant or self.instant


@dataclass(frozen=True, slots=True)
class Head:
    """The table as it is after the last turn, whose commit is completed or rolled back.

    Checks that look at this timeline stay true until the next turn is taken.

    Attributes
    ----------
    table : OpenTable
    turn : Turn or None
        The last turn; None if there is none yet.
    timeline : Timeline
        The timeline, loaded after the commit of that turn was completed or rolled back.
    """

    table: OpenTable
    turn: Turn | None
    timeline: Timeline

    def next_instant(self, *, after: InstantTime | None = None) -> InstantTime:
        """Return a new time, greater than all instants of all turns, and than ``after``.

        Some instants of turns are not on the timeline. A commit whose completion time was not
        greater would be on the wrong side of such an instant.
        """
        floor = self.turn.floor if self.turn else InstantTime("")
        return self.table.clock.next_instant(self.timeline, after=max(floor, after or floor))


def last_turn(storage: Storage) -> Turn | None:
    """Return the newest turn; None if there is none yet."""
    while True:
        numbers = _numbers(storage)
        if not numbers:
            return None
        with suppress(ObjectNotFoundError):  # Deleted since the listing, as an old turn.
            path = _path(numbers[-1])
            return _parsed(path, numbers[-1], storage.read(path))


def take_turn(
    storage: Storage,
    instant: InstantTime,
    after: Turn | None,
    *,
    changes_metadata: bool = False,
    layout: int | None = None,
) -> bool:
    """Take the turn after another turn; return whether this writer got it.

    ``changes_metadata`` says that the turn turns the metadata table on or off, and ``layout`` which
    layout the timeline has from the turn on, if that is not as it was made.

    Return False if the turn is taken, or was taken and then deleted as an old turn: a slow writer
    finds the path free again.
    """
    number = 1 if after is None else after.number + 1
    words = [instant, uuid.uuid4().hex]
    if changes_metadata or (after is not None and after.metadata_changed):
        words.append(_METADATA_CHANGED)
    metadata_instant = instant if changes_metadata else after and after.metadata_instant
    if metadata_instant is not None:
        words.append(f"{_METADATA_TURN}{metadata_instant}")
    if after is not None and after.floor > instant:
        words.append(f"{_FLOOR}{after.floor}")
    if layout is not None:
        words.append(f"{_LAYOUT}{layout}")
    words.append(_CHECKSUM + BLANK.decode())  # The last word.
    path, text = _path(number), " ".join(words).encode()
    content = seal(text, len(text) - DIGITS)
    if not put_or_find(storage, path, content):
        return False
    if _numbers(storage)[-1] >= number + _KEPT:
        storage.delete(path)  # This writer's object, or by now an old turn.
        return False
    if number > _KEPT:
        storage.delete(_path(number - _KEPT))
    return True


def _parsed(path: str, number: int, content: bytes) -> Turn:
    instant, *words = content.decode(errors="replace").split(" ")
    if not words:
        raise FormatError(path, "an instant and a claim", repr(instant)[:80])
    require_instant(instant, path)
    if words[-1].startswith(_CHECKSUM) and not is_sealed(content, len(content) - DIGITS):
        raise FormatError(path, "a turn with its checksum", "another checksum: it is damaged")
    floor, metadata, layout = (
        _digits_in(words, prefix, path) for prefix in (_FLOOR, _METADATA_TURN, _LAYOUT)
    )
    return Turn(
        number,
        InstantTime(instant),
        _METADATA_CHANGED in words,
        metadata,
        floor,
        None if layout is None else int(layout[:_DIGITS]),
    )


def _digits_in(words: Sequence[str], prefix: str, path: str) -> InstantTime | None:
    """Return the digits after a prefix; None if no word has it."""
    found = [word.removeprefix(prefix) for word in words if word.startswith(prefix)]
    if not found:
        return None
    require_instant(found[0], path)
    return InstantTime(found[0])


def stray_turns(storage: Storage) -> list[str]:
    """Return the paths of old turns that should have been deleted."""
    return [_path(number) for number in _numbers(storage)[:-_KEPT]]


def _path(number: int) -> str:
    return f"{COMMIT_ORDER_FOLDER}/{number:0{_DIGITS}d}"


def _numbers(storage: Storage) -> list[int]:
    return numbered_objects(storage, COMMIT_ORDER_FOLDER)
