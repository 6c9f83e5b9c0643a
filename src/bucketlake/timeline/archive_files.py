"""The files of an archive, in both forms: what they may hold, and the instants in them.

Since table version 8 the archive is a log-structured merge tree. Manifests are numbered, and the
newest manifest names the valid Parquet files; the name of a file contains the range of its
instants. Before that, each archival put a log file of its own (``format/archive_file.py``), and
every file is valid. The names show the form, and no folder has files of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bucketlake.config.entries import is_number
from bucketlake.errors import FormatError
from bucketlake.format.archive_file import (
    CONTENT,
    ArchivedInstant,
    ArchiveFile,
    archive_log_number,
    decode_archive_file,
    decode_archive_log,
    decode_manifest,
)
from bucketlake.model.kept import NewestValues
from bucketlake.storage.base import Storage, StoredObject, at_once, read_if_there

VERSION_FILE = "_version_"
_MANIFEST = re.compile(r"manifest_(\d{1,18})", re.ASCII)
_KNOWN_INSTANTS_MAX = 100_000  # About 30 MB.


@dataclass(frozen=True, slots=True)
class Manifest:
    """The valid files of the archive.

    Attributes
    ----------
    number : int
        The greatest number of a manifest; 0 for a table without an archive.
    files : tuple of ArchiveFile
        The files.
    """

    number: int = 0
    files: tuple[ArchiveFile, ...] = ()


HistoryFile: TypeAlias = "_TreeFile | _LogFile"
"""A valid file of an archive."""


def history_files(storage: Storage, folder: str) -> list[HistoryFile]:
    """Return the valid files of an archive, in no order."""
    listed = list(storage.list(folder, recursive=False))
    logs: list[HistoryFile] = [
        _LogFile(storage, stored)
        for stored in listed
        if archive_log_number(stored.name) is not None
    ]
    if logs:
        return logs
    files = _newest(storage, folder, listed).files
    return [_TreeFile(storage, folder, file) for file in files]


def files_of_range(
    storage: Storage, folder: str, since: str, until: str | None
) -> list[HistoryFile]:
    """Return the valid files that may hold an instant of the range, both ends included."""
    files = history_files(storage, folder)
    unknown = [file for file in files if isinstance(file, _LogFile) and not file.is_known]
    at_once(storage, _LogFile.instants, unknown)
    return [file for file in files if file.may_hold(since, until)]


def newest_manifest(storage: Storage, folder: str) -> Manifest:
    """Return the valid manifest: the complete one with the greatest number.

    The version file also names a manifest, for readers that use it. It is written after the
    manifest, so it may be behind. An incomplete manifest that is newer than the version file comes
    from a dead writer and is skipped.
    """
    return _newest(storage, folder, storage.list(folder, recursive=False))


def read_manifest(storage: Storage, folder: str, number: int) -> tuple[ArchiveFile, ...]:
    """Return the files that a manifest names; raise FormatError if it is broken."""
    path = manifest_path(folder, number)
    return decode_manifest(storage.read(path), path)


def manifest_numbers(storage: Storage, folder: str) -> list[int]:
    """Return the numbers of the existing manifests."""
    return _numbers(storage.list(folder, recursive=False))


def manifest_path(folder: str, number: int) -> str:
    """Return the path of a manifest."""
    return f"{folder}/manifest_{number}"


def log_numbers(storage: Storage, folder: str) -> list[int]:
    """Return the numbers of the log files of an archive."""
    numbers = (archive_log_number(o.name) for o in storage.list(folder, recursive=False))
    return [number for number in numbers if number is not None]


def read_archive_file(
    storage: Storage,
    folder: str,
    file: ArchiveFile,
    content: Sequence[str] = CONTENT,
    action: str | None = None,
) -> list[ArchivedInstant]:
    """Return the instants of a Parquet file in its order, of all actions or of one action."""
    path = f"{folder}/{file.name}"
    return decode_archive_file(storage.read(path), path, content, action)


@dataclass(frozen=True, slots=True)
class _TreeFile:
    """A Parquet file that the newest manifest names."""

    storage: Storage
    folder: str
    file: ArchiveFile

    @property
    def last(self) -> str:
        """A bound of the requested times: no instant of the file is later."""
        return self.file.last

    def may_hold(self, since: str, until: str | None) -> bool:
        """Return whether the file may hold an instant of the range, both ends included."""
        return self.file.may_hold(since, until)

    def read(self, content: Sequence[str], action: str | None = None) -> list[ArchivedInstant]:
        """Return the instants in order, of all actions or of one action.

        ``content`` are the columns of ``CONTENT`` to read.
        """
        return read_archive_file(self.storage, self.folder, self.file, content, action)


@dataclass(frozen=True, slots=True)
class _LogFile:
    """A log file; its name does not tell the range of its instants, so it is read once for it."""

    storage: Storage
    stored: StoredObject

    @property
    def last(self) -> str:
        return max((entry.requested_at for entry in self.instants()), default="")

    @property
    def is_known(self) -> bool:
        """Whether the file was read before."""
        return _KNOWN.get(self._key) is not None

    def may_hold(self, since: str, until: str | None) -> bool:
        return any(
            since <= entry.requested_at and (until is None or entry.requested_at <= until)
            for entry in self.instants()
        )

    def read(self, content: Sequence[str], action: str | None = None) -> list[ArchivedInstant]:
        if not content:
            return [entry for entry in self.instants() if action in (None, entry.action)]
        path = self.stored.path
        return decode_archive_log(self.storage.read(path), path, content, action)

    def instants(self) -> list[ArchivedInstant]:
        """Return the instants without their content."""
        found = _KNOWN.get(self._key)
        if found is None:
            path = self.stored.path
            found = decode_archive_log(self.storage.read(path), path, ())
            _KNOWN.put(self._key, found)
        return found

    @property
    def _key(self) -> _Key:
        stored = self.stored
        return self.storage.root, stored.path, stored.size_bytes, stored.modified_at_ms


_Key = tuple[str, str, int, int]  # Root, path, size and time of change: Hudi may append to a file.
_KNOWN: NewestValues[_Key, list[ArchivedInstant]] = NewestValues(_KNOWN_INSTANTS_MAX)
"""The instants of the log files that this process read last, without their content."""


def _newest(storage: Storage, folder: str, listed: Iterable[StoredObject]) -> Manifest:
    numbers = sorted(_numbers(listed), reverse=True)
    for number in numbers:
        try:
            return Manifest(numbers[0], read_manifest(storage, folder, number))
        except FormatError:
            named = _named_version(storage, folder)
            if named is None or number <= named:
                raise
    return Manifest()


def _numbers(listed: Iterable[StoredObject]) -> list[int]:
    return [int(match[1]) for o in listed if (match := _MANIFEST.fullmatch(o.name))]


def _named_version(storage: Storage, folder: str) -> int | None:
    text = (read_if_there(storage, f"{folder}/{VERSION_FILE}") or b"").decode("latin-1").strip()
    return int(text) if is_number(text) else None
