"""Archival: moving old instants from the active timeline, so that listing it stays cheap.

No row changes. An instant that a reader or writer may still need stays active, and all later
instants stay with it. The active timeline has no gaps, because readers treat everything older than
it as committed. ``timeline/archive_writer.py`` moves the instants; a crash at any step does no
harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.config.support import check_writable
from bucketlake.errors import ConfigError, ObjectNotFoundError
from bucketlake.index.state import forget_archived_state, forget_state, keep_archived_state
from bucketlake.model.arguments import check_integers
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.shown import Shown
from bucketlake.read.file_system_view import list_partition
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import archived_completion_times
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
from bucketlake.timeline.instant import Action, Instant
from bucketlake.timeline.locks import Check
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import old_commits

_GO_ALONG = frozenset({Action.CLEAN, Action.ROLLBACK})


@dataclass(frozen=True, slots=True)
class ArchivalLimits:
    """How many commits the active timeline holds.

    Attributes
    ----------
    keep_min : int
        Commits that stay, the newest ones.
    keep_max : int
        Commits up to which nothing is archived; more than ``keep_min``.
    """

    keep_min: int = 20
    keep_max: int = 30

    def __post_init__(self) -> None:
        check_integers(1, keep_min=self.keep_min)
        check_integers(2, keep_max=self.keep_max)
        if self.keep_max <= self.keep_min:
            raise ConfigError(
                "keep_max", self.keep_max, f"give more than keep_min, {self.keep_min}"
            )


@dataclass(frozen=True, slots=True)
class ArchiveReport(Shown):
    """The instants that an archival moves or has moved.

    Attributes
    ----------
    instants : tuple of Instant
        Instants that leave the active timeline, oldest first.
    held_back : str or None
        Why further instants stay, although the number of commits would allow to move them.
    """

    instants: tuple[Instant, ...] = ()
    held_back: str | None = None


def archive(table: OpenTable, limits: ArchivalLimits, *, dry_run: bool = False) -> ArchiveReport:
    """Move old instants to the archive.

    Parameters
    ----------
    table : OpenTable
    limits : ArchivalLimits
        How many commits stay.
    dry_run : bool
        Whether to return only what would be moved.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written.
    """
    check_writable(table.config, table.storage.root)
    if dry_run:
        return _plan(table, load_timeline(table), limits, None)
    with table.lock.held(table.storage) as require_held:
        report = _move(table, limits, require_held)
        if report.instants:
            remove_archived(table)
        start = load_timeline(table).start
        if start is not None:
            for path in [*old_commits(table.storage, start)]:
                table.storage.delete(path)
            if any(instant.action is Action.REPLACE_COMMIT for instant in report.instants):
                forget_archived_state(table.storage, start)
        merge_files(table)
    return report


def _move(table: OpenTable, limits: ArchivalLimits, require_held: Check) -> ArchiveReport:
    """Move instants to the archive; another archival at the same time may be faster."""
    most: int | None = None
    while True:
        manifest = newest_state(table)
        remove_archived(table)  # Finishes an archival that died or was faster.
        # Loaded after the manifest: a change that affects the plan also changes the manifest.
        timeline = settle_failed_writes(table.without_lock(), load_timeline(table))
        report = _plan(table, timeline, limits, most)
        if not report.instants:
            return report
        _forget_undone_counts(table, timeline, report.instants)
        replacing = [i for i in report.instants if i.action is Action.REPLACE_COMMIT]
        commits = timeline.read_commits(table.storage, replacing)
        keep_archived_state(
            table.storage, {i.requested_at: commit.partitions for i, commit in commits}
        )
        with suppress(ObjectNotFoundError):  # Another archival was faster.
            files = instant_files(table)
            encoded = encode_instants(table, files, report.instants, timeline.legacy_completions)
            require_held()
            appended = append(table, manifest, encoded)
            if appended is Appended.DONE:
                return report
            if appended is Appended.NAME_TAKEN:
                most = sum(instant.action not in _GO_ALONG for instant in report.instants) - 1


def _plan(
    table: OpenTable, timeline: Timeline, limits: ArchivalLimits, most: int | None
) -> ArchiveReport:
    """Choose the instants to move, by Hudi's rules and some additional rules.

    Parameters
    ----------
    table, timeline
        The table.
    limits : ArchivalLimits
        How many commits stay.
    most : int or None
        Greatest number of commits to move.
    """
    commits = timeline.completed_commits()
    wanted = len(commits) - limits.keep_min if len(commits) > limits.keep_max else 0
    if most is not None:
        wanted = min(wanted, most)
    if wanted <= 0:
        return ArchiveReport()
    count = wanted
    reason: str | None = None
    for stop, why in _stops(table, timeline, commits[:wanted]):
        before = sum(commit.requested_at < stop for commit in commits[:count])
        if before < count:
            count, reason = before, why
    moved = commits[: without_overlap(timeline, commits, count)]
    if len(moved) < count:
        reason = f"instant {commits[len(moved)].requested_at} overlaps with an instant that stays"
    if not moved:
        return ArchiveReport((), reason)
    # Other instants are moved with the commits around them, as in Hudi.
    along = [
        instant
        for instant in timeline.completed()
        if instant.action in _GO_ALONG and instant.requested_at < moved[-1].requested_at
    ]
    return ArchiveReport(tuple(sorted([*moved, *along], key=lambda instant: instant.order)), reason)


def _stops(
    table: OpenTable, timeline: Timeline, candidates: Sequence[Instant]
) -> Iterator[tuple[InstantTime, str]]:
    """Yield instants that stay, with the reason."""
    pending = min((o.requested_at for o in timeline.pending() if o.action.writes_data), default="")
    if pending:
        # Hudi also keeps the commit before it.
        before = [commit.requested_at for commit in candidates if commit.requested_at < pending]
        yield max(before, default=InstantTime(pending)), f"instant {pending} is pending"
    for instant in timeline.pending():
        if instant.action is Action.ROLLBACK:
            yield InstantTime(""), f"rollback {instant.requested_at} is under way"
    for savepoint in timeline.instants:
        if savepoint.action is Action.SAVEPOINT:
            at = savepoint.requested_at
            yield at, f"there is a savepoint of instant {at}"
            break
    schema = timeline.schema_instant(table.storage)
    if schema is not None:  # Hudi's readers only look on the active timeline.
        at = schema.requested_at
        yield at, f"instant {at} is the last with the table's schema"
    yield from _replacing(table, timeline, candidates)


def _replacing(
    table: OpenTable, timeline: Timeline, candidates: Sequence[Instant]
) -> Iterator[tuple[InstantTime, str]]:
    """Yield the first commit whose replaced files still exist: they would become visible again."""
    listed: dict[str, set[FileId]] = {}
    replacing = [commit for commit in candidates if commit.action is Action.REPLACE_COMMIT]
    for commit in replacing:
        for partition, replaced in timeline.read_commit(
            table.storage, commit
        ).replaced_file_ids.items():
            if partition not in listed:
                files = list_partition(table.storage, partition)
                listed[partition] = {file.name.file_id for file in files}
            if listed[partition].intersection(replaced):
                yield (
                    commit.requested_at,
                    f"files that instant {commit.requested_at} replaced in partition {partition!r} "
                    "still exist: clean the table first",
                )
                return
    # The metadata table lists deleted files until their clean is completed. A clean that deleted
    # some before they were listed here is on the timeline now.
    cleans = load_timeline(table).pending_cleans() if replacing else []
    if cleans:
        yield (
            replacing[0].requested_at,
            f"clean {cleans[0].requested_at}, which may have deleted files that instant "
            f"{replacing[0].requested_at} replaced, is not completed: clean the table again",
        )


def _forget_undone_counts(table: OpenTable, timeline: Timeline, moved: Sequence[Instant]) -> None:
    """Delete recorded counts of writes that Hudi rolled back; Hudi does not know these counts.

    They are older than the first remaining commit, so they would be treated as committed.
    """
    start = timeline.start or ""
    known = {instant.requested_at for instant in timeline.instants}
    known.update(archived_completion_times(table, since=start))
    end = min(o.requested_at for o in timeline.instants if o.action.writes_data and o not in moved)
    forget_state(table.storage, lambda version: start <= version < end and version not in known)
