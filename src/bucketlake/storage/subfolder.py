"""A folder of a storage as a storage: for a table inside another table.

For example, the metadata table is a folder of its data table. The inner storage uses the outer one,
so both share credentials, the staging folder and, in tests, the count of operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bucketlake.storage.base import Buffer, Paths, PlacedStorage, Storage, StoredObject
from bucketlake.storage.paths import check_folder, check_path


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
        return StoredObject(path, stored.size_bytes, stored.modified_at_ms)
