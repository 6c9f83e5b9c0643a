"""Cleaning the metadata table: old slices, leftovers of undone actions, and old instants.

A slice is old if a later compaction or build replaced its base file. It stays for some time and
some commits, because readers may still use it. Which files are old follows from the timeline, so a
clean needs no plan: it can die at any step, and the next one continues.

The timeline of the metadata table is archived with the clean. Instants since the last compaction
stay, and those whose log files still exist, because readers need the completion times of log files.
Instants since the earliest pending instant of the data table stay too: an instant before the
timeline would look completed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from bucketlake.config.paths_of_table import HEARTBEAT_FOLDER, MARKER_FOLDER
from bucketlake.errors import ObjectNotFoundError
from bucketlake.metadata.inner_table import inner_table
from bucketlake.metadata.metadata_table import MetadataTable, list_all_files, load_metadata_table
from bucketlake.metadata.slices.log_files import is_birth_log
from bucketlake.metadata.slices.own_logs import is_own
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile
from bucketlake.storage.at_once import at_once
from bucketlake.timeline.active import Timeline, load_timeline, planned_slices
from bucketlake.timeline.archive_writer import (
    Appended,
    append,
    encode_instants,
    instant_files,
    merge_files,
    newest_state,
    remove_archived,
    without_overlap,
)
from bucketlake.timeline.heartbeat import is_alive
from bucketlake.timeline.instant import Action, Instant, instant_from_ms
from bucketlake.timeline.markers import delete_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import claim_rollback, old_commits

KEPT_COMMITS = 20
"""Commits of the metadata table after which an old slice is deleted, as in Hudi."""

KEPT_MS = 5 * 60_000
"""How long an old slice stays at least."""

_ACTIVE_COMMITS_MAX = 30  # More than these, and the oldest are archived.
_ACTIVE_COMMITS_MIN = 20


def clean_metadata(table: OpenTable) -> None:
    """Delete what no reader needs, and archive old instants of the metadata table.

    Parameters
    ----------
    table : OpenTable
        The data table.

    Raises
    ------
    MetadataTableError
        If there is no metadata table.
    """
    with table.lock.held(table.storage):
        _clean(table)


def _clean(table: OpenTable) -> None:
    inner = inner_table(table)
    files = list_all_files(inner.storage)
    names_slices = inner.config.layout.logs_name_slices
    working = _at_work(table, inner) if names_slices else set()
    marked = inner.storage.list_folders(MARKER_FOLDER)
    # Loaded after the files: the instant of a file is on a timeline before the file exists.
    metadata = load_metadata_table(table, load_timeline(table))
    before_ms = table.clock.now_ms() - KEPT_MS
    if names_slices:
        left = _leftovers_in_slices(metadata, files, working)
    else:
        left = _leftovers(metadata, files)
    deleted = {*left, *_superseded(metadata, files, before_ms)}
    at_once(inner.storage, inner.storage.delete, sorted(file.path for file in deleted))
    for instant in (InstantTime(folder.rpartition("/")[2]) for folder in marked):
        if instant not in working and not _is_pending(metadata, instant):
            delete_markers(inner.storage, instant)
    if len(metadata.timeline.completed_commits()) > _ACTIVE_COMMITS_MAX:
        logs = [file.name.instant for file in files if file not in deleted and _is_update(file)]
        _archive(table, inner, None if names_slices else min(logs, default=None))


def _leftovers(metadata: MetadataTable, files: Sequence[DataFile]) -> Iterator[DataFile]:
    """Yield the files of instants that ended without a commit."""
    for file in files:
        instant = file.name.instant
        if not metadata.timeline.is_completed(instant) and not _is_pending(metadata, instant):
            yield file


def _at_work(table: OpenTable, inner: OpenTable) -> set[InstantTime]:
    """Return the compactions of living processes; in layout 1 they may be on no timeline."""
    beats = inner.storage.list(HEARTBEAT_FOLDER, recursive=False)
    instants = {InstantTime(beat.path.rpartition("/")[2]) for beat in beats}
    return {at for at in instants if is_alive(inner.storage, at, table.clock.now_ms)}


def _leftovers_in_slices(
    metadata: MetadataTable, files: Sequence[DataFile], working: Collection[InstantTime]
) -> Iterator[DataFile]:
    """Yield leftovers in timeline layout 1, where the names of log files have their slices.

    The files of a compaction that died may be those of a process that sleeps, so the compaction is
    withdrawn before they are deleted.
    """
    timeline, storage = metadata.timeline, metadata.storage
    slices = {file.name.instant for file in files}
    unknown = {
        at
        for at in slices.difference(working)
        if not timeline.has_slice(at) and not _is_pending(metadata, at)
    }
    dead = {at for at in unknown if claim_rollback(storage, at).publication is None}
    for file in files:
        writer = file.name.writer if isinstance(file.name, LogFileName) else None
        if file.name.instant in dead:
            yield file
        elif (
            writer is not None
            and not timeline.is_completed(writer)
            and not _is_pending(metadata, writer)
            and is_own(storage, file, writer)
        ):
            yield file  # Written by a task after the undoing.


def _is_pending(metadata: MetadataTable, instant: InstantTime) -> bool:
    pending = [*metadata.timeline.pending(), *metadata.data_timeline.pending()]
    return any(found.requested_at == instant for found in pending)


def _superseded(
    metadata: MetadataTable, files: Sequence[DataFile], before_ms: int
) -> Iterator[DataFile]:
    """Yield the files of old slices whose base file was replaced before a time."""
    timeline = metadata.timeline
    completed = sorted(
        timeline.completion_time(commit.requested_at) or ""
        for commit in timeline.completed_commits()
    )
    limit = InstantTime(completed[-KEPT_COMMITS] if len(completed) >= KEPT_COMMITS else "")
    groups: dict[tuple[str, FileId], list[DataFile]] = defaultdict(list)
    for file in files:
        groups[file.partition_path, file.name.file_id].append(file)
    planned = {path for held in planned_slices(metadata.storage, timeline) for path in held.paths}
    for held in groups.values():
        base = _oldest_kept(metadata, held, limit, before_ms)
        if base is None:
            continue
        for file in held:
            if file.path not in planned and _is_older(metadata, file, base):
                yield file


def _oldest_kept(
    metadata: MetadataTable, files: Sequence[DataFile], limit: InstantTime, before_ms: int
) -> InstantTime | None:
    """Return the newest base file that was complete at a time; older ones were replaced then."""
    bases = [file for file in files if isinstance(file.name, BaseFileName)]
    for file in sorted(bases, key=lambda file: file.name.instant, reverse=True):
        instant = file.name.instant
        if (
            metadata.timeline.is_completed(instant)
            and (metadata.completion_time(instant) or instant) <= limit
            and _completed_before(metadata, file, before_ms)
        ):
            return instant
    return None


def _completed_before(metadata: MetadataTable, base: DataFile, before_ms: int) -> bool:
    timeline, instant = metadata.timeline, base.name.instant
    if timeline.layout.has_completion_times:
        before = instant_from_ms(before_ms, metadata.config.timeline_timezone)
        return (metadata.completion_time(instant) or instant) <= before
    # The time of a compaction is that of the last commit that it includes.
    completed = timeline.find_completed(instant)
    path = base.path if completed is None else timeline.path_of(completed)
    stored = metadata.storage.stat(path)
    return stored is None or stored.modified_at_ms <= before_ms


def _is_older(metadata: MetadataTable, file: DataFile, base: InstantTime) -> bool:
    instant = file.name.instant
    if isinstance(file.name, BaseFileName) or metadata.timeline.layout.logs_name_slices:
        return instant < base
    if instant >= base or not metadata.timeline.is_completed(instant):
        return False
    return (metadata.completion_time(instant) or instant) < base


def _is_update(file: DataFile) -> bool:
    """Return whether a file is a log file of a commit; log files that open groups have no order."""
    return isinstance(file.name, LogFileName) and not is_birth_log(file.name)


def _archive(table: OpenTable, inner: OpenTable, since: InstantTime | None) -> None:
    """Move instants before a time to the archive; another process may be faster."""
    most: int | None = None
    while True:
        manifest = newest_state(inner)
        # Loaded after the manifest: a change that affects the choice also changes the manifest.
        remove_archived(inner)  # Finishes an archival that died.
        data = load_timeline(table)
        timeline = load_timeline(inner)
        instants = _to_archive(timeline, data, since, most)
        if not instants:
            break
        with suppress(ObjectNotFoundError):  # Another archival was faster.
            files = instant_files(inner)
            encoded = encode_instants(inner, files, instants, timeline.legacy_completions)
            appended = append(inner, manifest, encoded)
            if appended is Appended.NAME_TAKEN:
                most = sum(instant.action.writes_data for instant in instants) - 1
    start = load_timeline(inner).start
    if start is not None:
        for path in [*old_commits(inner.storage, start)]:
            inner.storage.delete(path)
    merge_files(inner)


def _to_archive(
    timeline: Timeline, data: Timeline, since: InstantTime | None, most: int | None
) -> list[Instant]:
    """Choose the oldest instants; no log file and no pending instant is older than the others."""
    commits = timeline.completed_commits()
    if len(commits) <= _ACTIVE_COMMITS_MAX:
        return []
    times = [commit.requested_at for commit in commits]
    compactions = [commit.requested_at for commit in commits if commit.action is Action.COMMIT]
    stop = max(compactions, default=InstantTime(""))
    stop = stop if since is None else min(stop, since)
    pending = min((instant.requested_at for instant in data.pending()), default=stop)
    if pending < stop:  # The commit before it stays, so that the timeline begins before it.
        stop = max((time for time in times if time < pending), default=pending)
    count = sum(commit.requested_at < stop for commit in commits[:-_ACTIVE_COMMITS_MIN])
    if most is not None:
        count = min(count, most)
    count = without_overlap(timeline, commits, count)
    if count == 0:
        return []
    along = [
        instant
        for instant in timeline.completed()
        if not instant.action.writes_data and instant.requested_at < commits[count - 1].requested_at
    ]
    return sorted([*commits[:count], *along], key=lambda instant: instant.order)
