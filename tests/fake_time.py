"""A clock that stands still except while somebody waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bucketlake.storage import waiting
from bucketlake.timeline import locks


class FakeTime:
    """Stands in for the module ``time`` in waits for other processes.

    Parameters
    ----------
    then : callable
        Happens at each pause.
    """

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.seconds = 0.0
        self.naps: list[float] = []
        self.then = then

    def installed(self, monkeypatch: pytest.MonkeyPatch) -> FakeTime:
        """Let waits pass by this clock."""
        monkeypatch.setattr(waiting, "time", self)
        return self

    def monotonic(self) -> float:
        """Return the seconds that somebody has waited."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        assert 0.01 <= seconds <= 1
        self.seconds += seconds
        self.naps.append(seconds)
        self.then()


def locks_are_later(monkeypatch: pytest.MonkeyPatch, by_ms: int) -> None:
    """Let owners of locks believe that so much time has passed."""
    later = locks.system_now_ms() + by_ms
    monkeypatch.setattr(locks, "system_now_ms", lambda: later)
