"""Archival: moving old instants from the active timeline, so that listing it stays cheap.

No row changes. ``timeline/archive_writer.py`` moves the instants; this module says which of them a
reader or writer may still need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.config.support import check_writable
from bucketlake.index.state import forget_archived_state, forget_state, keep_archived_state
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.result import Shown
from bucketlake.model.retention import ArchivalLimits
from bucketlake.slices.file_system_view import list_partition
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import archived_completion_times
from bucketlake.timeline.archive_writer import move_oldest, oldest_instants
from bucketlake.timeline.instant import Action, Instant
from bucketlake.timeline.open_table import OpenTable

_GO_ALONG = frozenset({Action.CLEAN, Action.ROLLBACK})


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
    report = ArchiveReport()

    def choose(most: int | None) -> tuple[Timeline, Sequence[Instant]]:
        nonlocal report
        timeline = settle_failed_writes(table.without_lock(), load_timeline(table))
        report = _plan(table, timeline, limits, most)
        if report.instants:
            _forget_undone_counts(table, timeline, report.instants)
            commits = timeline.read_commits(table.storage, _replacing_among(report.instants))
            partitions = {i.requested_at: commit.partitions for i, commit in commits}
            keep_archived_state(table.storage, partitions)
        return timeline, report.instants

    if dry_run:
        return _plan(table, load_timeline(table), limits, None)
    with table.lock.held(table.storage) as require_held:
        move_oldest(table, choose, require_held)
        start = load_timeline(table).start if _replacing_among(report.instants) else None
        if start is not None:
            forget_archived_state(table.storage, start)
    return report


def _replacing_among(instants: Sequence[Instant]) -> list[Instant]:
    return [instant for instant in instants if instant.action is Action.REPLACE_COMMIT]


def _plan(
    table: OpenTable, timeline: Timeline, limits: ArchivalLimits, most: int | None
) -> ArchiveReport:
    """Choose the instants to move, by Hudi's rules and some additional rules."""
    stops = partial(_stops, table, timeline)
    return ArchiveReport(
        *oldest_instants(timeline, limits, most, stops, lambda o: o.action in _GO_ALONG)
    )


def _stops(
    table: OpenTable, timeline: Timeline, candidates: Sequence[Instant]
) -> Iterator[tuple[InstantTime, str]]:
    """Yield instants that stay, with the reason."""
    pending = min((o.requested_at for o in timeline.pending() if o.action.writes_data), default="")
    if pending:
        # Hudi also keeps the commit before it.
        before = [commit.requested_at for commit in candidates if commit.requested_at < pending]
        yield max(before, default=InstantTime(pending)), f"instant {pending} is pending"
    for rollback in timeline.pending(Action.ROLLBACK):
        yield InstantTime(""), f"rollback {rollback.requested_at} is under way"
    for savepoint in timeline.savepoints()[:1]:
        at = savepoint.requested_at
        yield at, f"there is a savepoint of instant {at}"
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
    replacing = _replacing_among(candidates)
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
