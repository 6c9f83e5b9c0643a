"""A twin of any storage that fails or dies where a plan says, and tells what led there.

Whoever tests a crash at every step first runs the scenario without faults, learns from
:attr:`FaultyStorage.operations` how many steps it has, and repeats it once per step and moment
with :func:`crash_points`. The plan alone decides, so a failure is replayed by its plan, and
:meth:`FaultyStorage.replay` prints the operations that led to it.

Puts are whole, so half-way through one means that nothing is visible yet; only the removal of a
folder can stop half-way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from bucketlake.errors import AlreadyExistsError, BucketLakeError, StorageError
from bucketlake.storage.base import Buffer, Paths, Storage, StoredObject, VersionedStorage

_Result = TypeVar("_Result")


class SimulatedCrash(BaseException):
    """The process dies here: not to be caught by ``except Exception``."""


class Moment(Enum):
    """When in an operation the fault strikes."""

    BEFORE = "before"  # Nothing has happened.
    HALFWAY = "halfway"  # Half of a folder is gone; of any other operation, nothing has happened.
    AFTER = "after"  # All has happened, and the caller does not learn it.


class Effect(Enum):
    """What the caller sees of the fault."""

    ERROR = "error"  # StorageError, once: did it take effect or not?
    ECHO = "echo"  # As ERROR, but put-if-absent that took effect raises AlreadyExistsError.
    DIE = "die"  # SimulatedCrash, from now on for every operation.


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, and where.

    Attributes
    ----------
    operation : int
        Number of the operation, the first being 1.
    moment : Moment
    effect : Effect
    """

    operation: int
    moment: Moment = Moment.BEFORE
    effect: Effect = Effect.DIE

    def __str__(self) -> str:
        return f"{self.effect.value} {self.moment.value} operation {self.operation}"


@dataclass(frozen=True, slots=True)
class Step:
    """One operation that was asked for."""

    operation: str
    path: str


def crash_points(operations: int, effect: Effect = Effect.DIE) -> Iterator[Fault]:
    """Yield a fault for each moment of each operation of a scenario."""
    for operation in range(1, operations + 1):
        for moment in Moment:
            yield Fault(operation, moment, effect)


def distinct_deaths(done: FaultyStorage) -> list[Fault]:
    """Return the crashes that leave different states: after each step, or halfway in a folder."""
    return [Fault(1)] + [
        fault
        for fault in crash_points(done.operations)
        if fault.moment is Moment.AFTER
        or (
            fault.moment is Moment.HALFWAY
            and done.trace[fault.operation - 1].operation == "delete_folder"
        )
    ]


class FaultyStorage:
    """A storage that works, except where the plan says otherwise.

    Parameters
    ----------
    inner : Storage
        What does the work. Others may use it directly: they outlive the crash.
    faults : iterable of Fault
        The plan; empty to count only.
    reads_count : bool
        Whether reads and listings are operations too. Without them only changes are counted and
        can fail, which is enough to crash at every distinct state of storage.

    Attributes
    ----------
    trace : list of Step
        The counted operations, in the order in which they began.
    dead : bool
        Whether the simulated process has died.
    """

    def __init__(
        self, inner: Storage, faults: Iterable[Fault] = (), *, reads_count: bool = True
    ) -> None:
        self.inner = inner
        self.faults = {fault.operation: fault for fault in faults}
        self.reads_count = reads_count
        self.trace: list[Step] = []
        self.dead = False
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"FaultyStorage({self.inner!r}, {[str(fault) for fault in self.faults.values()]})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the plan and the trace; the copy counts on by itself from there."""
        return {key: value for key, value in vars(self).items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    @property
    def operations(self) -> int:
        """How many operations were counted so far."""
        return len(self.trace)

    def replay(self) -> str:
        """Tell the plan and the operations so far, for the message of a failed test."""
        lines = [f"{n:4} {step.operation} {step.path}" for n, step in enumerate(self.trace, 1)]
        plan = ", ".join(str(fault) for fault in self.faults.values()) or "no faults"
        return "\n".join([f"plan: {plan}", *lines])

    @property
    def root(self) -> str:
        """The root of the inner storage."""
        return self.inner.root

    @property
    def requests_at_once(self) -> int:
        """One: operations have numbers."""
        return 1

    def read(self, path: str) -> bytes:
        """Return a whole object."""
        return self._look("read", path, lambda: self.inner.read(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of an object."""
        return self._look("read_range", path, lambda: self.inner.read_range(path, start, length))

    def stat(self, path: str) -> StoredObject | None:
        """Describe an object."""
        return self._look("stat", path, lambda: self.inner.stat(path))

    def list(self, folder: str, *, recursive: bool = True) -> Iterator[StoredObject]:
        """Yield the objects below a folder, as they are at the call."""
        look = lambda: [*self.inner.list(folder, recursive=recursive)]  # noqa: E731
        return iter(self._look("list", folder, look))

    def list_named(self, folder: str, prefixes: tuple[str, ...]) -> Iterator[StoredObject]:
        """Yield the objects directly in a folder with some prefixes, as they are at the call."""
        look = lambda: [*self.inner.list_named(folder, prefixes)]  # noqa: E731
        return iter(self._look("list", folder, look))

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        """Return the names of the objects directly in a folder, with their times of change."""
        return self._look("list", folder, lambda: self.inner.list_briefly(folder))

    def list_folders(self, folder: str) -> Paths:
        """Return a folder's direct subfolders."""
        return self._look("list_folders", folder, lambda: self.inner.list_folders(folder))

    def put(self, path: str, data: Buffer) -> None:
        """Write an object, over what is there."""
        self._run("put", path, lambda: self.inner.put(path, data))

    def put_if_absent(self, path: str, data: Buffer) -> None:
        """Write an object unless one is there."""
        self._run("put_if_absent", path, lambda: self.inner.put_if_absent(path, data))

    def duplicate(self, source: str, target: str) -> bool:
        """Make an object with the bytes of another; traced with the path of the new one."""
        return self._run("duplicate", target, lambda: self.inner.duplicate(source, target))

    def read_version(self, path: str) -> tuple[bytes, str] | None:
        """Return an object and its version, where the inner storage tells one."""
        inner = cast("VersionedStorage", self.inner)
        return self._look("read_version", path, lambda: inner.read_version(path))

    def put_if_version(self, path: str, data: Buffer, version: str | None) -> str:
        """Write an object over a version of it, where the inner storage can."""
        inner = cast("VersionedStorage", self.inner)
        return self._run("put_if_version", path, lambda: inner.put_if_version(path, data, version))

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._run("delete", path, lambda: self.inner.delete(path))

    def delete_folder(self, folder: str) -> None:
        """Remove all objects below a folder; half-way, the first half of them."""
        whole = lambda: self.inner.delete_folder(folder)  # noqa: E731
        self._run("delete_folder", folder, whole, lambda: self._delete_half(folder))

    def local_path(self, path: str) -> Path | None:
        """Local file of an object; not counted, since nothing is read yet."""
        self._require_alive("local_path", path)
        return self.inner.local_path(path)

    def _delete_half(self, folder: str) -> None:
        paths = [stored.path for stored in self.inner.list(folder)]
        for path in paths[: (len(paths) + 1) // 2]:
            self.inner.delete(path)

    def _look(self, operation: str, path: str, whole: Callable[[], _Result]) -> _Result:
        if self.reads_count:
            return self._run(operation, path, whole)
        self._require_alive(operation, path)
        return whole()

    def _run(
        self,
        operation: str,
        path: str,
        whole: Callable[[], _Result],
        half: Callable[[], None] | None = None,
    ) -> _Result:
        """Count an operation and do as much of it as the plan lets happen."""
        fault = self._count(operation, path)
        if fault is None:
            return whole()
        if fault.moment is Moment.AFTER:
            with suppress(BucketLakeError):  # Whatever it says, the caller does not hear it.
                whole()
        elif fault.moment is Moment.HALFWAY and half is not None:
            half()
        return self._strike(fault, operation, path)

    def _count(self, operation: str, path: str) -> Fault | None:
        with self._lock:
            self._require_alive(operation, path)
            self.trace.append(Step(operation, path))
            fault = self.faults.get(len(self.trace))
            if fault is not None and fault.effect is Effect.DIE:
                self.dead = True
            return fault

    def _strike(self, fault: Fault, operation: str, path: str) -> NoReturn:
        if fault.effect is Effect.DIE:
            raise SimulatedCrash(f"{fault}: {operation} {path}")
        if fault.effect is Effect.ECHO and (operation, fault.moment) in _ECHOED:
            raise AlreadyExistsError(path, operation, f"an object is there already ({fault})")
        raise StorageError(path, operation, f"simulated: {fault}; its outcome is unknown")

    def _require_alive(self, operation: str, path: str) -> None:
        if self.dead:
            raise SimulatedCrash(f"dead already: {operation} {path}")


_ECHOED = {("put_if_absent", Moment.AFTER), ("put_if_version", Moment.AFTER)}
