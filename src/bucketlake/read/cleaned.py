"""Cleans that took files away which a pinned table needs: an error, and never fewer or older rows.

A clean deletes old versions while others may still read them: a time-travel query, a reader or
writer that pinned the table before. A listing does not tell, since an older version may be left,
held by a savepoint. So whoever lists files looks afterwards which cleans there are that the pinned
timeline does not know, and whether these deleted what it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import CommitConflictError, ObjectNotFoundError, TimelineError
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
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archived import archived_commit, read_archive
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.outcome import is_committed


def read_clean(storage: Storage, timeline: Timeline, clean: Instant) -> CleanPlan:
    """Return what a clean deletes, or deleted."""
    if clean.state is State.COMPLETED:
        path = timeline.path_of(clean)
        return decode_clean(storage.read(path), path)
    path = timeline.path_of(replace(clean, state=State.REQUESTED))
    return decode_clean_plan(storage.read(path), path)


def require_uncleaned(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
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
    newest = load_timeline(storage, config)
    cleans = cleans_since(timeline, newest)
    if not cleans:
        return
    there = {file.path for file in files}
    bases = {
        (one.partition_path, one.file_id): one.base_file.name.instant
        for one in slices
        if one.base_file is not None
    }
    replaced = timeline.replaced_file_groups(storage)
    missing = [
        (group, clean.requested_at, path)
        for clean in cleans
        for group, instant, path in _deleted(read_clean(storage, newest, clean), partitions)
        if path not in there
        and group not in replaced
        and (group not in bases or bases[group] < instant)
        and is_committed(storage, timeline, instant)
    ]
    if missing:
        archived = _replaced_in_archive(storage, config, timeline)
        for group, clean_instant, path in missing:
            if group not in archived:
                raise _gone(timeline, clean_instant, path)


def _replaced_in_archive(
    storage: Storage, config: TableConfig, timeline: Timeline
) -> set[tuple[str, FileId]]:
    """Return the file groups that archived commits took out; their files went with a clean."""
    commits = map(archived_commit, read_archive(storage, config, until=timeline.until))
    return {
        (path, file_id)
        for commit in commits
        if commit is not None
        for path, ids in commit.replaced_file_ids.items()
        for file_id in ids
    }


def cleans_since(timeline: Timeline, newest: Timeline) -> list[Instant]:
    """Return the cleans that went on, or began, after a timeline was pinned."""
    known = {one.requested_at for one in timeline.completed() if one.action is Action.CLEAN}
    return [
        one
        for one in newest.instants
        if one.action is Action.CLEAN and one.requested_at not in known
    ]


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
