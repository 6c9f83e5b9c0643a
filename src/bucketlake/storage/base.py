"""The storage interface: the few operations on bytes that a table needs, for every backend.

All paths are relative to the root of the table, with ``/`` between segments, and nothing in them is
decoded: ``a%2Fb`` names a folder of five characters. A backend needs no atomic rename.
:meth:`Storage.put_if_absent` is atomic: complete content or nothing, and one winner.
:mod:`bucketlake.storage.paths` says which paths are allowed and which names a listing omits.

The promises of each operation are written here once; backends only add their own details.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

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
        ...

    @property
    def requests_at_once(self) -> int:
        """How many requests should run in parallel."""
        ...

    def read(self, path: str) -> bytes:
        """Return a whole object; raise ObjectNotFoundError if there is none."""
        ...

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start``, fewer at the end of the object."""
        ...

    def stat(self, path: str) -> StoredObject | None:
        """Describe an object; None if there is none (a folder is not an object)."""
        ...

    def list(self, folder: str, *, recursive: bool = True) -> Iterator[StoredObject]:
        """Yield the objects below a folder, sorted by path; nothing if it does not exist.

        Whole paths are compared as text. Objects that are created or deleted meanwhile may be
        listed or not. Hadoop's checksum files and folder markers are omitted.
        """
        ...

    def list_named(self, folder: str, prefixes: tuple[str, ...]) -> Iterator[StoredObject]:
        """Yield the objects directly in a folder whose names begin with one of some prefixes.

        As :meth:`list`, but objects that are not wanted cost little.
        """
        ...

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        """Return the names of the objects directly in a folder, sorted, and their times of change.

        As :meth:`list`, but a local disk tells no times, because each would be a call of its own:
        a time is then None, and :meth:`stat` tells it. Milliseconds since 1970-01-01 UTC.
        """
        ...

    def list_folders(self, folder: str) -> Paths:
        """Return the paths of direct subfolders, sorted; on local disk also empty ones."""
        ...

    def put(self, path: str, data: Buffer) -> None:
        """Write an object and replace an existing one; readers see the old or the new content."""
        ...

    def put_if_absent(self, path: str, data: Buffer) -> None:
        """Write an object if none exists; all callers but one get AlreadyExistsError.

        A normal return proves that the object has these bytes and that no other caller succeeded.
        AlreadyExistsError does not prove that another caller won: after a lost response, the client
        of an object store repeats the request and may find its own object. A caller that must know
        the winner puts something unique into the content and reads it back. If all callers write
        the same bytes, a caller can ignore the error.
        """
        ...

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
        ...

    def delete(self, path: str) -> None:
        """Delete an object; nothing happens if there is none."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Delete all objects below a folder, and the folder; never the root itself.

        This is not atomic: after a failure some objects are deleted and others are not.
        """
        ...

    def local_path(self, path: str) -> Path | None:
        """Return the local file of an object for memory-mapped reads; None if it is not local."""
        ...


@runtime_checkable
class StagingStorage(Storage, Protocol):
    """Storage that writes temporary files first; a killed process leaves them behind."""

    def clear_staging(self, written_before_ms: int) -> int:
        """Delete temporary files that were last written before a time; return their number."""
        ...


@runtime_checkable
class PlacedStorage(Storage, Protocol):
    """Storage whose root is a folder of something larger."""

    def parent(self) -> PlacedStorage | None:
        """Return the storage of the folder around the root; None if there is none."""
        ...


def clear_staging(storage: Storage, written_before_ms: int) -> None:
    """Delete temporary files that killed processes left behind, if the storage writes such files.

    A file that cannot be deleted is no error: it is not part of the table.
    """
    if isinstance(storage, StagingStorage):
        with suppress(StorageError):
            storage.clear_staging(written_before_ms)


def with_prefixes(
    objects: Iterable[StoredObject], prefixes: tuple[str, ...]
) -> Iterator[StoredObject]:
    """Yield the objects whose names begin with one of some prefixes."""
    return (stored for stored in objects if stored.path.rpartition("/")[2].startswith(prefixes))


def names_and_times(objects: Iterable[StoredObject]) -> dict[str, int | None]:
    """Return the names of objects in one folder, with their times of change."""
    return {stored.path.rpartition("/")[2]: stored.modified_at_ms for stored in objects}


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
        ...

    def put_if_version(self, path: str, data: Buffer, version: str | None) -> str:
        """Write an object if it still has a version, or if it is absent; return the new version.

        If there is another version, raise AlreadyExistsError. As in :meth:`Storage.put_if_absent`,
        that may be the caller's own put.
        """
        ...
