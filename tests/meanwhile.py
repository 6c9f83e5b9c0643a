"""Something that happens at a step of a process: at one of its operations of storage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn

import pytest

from bucketlake.config.paths_of_table import COMMIT_ORDER_FOLDER
from bucketlake.storage.base import Storage
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.storage.object_store import ObjectStorage
from tests.faulty_storage import FaultyStorage, SimulatedCrash

STORAGES = MemoryStorage, LocalStorage, ObjectStorage
LOOKS = "list", "list_named", "list_briefly"
PUTS = "put", "put_if_absent", "put_if_version"
CHANGES = *PUTS, "put_all_if_absent", "duplicate", "delete", "delete_folder"


def meanwhile(
    monkeypatch: pytest.MonkeyPatch,
    other: Callable[[], object],
    operations: tuple[str, ...] = LOOKS,
    part: str = COMMIT_ORDER_FOLDER,
    *,
    after: bool = False,
) -> list[Callable[[], object]]:
    """Let something happen once, at the next operation of storage on some path.

    By default it happens between the tasks of the next write and its commit: a write looks for the
    last turn only then.

    Parameters
    ----------
    monkeypatch : MonkeyPatch
        Takes the hook back.
    other : callable
        What happens.
    operations : tuple of str
        Names of methods of ``Storage``.
    part : str
        Part of the path or folder.
    after : bool
        Whether it happens after the operation rather than before it.

    Returns
    -------
    list of callable
        What did not happen yet: empty from then on.
    """
    waiting, once = [other], threading.Lock()

    def happen() -> None:
        waiting.pop()()

    def hooked(run: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(run)
        def step(self: object, path: str, *given: object, **named: object) -> object:
            is_it = part in path and once.acquire(blocking=False)
            if is_it and not after:
                happen()
            answer = run(self, path, *given, **named)
            if is_it and after:
                answer = iter([*answer]) if isinstance(answer, Iterator) else answer
                happen()
            return answer

        return step

    for storage in STORAGES:
        for operation in operations:
            if hasattr(storage, operation):
                monkeypatch.setattr(storage, operation, hooked(getattr(storage, operation)))
    return waiting


@contextmanager
def dying(operations: tuple[str, ...], part: str, *, after: bool = False) -> Iterator[None]:
    """Let the process of the body die at an operation of storage; it changes nothing any more.

    The parameters are those of :func:`meanwhile`.
    """

    def die(*_: object, **__: object) -> NoReturn:
        raise SimulatedCrash

    with pytest.MonkeyPatch.context() as patch:

        def strike() -> NoReturn:
            for storage in STORAGES:
                for operation in CHANGES:
                    if hasattr(storage, operation):
                        patch.setattr(storage, operation, die)
            die()

        meanwhile(patch, strike, operations, part, after=after)
        with pytest.raises(SimulatedCrash):
            yield


class Steps:
    """Counts changes of storage in memory, and dies at one of them."""

    def __init__(self, at: int) -> None:
        self.at, self.count, self.reached = at, 0, False
        self.lock = threading.Lock()

    def __call__(self) -> None:
        with self.lock:
            self.count += 1
            if self.count >= self.at:
                self.reached = True
                raise SimulatedCrash(f"step {self.at}")


class dying_at:  # noqa: N801
    """Let the process of the body die before a change of storage; it changes nothing any more."""

    def __init__(self, step: int) -> None:
        self.steps, self.patch = Steps(step), pytest.MonkeyPatch()

    def __enter__(self) -> Steps:
        for name in CHANGES:
            if hasattr(MemoryStorage, name):
                run = getattr(MemoryStorage, name)

                def hooked(storage: Any, *given: Any, run: Any = run, **named: Any) -> Any:
                    self.steps()
                    return run(storage, *given, **named)

                self.patch.setattr(MemoryStorage, name, hooked)
        return self.steps

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.patch.undo()
        return kind is SimulatedCrash


class Interrupted(FaultyStorage):
    """A view of a storage on which something else happens before the operation of a number."""

    def __init__(self, inner: Storage, before: int, other: Callable[[], object]) -> None:
        super().__init__(inner)
        self._before, self._other = before, other

    def _run(self, *given: Any, **named: Any) -> Any:
        if self.operations + 1 == self._before:
            self._before = 0
            self._other()
        return super()._run(*given, **named)
