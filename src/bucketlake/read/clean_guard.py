"""Raises an error if a clean deleted files that a pinned table needs, so no row is lost or stale.

A clean deletes old versions while others may still read them: a time-travel query, or a reader or
writer that pinned the table before the clean. A listing does not show this, because an older
version may be left that a savepoint keeps. So after listing files, the caller looks for cleans that
are not in the pinned timeline, and checks whether they deleted needed files. A clean may have been
archived meanwhile; then its metadata is read from the archive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

from bucketlake.errors import (
    BucketLakeError,
    CommitConflictError,
    MissingFileError,
    ObjectNotFoundError,
    TimelineError,
)
from bucketlake.format.archive_file import ArchivedInstant
from bucketlake.format.clean_metadata import CleanPlan, decode_clean, decode_clean_plan
from bucketlake.metadata.file_listing import list_files, lists_files
from bucketlake.metadata.metadata_table import open_metadata_table
from bucketlake.model.file_name import (
    BaseFileName,
    FileId,
    InstantTime,
    LogFileName,
    file_path,
)
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import (
    archived_commit,
    find_archived,
    read_archive,
    visit_archived,
)
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import is_committed
from bucketlake.timeline.table_properties import table_at


def read_clean(storage: Storage, timeline: Timeline, clean: Instant) -> CleanPlan:
    """Return what a clean deletes or deleted; the clean may be archived since the listing."""
    try:
        if clean.state is State.COMPLETED:
            path = timeline.path_of(clean)
            return decode_clean(storage.read(path), path)
        path = timeline.path_of(replace(clean, state=State.REQUESTED))
        return decode_clean_plan(storage.read(path), path)
    except ObjectNotFoundError:
        at, action = clean.requested_at, Action.CLEAN.value
        archived = find_archived(storage, timeline.history_folder, at, action)
        if archived is None:
            raise
        return _archived_clean(archived)


def _archived_clean(entry: ArchivedInstant) -> CleanPlan:
    return decode_clean(entry.metadata or b"", f"the archived clean {entry.requested_at}")


def require_uncleaned(
    table: OpenTable,
    timeline: Timeline,
    newest: Timeline,
    files: Collection[DataFile],
    slices: Iterable[FileSlice],
    partitions: Collection[str] | None,
    *,
    is_seen: bool,
) -> None:
    """Raise an error if a clean deleted files that the slices need.

    Parameters
    ----------
    table : OpenTable
    timeline : Timeline
        The pinned timeline.
    newest : Timeline
        The timeline, loaded after the files were listed.
    files : collection of DataFile
        The listed files.
    slices : iterable of FileSlice
        The live slices among the files.
    partitions : collection of str or None
        The listed partitions; None for all.
    is_seen : bool
        Whether storage listed the files. A metadata table may list files that a clean deleted.

    Raises
    ------
    CommitConflictError
        If a clean after the pin deleted needed files.
    TimelineError
        If a clean deleted files that a time-travel query needs.
    """
    cleans = _active_since(timeline, newest)
    archived_since = _archived_since(timeline, newest)
    if not cleans and archived_since is None:
        return
    there = {file.path for file in files}
    live = list(slices)
    bases = {
        (file_slice.partition_path, file_slice.file_id): file_slice.base_file.name.instant
        for file_slice in live
        if file_slice.base_file is not None
    }
    unseen = set() if is_seen else {path for file_slice in live for path in file_slice.paths}
    replaced = timeline.replaced_file_groups(table.storage)

    @cache
    def is_counted(instant: InstantTime) -> bool:
        return is_committed(table.storage, timeline, instant)

    @cache
    def replaced_before() -> set[tuple[str, FileId]]:
        return replaced_in_archive(table, timeline)

    def require_needless(clean: InstantTime, plan: CleanPlan) -> None:
        for group, instant, path in _deleted(plan, partitions):
            if path in unseen and table.storage.stat(path) is None:
                raise _gone(timeline, clean, path)
            if (
                path not in there
                and group not in replaced
                and (group not in bases or bases[group] < instant)
                and is_counted(instant)
                and group not in replaced_before()
            ):
                raise _gone(timeline, clean, path)

    for clean in cleans:
        require_needless(clean.requested_at, read_clean(table.storage, newest, clean))
    if archived_since is not None:
        seen = _known(timeline).union(clean.requested_at for clean in cleans)

        def visit(entry: ArchivedInstant) -> None:
            if entry.requested_at not in seen:
                require_needless(entry.requested_at, _archived_clean(entry))

        visit_archived(table, Action.CLEAN.value, archived_since, visit)


def cleaned_files(
    table: OpenTable,
    timeline: Timeline,
    newest: Timeline,
    partitions: Collection[str],
    since: InstantTime,
) -> dict[str, tuple[DataFile, InstantTime]]:
    """Return the committed files that cleans deleted or may delete now, and their clean, by path.

    Parameters
    ----------
    table : OpenTable
    timeline : Timeline
        The pinned timeline; files of other instants are left out.
    newest : Timeline
        The table's timeline now.
    partitions : collection of str
        The partitions to look at.
    since : InstantTime
        Archived cleans that were requested earlier are left out.
    """
    found: dict[str, tuple[DataFile, InstantTime]] = {}

    @cache
    def is_counted(instant: InstantTime) -> bool:
        return is_committed(table.storage, timeline, instant)

    def note(clean: InstantTime, plan: CleanPlan) -> None:
        for (partition, _), instant, path in _deleted(plan, partitions):
            file = DataFile.of_name(partition, path.rpartition("/")[2], 0)
            if file is not None and is_counted(instant):
                found[path] = file, clean

    for clean in newest.instants:
        if clean.action is Action.CLEAN:
            note(clean.requested_at, read_clean(table.storage, newest, clean))
    visit_archived(
        table, Action.CLEAN.value, since, lambda e: note(e.requested_at, _archived_clean(e))
    )
    return found


def replaced_in_archive(table: OpenTable, timeline: Timeline) -> set[tuple[str, FileId]]:
    """Return the file groups that archived commits replaced, whose files a clean may delete."""
    entries = read_archive(table, until=timeline.until)
    commits = (
        archived_commit(entry) for entry in entries if entry.requested_at not in timeline.undone
    )
    return {
        (path, file_id)
        for commit in commits
        if commit is not None
        for path, ids in commit.replaced_file_ids.items()
        for file_id in ids
    }


def was_cleaned(table: OpenTable, pinned: Timeline, newest: Timeline) -> bool:
    """Return whether a clean ran between two loads of a timeline."""
    if _active_since(pinned, newest):
        return True
    since = _archived_since(pinned, newest)
    if since is None:
        return False
    known = _known(pinned)
    return any(
        entry.action == Action.CLEAN.value and entry.requested_at not in known
        for entry in read_archive(table, since=since, with_metadata=False)
    )


def _active_since(timeline: Timeline, newest: Timeline) -> list[Instant]:
    """Return the active cleans that are not completed in the pinned timeline."""
    known = _known(timeline)
    return [
        instant
        for instant in newest.instants
        if instant.action is Action.CLEAN and instant.requested_at not in known
    ]


def _archived_since(timeline: Timeline, newest: Timeline) -> InstantTime | None:
    """Return the time since which the archive may hold cleans that are not in the pinned timeline.

    None if the archive cannot hold such a clean. That is usual for a read of the newest state while
    nothing is archived, because a clean is archived only together with a later commit.
    """
    if timeline.start is None:
        return None  # No commit is completed, so no file is missing.
    cleans = {instant.requested_at for instant in newest.instants if instant.action is Action.CLEAN}
    # A pending clean does not keep later commits out of the archive.
    times = [i.requested_at for i in timeline.pending_cleans() if i.requested_at not in cleans]
    times += sorted(timeline.undone)[:1]
    if timeline.until is not None:
        times.append(timeline.until)
    # Up to table version 7, Hudi archives the oldest cleans also without a commit, but never all.
    has_other_cleans = bool(cleans) and cleans.isdisjoint(_known(timeline))
    if newest.start != timeline.start or (
        has_other_cleans and not timeline.layout.has_tree_archive
    ):
        times.append(timeline.start)
    return min(times, default=None)


def _known(timeline: Timeline) -> set[InstantTime]:
    return {
        instant.requested_at for instant in timeline.completed() if instant.action is Action.CLEAN
    }


@contextmanager
def telling_what_is_gone(storage: Storage) -> Iterator[None]:
    """Turn a missing data file into an error that says why the file is missing.

    Raises
    ------
    CommitConflictError
        If the file was deleted after the plan, by a clean or a rollback.
    MissingFileError
        If the metadata table lists the file, and nothing deleted it.
    """
    try:
        yield
    except ObjectNotFoundError as error:
        path = error.path.removeprefix(f"{storage.root}/")
        partition, _, name = path.rpartition("/")
        file = DataFile.of_name(partition, name, 0)
        if file is None:
            raise
        if _is_listed(storage, file):
            raise MissingFileError(error.path, "the metadata table lists it") from error
        raise CommitConflictError(
            file.name.instant,
            f"its file {error.path} was deleted since the table was pinned (by a clean or a "
            "rollback); read or write again",
        ) from error


def _is_listed(storage: Storage, file: DataFile) -> bool:
    """Return whether the metadata table lists a missing file that no pending clean deletes."""
    try:
        table = table_at(storage)
        if not lists_files(table.config):
            return False
        timeline = load_timeline(table)
        listed = list_files(open_metadata_table(table, timeline), [file.partition_path])
        cleans = timeline.pending_cleans()
        return file.path in {found.path for found in listed} and not any(
            file.path in read_clean(storage, timeline, clean).paths for clean in cleans
        )
    except BucketLakeError:
        return False  # The missing file is the error to tell.


def _deleted(
    plan: CleanPlan, partitions: Collection[str] | None
) -> Iterator[tuple[tuple[str, FileId], InstantTime, str]]:
    """Yield file group, instant and path of each file that a clean deletes."""
    for partition, names in plan.files.items():
        if partitions is not None and partition not in partitions:
            continue
        for text in names:
            log = LogFileName.from_file_name(text)
            name = log or BaseFileName.from_file_name(text)
            if name is not None and not (log is not None and log.suffix):
                yield (partition, name.file_id), name.instant, file_path(partition, text)


def _gone(timeline: Timeline, clean: InstantTime, path: str) -> TimelineError:
    if timeline.until is None and clean > (timeline.newest_time() or ""):
        return CommitConflictError(
            clean, f"this clean deleted {path} since the table was pinned; read or write again"
        )
    return TimelineError(
        clean,
        f"this clean deleted {path}, which the table as of that time needs; ask for a later time, "
        "or for the time of a savepoint",
    )
