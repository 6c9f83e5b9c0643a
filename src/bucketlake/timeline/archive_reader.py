"""Reading the archived timeline: the instants that left the active timeline.

The archive is read for completion times, for queries that begin before the active timeline, and for
commits that are archived while they are read. ``timeline/archive_writer.py`` writes it. An instant
may be in both timelines for a while; it is always in at least one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from bucketlake.config.entries import is_number
from bucketlake.errors import FormatError, ObjectNotFoundError
from bucketlake.format.archive_file import (
    CONTENT,
    ArchivedInstant,
    ArchiveFile,
    archive_log_number,
    decode_archive_file,
    decode_archive_log,
    decode_manifest,
)
from bucketlake.format.commit_metadata import decode_commit_metadata
from bucketlake.model.file_name import InstantTime
from bucketlake.model.kept import NewestValues
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.base import Storage, StoredObject, at_once, read_if_there
from bucketlake.timeline.open_table import OpenTable

_METADATA = CONTENT[:1]

# A writer may merge files and delete old manifests meanwhile; it keeps the newest three manifests.
_ATTEMPTS = 3
_Result = TypeVar("_Result")


def read_archive(
    table: OpenTable,
    *,
    since: str = "",
    until: str | None = None,
    with_metadata: bool = True,
) -> list[ArchivedInstant]:
    """Return the archived instants, sorted by requested time.

    Parameters
    ----------
    table : OpenTable
    since, until : str
        Inclusive bounds of the requested time; files outside of them are not read.
    with_metadata : bool
        Whether to read the content of completed files too, which is most of an archive.

    Raises
    ------
    FormatError
        If a file of the archive is broken.
    """
    content = _METADATA if with_metadata else ()
    folder = table.config.history_folder
    return _retried(lambda: _read(table.storage, folder, since, until, content))


def has_archive(table: OpenTable) -> bool:
    """Return whether any instant is archived; a manifest may name no files."""
    return bool(_retried(lambda: history_files(table.storage, table.config.history_folder)))


def may_be_archived(storage: Storage, folder: str, since: InstantTime) -> bool:
    """Return whether the archive may hold an instant that was requested then or later."""
    return _retried(lambda: bool(files_of_range(storage, folder, since, None)))


def archived_completion_times(
    table: OpenTable, *, since: str = "", until: str | None = None
) -> dict[InstantTime, InstantTime]:
    """Return completion times by requested time; if two actions share a time, the commit's."""
    entries = read_archive(table, since=since, until=until, with_metadata=False)
    entries.sort(key=lambda entry: "commit" in entry.action)
    return {entry.requested_at: entry.completed_at for entry in entries}


def archived_commit(entry: ArchivedInstant) -> CommitMetadata | None:
    """Return the metadata of an archived commit; None for another action or without metadata."""
    if not entry.action.endswith("commit") or not entry.metadata:
        return None
    return decode_commit_metadata(entry.metadata, f"the archived instant {entry.requested_at}")


def commits_archived_after(storage: Storage, folder: str, instant: InstantTime) -> set[InstantTime]:
    """Return the archived commits that were requested after an instant."""
    entries = _retried(lambda: _read(storage, folder, instant, None, ()))
    return {e.requested_at for e in entries if "commit" in e.action and e.requested_at > instant}


def find_archived(
    storage: Storage, folder: str, instant: InstantTime, action: str
) -> ArchivedInstant | None:
    """Return an archived instant; None if it is not in the archive."""
    entries = _retried(lambda: _read(storage, folder, instant, instant, _METADATA))
    return next((entry for entry in entries if entry.action == action), None)


def visit_archived(
    table: OpenTable, action: str, since: str, visit: Callable[[ArchivedInstant], None]
) -> None:
    """Call ``visit`` with each archived instant of an action; memory holds one file at a time.

    Parameters
    ----------
    table : OpenTable
    action : str
        In Hudi's spelling.
    since : str
        Inclusive bound of the requested time; files before it are not read.
    visit : callable
        Gets the instants with their content, in no order. It may get an instant twice if files are
        merged meanwhile.

    Raises
    ------
    FormatError
        As :func:`read_archive`.
    """

    def look() -> None:
        for file in files_of_range(table.storage, table.config.history_folder, since, None):
            for entry in file.read(_METADATA, action):
                if entry.requested_at >= since:
                    visit(entry)

    _retried(look)


def newest_archived(
    storage: Storage, folder: str, until: str | None, wanted: Callable[[ArchivedInstant], bool]
) -> ArchivedInstant | None:
    """Return the newest instant for which ``wanted`` is true; older files are not read."""

    def search() -> ArchivedInstant | None:
        newest: ArchivedInstant | None = None
        files = files_of_range(storage, folder, "", until)
        for file in sorted(files, key=lambda file: file.last, reverse=True):
            if newest is not None and file.last <= newest.requested_at:
                break
            for entry in reversed(file.read(_METADATA)):
                if newest is not None and entry.requested_at <= newest.requested_at:
                    break
                if (until is None or entry.requested_at <= until) and wanted(entry):
                    newest = entry
                    break
        return newest

    return _retried(search)


def _retried(look: Callable[[], _Result]) -> _Result:
    for _ in range(_ATTEMPTS - 1):
        try:
            return look()
        except ObjectNotFoundError:
            continue
    return look()


def _read(
    storage: Storage, folder: str, since: str, until: str | None, content: Sequence[str]
) -> list[ArchivedInstant]:
    found = {
        entry.order: entry
        for file in files_of_range(storage, folder, since, until)
        for entry in file.read(content)
        if since <= entry.requested_at and (until is None or entry.requested_at <= until)
    }
    return [found[order] for order in sorted(found)]


# ---- The files of an archive, in both forms: what they may hold, and the instants in them --------
#
# Since table version 8 the archive is a log-structured merge tree. Manifests are numbered, and the
# newest manifest names the valid Parquet files; the name of a file contains the range of its
# instants. Before that, each archival put a log file of its own (``format/archive_file.py``), and
# every file is valid. The names show the form, and no folder has files of both.

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
