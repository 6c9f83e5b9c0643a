"""Cleaning: deleting old versions of file groups that the retention does not need.

A clean never deletes the newest version of a file group, files that a query of a retained commit
needs, files of a savepoint, files that a pending compaction reads, or files of pending writes. A
replaced file group is deleted completely, once the commit that replaced it is older than the
earliest retained commit.

A plan on the timeline names the files. bucketlake or Hudi executes the plan
(``actions/cleaner.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bucketlake.actions.cleaner import carry_out_clean, needed_files
from bucketlake.actions.pending import put_plan
from bucketlake.actions.recovery import writable_timeline
from bucketlake.actions.stream_batches import position_states
from bucketlake.actions.tombstone_list import named_by, tombstone_files
from bucketlake.config.paths_of_table import LEDGER_FOLDER, TOMBSTONE_FOLDER
from bucketlake.format.clean_metadata import CleanPlan, encode_clean_plan
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import DataFile
from bucketlake.model.grouping import grouped
from bucketlake.model.result import Shown
from bucketlake.model.retention import CleanPolicy, Retention
from bucketlake.read.clean_guard import read_clean
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.check.findings import MIN_AGE_SECONDS
from bucketlake.slices.file_system_view import FileVersion, list_files, list_partitions
from bucketlake.storage.base import clear_staging
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import Action, Instant, InstantClock, shift_instant
from bucketlake.timeline.open_table import OpenTable


@dataclass(frozen=True, slots=True)
class CleanedPartition:
    """A partition in which a clean deletes files.

    Attributes
    ----------
    partition_path : str
        Path of the partition.
    files : int
        Number of deleted files.
    size_bytes : int
        Size of these files.
    """

    partition_path: str
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleanReport(Shown):
    """What a clean deletes or has deleted.

    Attributes
    ----------
    partitions : tuple of CleanedPartition
        Partitions with deleted files, sorted by path.
    earliest_retained : InstantTime or None
        The earliest commit that can still be read; None if versions are counted, or there are too
        few commits.
    instants : tuple of InstantTime
        Completed cleans, also those that were pending before; empty for a dry run.
    held_back : str or None
        Why no file goes; None if one does.
    """

    partitions: tuple[CleanedPartition, ...]
    earliest_retained: InstantTime | None
    instants: tuple[InstantTime, ...] = ()
    held_back: str | None = None


def clean(table: OpenTable, retention: Retention, *, dry_run: bool = False) -> CleanReport:
    """Execute pending cleaning plans, then plan a clean and execute it.

    Parameters
    ----------
    table : OpenTable
    retention : Retention
        What stays.
    dry_run : bool
        Whether to return only what would be planned.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written.
    CommitOutcomeUnknownError
        If storage failed while files were deleted; the next clean continues.
    """
    timeline = writable_timeline(table, settles=not dry_run)
    done: list[InstantTime] = []
    if not dry_run:
        for pending in timeline.pending_cleans():
            done.append(carry_out_clean(table, pending.requested_at))
        timeline = load_timeline(table) if done else timeline
    earliest = _earliest_retained(timeline, retention, table.clock)
    snapshot = load_snapshot(table, timeline, lists_storage=True)
    files = _superseded(snapshot, retention, earliest)
    if files and not dry_run:
        plan = _plan(timeline, retention, earliest, files)
        content = encode_clean_plan(plan, table.storage.root)
        instant = put_plan(table, timeline, Action.CLEAN, content)
        done.append(carry_out_clean(table, instant))
    if not dry_run:
        before_ms = table.clock.now_ms() - MIN_AGE_SECONDS * 1000
        clear_staging(table.storage, before_ms)
        _delete_unnamed(table, before_ms)
    held_back = None if files else _held_back(timeline, retention)
    kept_from = None if earliest is None else earliest.requested_at
    return CleanReport(_described(files), kept_from, tuple(done), held_back)


def _delete_unnamed(table: OpenTable, before_ms: int) -> None:
    """Delete old files of remembered deletes, and of ledgers, that no commit names any more."""
    folders = (TOMBSTONE_FOLDER, LEDGER_FOLDER)
    listed = [file for name in folders for file in table.storage.list(name, recursive=False)]
    if not listed:
        return
    timeline = load_timeline(table)
    commits = timeline.read_commits(table.storage, timeline.completed_commits())
    named = named_by((commit for _, commit in commits), f"table {table.storage.root}")
    named |= {file.name for file in tombstone_files(table, timeline)}  # Perhaps of the archive.
    named |= {name for state in position_states(table, timeline) for name in state.split()}
    for file in listed:
        if file.name not in named and file.modified_at_ms < before_ms:
            table.storage.delete(file.path)


def _held_back(timeline: Timeline, retention: Retention) -> str:
    """Return why a clean with this retention finds no file to delete."""
    commits, count = len(timeline.completed_commits()), retention.count
    if retention.policy is CleanPolicy.VERSIONS:
        return f"no file group has more than {count} versions that nobody needs"
    if retention.policy is CleanPolicy.COMMITS and commits <= count:
        return (
            f"the active timeline has {commits} commits, and the newest {count} stay: "
            "retain_commits=N (--retain-commits N) keeps fewer"
        )
    span = "commits" if retention.policy is CleanPolicy.COMMITS else "hours"
    return f"no file was replaced before the last {count} {span}"


def _earliest_retained(
    timeline: Timeline, retention: Retention, clock: InstantClock
) -> Instant | None:
    """Return the earliest commit to retain; no pending commit is older."""
    commits = timeline.completed_commits()
    if retention.policy is CleanPolicy.VERSIONS or not commits:
        return None
    if retention.policy is CleanPolicy.COMMITS:
        if len(commits) <= retention.count:
            return None
        earliest = commits[-retention.count]
    else:
        since = shift_instant(clock.now(timeline), -timedelta(hours=retention.count))
        earliest = next((commit for commit in commits if commit.requested_at >= since), commits[-1])
    pending = [instant.requested_at for instant in timeline.pending() if instant.action.writes_data]
    first = min([*pending, earliest.requested_at])
    return max(
        (commit for commit in commits if commit.requested_at <= first),
        key=lambda commit: commit.requested_at,
        default=None,
    )


def _superseded(
    snapshot: Snapshot, retention: Retention, earliest: Instant | None
) -> list[DataFile]:
    """Return the files that may be deleted, sorted by path."""
    if earliest is None and retention.policy is not CleanPolicy.VERSIONS:
        return []
    held = needed_files(snapshot)
    replaced = snapshot.timeline.replaced_file_groups(snapshot.storage)
    files = _listed(snapshot, earliest)
    found: list[DataFile] = []
    for group, versions in snapshot.versions(files).items():
        old = _old_versions(versions, retention, earliest)
        replaced_at = replaced.get(group)
        if replaced_at is not None and (earliest is None or replaced_at < earliest.requested_at):
            old = versions
        for version in old:
            if not any(file.path in held for file in version.files):
                found.extend(version.files)
    return sorted(found, key=lambda file: file.path)


def _old_versions(
    versions: Sequence[FileVersion], retention: Retention, earliest: Instant | None
) -> Sequence[FileVersion]:
    """Return the versions of a file group that the retention does not need."""
    if earliest is None:
        return versions[retention.count :]
    older = [version for version in versions[1:] if version.instant < earliest.requested_at]
    # Keep the newest version before the earliest commit: a query of that commit may read it, and a
    # rollback of the commit needs it.
    is_newest_older = versions[0].instant < earliest.requested_at
    return older if is_newest_older else older[1:]


def _listed(snapshot: Snapshot, earliest: Instant | None) -> Iterable[DataFile]:
    """Return the partitions in which files may be deleted."""
    partitions = _changed_partitions(snapshot, earliest)
    if partitions is None:
        return [file for held in list_partitions(snapshot.storage).values() for file in held]
    return list_files(snapshot.storage, partitions)


def _changed_partitions(snapshot: Snapshot, earliest: Instant | None) -> list[str] | None:
    """Return the partitions with versions that the last clean could not delete; None for all.

    A version can be deleted once the commit that wrote the next version is older than the earliest
    retained commit. So only commits between the last clean's earliest commit and this clean's
    matter. If a savepoint was deleted since, its files may be in any partition.
    """
    storage, timeline = snapshot.storage, snapshot.timeline
    cleans = timeline.completed(Action.CLEAN)
    if earliest is None or not cleans or timeline.start is None:
        return None
    last = read_clean(storage, timeline, cleans[-1])
    if last.earliest is None or last.earliest < timeline.start:
        return None
    if set(last.savepoints) - set(_savepoints(timeline)):
        return None
    first, end = last.earliest, earliest.requested_at
    between = [i for i in timeline.completed_commits() if first <= i.requested_at < end]
    commits = timeline.read_commits(storage, between)
    return sorted(set[str]().union(*(commit.partitions for _, commit in commits)))


def _plan(
    timeline: Timeline, retention: Retention, earliest: Instant | None, files: Sequence[DataFile]
) -> CleanPlan:
    names = grouped((file.partition_path, file.name.to_file_name()) for file in files)
    return CleanPlan(
        retention.policy.value,
        {path: tuple(held) for path, held in names.items()},
        None if earliest is None else earliest.requested_at,
        "" if earliest is None else earliest.action.value,
        max((commit.requested_at for commit in timeline.completed_commits()), default=None),
        tuple(_savepoints(timeline)),
    )


def _savepoints(timeline: Timeline) -> list[InstantTime]:
    return [savepoint.requested_at for savepoint in timeline.completed(Action.SAVEPOINT)]


def _described(files: Sequence[DataFile]) -> tuple[CleanedPartition, ...]:
    sizes = grouped((file.partition_path, file.size_bytes) for file in files)
    return tuple(
        CleanedPartition(path, len(held), sum(held)) for path, held in sorted(sizes.items())
    )
