"""Reading the archived timeline: the instants that left the active timeline.

The archive is read for completion times, for queries that begin before the active timeline, and for
commits that are archived while they are read. ``timeline/archive_files.py`` knows the two forms of
archives; ``timeline/archive_writer.py`` and ``timeline/archive_writer.py`` write them. An
instant may be in both timelines for a while; it is always in at least one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from bucketlake.errors import ObjectNotFoundError
from bucketlake.format.archive_file import CONTENT, ArchivedInstant
from bucketlake.format.commit_metadata import decode_commit_metadata
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.base import Storage
from bucketlake.timeline.archive_files import files_of_range, history_files
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
