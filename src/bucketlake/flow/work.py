"""What this thread is doing, in words: engines show it to people, as Spark does in its UI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_WORK: ContextVar[tuple[str, ...]] = ContextVar("work", default=())


@contextmanager
def doing(*words: str) -> Iterator[None]:
    """Say what the body does, after what its caller does."""
    before = _WORK.set((*_WORK.get(), *words))
    try:
        yield
    finally:
        _WORK.reset(before)


def work_in_words() -> str:
    """Return what is being done, from the whole to its step; empty outside of any work."""
    return " · ".join(_WORK.get())
