"""Raises an error if a clean deleted files that a pinned table needs, so no row is lost or stale.

A clean deletes old versions while others may still read them: a time-travel query, or a reader or
writer that pinned the table before the clean. A listing does not show this, because an older
version may be left that a savepoint keeps. So after listing files, the caller looks for cleans that
are not in the pinned timeline, and checks whether they deleted needed files. A clean may have been
archived meanwhile; then its metadata is read from the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial

from bucketlake.errors import (
    BucketLakeError,
    CommitConflictError,
    MissingFileError,
    ObjectNotFoundError,
    TimelineError,
)
from bucketlake.format.archive_file import ArchivedInstant
from bucketlake.format.clean_metadata import CleanPlan, decode_clean, decode_clean_plan
from bucketlake.metadata.file_listing import listed_files, lists_files
from bucketlake.metadata.metadata_table import open_metadata_table
from bucketlake.model.file_name import (
    BaseFileName,
    FileId,
    Group,
    InstantTime,
    LogFileName,
    file_path,
)
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import (
    Timeline,
    WrittenFiles,
    files_of,
    load_timeline,
    written_files,
)
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
    bases = base_instants(live)
    unseen = set() if is_seen else {path for file_slice in live for path in file_slice.paths}
    replaced = timeline.replaced_file_groups(table.storage)

    is_counted = cache(partial(is_committed, table.storage, timeline))

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


def base_instants(slices: Iterable[FileSlice]) -> dict[Group, InstantTime]:
    """Return the instants of the base files of slices."""
    bases = ((held.group, held.base_file) for held in slices)
    return {group: base.name.instant for group, base in bases if base is not None}


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

    is_counted = cache(partial(is_committed, table.storage, timeline))

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
    return set().union(*(commit.replaced_groups for commit in commits if commit is not None))


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
        listed = listed_files(open_metadata_table(table, timeline), [file.partition_path])
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


# ---- Raises an error if a committed file of a live slice is missing, so no older row is read for
# it ----
#
# Without the newest base file of a file group, the one before would look live, and an upsert would
# build on its rows. A table with a metadata table lists the missing file, and whoever opens it gets
# the error. Without a metadata table, the commits of the active timeline are compared with the
# files in storage. The cost follows the partitions that are touched, after the first look of a
# process at a commit (``timeline/active.py``).
#
# Files of archived commits are not compared, because the whole archive would be read. If such a
# file is lost in a table without a metadata table, an older row may be read for it, for example one
# of the base file without its log file; the doctor finds it.


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
        self._bases = base_instants(slices)

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
