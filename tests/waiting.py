"""Waiting for a state, for as long as a busy machine may need."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS_MAX = 600


def wait_until(is_so: Callable[[], object], otherwise: Callable[[], str] = str) -> None:
    """Wait until something is so.

    Parameters
    ----------
    is_so : callable
        Asked again and again; it may fail the test itself.
    otherwise : callable
        What to say if it never comes about.
    """
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, f"not after {SECONDS_MAX} s: {otherwise()}"
        time.sleep(0.02)
