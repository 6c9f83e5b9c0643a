"""Tables in the memory of one process, for tests and experiments.

It makes the same promises as the object stores: a folder exists only while there are objects below
it. Objects are on a shelf with a name, so every handle of ``memory://name`` sees the same objects,
also a pickled handle. The clock is a parameter; the default clock advances by a millisecond with
each write, so that runs are repeatable.
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
from bucketlake.storage.base import (
    Buffer,
    Paths,
    StoredObject,
    below,
    check_folder,
    check_path,
    is_side_file,
    names_and_times,
    require_same_size,
    with_prefixes,
)

Clock: TypeAlias = Callable[[], int]  # Milliseconds since 1970-01-01 UTC.

_CLOCK_START_MS = 1_700_000_000_000


def _ticking_clock() -> Clock:
    """Return a clock that advances by one millisecond per reading."""
    return itertools.count(_CLOCK_START_MS).__next__


@dataclass
class _Shelf:
    """The objects of all handles with one name."""

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
    """Delete the objects of a name; the next handle of that name is empty."""
    with _shelves_lock:
        _kept_shelves.pop(name, None)


class MemoryStorage:
    """Objects in memory, shared by name within the process until :func:`forget`.

    Parameters
    ----------
    name : str
        Handles with the same name share their objects.
    clock : callable, optional
        Clock for modification times from now on, for all handles of the name; None keeps the clock.
    """

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._name, self._shelf = name, _shelf(name)
        if clock is not None:
            self._shelf.clock = clock

    @classmethod
    def fresh(cls, clock: Clock | None = None) -> MemoryStorage:
        """Create an empty storage with a new name; it is deleted with its last handle."""
        name, shelf = f"fresh-{next(_fresh_numbers)}", _Shelf()
        with _shelves_lock:
            _fresh_shelves[name] = shelf
        return cls(name, clock)

    def __repr__(self) -> str:
        return f"MemoryStorage({self._name!r})"

    def __reduce__(self) -> tuple[Callable[..., MemoryStorage], tuple[object, ...]]:
        return _unpickled, (self._name, os.getpid())

    @property
    def root(self) -> str:
        """The address that :func:`~bucketlake.storage.location.open_storage` takes."""
        return f"memory://{self._name}"

    requests_at_once = 1  # So that runs are repeatable.

    def parent(self) -> None:
        """Return None: a name is not inside of another one."""
        return

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
        """Yield the objects below a folder at the time of the call, sorted by path."""
        check_folder(folder, "list")
        start = below(folder)
        with self._shelf.lock:
            objects = self._shelf.objects
            paths = sorted([path for path in objects if path.startswith(start)])
            found = [
                StoredObject(path, len(objects[path][0]), objects[path][1])
                for path in paths
                if recursive or path.find("/", len(start)) < 0
            ]
        return (stored for stored in found if not is_side_file(stored.name))

    def list_named(self, folder: str, prefixes: tuple[str, ...]) -> Iterator[StoredObject]:
        """Yield the objects directly in a folder with one of some prefixes."""
        return with_prefixes(self.list(folder, recursive=False), prefixes)

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        """Return the names of the objects directly in a folder, with their times of change."""
        return names_and_times(self.list(folder, recursive=False))

    def list_folders(self, folder: str) -> Paths:
        """Return the direct subfolders of a folder."""
        check_folder(folder, "list folders of")
        start = below(folder)
        with self._shelf.lock:
            rests = [path[len(start) :] for path in self._shelf.objects if path.startswith(start)]
        return sorted({start + rest.split("/")[0] for rest in rests if "/" in rest})

    def put(self, path: str, data: Buffer) -> None:
        """Write an object and replace an existing one."""
        check_path(path, "put")
        with self._shelf.lock:
            self._shelf.objects[path] = (bytes(data), self._shelf.clock())

    def put_if_absent(self, path: str, data: Buffer) -> None:
        """Write an object if none exists."""
        check_path(path, "put if absent")
        with self._shelf.lock:
            if path in self._shelf.objects:
                reason = "the object exists already"
                raise AlreadyExistsError(self._full(path), "put if absent", reason)
            self._shelf.objects[path] = (bytes(data), self._shelf.clock())

    def duplicate(self, source: str, target: str) -> bool:
        """Put the bytes of an object at a second path."""
        check_path(target, "duplicate")
        with self._shelf.lock:
            data = self._content(source, "duplicate")
            if target in self._shelf.objects:
                require_same_size(self, source, target)
            else:
                self._shelf.objects[target] = (data, self._shelf.clock())
        return True

    def read_version(self, path: str) -> tuple[bytes, str] | None:
        """Return an object and its version."""
        check_path(path, "read")
        found = self._shelf.objects.get(path)
        return None if found is None else (found[0], _version(*found))

    def put_if_version(self, path: str, data: Buffer, version: str | None) -> str:
        """Write an object if it still has a version."""
        check_path(path, "put if unchanged")
        with self._shelf.lock:
            found = self._shelf.objects.get(path)
            if version != (None if found is None else _version(*found)):
                reason = "there is another version, or no object"
                raise AlreadyExistsError(self._full(path), "put if unchanged", reason)
            self._shelf.objects[path] = stored = (bytes(data), self._shelf.clock())
        return _version(*stored)

    def delete(self, path: str) -> None:
        """Delete an object."""
        check_path(path, "delete")
        with self._shelf.lock:
            self._shelf.objects.pop(path, None)

    def delete_folder(self, folder: str) -> None:
        """Delete all objects below a folder."""
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
            raise ObjectNotFoundError(self._full(path), operation, "there is no object")
        return found[0]

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"


def _version(data: bytes, modified_at_ms: int) -> str:
    return f"{modified_at_ms}-{hash(data)}"


class DraftStorage(MemoryStorage):
    """A table in memory that is to be made elsewhere, so that a write to it can be checked before.

    It has the address of its later place, for messages. A pickle holds all objects, because tasks
    of Spark may look into them.

    Parameters
    ----------
    root : str
        The address of the place.

    Examples
    --------
    >>> DraftStorage("s3://lake/trips").root
    's3://lake/trips'
    """

    def __init__(self, root: str) -> None:
        self._name, self._shelf = root, _Shelf()

    @property
    def root(self) -> str:
        """The address of the later place."""
        return self._name

    def __reduce__(self) -> tuple[Callable[..., MemoryStorage], tuple[object, ...]]:
        return _drafted, (self._name, self._shelf.objects)


def _drafted(root: str, objects: dict[str, tuple[bytes, int]]) -> DraftStorage:
    draft = DraftStorage(root)
    draft._shelf.objects.update(objects)
    return draft


def _unpickled(name: str, process_id: int) -> MemoryStorage:
    """Return the storage of a pickled handle; raise StorageError in another process."""
    if process_id != os.getpid():
        reason = f"it exists only in process {process_id}; use a folder that all processes can read"
        raise StorageError(f"memory://{name}", "open", reason)
    return MemoryStorage(name)
