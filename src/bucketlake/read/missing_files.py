"""Raises an error if a committed file of a live slice is missing, so no older row is read for it.

Without the newest base file of a file group, the one before would look live, and an upsert would
build on its rows. A table with a metadata table lists the missing file, and whoever opens it gets
the error. Without a metadata table, the commits of the active timeline are compared with the files
in storage. The cost follows the partitions that are touched, after the first look of a process at a
commit (``timeline/written_files.py``).

Files of archived commits are not compared, because the whole archive would be read. If such a file
is lost in a table without a metadata table, an older row may be read for it, for example one of the
base file without its log file; the doctor finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from bucketlake.errors import CommitConflictError, MissingFileError
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.read.clean_guard import replaced_in_archive
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import archived_commit, read_archive
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.written_files import WrittenFiles, files_of, written_files


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A file that a commit wrote; its size is not known here."""

    commit: InstantTime
    file: DataFile


def lost_files(
    table: OpenTable,
    timeline: Timeline,
    files: Collection[DataFile],
    slices: Iterable[FileSlice],
    partitions: Collection[str] | None,
    live_among: Callable[[Iterable[DataFile]], list[FileSlice]],
    *,
    with_archive: bool = False,
) -> dict[str, CommittedFile]:
    """Return the files that live slices lack: commits name them, and a listing does not show them.

    Parameters
    ----------
    table : OpenTable
    timeline : Timeline
        The pinned timeline.
    files : collection of DataFile
        The files that storage listed. The caller looks for cleans that deleted some.
    slices : iterable of FileSlice
        The live slices among the files.
    partitions : collection of str or None
        The listed partitions; None for all.
    live_among : callable
        Returns the live slices among files.
    with_archive : bool
        Whether to look at archived commits too, which reads the whole archive.

    Returns
    -------
    dict of str to CommittedFile
        By path.
    """
    there = {file.path for file in files}
    replaced = {*timeline.replaced_file_groups(table.storage)}
    if with_archive:
        replaced |= replaced_in_archive(table, timeline)
    wanted = _Wanted(timeline, slices, replaced)
    commits = written_files(table.storage, timeline)
    if with_archive:
        commits = _with_archive(table, timeline, commits)
    unlisted: dict[str, CommittedFile] = {}
    for commit, written in commits:
        for partition in written if partitions is None else written.keys() & partitions:
            held = written[partition]
            for path in held.keys() - there:
                if wanted.may_need(commit, held[path]):
                    unlisted[path] = CommittedFile(commit, held[path])
    if not unlisted:
        return {}
    # Usually there is none, so the rules for slices may take their time.
    live = live_among([*files, *(found.file for found in unlisted.values())])
    lost = sorted({path for held in live for path in held.paths} & unlisted.keys())
    if lost and not with_archive:
        replaced |= replaced_in_archive(table, timeline)
        lost = [path for path in lost if _group_of(unlisted[path].file) not in replaced]
    return {path: unlisted[path] for path in lost}


def require_committed_files(
    storage: Storage, timeline: Timeline, newest: Timeline, lost: dict[str, CommittedFile]
) -> None:
    """Raise an error for a file of :func:`lost_files`, unless readers just do not see it.

    Parameters
    ----------
    storage : Storage
    timeline : Timeline
        The pinned timeline.
    newest : Timeline
        The timeline, loaded after the files were listed.
    lost : dict of str to CommittedFile
        The files, none of which a clean deleted.

    Raises
    ------
    MissingFileError
        If a committed file is missing.
    CommitConflictError
        If it is missing because its commit was rolled back after the pin.
    """
    for path, found in lost.items():
        if storage.stat(path) is not None:
            continue  # Its folder is not marked as a partition.
        is_old = newest.start is not None and found.commit < newest.start
        if newest.find_completed(found.commit) is None and not is_old:
            raise CommitConflictError(
                found.commit,
                f"it was rolled back since the table was pinned, and its file {path} is deleted; "
                "read or write again",
            )
        instant = timeline.find_completed(found.commit)
        assert instant is not None, "the archive was not read"
        again = replace(timeline)  # Without the metadata that was read before.
        named = files_of(again.read_commit(storage, instant))
        if any(path in held for held in named.values()):
            raise MissingFileError(f"{storage.root}/{path}", f"instant {found.commit} committed it")


def _with_archive(
    table: OpenTable, timeline: Timeline, active: Iterable[tuple[InstantTime, WrittenFiles]]
) -> Iterator[tuple[InstantTime, WrittenFiles]]:
    """Yield archived commits too, with the files that they wrote."""
    for entry in read_archive(table, until=timeline.until):
        commit = archived_commit(entry)
        if commit is not None and timeline.is_completed(entry.requested_at):
            yield entry.requested_at, files_of(commit)
    yield from active


def _group_of(file: DataFile) -> tuple[str, FileId]:
    return file.partition_path, file.name.file_id


class _Wanted:
    """Decides quickly whether a file could belong to a live slice; no for almost all old files."""

    def __init__(
        self,
        timeline: Timeline,
        slices: Iterable[FileSlice],
        replaced: Collection[tuple[str, FileId]],
    ) -> None:
        self._timeline, self._replaced = timeline, replaced
        self._bases = {
            (held.partition_path, held.file_id): held.base_file.name.instant
            for held in slices
            if held.base_file is not None
        }

    def may_need(self, commit: InstantTime, file: DataFile) -> bool:
        group = _group_of(file)
        if group in self._replaced:
            return False
        timeline, instant, base = self._timeline, file.name.instant, self._bases.get(group)
        if isinstance(file.name, BaseFileName):
            return base is None or instant > base
        if file.name.suffix:
            return False
        if timeline.layout.logs_name_slices:  # The name has the instant of the slice.
            return base is None or instant >= base
        if instant != commit and timeline.find_completed(instant) is None:
            return False  # A copy for a resize that is pending, or was withdrawn.
        return base is None or (timeline.completion_time(instant) or instant) >= base
