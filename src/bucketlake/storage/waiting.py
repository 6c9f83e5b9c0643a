"""Waiting for another process: storage alone shows what it does, so a caller looks repeatedly.

The pauses between looks grow with the time that a caller has waited. So a short wait ends soon
after the other process does, and a long one asks storage rarely.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

_PAUSE_SECONDS = (0.05, 0.5)
"""Least and greatest pause; between them, a tenth of the time waited."""


def pause(waited: float = 0.0) -> None:
    """Pause before the next look."""
    least, greatest = _PAUSE_SECONDS
    time.sleep(min(max(waited / 10, least), greatest))


def looks(seconds_max: float) -> Iterator[float]:
    """Yield the seconds waited so far, once for each look; pause between looks.

    Parameters
    ----------
    seconds_max : float
        After this time there is one more look, the last one.
    """
    started, waited = time.monotonic(), 0.0
    while True:
        yield waited
        if waited >= seconds_max:
            return
        pause(waited)
        waited = time.monotonic() - started


def until(is_over: Callable[[], object], seconds_max: float) -> bool:
    """Look until a condition holds; return False if it does not within the time."""
    return any(is_over() for _ in looks(seconds_max))
