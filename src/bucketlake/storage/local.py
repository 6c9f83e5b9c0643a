"""Tables on local disk or mounted file systems, with plain calls to the operating system.

Every object is published completely. Its bytes go to a temporary file in the staging folder of the
table and are flushed to the disk. Then the file gets its name: by a hard link if the name must be
free, else by a rename. Then the folder is flushed. So a crash of the process or the machine never
leaves half an object, and a published object stays. An empty object needs no temporary file,
because creating a name is atomic. Such names (markers, requested instants) and deletions are not
flushed: a journaling file system orders them with later flushes, and no commit depends on them.

Many objects are published together (:meth:`LocalStorage.put_all_if_absent`): all are staged, their
bytes are flushed at once, each gets its name, and then the folders are flushed at once.

A duplicate is a second hard link to a published file. No call changes a published file: a put gives
the name to another file. So each name keeps its bytes, whatever happens to the other name.

A symbolic link out of the root raises an error: ignoring it would hide committed records, and
following it would read or delete files outside of the table. Links within the root are followed. A
read checks the real path of the opened file, so no link can change in between. Listings and changes
check the path before. This protects from tables with such links, but not from somebody who
replaces folders by links at that very moment.

Hadoop keeps a checksum beside each local file (``.name.crc``) and fails if it is out of date, so
the checksum is deleted before its file changes. Listings do not show temporary files that a killed
process leaves behind; a clean and a repair delete them by :meth:`LocalStorage.clear_staging`.
"""

# For small files, pathlib objects cost more than the system calls.
# ruff: noqa: PTH102, PTH105, PTH108, PTH112, PTH113, PTH116, PTH117, PTH120

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bucketlake.config.paths_of_table import EXTENSION_FOLDER
from bucketlake.errors import ObjectNotFoundError, StorageError
from bucketlake.storage import system_calls
from bucketlake.storage.base import (
    Buffer,
    Paths,
    StoredObject,
    below,
    check_folder,
    check_path,
    is_side_file,
    require_same_size,
)

STAGING_FOLDER = f"{EXTENSION_FOLDER}/staging"

_Entries: TypeAlias = list["os.DirEntry[str]"]
_NO_OBJECT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


@dataclass(frozen=True)
class LocalStorage:
    """A folder on local disk.

    Parameters
    ----------
    root : str
        Absolute path of the folder; the folder may not exist yet.
    fsync : bool
        Whether an object is flushed to the disk before the put returns. Without it, objects survive
        a crash of the process, but perhaps not a crash of the machine.
    """

    root: str
    fsync: bool = True

    def __post_init__(self) -> None:
        assert os.path.isabs(self.root), f"{self.root} is not absolute"

    def parent(self) -> LocalStorage | None:
        """Return the folder around this folder."""
        folder = os.path.dirname(self.root)
        return None if folder == self.root else LocalStorage(folder, self.fsync)

    requests_at_once = 1  # A call is faster than the start of a thread.

    def read(self, path: str) -> bytes:
        """Return a whole object."""
        return self._read(path, "read", 0, None)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of an object."""
        assert start >= 0, f"range starts at {start}"
        assert length >= 0, f"range has length {length}"
        return self._read(path, "read range of", start, length)

    def stat(self, path: str) -> StoredObject | None:
        """Describe an object."""
        check_path(path, "stat")
        with self._naming(path, "stat"), suppress(*_NO_OBJECT):
            status = os.stat(self._full(path))
            self._require_inside(self._full(path), "stat")
            if not stat.S_ISDIR(status.st_mode):
                return _described(path, status)
        return None

    def list(self, folder: str, *, recursive: bool = True) -> Iterator[StoredObject]:
        """Yield the objects below a folder, sorted by path."""
        check_folder(folder, "list")
        self._require_inside(self._full(folder), "list")
        return self._walk(folder, recursive)

    def list_named(self, folder: str, prefixes: tuple[str, ...]) -> Iterator[StoredObject]:
        """Yield the objects directly in a folder with one of some prefixes; ask for these alone."""
        check_folder(folder, "list")
        self._require_inside(self._full(folder), "list")
        return self._walk(folder, recursive=False, prefixes=prefixes)

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        """Return the names of the objects directly in a folder, sorted; their times are None."""
        check_folder(folder, "list")
        self._require_inside(self._full(folder), "list")
        with self._naming(folder, "list"):
            entries = [] if _is_staging(folder) else self._entries(folder)
            names = [entry.name for entry in entries if entry.is_file()]
        return dict.fromkeys(sorted(name for name in names if not is_side_file(name)))

    def list_folders(self, folder: str) -> Paths:
        """Return the direct subfolders of a folder, also empty ones."""
        check_folder(folder, "list folders of")
        self._require_inside(self._full(folder), "list folders of")
        start = below(folder)
        with self._naming(folder, "list folders of"):
            folders = [start + entry.name for entry in self._entries(folder) if entry.is_dir()]
        return sorted(path for path in folders if not _is_staging(path))

    def put(self, path: str, data: Buffer) -> None:
        """Write an object and replace an existing one."""
        with self._naming(path, "put"):
            target = self._writable(path, "put")
            with self._staged(data) as staged:
                system_calls.remove_checksum(target)
                os.replace(staged, target)
            self._flush_folder_of(target)

    def put_if_absent(self, path: str, data: Buffer) -> None:
        """Write an object if none exists."""
        with self._naming(path, "put if absent"):
            target = self._writable(path, "put if absent")
            _require_free(target)
            system_calls.remove_checksum(target)
            if len(data):
                with self._staged(data) as staged:
                    system_calls.link_file(staged, target)
                self._flush_folder_of(target)
            else:
                system_calls.write_new_file(target, data, fsync=False)

    def put_all_if_absent(self, objects: Sequence[tuple[str, Buffer]]) -> set[str]:
        """Write the objects that do not exist yet; flush their bytes together, then their names."""
        operation, existing = "put if absent", set[str]()
        staged: dict[str, tuple[str, str]] = {}  # Path: its full path, and its staged file.
        unflushed: dict[str, None] = {}
        staging, at = self._full(STAGING_FOLDER), STAGING_FOLDER
        try:
            self._require_inside(staging, operation)
            self._make_folder(staging)
            for at, data in objects:
                check_path(at, operation)
                target = self._full(at)
                folder = os.path.dirname(target)
                if folder not in unflushed:
                    self._require_inside(folder, operation)
                    self._make_folder(folder, unflushed)
                    unflushed[folder] = None  # Who made an existing object may have died before.
                if _is_free(target):
                    staged[at] = target, f"{staging}/{os.urandom(16).hex()}"
                    system_calls.write_new_file(staged[at][1], data, fsync=False)
                else:
                    existing.add(at)
            at = ""
            self._flush([file for _, file in staged.values()])
            for at, (target, file) in staged.items():
                system_calls.remove_checksum(target)
                try:
                    system_calls.link_file(file, target)
                except FileExistsError:
                    existing.add(at)
            at = ""
            self._flush([*unflushed])
        except OSError as error:
            raise system_calls.storage_error(error, self._full(at), operation) from error
        finally:
            for _, file in staged.values():
                with suppress(FileNotFoundError):
                    os.unlink(file)
        return existing

    def duplicate(self, source: str, target: str) -> bool:
        """Give the file of an object a second name; where the disk cannot, write a second file."""
        file = self._file_of(source)
        linked = True
        with self._naming(target, "duplicate"):
            name = self._writable(target, "duplicate")
            try:
                _require_free(name)
                system_calls.remove_checksum(name)
                linked = system_calls.add_name(file, name)
            except FileExistsError:
                require_same_size(self, source, target)
            except FileNotFoundError:
                self._file_of(source)  # The source may have been deleted meanwhile.
                raise
            if linked:  # Perhaps by an attempt that died before it flushed the name.
                self._flush_folder_of(name)
        if not linked:
            # A rename publishes the file, because the disk may have no hard links at all.
            self.put(target, self.read(source))
        return linked

    def delete(self, path: str) -> None:
        """Delete an object and its Hadoop checksum."""
        with self._naming(path, "delete"), suppress(*_NO_OBJECT):
            target = self._changeable(path, "delete")
            if not os.path.isdir(target):
                system_calls.remove_checksum(target)
                os.unlink(target)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with its content; if it is a link to a folder, delete only the link."""
        with self._naming(folder, "delete folder"), suppress(FileNotFoundError, NotADirectoryError):
            target = self._changeable(folder, "delete folder")
            if system_calls.is_folder(target):
                system_calls.remove_folder(target)
            elif os.path.isdir(target):
                os.unlink(target)

    def local_path(self, path: str) -> Path:
        """Return the file path of an object, which may not exist."""
        check_path(path, "local path of")
        self._require_inside(self._full(path), "local path of")
        return Path(self._full(path))

    def clear_staging(self, written_before_ms: int) -> int:
        """Delete temporary files that killed processes left behind; return their number.

        Parameters
        ----------
        written_before_ms : int
            Only files last written before this time are deleted, in milliseconds since 1970-01-01
            UTC: a younger file may belong to a running write.
        """
        self._require_inside(self._full(STAGING_FOLDER), "clear")
        removed = 0
        with self._naming(STAGING_FOLDER, "clear"):
            for entry in self._entries(STAGING_FOLDER):
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime_ns < written_before_ms * 10**6:
                        os.unlink(entry.path)
                        removed += 1
        return removed

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    @contextmanager
    def _naming(self, path: str, operation: str) -> Iterator[None]:
        """Convert errors of the operating system to StorageError with path and operation."""
        try:
            yield
        except OSError as error:
            raise system_calls.storage_error(error, self._full(path), operation) from error

    def _read(self, path: str, operation: str, start: int, length: int | None) -> bytes:
        # No context manager here, for speed: small reads are the most frequent operation.
        check_path(path, operation)
        full_path = self._full(path)
        try:
            return system_calls.read_file(
                full_path,
                start,
                length,
                lambda real: self._require_real_inside(real, full_path, operation),
            )
        except _NO_OBJECT as error:
            raise ObjectNotFoundError(full_path, operation, "there is no object") from error
        except OSError as error:
            raise system_calls.storage_error(error, full_path, operation) from error

    def _file_of(self, path: str) -> str:
        """Return the real path of an object, because a link to a symbolic link is no duplicate."""
        check_path(path, "duplicate")
        full_path = self._full(path)
        real = system_calls.real_path(full_path)
        self._require_real_inside(real, full_path, "duplicate")
        if not os.path.isfile(real):
            raise ObjectNotFoundError(full_path, "duplicate", "there is no object")
        return real

    def _walk(
        self, folder: str, recursive: bool, prefixes: tuple[str, ...] = ("",)
    ) -> Iterator[StoredObject]:
        if _is_staging(folder):
            return
        start = below(folder)
        with self._naming(folder, "list"):
            # Folders are sorted with their slash, so that whole paths are sorted: a-b/x before a/x.
            entries = self._entries(folder, prefixes)
            named = {e.name + "/" if e.is_dir() else e.name: e for e in entries}
        for name in sorted(named):
            if name.endswith("/"):
                if recursive:
                    yield from self._walk(start + name[:-1], recursive)
            elif not is_side_file(name):
                stored = self._described_entry(start + name, named[name])
                if stored is not None:
                    yield stored

    def _described_entry(self, path: str, entry: os.DirEntry[str]) -> StoredObject | None:
        """Describe an entry; None if it was deleted meanwhile."""
        try:
            return _described(path, entry.stat())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise system_calls.storage_error(error, self._full(path), "list") from error

    def _entries(self, folder: str, prefixes: tuple[str, ...] = ("",)) -> _Entries:
        """Return the entries of a folder with these prefixes; none if it does not exist."""
        try:
            with os.scandir(self._full(folder)) as scan:
                entries = [entry for entry in scan if entry.name.startswith(prefixes)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise system_calls.storage_error(error, self._full(folder), "list") from error
        for entry in entries:
            if entry.is_symlink():
                self._require_inside(entry.path, "list")
        return entries

    def _writable(self, path: str, operation: str) -> str:
        """Create the folder of an object to write; return the full path of the object."""
        target = self._changeable(path, operation)
        self._make_folder(os.path.dirname(target))
        return target

    def _changeable(self, path: str, operation: str) -> str:
        check_path(path, operation)
        target = self._full(path)
        self._require_inside(os.path.dirname(target), operation)
        return target

    def _require_inside(self, full_path: str, operation: str) -> None:
        """Raise StorageError if symbolic links of a path lead out of the root."""
        self._require_real_inside(system_calls.real_path(full_path), full_path, operation)

    def _require_real_inside(self, real: str, full_path: str, operation: str) -> None:
        if real == full_path:  # The path has no link, so the root need not be resolved.
            return
        root = os.path.realpath(self.root)
        if real != root and not real.startswith(below(root.rstrip("/"))):
            reason = (
                f"a symbolic link leads to {real}, out of {self.root}; "
                "replace the link by its target"
            )
            raise StorageError(full_path, operation, reason)

    def _make_folder(self, full_path: str, unflushed: dict[str, None] | None = None) -> None:
        """Make a folder and those around it; flush their names, or note where they are."""
        if os.path.isdir(full_path):
            return
        parent = os.path.dirname(full_path)
        self._make_folder(parent, unflushed)
        with suppress(FileExistsError):
            os.mkdir(full_path)
        if unflushed is None:
            self._flush([parent])
        else:
            unflushed[parent] = None

    @contextmanager
    def _staged(self, data: Buffer) -> Iterator[str]:
        """Write bytes to a temporary file, which is always deleted afterwards."""
        staging = self._full(STAGING_FOLDER)
        self._require_inside(staging, "put")
        self._make_folder(staging)
        staged = f"{staging}/{os.urandom(16).hex()}"  # Many processes use this folder.
        try:
            system_calls.write_new_file(staged, data, fsync=self.fsync)
            yield staged
        finally:
            with suppress(FileNotFoundError):
                os.unlink(staged)

    def _flush_folder_of(self, full_path: str) -> None:
        self._flush([os.path.dirname(full_path)])

    def _flush(self, full_paths: Sequence[str]) -> None:
        if self.fsync:
            system_calls.flush(full_paths)


def _described(path: str, status: os.stat_result) -> StoredObject:
    return StoredObject(path, status.st_size, status.st_mtime_ns // 10**6)


def _is_staging(folder: str) -> bool:
    """Return whether a folder is the staging folder of this table, or of a table below it."""
    return folder.endswith(STAGING_FOLDER) and f"/{folder}".endswith(f"/{STAGING_FOLDER}")


def _require_free(target: str) -> None:
    """Raise FileExistsError early, so that the caller need not stage its bytes."""
    if not _is_free(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _is_free(target: str) -> bool:
    if system_calls.is_folder(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return not os.path.lexists(target)
