"""The calls to the operating system for local disk, and the meaning of their errors.

:mod:`bucketlake.storage.local` decides which file is read, staged or published. Paths here are full
paths. Errors are those of the operating system; :func:`storage_error` converts them.
"""

# For small files, pathlib objects cost more than the system calls.
# ruff: noqa: PTH106, PTH108, PTH112, PTH114, PTH115, PTH116

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

from bucketlake.errors import AlreadyExistsError, StorageError
from bucketlake.storage.base import flat_view

_MANY = 32  # Files that are flushed with their file system.
# File systems whose syncfs does for each file what fsync does: ext4, XFS, Btrfs, F2FS, overlays
# and tmpfs. Those in user space may not be asked.
_FLUSHED = frozenset((0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x794C7630, 0x01021994))

_REMOVE_ROUNDS = 3  # Attempts to delete a folder while others still write to it.
# Opens a path to find its real path; this takes a fifth of the time of os.path.realpath.
_NO_ACCESS = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)

_FREE_SPACE = (
    "free space and repeat; table.clean() (bucketlake clean --run) deletes old versions of files"
)
_REASONS = {
    errno.ENOSPC: f"the disk is full; {_FREE_SPACE}",
    errno.EDQUOT: f"the disk quota of this user is used up; {_FREE_SPACE}",
    errno.EACCES: "this user has no permission; grant it, or run as the table's owner",
    errno.EROFS: "the file system is mounted read-only; mount it for writing",
    errno.EISDIR: "the path is a folder, not an object",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.ELOOP: "symbolic links form a loop; remove them",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.EMFILE: "this process has too many open files; raise its limit (ulimit -n)",
}

# Errors of link(2) on a file system without hard links. EPERM may also mean "immutable", or that
# the file belongs to another user (fs.protected_hardlinks).
_NO_HARD_LINKS = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS))
# Errors of link(2) if this file cannot have another name there.
_NO_OTHER_NAME = _NO_HARD_LINKS | {errno.EXDEV, errno.EMLINK}


def storage_error(error: OSError, full_path: str, operation: str) -> StorageError:
    """Convert an error of the operating system; FileExistsError becomes AlreadyExistsError."""
    if isinstance(error, FileExistsError):
        return AlreadyExistsError(full_path, operation, "the object exists already")
    reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
    return StorageError(full_path, operation, reason)


def read_file(
    full_path: str, start: int, length: int | None, arrived: Callable[[str], None]
) -> bytes:
    """Read a file from ``start``: ``length`` bytes, or up to its end.

    Before anything is read, ``arrived`` is called with the real path and may raise an error.
    """
    descriptor = os.open(full_path, os.O_RDONLY | os.O_NONBLOCK)  # Do not wait for a pipe.
    try:
        arrived(_real_path(descriptor, full_path))
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "the path is a pipe or a device, not an object")
        left = max(0, status.st_size - start)
        return _read_bytes(descriptor, start, left if length is None else min(length, left))
    finally:
        os.close(descriptor)


def real_path(full_path: str) -> str:
    """Return the path after resolving symbolic links; the file may not exist."""
    found = _real_path_of_existing(full_path)
    if found is None and not os.path.lexists(full_path):  # And is no link without a target.
        folder, name = os.path.split(full_path)
        found = _real_path_of_existing(folder)
        found = None if found is None else f"{found.rstrip('/')}/{name}"
    return os.path.realpath(full_path) if found is None else found


def _real_path_of_existing(full_path: str) -> str | None:
    try:
        descriptor = os.open(full_path, _NO_ACCESS)
    except OSError:
        return None
    try:
        return _real_path(descriptor, full_path)
    finally:
        os.close(descriptor)


def _real_path(descriptor: int, full_path: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # The system has no /proc.
        return os.path.realpath(full_path)


def _read_bytes(descriptor: int, start: int, length: int) -> bytes:
    """Read from a descriptor until all bytes are read; one call reads up to 2 GB."""
    data = os.pread(descriptor, length, start)
    parts = [data]
    while data and (length := length - len(data)):
        start += len(data)
        data = os.pread(descriptor, length, start)
        parts.append(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_new_file(full_path: str, data: bytes | bytearray | memoryview, *, fsync: bool) -> None:
    """Write a new file with the mode that the umask allows.

    The mode is not private as for temporary files, because engines of other users read the table.
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


def flush(full_paths: Sequence[str]) -> None:
    """Flush files, or the names in folders, to the disk; all are on one file system.

    Each flush of a file may be a write of the journal. So the whole file system is flushed at once
    for many, where that is known to do the same.
    """
    if len(full_paths) >= _MANY and _flush_file_system(full_paths[0]):
        return
    for full_path in full_paths:
        descriptor = os.open(full_path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _flush_file_system(full_path: str) -> bool:
    """Flush the file system of a path; return False if only fsync is sure to do it here."""
    libc = _libc()
    if libc is None:
        return False
    descriptor = os.open(full_path, os.O_RDONLY)
    try:
        status = ctypes.create_string_buffer(512)  # Larger than struct statfs.
        if libc.fstatfs(descriptor, status):
            return False
        if ctypes.c_long.from_buffer(status).value not in _FLUSHED:  # Its first field is the kind.
            return False
        if libc.syncfs(descriptor):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return True
    finally:
        os.close(descriptor)


@cache
def _libc() -> ctypes.CDLL | None:
    """Return the functions of Linux since 5.8, whose syncfs tells errors of the disk."""
    system = os.uname()
    release = re.match(r"(\d+)\.(\d+)", system.release)
    if system.sysname != "Linux" or release is None or (int(release[1]), int(release[2])) < (5, 8):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "syncfs") and hasattr(libc, "fstatfs") else None


def link_file(staged: str, target: str) -> None:
    """Give a staged file its name; raise FileExistsError if another file has the name."""
    try:
        os.link(staged, target)
    except FileExistsError:
        # NFS may repeat a request after a lost response. Then the existing file is ours.
        if not _is_one_file(staged, target):
            raise
    except OSError as error:
        raise OSError(error.errno, _why_no_link(error)) from error


def add_name(full_path: str, name: str) -> bool:
    """Give a published file another name; return False if the file system does not allow it."""
    try:
        os.link(full_path, name)
    except OSError as error:
        if error.errno in _NO_OTHER_NAME:
            return False
        raise
    return True


def _is_one_file(staged: str, target: str) -> bool:
    try:
        return os.path.samestat(os.stat(staged), os.lstat(target))
    except FileNotFoundError:  # Deleted meanwhile, so nobody knows whose file it was.
        return False


def _why_no_link(error: OSError) -> str:
    if error.errno == errno.EXDEV:
        return "its folder is on another file system than the table's .hoodie folder; move it"
    if error.errno in _NO_HARD_LINKS:
        return (
            f"the file system does not support hard links ({error.strerror}), which bucketlake "
            "needs to publish files; use a disk with hard links, or an object store with its own "
            "address"
        )
    return error.strerror or str(error)


def is_folder(full_path: str) -> bool:
    """Return whether a folder exists at a path; a symbolic link is not a folder."""
    return os.path.isdir(full_path) and not os.path.islink(full_path)


def remove_checksum(full_path: str) -> None:
    """Delete Hadoop's checksum of a file, before the file changes."""
    folder, name = os.path.split(full_path)
    with suppress(FileNotFoundError):
        os.unlink(f"{folder}/.{name}.crc")


def remove_folder(full_path: str) -> None:
    """Delete a folder and its content, also files written meanwhile; links are not followed."""
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
