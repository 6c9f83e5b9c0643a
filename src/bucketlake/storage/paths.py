"""The rules for paths in all backends: which paths are allowed, and which names are omitted.

A path has at least one segment, no empty segment, and no ``.`` or ``..``. So it cannot leave the
root, and each object has one spelling. Everything else is allowed and not decoded. Listings omit
Hadoop's own checksum files and folder markers.
"""

from __future__ import annotations

from bucketlake.config.inner_path import is_inner
from bucketlake.errors import StorageError


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
