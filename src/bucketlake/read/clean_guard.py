"""Cleans that took files away which a pinned table needs: an error, and never fewer or older rows.

A clean deletes old versions while others may still read them: a time-travel query, a reader or
writer that pinned the table before. A listing does not tell, since an older version may be left,
held by a savepoint. So whoever lists files looks afterwards which cleans there are that the pinned
timeline does not know, and whether these deleted what it needs. A clean tells that from the archive
as well, which is asked where one of them may have gone there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import CommitConflictError, ObjectNotFoundError, TimelineError
from bucketlake.format.archive_file import ArchivedInstant
from bucketlake.format.clean_metadata import CleanPlan, decode_clean, decode_clean_plan
from bucketlake.model.file_name import (
    BaseFileName,
    FileId,
    InstantTime,
    LogFileName,
    file_path,
)
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import (
    archived_commit,
    find_archived,
    read_archive,
    visit_archived,
)
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.outcome import is_committed


def read_clean(storage: Storage, timeline: Timeline, clean: Instant) -> CleanPlan:
    """Return what a clean deletes, or deleted, also of one that was archived since the listing."""
    try:
        if clean.state is State.COMPLETED:
            path = timeline.path_of(clean)
            return decode_clean(storage.read(path), path)
        path = timeline.path_of(replace(clean, state=State.REQUESTED))
        return decode_clean_plan(storage.read(path), path)
    except ObjectNotFoundError:
        if timeline.history_folder is None:
            raise
        at, action = clean.requested_at, Action.CLEAN.value
        archived = find_archived(storage, timeline.history_folder, at, action)
        if archived is None:
            raise
        return _archived_clean(archived)


def _archived_clean(entry: ArchivedInstant) -> CleanPlan:
    return decode_clean(entry.metadata or b"", f"the archived clean {entry.requested_at}")


def require_uncleaned(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    newest: Timeline,
    files: Collection[DataFile],
    slices: Iterable[FileSlice],
    partitions: Collection[str] | None,
) -> None:
    """Refuse slices that lack what a clean took.

    Parameters
    ----------
    storage, config
        The table.
    timeline : Timeline
        As it is pinned.
    newest : Timeline
        As it was listed after the files.
    files : collection of DataFile
        What was listed.
    slices : iterable of FileSlice
        What was made of it.
    partitions : collection of str or None
        The partitions that were looked at; None for all.

    Raises
    ------
    CommitConflictError
        If the table was cleaned since it was pinned.
    TimelineError
        If it was cleaned since the earlier time that is asked for.
    """
    cleans = _active_since(timeline, newest)
    archived_since = _archived_since(timeline, newest)
    if not cleans and archived_since is None:
        return
    there = {file.path for file in files}
    bases = {
        (one.partition_path, one.file_id): one.base_file.name.instant
        for one in slices
        if one.base_file is not None
    }
    replaced = timeline.replaced_file_groups(storage)

    @cache
    def is_counted(instant: InstantTime) -> bool:
        return is_committed(storage, timeline, instant)

    @cache
    def replaced_before() -> set[tuple[str, FileId]]:
        return _replaced_in_archive(storage, config, timeline)

    def require_needless(clean: InstantTime, plan: CleanPlan) -> None:
        for group, instant, path in _deleted(plan, partitions):
            if (
                path not in there
                and group not in replaced
                and (group not in bases or bases[group] < instant)
                and is_counted(instant)
                and group not in replaced_before()
            ):
                raise _gone(timeline, clean, path)

    for clean in cleans:
        require_needless(clean.requested_at, read_clean(storage, newest, clean))
    if archived_since is not None:
        seen = _known(timeline).union(clean.requested_at for clean in cleans)

        def visit(entry: ArchivedInstant) -> None:
            if entry.requested_at not in seen:
                require_needless(entry.requested_at, _archived_clean(entry))

        visit_archived(storage, config, Action.CLEAN.value, archived_since, visit)


def _replaced_in_archive(
    storage: Storage, config: TableConfig, timeline: Timeline
) -> set[tuple[str, FileId]]:
    """Return the file groups that archived commits took out; their files went with a clean."""
    entries = read_archive(storage, config, until=timeline.until)
    commits = (archived_commit(one) for one in entries if one.requested_at not in timeline.undone)
    return {
        (path, file_id)
        for commit in commits
        if commit is not None
        for path, ids in commit.replaced_file_ids.items()
        for file_id in ids
    }


def was_cleaned(storage: Storage, config: TableConfig, pinned: Timeline, newest: Timeline) -> bool:
    """Tell whether a clean went on, or began, between two looks at a timeline."""
    if _active_since(pinned, newest):
        return True
    since = _archived_since(pinned, newest)
    if since is None:
        return False
    known = _known(pinned)
    return any(
        entry.action == Action.CLEAN.value and entry.requested_at not in known
        for entry in read_archive(storage, config, since=since, with_metadata=False)
    )


def _active_since(timeline: Timeline, newest: Timeline) -> list[Instant]:
    """Return the cleans of the active timeline that a pinned one does not know as completed."""
    known = _known(timeline)
    return [
        one
        for one in newest.instants
        if one.action is Action.CLEAN and one.requested_at not in known
    ]


def _archived_since(timeline: Timeline, newest: Timeline) -> InstantTime | None:
    """Return from which time on the archive may hold cleans that a pinned timeline does not know.

    None where it cannot, which is the case of whoever asks for the newest state while nothing is
    archived: a clean goes to the archive only with a commit after it.
    """
    if timeline.start is None:
        return None  # Nothing counts as committed, and nothing is missed.
    cleans = {one.requested_at for one in newest.instants if one.action is Action.CLEAN}
    # One that was pending did not keep the commits after it from the archive.
    times = [o.requested_at for o in timeline.pending_cleans() if o.requested_at not in cleans]
    times += sorted(timeline.undone)[:1]
    if timeline.until is not None:
        times.append(timeline.until)
    if newest.start != timeline.start:
        times.append(timeline.start)
    since = min(times, default=None)
    if since is not None and timeline.layout_version == 1 and _is_told(timeline, newest, since):
        return None
    return since


def _is_told(timeline: Timeline, newest: Timeline, since: InstantTime) -> bool:
    """Tell whether the active timeline alone shows what cleans took, before table version 8.

    The archive cannot be read there. Its archivals take the oldest cleans and leave some of them,
    and no clean deletes a version before a commit wrote the next one.
    """
    cleans = _known(newest)
    if not cleans or cleans & _known(timeline):
        return True
    if newest.start is None or since < newest.start:
        return False
    return not any(since < one.requested_at < min(cleans) for one in newest.completed_commits())


def _known(timeline: Timeline) -> set[InstantTime]:
    return {one.requested_at for one in timeline.completed() if one.action is Action.CLEAN}


@contextmanager
def telling_what_is_gone() -> Iterator[None]:
    """Say of a file that was planned to be read and is not there that it was taken meanwhile."""
    try:
        yield
    except ObjectNotFoundError as error:
        name = error.path.rpartition("/")[2]
        file = LogFileName.from_file_name(name) or BaseFileName.from_file_name(name)
        if file is None:
            raise
        raise CommitConflictError(
            file.instant,
            f"its file {error.path} is gone since the table was pinned (cleaned, or rolled back); "
            "read or write again",
        ) from error


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
        f"this clean deleted {path}, which the table as of that time needs: ask for a later time, "
        "or for that of a savepoint",
    )
