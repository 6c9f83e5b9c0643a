"""Functions of the source that are watched, forbidden or broken in a test."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import pytest


def spy(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, note: Callable[..., Any]
) -> list[Any]:
    """Note each call of a function of a module or class; return the notes.

    ``note`` gets the arguments of the call.
    """
    notes: list[Any] = []
    run = getattr(owner, name)

    @wraps(run)
    def noted(*given: Any, **named: Any) -> Any:
        notes.append(note(*given, **named))
        return run(*given, **named)

    monkeypatch.setattr(owner, name, noted)
    return notes


def spy_answers(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, note: Callable[[Any], Any]
) -> list[Any]:
    """Note each answer of a function of a module or class; return the notes."""
    notes: list[Any] = []
    run = getattr(owner, name)

    @wraps(run)
    def noted(*given: Any, **named: Any) -> Any:
        answer = run(*given, **named)
        notes.append(note(answer))
        return answer

    monkeypatch.setattr(owner, name, noted)
    return notes


def forbid(monkeypatch: pytest.MonkeyPatch, owner: object, *names: str) -> None:
    """Let a call of a function of a module or class fail the test."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise AssertionError(f"{owner} is asked for one of {names}")

    for name in names:
        monkeypatch.setattr(owner, name, fail)


def breaks(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: BaseException) -> None:
    """Let a call of a function of a module or class raise an error."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(owner, name, fail)


def overtake(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, other: Callable[[], object]
) -> list[Callable[[], object]]:
    """Let something else happen once, right before a function of a module or class runs.

    What is returned is empty from then on.
    """
    waiting, run = [other], getattr(owner, name)

    @wraps(run)
    def late(*given: Any, **named: Any) -> Any:
        while waiting:
            waiting.pop()()
        return run(*given, **named)

    monkeypatch.setattr(owner, name, late)
    return waiting
