"""The archived timeline: instants that have left the active one, kept as Parquet files.

From table version 8 on the archive is a log-structured merge tree: manifests are numbered, and the
newest one names the valid Parquet files, whose names tell the range of instants they hold. It is
read for completion times, for histories that begin before the active timeline, and for commits
that leave it while somebody looks at them; ``timeline/archive_writer.py`` writes it. An instant may
be in both timelines for a while, and never in neither. The older form, Avro logs, is not supported:
reading it raises ``UnsupportedFeatureError``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bucketlake.config.table_config import TableConfig
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

VERSION_FILE = "_version_"
_MANIFEST = re.compile(r"manifest_(\d+)", re.ASCII)
_OLD_ARCHIVE = re.compile(r"\.commits_?\.archive\..*")
_METADATA = CONTENT[:1]

# Readers race with the writer that merges files and drops old manifests; it keeps the newest three.
_ATTEMPTS = 3
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of the archive that count.

    Attributes
    ----------
    number : int
        The greatest number that is taken; 0 of a table without an archive.
    files : tuple of ArchiveFile
        The files.
    """

    number: int = 0
    files: tuple[ArchiveFile, ...] = ()


def read_archive(
    storage: Storage,
    config: TableConfig,
    *,
    since: str = "",
    until: str | None = None,
    with_metadata: bool = True,
) -> list[ArchivedInstant]:
    """Return the archived instants in order of their requested time.

    Parameters
    ----------
    storage : Storage
    config : TableConfig
    since, until : str
        Inclusive bounds of the requested time; files outside of them are not read.
    with_metadata : bool
        Whether to read the content of the completed files too, which is most of an archive.

    Raises
    ------
    UnsupportedFeatureError
        If the table has an archive in the form of before table version 8.
    FormatError
        If a file of the archive is broken.
    """
    folder = config.history_folder
    if config.layout_version == 1:
        _refuse_old_archive(storage, folder)
        return []
    content = _METADATA if with_metadata else ()
    return _retried(lambda: _read(storage, folder, since, until, content))


def has_archive(storage: Storage, config: TableConfig) -> bool:
    """Tell whether anything is archived; a manifest alone says nothing of that."""
    return bool(newest_manifest(storage, config.history_folder).files)


def archived_completion_times(
    storage: Storage, config: TableConfig, *, since: str = "", until: str | None = None
) -> dict[InstantTime, InstantTime]:
    """Return completion times by requested time; of two actions at one time the commit's."""
    entries = read_archive(storage, config, since=since, until=until, with_metadata=False)
    entries.sort(key=lambda entry: "commit" in entry.action)
    return {entry.requested_at: entry.completed_at for entry in entries}


def archived_commit(entry: ArchivedInstant) -> CommitMetadata | None:
    """Return what an archived commit wrote; None of another instant, or where it is not kept."""
    if not entry.action.endswith("commit") or not entry.metadata:
        return None
    return decode_commit_metadata(entry.metadata, f"the archived instant {entry.requested_at}")


def commits_archived_after(storage: Storage, folder: str, instant: InstantTime) -> set[InstantTime]:
    """Return the commits in the archive of a folder that were requested after an instant."""
    entries = _retried(lambda: _read(storage, folder, instant, None, ()))
    return {e.requested_at for e in entries if "commit" in e.action and e.requested_at > instant}


def find_archived(
    storage: Storage, folder: str, instant: InstantTime, action: str
) -> ArchivedInstant | None:
    """Return one instant of the archive in a folder; None where it is not there."""
    entries = _retried(lambda: _read(storage, folder, instant, instant, _METADATA))
    return next((entry for entry in entries if entry.action == action), None)


def visit_archived(
    storage: Storage,
    config: TableConfig,
    action: str,
    since: str,
    visit: Callable[[ArchivedInstant], None],
) -> None:
    """Show each archived instant of an action, with its content; one file is held at a time.

    Parameters
    ----------
    storage, config
        The table.
    action : str
        In Hudi's spelling.
    since : str
        Inclusive bound of the requested time; files before it are not read.
    visit : callable
        Gets the instants, in no order, and perhaps twice where files are merged meanwhile.

    Raises
    ------
    UnsupportedFeatureError, FormatError
        As of :func:`read_archive`.
    """
    folder = config.history_folder
    if config.layout_version == 1:
        _refuse_old_archive(storage, folder)
        return

    def look() -> None:
        for file in newest_manifest(storage, folder).files:
            if file.may_hold(since, None):
                for entry in read_archive_file(storage, folder, file, _METADATA, action):
                    if entry.requested_at >= since:
                        visit(entry)

    _retried(look)


def newest_archived(
    storage: Storage, folder: str, until: str | None, wanted: Callable[[ArchivedInstant], bool]
) -> ArchivedInstant | None:
    """Return the newest instant that is wanted; only files down to it are read."""

    def search() -> ArchivedInstant | None:
        files = newest_manifest(storage, folder).files
        for file in sorted(files, key=lambda one: one.last, reverse=True):
            if file.may_hold("", until):
                for entry in reversed(read_archive_file(storage, folder, file, _METADATA)):
                    if (until is None or entry.requested_at <= until) and wanted(entry):
                        return entry
        return None

    return _retried(search)


def newest_manifest(storage: Storage, folder: str) -> Manifest:
    """Return the manifest that counts: the greatest that is whole.

    The version file names it, too, for readers that look there first. It is written after the
    manifest, by whoever is late as well, and so may be behind; a broken manifest that it does not
    name yet is of a writer that died.
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
    """Return the files that a manifest names; FormatError where it is broken."""
    path = manifest_path(folder, number)
    return decode_manifest(storage.read(path), path)


def manifest_numbers(storage: Storage, folder: str) -> list[int]:
    """Return the numbers of the manifests that are there."""
    names = (stored.path.rpartition("/")[2] for stored in storage.list(folder, recursive=False))
    return [int(match[1]) for match in map(_MANIFEST.fullmatch, names) if match]


def manifest_path(folder: str, number: int) -> str:
    """Return where a manifest lies."""
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
    """Return the instants of one file, of all actions or one, in its order."""
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
                "an archived timeline in the form of before table version 8",
                stored.path,
                "ask for the active timeline only, or let Hudi 1.x upgrade the table",
            )
