"""The storage interface: the few operations on bytes that a table needs, for every backend.

All paths are relative to the root of the table, with ``/`` between segments, and nothing in them is
decoded: ``a%2Fb`` names a folder of five characters. A backend needs no atomic rename.
:meth:`Storage.put_if_absent` is atomic: complete content or nothing, and one winner.
Which paths are allowed, and which names a listing omits, is said here, too.

The promises of each operation are written here once; backends only add their own details. What any
storage can be asked stands here, too, such as many requests at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from bucketlake.config.entries import is_number
from bucketlake.config.paths_of_table import is_inner
from bucketlake.errors import AlreadyExistsError, ObjectNotFoundError, StorageError

Buffer: TypeAlias = bytes | bytearray | memoryview
Paths: TypeAlias = list[str]  # Defined here because ``list`` is the name of a method below.


def flat_view(data: Buffer) -> memoryview:
    """Return a buffer as a one-dimensional view of bytes; only a view with gaps is copied."""
    view = memoryview(data)
    return view.cast("B") if view.c_contiguous else memoryview(bytes(view))


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in a listing."""

    path: str
    size_bytes: int
    modified_at_ms: int  # Milliseconds since 1970-01-01 UTC.
    etag: str = ""  # Names the version, if the storage does.

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rpartition("/")[2]


@runtime_checkable
class Storage(Protocol):
    """Bytes at paths below one root. Implementations are picklable and hold no open handle.

    A :class:`~bucketlake.errors.StorageError` that is not one of its two subclasses means that
    storage failed. A change may then have happened, or not, or may still happen later. Threads may
    share an instance.
    """

    @property
    def root(self) -> str:
        """The root as a user writes it, for messages and engines (``s3://…``, ``/…``)."""

    @property
    def requests_at_once(self) -> int:
        """How many requests should run in parallel."""

    def read(self, path: str) -> bytes:
        """Return a whole object; raise ObjectNotFoundError if there is none."""

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start``, fewer at the end of the object."""

    def stat(self, path: str) -> StoredObject | None:
        """Describe an object; None if there is none (a folder is not an object)."""

    def list(self, folder: str, *, recursive: bool = True) -> Iterator[StoredObject]:
        """Yield the objects below a folder, sorted by path; nothing if it does not exist.

        Whole paths are compared as text. Objects that are created or deleted meanwhile may be
        listed or not. Hadoop's checksum files and folder markers are omitted.
        """

    def list_named(self, folder: str, prefixes: tuple[str, ...]) -> Iterator[StoredObject]:
        """Yield the objects directly in a folder whose names begin with one of some prefixes.

        As :meth:`list`, but objects that are not wanted cost little.
        """

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        """Return the names of the objects directly in a folder, sorted, and their times of change.

        As :meth:`list`, but a local disk tells no times, because each would be a call of its own:
        a time is then None, and :meth:`stat` tells it. Milliseconds since 1970-01-01 UTC.
        """

    def list_folders(self, folder: str) -> Paths:
        """Return the paths of direct subfolders, sorted; on local disk also empty ones."""

    def put(self, path: str, data: Buffer) -> None:
        """Write an object and replace an existing one; readers see the old or the new content."""

    def put_if_absent(self, path: str, data: Buffer) -> None:
        """Write an object if none exists; all callers but one get AlreadyExistsError.

        A normal return proves that the object has these bytes and that no other caller succeeded.
        AlreadyExistsError does not prove that another caller won: after a lost response, the client
        of an object store repeats the request and may find its own object. A caller that must know
        the winner puts something unique into the content and reads it back. If all callers write
        the same bytes, a caller can ignore the error.
        """

    def duplicate(self, source: str, target: str) -> bool:
        """Make ``target`` an object with the bytes of ``source``; return if storage did it alone.

        True means that no byte passed through this process: a local disk makes a hard link, an
        object store copies within the store. False means that the disk allows no hard link here,
        so the bytes were read and written again. In both cases ``target`` appears complete. Later
        each path can be replaced or deleted, and the other keeps its bytes. The modification time
        of ``target`` may be that of ``source``.

        If ``target`` exists and has the size of ``source``, an earlier attempt made it, and nothing
        is written. If it has another size, raise AlreadyExistsError. If there is no ``source``,
        raise ObjectNotFoundError. Some storage cannot make a copy on condition, so two calls at
        once for one ``target`` must mean the same bytes.
        """

    def delete(self, path: str) -> None:
        """Delete an object; nothing happens if there is none."""

    def delete_folder(self, folder: str) -> None:
        """Delete all objects below a folder, and the folder; never the root itself.

        This is not atomic: after a failure some objects are deleted and others are not.
        """

    def local_path(self, path: str) -> Path | None:
        """Return the local file of an object for memory-mapped reads; None if it is not local."""


@runtime_checkable
class StagingStorage(Storage, Protocol):
    """Storage that writes temporary files first; a killed process leaves them behind."""

    def clear_staging(self, written_before_ms: int) -> int:
        """Delete temporary files that were last written before a time; return their number."""


@runtime_checkable
class BulkStorage(Storage, Protocol):
    """Storage that publishes many objects for less than one after another.

    Call :func:`put_all_if_absent`, which takes any storage.
    """

    def put_all_if_absent(self, objects: Sequence[tuple[str, Buffer]]) -> set[str]:
        """Write the objects that do not exist yet; return the paths of those that did.

        For each object this promises what :meth:`Storage.put_if_absent` does; a failure may leave
        some of them written.
        """


@runtime_checkable
class PlacedStorage(Storage, Protocol):
    """Storage whose root is a folder of something larger."""

    def parent(self) -> PlacedStorage | None:
        """Return the storage of the folder around the root; None if there is none."""


def clear_staging(storage: Storage, written_before_ms: int) -> None:
    """Delete temporary files that killed processes left behind, if the storage writes such files.

    A file that cannot be deleted is no error: it is not part of the table.
    """
    if isinstance(storage, StagingStorage):
        with suppress(StorageError):
            storage.clear_staging(written_before_ms)


def read_if_there(storage: Storage, path: str) -> bytes | None:
    """Return the bytes of an object; None if there is none."""
    try:
        return storage.read(path)
    except ObjectNotFoundError:
        return None


def put_or_find(storage: Storage, path: str, data: Buffer) -> bool:
    """Write an object if none exists; return whether the object then has these bytes.

    A client repeats a put after a lost response, and may then find its own object. So the content
    of a claim has something unique.
    """
    try:
        storage.put_if_absent(path, data)
    except AlreadyExistsError:
        return read_if_there(storage, path) == data
    return True


def numbered_objects(storage: Storage, folder: str) -> list[int]:
    """Return the numbers that are names of objects in a folder, ascending."""
    names = [stored.name for stored in storage.list(folder, recursive=False)]
    return sorted(int(name) for name in names if is_number(name))


def with_prefixes(
    objects: Iterable[StoredObject], prefixes: tuple[str, ...]
) -> Iterator[StoredObject]:
    """Yield the objects whose names begin with one of some prefixes."""
    return (stored for stored in objects if stored.name.startswith(prefixes))


def names_and_times(objects: Iterable[StoredObject]) -> dict[str, int | None]:
    """Return the names of objects in one folder, with their times of change."""
    return {stored.name: stored.modified_at_ms for stored in objects}


def require_same_size(storage: Storage, source: str, target: str) -> None:
    """Raise AlreadyExistsError if an existing target cannot be a duplicate of its source."""
    original, found = storage.stat(source), storage.stat(target)
    full_source = f"{storage.root}/{source}"
    if original is None:
        raise ObjectNotFoundError(full_source, "duplicate", "there is no object")
    full_path = f"{storage.root}/{target}"
    if found is None:
        reason = "the path was in use, but now there is no object; repeat the request"
        raise StorageError(full_path, "duplicate", reason)
    if found.size_bytes != original.size_bytes:
        reason = (
            f"the object exists already and has {found.size_bytes} bytes, but {full_source} has "
            f"{original.size_bytes} bytes"
        )
        raise AlreadyExistsError(full_path, "duplicate", reason)


@runtime_checkable
class VersionedStorage(Storage, Protocol):
    """Storage that can replace an object only if nobody else changed it meanwhile.

    Object stores and memory can do this; local disk cannot.
    """

    def read_version(self, path: str) -> tuple[bytes, str] | None:
        """Return an object and an id of its version; None if there is no object."""

    def put_if_version(self, path: str, data: Buffer, version: str | None) -> str:
        """Write an object if it still has a version, or if it is absent; return the new version.

        If there is another version, raise AlreadyExistsError. As in :meth:`Storage.put_if_absent`,
        that may be the caller's own put.
        """


# ---- The rules for paths in all backends ---------------------------------------------------------
#
# Which paths are allowed, and which names are omitted.
#
# A path has at least one segment, no empty segment, and no ``.`` or ``..``. So it cannot leave the
# root, and each object has one spelling. Everything else is allowed and not decoded. Listings omit
# Hadoop's own checksum files and folder markers.


def check_path(path: str, operation: str) -> None:
    """Raise StorageError if a path is not below the root."""
    if not is_inner(path):
        raise StorageError(
            path or "''",
            operation,
            "a path must be relative to the table, without empty, '.' or '..' segments",
        )


def check_folder(folder: str, operation: str) -> None:
    """Raise StorageError if a folder is neither the root (the empty text) nor below it."""
    if folder:
        check_path(folder, operation)


def is_side_file(name: str) -> bool:
    """Return whether a file name is Hadoop's own: a checksum, or an old client's folder marker.

    >>> [is_side_file(n) for n in (".a.parquet.crc", "year=2013_$folder$", ".hoodie", "a.crc")]
    [True, True, False, False]
    """
    return (name.startswith(".") and name.endswith(".crc")) or name.endswith("_$folder$")


def below(folder: str) -> str:
    """Return the prefix of all paths in a folder."""
    return f"{folder}/" if folder else ""


# ---- Several requests at once --------------------------------------------------------------------
#
# The storage says how many requests run at once. A request to an object store takes tens of
# milliseconds; a request to local disk is faster than the start of a thread.

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def at_once(
    storage: Storage,
    request: Callable[[_Item], _Answer],
    items: Iterable[_Item],
    answered: Callable[[int], None] | None = None,
) -> list[_Answer]:
    """Make a request for each item, in parallel as far as the storage allows.

    Parameters
    ----------
    storage : Storage
        The storage that gets the requests.
    request : callable
        Makes one request, from any thread.
    items : iterable
        The items.
    answered : callable, optional
        Called after each answer with the number of answers so far.

    Returns
    -------
    list
        The answers, in order of the items. The first error in that order is raised; some later
        requests may have been made then.
    """
    asked = list(items)
    width = min(storage.requests_at_once, len(asked))
    if width < 2:
        return _collected(map(request, asked), answered)
    with ThreadPoolExecutor(width) as pool:
        return _collected(pool.map(request, asked), answered)


def put_all_if_absent(storage: Storage, objects: Sequence[tuple[str, Buffer]]) -> set[str]:
    """Write the objects that do not exist yet; return the paths of those that did."""
    if len(objects) > 1 and isinstance(storage, BulkStorage):
        return storage.put_all_if_absent(objects)

    def existed(item: tuple[str, Buffer]) -> bool:
        try:
            storage.put_if_absent(*item)
        except AlreadyExistsError:
            return True
        return False

    found = at_once(storage, existed, objects)
    return {path for (path, _), exists in zip(objects, found, strict=True) if exists}


def _collected(answers: Iterable[_Answer], answered: Callable[[int], None] | None) -> list[_Answer]:
    found: list[_Answer] = []
    for answer in answers:
        found.append(answer)
        if answered is not None:
            answered(len(found))
    return found


# ---- A folder of a storage as a storage: for a table inside another table ------------------------
#
# For example, the metadata table is a folder of its data table. The inner storage uses the outer
# one, so both share credentials, the staging folder and, in tests, the count of operations.


@dataclass(frozen=True)
class Subfolder:
    """A folder of another storage.

    Parameters
    ----------
    outer : Storage
        The storage that does the work.
    folder : str
        Path of the folder in it.
    """

    outer: Storage
    folder: str

    def __post_init__(self) -> None:
        check_path(self.folder, "open")

    @property
    def root(self) -> str:
        """The address of the folder."""
        return f"{self.outer.root}/{self.folder}"

    def parent(self) -> PlacedStorage | None:
        """Return the folder around the folder."""
        folder = self.folder.rpartition("/")[0]
        if folder:
            return Subfolder(self.outer, folder)
        return self.outer if isinstance(self.outer, PlacedStorage) else None

    @property
    def requests_at_once(self) -> int:
        """The same as for the outer storage."""
        return self.outer.requests_at_once

    def read(self, path: str) -> bytes:
        """Return a whole object."""
        return self.outer.read(self._outer_path(path, "read"))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of an object."""
        return self.outer.read_range(self._outer_path(path, "read range of"), start, length)

    def stat(self, path: str) -> StoredObject | None:
        """Describe an object."""
        found = self.outer.stat(self._outer_path(path, "stat"))
        return None if found is None else self._inner(found)

    def list(self, folder: str, *, recursive: bool = True) -> Iterator[StoredObject]:
        """Yield the objects below a folder, sorted by path."""
        found = self.outer.list(self._outer_folder(folder, "list"), recursive=recursive)
        return (self._inner(stored) for stored in found)

    def list_named(self, folder: str, prefixes: tuple[str, ...]) -> Iterator[StoredObject]:
        """Yield the objects directly in a folder with one of some prefixes."""
        found = self.outer.list_named(self._outer_folder(folder, "list"), prefixes)
        return (self._inner(stored) for stored in found)

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        """Return the names of the objects directly in a folder, with their times of change."""
        return self.outer.list_briefly(self._outer_folder(folder, "list"))

    def list_folders(self, folder: str) -> Paths:
        """Return the direct subfolders of a folder."""
        found = self.outer.list_folders(self._outer_folder(folder, "list folders of"))
        return [path[len(self.folder) + 1 :] for path in found]

    def put(self, path: str, data: Buffer) -> None:
        """Write an object and replace an existing one."""
        self.outer.put(self._outer_path(path, "put"), data)

    def put_if_absent(self, path: str, data: Buffer) -> None:
        """Write an object if none exists."""
        self.outer.put_if_absent(self._outer_path(path, "put if absent"), data)

    def put_all_if_absent(self, objects: Sequence[tuple[str, Buffer]]) -> set[str]:
        """Write the objects that do not exist yet; return the paths of those that did."""
        whole = [(self._outer_path(path, "put if absent"), data) for path, data in objects]
        found = put_all_if_absent(self.outer, whole)
        return {path[len(self.folder) + 1 :] for path in found}

    def duplicate(self, source: str, target: str) -> bool:
        """Make an object with the bytes of another object."""
        return self.outer.duplicate(
            self._outer_path(source, "duplicate"), self._outer_path(target, "duplicate")
        )

    def delete(self, path: str) -> None:
        """Delete an object."""
        self.outer.delete(self._outer_path(path, "delete"))

    def delete_folder(self, folder: str) -> None:
        """Delete all objects below a folder."""
        self.outer.delete_folder(self._outer_path(folder, "delete folder"))

    def local_path(self, path: str) -> Path | None:
        """Return the local file of an object, if the outer storage is on local disk."""
        return self.outer.local_path(self._outer_path(path, "local path of"))

    def _outer_path(self, path: str, operation: str) -> str:
        check_path(path, operation)
        return f"{self.folder}/{path}"

    def _outer_folder(self, folder: str, operation: str) -> str:
        check_folder(folder, operation)
        return f"{self.folder}/{folder}" if folder else self.folder

    def _inner(self, stored: StoredObject) -> StoredObject:
        # Not replace(), which takes longer than the listing.
        path = stored.path[len(self.folder) + 1 :]
        return StoredObject(path, stored.size_bytes, stored.modified_at_ms, stored.etag)
