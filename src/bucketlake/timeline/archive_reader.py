"""Reading the archived timeline: Parquet files with instants that left the active timeline.

Since table version 8 the archive is a log-structured merge tree. Manifests are numbered, and the
newest manifest names the valid Parquet files; the name of a file contains the range of its
instants. The archive is read for completion times, for queries that begin before the active
timeline, and for commits that are archived while they are read. ``timeline/archive_writer.py``
writes it. An instant may be in both timelines for a while; it is always in at least one of them.
The older form, Avro logs, is not supported: reading it raises ``UnsupportedFeatureError``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bucketlake.errors import FormatError, ObjectNotFoundError, UnsupportedFeatureError
from bucketlake.format.archive_file import (
    CONTENT,
    ArchivedInstant,
    ArchiveFile,
    decode_archive_file,
    decode_manifest,
)
from bucketlake.format.commit_metadata import decode_commit_metadata
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.base import Storage
from bucketlake.timeline.open_table import OpenTable

VERSION_FILE = "_version_"
_MANIFEST = re.compile(r"manifest_(\d+)", re.ASCII)
_OLD_ARCHIVE = re.compile(r"\.commits_?\.archive\..*")
_METADATA = CONTENT[:1]

# A writer may merge files and delete old manifests meanwhile; it keeps the newest three manifests.
_ATTEMPTS = 3
_Result = TypeVar("_Result")


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
    UnsupportedFeatureError
        If the table has an archive in the form used before table version 8.
    FormatError
        If a file of the archive is broken.
    """
    folder = table.config.history_folder
    if not table.config.layout.has_tree_archive:
        _refuse_old_archive(table.storage, folder)
        return []
    content = _METADATA if with_metadata else ()
    return _retried(lambda: _read(table.storage, folder, since, until, content))


def has_archive(table: OpenTable) -> bool:
    """Return whether any instant is archived; a manifest may name no files."""
    return bool(newest_manifest(table.storage, table.config.history_folder).files)


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
    UnsupportedFeatureError, FormatError
        As :func:`read_archive`.
    """
    folder = table.config.history_folder
    if not table.config.layout.has_tree_archive:
        _refuse_old_archive(table.storage, folder)
        return

    def look() -> None:
        for file in newest_manifest(table.storage, folder).files:
            if file.may_hold(since, None):
                for entry in read_archive_file(table.storage, folder, file, _METADATA, action):
                    if entry.requested_at >= since:
                        visit(entry)

    _retried(look)


def newest_archived(
    storage: Storage, folder: str, until: str | None, wanted: Callable[[ArchivedInstant], bool]
) -> ArchivedInstant | None:
    """Return the newest instant for which ``wanted`` is true; older files are not read."""

    def search() -> ArchivedInstant | None:
        files = newest_manifest(storage, folder).files
        for file in sorted(files, key=lambda file: file.last, reverse=True):
            if file.may_hold("", until):
                for entry in reversed(read_archive_file(storage, folder, file, _METADATA)):
                    if (until is None or entry.requested_at <= until) and wanted(entry):
                        return entry
        return None

    return _retried(search)


def newest_manifest(storage: Storage, folder: str) -> Manifest:
    """Return the valid manifest: the complete one with the greatest number.

    The version file also names a manifest, for readers that use it. It is written after the
    manifest, so it may be behind. An incomplete manifest that is newer than the version file comes
    from a dead writer and is skipped.
    """
    numbers = sorted(manifest_numbers(storage, folder), reverse=True)
    for number in numbers:
        try:
            return Manifest(numbers[0], read_manifest(storage, folder, number))
        except FormatError:
            named = _named_version(storage, folder)
            if named is None or number <= named:
                raise
    return Manifest()


def read_manifest(storage: Storage, folder: str, number: int) -> tuple[ArchiveFile, ...]:
    """Return the files that a manifest names; raise FormatError if it is broken."""
    path = manifest_path(folder, number)
    return decode_manifest(storage.read(path), path)


def manifest_numbers(storage: Storage, folder: str) -> list[int]:
    """Return the numbers of the existing manifests."""
    names = (stored.path.rpartition("/")[2] for stored in storage.list(folder, recursive=False))
    return [int(match[1]) for match in map(_MANIFEST.fullmatch, names) if match]


def manifest_path(folder: str, number: int) -> str:
    """Return the path of a manifest."""
    return f"{folder}/manifest_{number}"


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
        for file in newest_manifest(storage, folder).files
        if file.may_hold(since, until)
        for entry in read_archive_file(storage, folder, file, content)
        if since <= entry.requested_at and (until is None or entry.requested_at <= until)
    }
    return [found[order] for order in sorted(found)]


def read_archive_file(
    storage: Storage,
    folder: str,
    file: ArchiveFile,
    content: Sequence[str] = CONTENT,
    action: str | None = None,
) -> list[ArchivedInstant]:
    """Return the instants of a file in its order, of all actions or of one action."""
    path = f"{folder}/{file.name}"
    return decode_archive_file(storage.read(path), path, content, action)


def _named_version(storage: Storage, folder: str) -> int | None:
    try:
        text = storage.read(f"{folder}/{VERSION_FILE}").decode("latin-1").strip()
    except ObjectNotFoundError:
        return None
    return int(text) if text.isascii() and text.isdecimal() else None


def _refuse_old_archive(storage: Storage, folder: str) -> None:
    for stored in storage.list(folder, recursive=False):
        if _OLD_ARCHIVE.fullmatch(stored.path.rpartition("/")[2]):
            raise UnsupportedFeatureError(
                "an archived timeline in the form used before table version 8",
                stored.path,
                "read only the active timeline, or let Hudi 1.x upgrade the table",
            )
