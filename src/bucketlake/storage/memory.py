"""Tables in the memory of one process, for tests and for trying things out.

The twin of the object stores: the same promises, folders that exist only as far as objects lie
below them, and no disk. Objects lie on a shelf that is found by its name, so that every handle of
``memory://name`` sees the same ones, a pickled handle too. What happened when is told by a clock
that is handed in; the default one ticks a millisecond with each write, so that runs repeat exactly.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

from bucketlake.errors import AlreadyExistsError, ObjectNotFoundError, StorageError
from bucketlake.storage.base import Buffer, Paths, StoredObject
from bucketlake.storage.paths import below, check_folder, check_path, is_side_file

Clock: TypeAlias = Callable[[], int]  # Milliseconds since 1970-01-01 UTC.

_CLOCK_START_MS = 1_700_000_000_000


def _ticking_clock() -> Clock:
    """Return a clock that advances by one millisecond whenever it is read."""
    return itertools.count(_CLOCK_START_MS).__next__


@dataclass
class _Shelf:
    """The objects behind all handles of one name."""

    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)  # Content and time.
    clock: Clock = field(default_factory=_ticking_clock)
    lock: threading.Lock = field(default_factory=threading.Lock)


_kept_shelves: dict[str, _Shelf] = {}
_fresh_shelves: WeakValueDictionary[str, _Shelf] = WeakValueDictionary()
_shelves_lock = threading.Lock()
_fresh_numbers = itertools.count(1)


def _shelf(name: str) -> _Shelf:
    with _shelves_lock:
        return _fresh_shelves.get(name) or _kept_shelves.setdefault(name, _Shelf())


def forget(name: str) -> None:
    """Drop what lies under a name; the next handle of that name finds nothing."""
    with _shelves_lock:
        _kept_shelves.pop(name, None)


class MemoryStorage:
    """Objects in memory, shared by name within the process until :func:`forget`.

    Parameters
    ----------
    name : str
        What handles of the same objects have in common.
    clock : callable, optional
        Times of modification from now on, for all handles of the name; None leaves the clock.
    """

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._name, self._shelf = name, _shelf(name)
        if clock is not None:
            self._shelf.clock = clock

    @classmethod
    def fresh(cls, clock: Clock | None = None) -> MemoryStorage:
        """Make an empty storage under a new name, forgotten with its last handle."""
        name, shelf = f"fresh-{next(_fresh_numbers)}", _Shelf()
        with _shelves_lock:
            _fresh_shelves[name] = shelf
        return cls(name, clock)

    def __repr__(self) -> str:
        return f"MemoryStorage({self._name!r})"

    def __reduce__(self) -> tuple[Callable[[str, int], MemoryStorage], tuple[str, int]]:
        return _unpickled, (self._name, os.getpid())

    @property
    def root(self) -> str:
        """The address that :func:`~bucketlake.storage.location.open_storage` takes."""
        return f"memory://{self._name}"

    @property
    def requests_at_once(self) -> int:
        """One, so that runs repeat exactly."""
        return 1

    def read(self, path: str) -> bytes:
        """Return a whole object."""
        return self._content(path, "read")

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of an object."""
        assert start >= 0, f"range starts at {start}"
        assert length >= 0, f"range has length {length}"
        return self._content(path, "read range of")[start : start + length]

    def stat(self, path: str) -> StoredObject | None:
        """Describe an object."""
        check_path(path, "stat")
        found = self._shelf.objects.get(path)
        return None if found is None else StoredObject(path, len(found[0]), found[1])

    def list(self, folder: str, *, recursive: bool = True) -> Iterator[StoredObject]:
        """Yield the objects below a folder, as they are at the call, in order of path."""
        check_folder(folder, "list")
        start = below(folder)
        with self._shelf.lock:
            found = sorted(
                (path, len(data), modified_at_ms)
                for path, (data, modified_at_ms) in self._shelf.objects.items()
                if path.startswith(start) and (recursive or "/" not in path[len(start) :])
            )
        return (StoredObject(*one) for one in found if not is_side_file(one[0].split("/")[-1]))

    def list_folders(self, folder: str) -> Paths:
        """Return a folder's direct subfolders."""
        check_folder(folder, "list folders of")
        start = below(folder)
        with self._shelf.lock:
            rests = [path[len(start) :] for path in self._shelf.objects if path.startswith(start)]
        return sorted({start + rest.split("/")[0] for rest in rests if "/" in rest})

    def put(self, path: str, data: Buffer) -> None:
        """Write an object, over what is there."""
        check_path(path, "put")
        with self._shelf.lock:
            self._shelf.objects[path] = (bytes(data), self._shelf.clock())

    def put_if_absent(self, path: str, data: Buffer) -> None:
        """Write an object unless one is there."""
        check_path(path, "put if absent")
        with self._shelf.lock:
            if path in self._shelf.objects:
                reason = "an object is there already"
                raise AlreadyExistsError(self._full(path), "put if absent", reason)
            self._shelf.objects[path] = (bytes(data), self._shelf.clock())

    def read_version(self, path: str) -> tuple[bytes, str] | None:
        """Return an object and its version."""
        check_path(path, "read")
        found = self._shelf.objects.get(path)
        return None if found is None else (found[0], _version(*found))

    def put_if_version(self, path: str, data: Buffer, version: str | None) -> str:
        """Write an object over a version of it."""
        check_path(path, "put if unchanged")
        with self._shelf.lock:
            found = self._shelf.objects.get(path)
            if version != (None if found is None else _version(*found)):
                reason = "another version is there, or none"
                raise AlreadyExistsError(self._full(path), "put if unchanged", reason)
            self._shelf.objects[path] = stored = (bytes(data), self._shelf.clock())
        return _version(*stored)

    def delete(self, path: str) -> None:
        """Remove an object."""
        check_path(path, "delete")
        with self._shelf.lock:
            self._shelf.objects.pop(path, None)

    def delete_folder(self, folder: str) -> None:
        """Remove all objects below a folder."""
        check_path(folder, "delete folder")
        with self._shelf.lock:
            for path in [p for p in self._shelf.objects if p.startswith(below(folder))]:
                del self._shelf.objects[path]

    def local_path(self, path: str) -> Path | None:
        """Return None: nothing is on disk."""
        check_path(path, "local path of")
        return None

    def _content(self, path: str, operation: str) -> bytes:
        check_path(path, operation)
        found = self._shelf.objects.get(path)
        if found is None:
            raise ObjectNotFoundError(self._full(path), operation, "no object is there")
        return found[0]

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"


def _version(data: bytes, modified_at_ms: int) -> str:
    return f"{modified_at_ms}-{hash(data)}"


def _unpickled(name: str, process_id: int) -> MemoryStorage:
    """Find the shelf again; in another process there is none, which must not look like empty."""
    if process_id != os.getpid():
        reason = f"it lives in process {process_id} alone; use a folder that all processes reach"
        raise StorageError(f"memory://{name}", "open", reason)
    return MemoryStorage(name)
