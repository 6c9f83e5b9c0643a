"""A stage on which several processes act, one operation of storage at a time.

Each actor is a thread that runs only when the stage lets it. It gives up its turn before every
storage operation and when it sleeps. The seed determines which actor runs next, how long an actor
pauses, and how the clock moves, so the same seed replays a run.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

from bucketlake.storage.base import Buffer, Paths, Storage, StoredObject, VersionedStorage
from tests.faulty_storage import SimulatedCrash

_TICKS_MS = (0, 1, 3, 40)
_LONG_MS = (20_000, 90_000)  # Renewals are due; longer than a heartbeat or lease is valid.


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass
class Actor:
    """One process of a run.

    Attributes
    ----------
    name : str
    run : callable
        All actions of the actor; an error ends the run.
    process : str
        Name of the actor whose process it belongs to: its own, or the actor that started it as a
        thread.
    """

    name: str
    run: Callable[[], None]
    process: str = ""
    turn: threading.Lock = field(default_factory=_locked)
    asleep_until_ms: int = 0
    still_for: int = 0  # Number of turns of others during which it pauses.
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.process = self.process or self.name


class Stage:
    """Lets actors act in turn.

    Parameters
    ----------
    random_ : random.Random
        Source of all decisions.
    now_ms : int
        Start of the clock, in milliseconds since 1970 UTC.
    """

    def __init__(self, random_: random.Random, now_ms: int) -> None:
        self.random, self.now_ms = random_, now_ms
        self.jumps = True  # Whether the clock may jump by more than a lease.
        self._the_end = _locked()
        self._waiting: list[Actor] = []
        self._threads: list[threading.Thread] = []
        self._actors: dict[int, Actor] = {}
        self.trace: list[str] = []

    @property
    def actor(self) -> Actor | None:
        """The actor of the current thread."""
        return self._actors.get(threading.get_ident())

    def play(self, actors: list[Actor]) -> None:
        """Run all actors to their end; raise an error of an actor."""
        for actor in actors:
            self.begin(actor)
        self._next().turn.release()
        self._the_end.acquire()
        while self._threads:
            self._threads.pop().join()
        for actor in actors:
            if actor.error is not None:
                raise actor.error

    def begin(self, actor: Actor) -> None:
        """Start an actor; it waits for its turn."""
        self._waiting.append(actor)
        thread = threading.Thread(target=self._act, args=(actor,))
        self._threads.append(thread)
        thread.start()

    def has_ended(self, actor: Actor) -> bool:
        """Return whether an actor has finished."""
        return actor not in self._waiting

    def pause(self, doing: str) -> None:
        """Give up the turn; do nothing in a thread without an actor."""
        actor = self.actor
        if actor is None:
            return
        if self.random.random() < 0.01:
            actor.still_for = self.random.randrange(200)
        self._yield(actor)
        self.trace.append(f"{actor.name}: {doing}")

    def sleep(self, seconds: float) -> None:
        """Sleep by the stage's clock."""
        actor = self.actor
        assert actor is not None, "who sleeps?"
        actor.asleep_until_ms = self.now_ms + int(seconds * 1000)
        self._yield(actor)

    def monotonic(self) -> float:
        """Return the seconds of the stage's clock."""
        return self.now_ms / 1000

    def _yield(self, actor: Actor) -> None:
        following = self._next()
        if following is not actor:
            following.turn.release()
            actor.turn.acquire()

    def _act(self, actor: Actor) -> None:
        actor.turn.acquire()
        self._actors[threading.get_ident()] = actor
        try:
            actor.run()
        except BaseException as error:  # It ends the run.
            actor.error = error
        finally:
            self._waiting.remove(actor)
            del self._actors[threading.get_ident()]
            (self._next().turn if self._waiting else self._the_end).release()

    def _next(self) -> Actor:
        self.now_ms += self.random.choice(_TICKS_MS)
        if self.jumps and self.random.random() < 0.002:
            self.now_ms += self.random.choice(_LONG_MS)
        ready = []
        for actor in self._waiting:
            if actor.still_for:
                actor.still_for -= 1
            if not actor.still_for and actor.asleep_until_ms <= self.now_ms:
                ready.append(actor)
        if not ready:
            ready = [min(self._waiting, key=lambda a: (a.asleep_until_ms, a.still_for))]
            self.now_ms = max(self.now_ms, ready[0].asleep_until_ms)
        return self.random.choice(ready)


class InTurn:
    """Replaces a thread pool: runs all tasks in the actor's own thread."""

    def __init__(self, _: int | None = None) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, run: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        return iter([run(*one) for one in zip(*arguments, strict=True)])


class _Idle:
    """Replaces a thread that waits forever."""

    def __init__(self, **_: object) -> None:
        pass

    def start(self) -> None:
        pass

    def join(self) -> None:
        pass


class _Beside:
    """Replaces a thread of an actor's process by another actor."""

    def __init__(
        self, stage: Stage, *, target: Callable[..., None], args: tuple[Any, ...] = (), **_: object
    ) -> None:
        beside = stage.actor
        assert beside is not None, "whose thread?"
        self._stage = stage
        self._actor = Actor(f"{beside.name}'s thread", partial(target, *args), beside.process)

    def start(self) -> None:
        self._stage.begin(self._actor)

    def join(self) -> None:
        while not self._stage.has_ended(self._actor):
            self._stage.sleep(0.001)
        error = self._actor.error
        if error is not None and not isinstance(error, SimulatedCrash):
            raise error


class _Event:
    """Replaces an event that a thread waits for; the wait uses the stage's clock."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._is_set = False
        self._waiting: Actor | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiting is not None:
            self._waiting.asleep_until_ms = 0

    def wait(self, seconds: float) -> bool:
        if not self._is_set:
            self._waiting = self._stage.actor
            self._stage.sleep(seconds)
        return self._is_set


def threads_of(stage: Stage, *, renew: bool) -> SimpleNamespace:
    """Return a replacement of ``threading`` for threads that renew heartbeats and locks.

    Parameters
    ----------
    stage : Stage
    renew : bool
        Whether such threads run.
    """
    return SimpleNamespace(
        Thread=partial(_Beside, stage) if renew else _Idle,
        Event=partial(_Event, stage),
        Lock=threading.Lock,
        get_ident=threading.get_ident,
    )


class StagedStorage:
    """A storage whose operations wait for the actor's turn.

    Attributes
    ----------
    created : list of str
        Paths of the objects that were put if absent and not deleted later.
    """

    def __init__(self, inner: Storage, stage: Stage) -> None:
        self._inner, self._stage = inner, stage
        self.created: list[str] = []

    @property
    def root(self) -> str:
        return self._inner.root

    @property
    def requests_at_once(self) -> int:
        return 1

    def read(self, path: str) -> bytes:
        self._stage.pause(f"read {path}")
        return self._inner.read(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._inner.read_range(path, start, length)  # A part of reading a file.

    def stat(self, path: str) -> StoredObject | None:
        self._stage.pause(f"stat {path}")
        return self._inner.stat(path)

    def list(self, folder: str, *, recursive: bool = True) -> Iterator[StoredObject]:
        self._stage.pause(f"list {folder}")
        return self._inner.list(folder, recursive=recursive)

    def list_named(self, folder: str, prefixes: tuple[str, ...]) -> Iterator[StoredObject]:
        self._stage.pause(f"list {folder}")
        return self._inner.list_named(folder, prefixes)

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        self._stage.pause(f"list {folder}")
        return self._inner.list_briefly(folder)

    def list_folders(self, folder: str) -> Paths:
        self._stage.pause(f"list folders {folder}")
        return self._inner.list_folders(folder)

    def put(self, path: str, data: Buffer) -> None:
        self._stage.pause(f"put {path}")
        self._inner.put(path, data)

    def put_if_absent(self, path: str, data: Buffer) -> None:
        self._stage.pause(f"put if absent {path}")
        self._inner.put_if_absent(path, data)
        self.created.append(path)

    def duplicate(self, source: str, target: str) -> bool:
        self._stage.pause(f"duplicate {target}")
        return self._inner.duplicate(source, target)

    def read_version(self, path: str) -> tuple[bytes, str] | None:
        self._stage.pause(f"read version {path}")
        return cast("VersionedStorage", self._inner).read_version(path)

    def put_if_version(self, path: str, data: Buffer, version: str | None) -> str:
        self._stage.pause(f"put if version {path}")
        return cast("VersionedStorage", self._inner).put_if_version(path, data, version)

    def delete(self, path: str) -> None:
        self._stage.pause(f"delete {path}")
        self._inner.delete(path)
        if path in self.created:  # Another action had the same time.
            self.created.remove(path)

    def delete_folder(self, folder: str) -> None:
        self._stage.pause(f"delete folder {folder}")
        self._inner.delete_folder(folder)

    def local_path(self, path: str) -> Path | None:
        return self._inner.local_path(path)
