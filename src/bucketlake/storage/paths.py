"""The rules for paths that all backends share: which are allowed, and which names are nobody's.

A path has at least one segment, no empty one, and neither ``.`` nor ``..``: it cannot leave the
root, and there is one spelling for one object. Everything else is allowed and literal. Names that
only serve Hadoop's own bookkeeping are left out of listings, wherever a table was copied to.
"""

from __future__ import annotations

from bucketlake.config.inner_path import is_inner
from bucketlake.errors import StorageError


def check_path(path: str, operation: str) -> None:
    """Refuse a path that is not plainly below the root, with StorageError."""
    if not is_inner(path):
        raise StorageError(
            path or "''",
            operation,
            "a path is relative to the table's root and has no empty, '.' or '..' segment",
        )


def check_folder(folder: str, operation: str) -> None:
    """Refuse a folder that is neither the root (the empty text) nor plainly below it."""
    if folder:
        check_path(folder, operation)


def is_side_file(name: str) -> bool:
    """Whether a file name is Hadoop's own: a checksum, or an old client's marker of a folder.

    >>> [is_side_file(n) for n in (".a.parquet.crc", "year=2013_$folder$", ".hoodie", "a.crc")]
    [True, True, False, False]
    """
    return (name.startswith(".") and name.endswith(".crc")) or name.endswith("_$folder$")


def below(folder: str) -> str:
    """Return what the paths of a folder's objects start with."""
    return f"{folder}/" if folder else ""
