"""Where a path lies: at a file, or inside of a table. No table can be there."""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.config.paths_of_table import PROPERTIES_FILE
from bucketlake.errors import StorageError
from bucketlake.model.names import closest_name
from bucketlake.storage.base import PlacedStorage, Storage


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is at a path, or around it.

    Attributes
    ----------
    file : str or None
        Address of a file that is the path, or a part of it.
    table : str or None
        Address of the table in whose folder the path lies.
    """

    file: str | None = None
    table: str | None = None

    @property
    def problem(self) -> str | None:
        """Why no table can be at the path, in words; None if one can."""
        if self.file is not None:
            return f"{self.file} is a file, and a table is a folder"
        return None if self.table is None else f"the path lies inside the table {self.table}"


def surroundings(storage: Storage) -> Surroundings:
    """Look at the folders around the root of a storage.

    A folder that the caller may not look at ends the search: a permission may hold for the table's
    folder alone.
    """
    inner = storage
    while isinstance(inner, PlacedStorage) and (outer := inner.parent()) is not None:
        try:
            if _is_file(outer, inner.root.rpartition("/")[2]):
                return Surroundings(file=inner.root)
            if outer.stat(PROPERTIES_FILE) is not None:
                return Surroundings(table=outer.root)
        except StorageError:
            break
        inner = outer
    return Surroundings()


def _is_file(outer: Storage, name: str) -> bool:
    """Return whether a name is a file; on object stores an empty object may mark a folder."""
    stored = outer.stat(name)
    return stored is not None and (stored.size_bytes > 0 or outer.local_path(name) is not None)


def similar_folder(storage: Storage) -> str | None:
    """Return the folder beside a missing one whose name is nearly the same."""
    outer = storage.parent() if isinstance(storage, PlacedStorage) else None
    if outer is None:
        return None
    try:
        found = closest_name(storage.root.rpartition("/")[2], outer.list_folders(""))
    except StorageError:
        return None
    return None if found is None else f"{outer.root.rstrip('/')}/{found}"
