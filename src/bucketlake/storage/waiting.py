"""Waiting for another process: storage alone shows what it does, so a caller looks repeatedly.

The pauses between looks grow with the time that a caller has waited. So a short wait ends soon
after the other process does, and a long one asks storage rarely. What a caller itself shows others
meanwhile, it repeats in a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def repeating(
    act: Callable[[], object], seconds: float, name: str, first_seconds: float | None = None
) -> Iterator[None]:
    """Act again and again in a thread while the body runs.

    Parameters
    ----------
    act : callable
        It is not called any more once it returns False.
    seconds : float
        Time between two calls.
    name : str
        Name of the thread.
    first_seconds : float, optional
        Time before the first call, if it is another one.
    """
    ended = threading.Event()

    def run() -> None:
        wait = seconds if first_seconds is None else first_seconds
        while not ended.wait(wait) and act() is not False:
            wait = seconds

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
