"""The folder of the location cache on a host: each user has one, to which nobody else writes."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

_NAME = "bucketlake-locations"
_FOREIGN_WRITES = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFolderError(Exception):
    """Another user owns the folder of the cache, or can write to it."""


def default_folder() -> str:
    """Return the folder below the temporary folder of this host, with the user's number."""
    return str(Path(tempfile.gettempdir()) / f"{_NAME}-{_user()}")


def make_root(path: Path) -> Path:
    """Create the folder if it is missing, and return it.

    Raises
    ------
    UnsafeFolderError
        If another user could change the cached answers.
    OSError
        If it cannot be created.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_own(path)
    return path


def require_own(path: Path) -> None:
    """Raise UnsafeFolderError if another user could write to a folder.

    Raises
    ------
    OSError
        If there is no such folder, or it cannot be looked at.
    """
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeFolderError(f"{path} is a link or a file, not a folder")
    if hasattr(os, "geteuid") and (
        status.st_uid != os.geteuid() or status.st_mode & _FOREIGN_WRITES
    ):
        raise UnsafeFolderError(f"{path} belongs to another user, or others can write to it")


def _user() -> str:
    return str(os.geteuid()) if hasattr(os, "geteuid") else "user"
