"""The calls to the operating system behind local disk, and what its errors mean for a table.

Leaves without policy: which file is read, staged, or published is decided in
:mod:`bucketlake.storage.local`. Paths here are full paths, and errors are the operating system's,
until :func:`storage_error` translates them.
"""

# On small files the objects of pathlib cost more than the calls themselves.
# ruff: noqa: PTH106, PTH108, PTH112, PTH114, PTH115, PTH116

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress

from bucketlake.errors import AlreadyExistsError, StorageError
from bucketlake.storage.base import flat_view

_REMOVE_ROUNDS = 3  # Of removing a folder that others still write to.
# For a look at where a path leads; a fifth of the time that resolving it step by step takes.
_NO_ACCESS = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)

_REASONS = {
    errno.ENOSPC: "the disk is full; free space and repeat",
    errno.EDQUOT: "the disk quota of this user is used up; free space and repeat",
    errno.EACCES: "this user has no permission; grant it, or run as the table's owner",
    errno.EROFS: "the file system is mounted read-only; mount it for writing",
    errno.EISDIR: "a folder is there, where an object should go",
    errno.ENOTDIR: "a file is there, where the path needs a folder",
    errno.ELOOP: "symbolic links lead in a circle; remove them",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.EMFILE: "this process has too many open files; raise its limit (ulimit -n)",
}

# What link(2) says where a file system knows no hard links. EPERM is also "immutable".
_NO_HARD_LINKS = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS))


def storage_error(error: OSError, full_path: str, operation: str) -> StorageError:
    """Translate an error of the operating system; FileExistsError is the lost race for a name."""
    if isinstance(error, FileExistsError):
        return AlreadyExistsError(full_path, operation, "an object is there already")
    reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
    return StorageError(full_path, operation, reason)


def read_file(
    full_path: str, start: int, length: int | None, arrived: Callable[[str], None]
) -> bytes:
    """Read a file from ``start``: ``length`` bytes, or up to its end.

    ``arrived`` is told where symbolic links led, before anything is read, and may refuse it.
    """
    descriptor = os.open(full_path, os.O_RDONLY | os.O_NONBLOCK)  # A pipe would be waited for.
    try:
        arrived(_real_path(descriptor, full_path))
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "a pipe or a device is there, where an object should be")
        left = max(0, status.st_size - start)
        return _read_bytes(descriptor, start, left if length is None else min(length, left))
    finally:
        os.close(descriptor)


def real_path(full_path: str) -> str:
    """Return where symbolic links lead from a path, whether something is there or not."""
    try:
        descriptor = os.open(full_path, _NO_ACCESS)
    except OSError:
        return os.path.realpath(full_path)
    try:
        return _real_path(descriptor, full_path)
    finally:
        os.close(descriptor)


def _real_path(descriptor: int, full_path: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # A system that does not tell by the descriptor.
        return os.path.realpath(full_path)


def _read_bytes(descriptor: int, start: int, length: int) -> bytes:
    """Read from one descriptor until nothing is left; one call does it up to 2 GB."""
    data = os.pread(descriptor, length, start)
    parts = [data]
    while data and (length := length - len(data)):
        start += len(data)
        data = os.pread(descriptor, length, start)
        parts.append(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_new_file(full_path: str, data: bytes | bytearray | memoryview, *, fsync: bool) -> None:
    """Write a file that is not there yet, with the mode that the umask leaves.

    Not a private mode as temporary files have: other users' engines read the table.
    """
    descriptor = os.open(full_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        rest = flat_view(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if fsync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(full_path: str) -> None:
    """Flush a folder's names to the disk."""
    descriptor = os.open(full_path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_file(staged: str, target: str) -> None:
    """Give a staged file its name; FileExistsError where the name is taken by another file."""
    try:
        os.link(staged, target)
    except FileExistsError:
        # NFS may repeat a request whose answer was lost: then the file that is there is ours.
        if not _is_one_file(staged, target):
            raise
    except OSError as error:
        raise OSError(error.errno, _why_no_link(error)) from error


def _is_one_file(staged: str, target: str) -> bool:
    try:
        return os.path.samestat(os.stat(staged), os.lstat(target))
    except FileNotFoundError:  # Removed meanwhile: whose it was nobody knows.
        return False


def _why_no_link(error: OSError) -> str:
    if error.errno == errno.EXDEV:
        return "its folder lies on another file system than the table's .hoodie folder; move it"
    if error.errno in _NO_HARD_LINKS:
        return (
            f"the file system refuses a hard link ({error.strerror}), without which a file cannot "
            "be published whole and once; keep the table on a disk that knows hard links, or on "
            "an object store under its own address"
        )
    return error.strerror or str(error)


def is_folder(full_path: str) -> bool:
    """Whether a folder is there; a symbolic link is none."""
    return os.path.isdir(full_path) and not os.path.islink(full_path)


def remove_checksum(full_path: str) -> None:
    """Remove Hadoop's checksum of a file, before the file changes."""
    folder, name = os.path.split(full_path)
    with suppress(FileNotFoundError):
        os.unlink(f"{folder}/.{name}.crc")


def remove_folder(full_path: str) -> None:
    """Remove a folder and all below it, links as links, and what others write meanwhile."""
    for left in reversed(range(_REMOVE_ROUNDS)):
        try:
            _remove_folder_once(full_path)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not left:
                raise
        else:
            return


def _remove_folder_once(full_path: str) -> None:
    with os.scandir(full_path) as scan:
        entries = [*scan]
    for entry in entries:
        with suppress(FileNotFoundError):
            if entry.is_dir(follow_symlinks=False):
                _remove_folder_once(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(full_path)
