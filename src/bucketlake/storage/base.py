"""The storage seam: the few operations on bytes that a table needs, on every backend.

All paths are relative to the table's root, with ``/`` between segments, and are taken literally:
``a%2Fb`` names a folder of six characters. No backend is assumed to have an atomic rename;
atomicity comes from :meth:`Storage.put_if_absent`: whole content or nothing, one winner. Which
paths are allowed, and which names a listing leaves out, is told in :mod:`bucketlake.storage.paths`.

What each operation promises is written here once; the backends add only what is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

Buffer: TypeAlias = bytes | bytearray | memoryview
Paths: TypeAlias = list[str]  # Named here, since ``list`` is a method's name below.


def flat_view(data: Buffer) -> memoryview:
    """View a buffer as bytes in one dimension; only a view with gaps is copied."""
    view = memoryview(data)
    return view.cast("B") if view.c_contiguous else memoryview(bytes(view))


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a listing shows it."""

    path: str
    size_bytes: int
    modified_at_ms: int  # Milliseconds since 1970-01-01 UTC.


@runtime_checkable
class Storage(Protocol):
    """Bytes at paths below one root. Implementations are picklable and hold no open handle.

    A :class:`~bucketlake.errors.StorageError` that is neither of its two branches means that
    storage failed: an operation that changes something may then have taken effect or not, and may
    still take effect later. Threads may share an instance.
    """

    @property
    def root(self) -> str:
        """The root as a user would write it, for messages and for engines (``s3://…``, ``/…``)."""
        ...

    @property
    def requests_at_once(self) -> int:
        """How many requests are worth being under way at once."""
        ...

    def read(self, path: str) -> bytes:
        """Return a whole object; ObjectNotFoundError where there is none."""
        ...

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start``, fewer at the end of the object."""
        ...

    def stat(self, path: str) -> StoredObject | None:
        """Describe an object; None where there is none (a folder is not an object)."""
        ...

    def list(self, folder: str, *, recursive: bool = True) -> Iterator[StoredObject]:
        """Yield the objects below a folder, in order of path; nothing where it does not exist.

        The order is that of whole paths as text. Objects that come or go meanwhile are shown or
        not. Hadoop's checksum files and folder markers are not shown.
        """
        ...

    def list_folders(self, folder: str) -> Paths:
        """Return the paths of a folder's direct subfolders, sorted; local disk has empty ones."""
        ...

    def put(self, path: str, data: Buffer) -> None:
        """Write an object whole, over what is there; readers see the old or the new content."""
        ...

    def put_if_absent(self, path: str, data: Buffer) -> None:
        """Write an object whole unless one is there; AlreadyExistsError for all but one caller.

        A normal return is proof: the object is there, with these bytes, and no other caller gets
        one. AlreadyExistsError is no proof of having lost: where the answer to a request is lost,
        the client of an object store repeats it and meets its own object. A caller that must know
        "was it me" puts something unique into the content, and reads it back. A caller for whom
        any object at the path will do, because all would write the same, goes on.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove an object; nothing happens where there is none."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Remove all objects below a folder, and the folder; never the root itself.

        Not atomic: after a failure some are gone and some are left.
        """
        ...

    def local_path(self, path: str) -> Path | None:
        """Local file of an object, for memory-mapped reads; None where it is not on local disk."""
        ...


@runtime_checkable
class VersionedStorage(Storage, Protocol):
    """Storage that also replaces an object on condition that nobody else did meanwhile.

    Object stores and memory do; local disk does not.
    """

    def read_version(self, path: str) -> tuple[bytes, str] | None:
        """Return an object and what names this version of it; None where there is none."""
        ...

    def put_if_version(self, path: str, data: Buffer, version: str | None) -> str:
        """Write an object over that version of it, or if absent; return the new version.

        AlreadyExistsError where another version is there, as in :meth:`Storage.put_if_absent`
        perhaps the caller's own.
        """
        ...
