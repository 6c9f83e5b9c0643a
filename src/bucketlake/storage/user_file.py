"""Files that a user asks for, such as exports and reports: complete, or not there at all."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bucketlake.errors import ConfigError, StorageError
from bucketlake.storage.base import Buffer
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.location import open_storage, shown_address


@contextmanager
def local_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end, that file replaces the user's file.

    An existing file keeps its mode. If the path is a link, its target is replaced.

    Raises
    ------
    StorageError
        If the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    unfinished = target.parent / f".{uuid.uuid4().hex}.unfinished"
    try:
        if os.path.lexists(target) and not target.is_file():
            reason = "the path is a folder, a link to itself, a pipe or a device"
            raise StorageError(str(path), "write", reason)
        unfinished.touch(exist_ok=False)
        if target.exists():
            unfinished.chmod(stat.S_IMODE(target.stat().st_mode))
        yield unfinished
        unfinished.replace(target)
    except OSError as reason:
        raise StorageError(str(path), "write", os.strerror(reason.errno or 0)) from reason
    finally:
        with suppress(OSError):  # There may be no such folder.
            unfinished.unlink()


def put_user_file(path: str, data: Buffer, storage_options: Mapping[str, str]) -> None:
    """Write a file at a path or address that a user gives; an existing file is replaced.

    Parameters
    ----------
    path : str
        As for a table: a local path, or an address such as ``s3://bucket/orders.html``.
    data : bytes
        Its content.
    storage_options : mapping of str to str
        Options for an object store; not used for a local path.

    Raises
    ------
    ConfigError
        If the path names no file, or its address cannot be used.
    StorageError
        If the file cannot be written.
    """
    folder, slash, name = path.rpartition("/")
    if not name:
        raise ConfigError("path", shown_address(path), "name a file, such as report.html")
    if "://" in path and not path.lower().startswith("file:"):
        open_storage(f"{folder}{slash}", storage_options).put(name, data)
        return
    storage = open_storage(path)
    assert isinstance(storage, LocalStorage), path
    with local_file(storage.root) as unfinished:
        unfinished.write_bytes(data)
