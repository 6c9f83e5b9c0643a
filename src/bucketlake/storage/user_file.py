"""Files that a user asks for, such as exports and reports: complete, or not there at all."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bucketlake.errors import ConfigError, InputError, ObjectNotFoundError, StorageError
from bucketlake.model.arguments import check_texts, options_of
from bucketlake.model.column_type import BLOB_STORAGE_TYPES
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


def read_blob(
    blob: Mapping[str, Any] | None,
    *,
    base: str,
    storage_options: Mapping[str, str] | None = None,
) -> bytes | None:
    """Return the bytes of a value of Hudi's type BLOB: its own, or those that it refers to.

    A table never follows such a reference by itself.

    Parameters
    ----------
    blob : mapping or None
        A value of a row, as :func:`blob`, :func:`blob_reference` or a read returns it.
    base : str
        Folder out of which no reference may lead: tables of others may name any file.
    storage_options : mapping of str to str, optional
        Options for the object store, such as those of the table.

    Returns
    -------
    bytes or None
        None for a null.

    Raises
    ------
    InputError
        If it is no blob, its reference leads out of ``base``, or the file is shorter.
    ObjectNotFoundError
        If there is no such file.

    Examples
    --------
    >>> import bucketlake as bl
    >>> bl.read_blob(bl.blob(b"page"), base="/scans")
    b'page'
    """
    check_texts(base=base)
    options = options_of(storage_options, "storage_options")
    if blob is None:
        return None
    place = blob.get("reference") if isinstance(blob, Mapping) else None
    if not isinstance(blob, Mapping) or blob.get("type") not in BLOB_STORAGE_TYPES:
        step = "give a value of a column of blobs, with type INLINE or OUT_OF_LINE"
        raise InputError("blob", "it is none", step)
    if blob["type"] == BLOB_STORAGE_TYPES[0]:
        return blob.get("data")
    if not isinstance(place, Mapping) or not isinstance(place.get("external_path"), str):
        raise InputError("blob", "it has no reference", "correct the row")
    path, folder = place["external_path"], base.rstrip("/") + "/"
    shown = f"blob reference {shown_address(path)}"
    inner = path.removeprefix(folder)
    if not path.startswith(folder) or {"", ".", ".."} & {*inner.split("/")}:
        step = "state the folder of such files in base, in the same spelling"
        raise InputError(shown, f"it leads out of {shown_address(base)}", step)
    storage = open_storage(base, options)
    start, length = place.get("offset") or 0, place.get("length")
    if start == 0 and length is None:
        return storage.read(inner)
    stored = storage.stat(inner)
    if stored is None:
        raise ObjectNotFoundError(path, "read", "there is no object")
    size = stored.size_bytes
    length = size - start if length is None else length
    if start < 0 or length < 0 or start + length > size:
        problem = f"the file has {size:,} bytes, and not {length:,} from {start:,} on"
        raise InputError(shown, problem, "correct the row, or put the file back")
    return storage.read_range(inner, start, length)
