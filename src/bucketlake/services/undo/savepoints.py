"""Savepoints: commits whose files no clean deletes, so that the table can be restored to them.

A savepoint names the files that a query of its commit reads. It is pending on the timeline before
these files are listed, and it takes a turn in the order of commits. So it includes everything that
completed before its completion time, and a clean and a savepoint that run at the same time always
see each other.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from bucketlake.actions.completion import complete_instant
from bucketlake.actions.pending import begin_instant
from bucketlake.actions.recovery import end_undoing, writable_timeline
from bucketlake.actions.restore import (
    begin_restore,
    carry_out_restore,
    later_instants,
    require_newest_savepoint,
)
from bucketlake.actions.transact import AGAIN, Answer, Ready, transact
from bucketlake.errors import (
    BucketLakeError,
    CommitOutcomeUnknownError,
    StorageError,
    TimelineError,
)
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.rollback_metadata import (
    RestorePlan,
    decode_savepoint,
    encode_restore_plan,
    encode_savepoint,
)
from bucketlake.index.state import setting_instants
from bucketlake.model.file_name import InstantTime, file_path
from bucketlake.model.result import Shown
from bucketlake.read.clean_guard import read_clean
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.metadata.needed_index import keep_needed_index
from bucketlake.services.undo.rollback_commits import UndoneCommit, describe
from bucketlake.services.undo.undoable_commits import require_own_logs, why_absent
from bucketlake.slices.file_system_view import list_files
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_writer import instant_files, keep_active
from bucketlake.timeline.commit_order import Head
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.locks import LockCheck
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import Publication
from bucketlake.timeline.transitions import instant_path, to_inflight


def make_savepoint(
    table: OpenTable, instant: InstantTime | None = None, *, comment: str = ""
) -> InstantTime:
    """Create a savepoint of a commit; return the commit's instant.

    Parameters
    ----------
    table : OpenTable
    instant : InstantTime, optional
        The commit; by default the newest.
    comment : str
        Purpose of the savepoint.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written.
    TimelineError
        If there is no such commit, or a clean has deleted files of it or will delete them.
    """
    timeline = writable_timeline(table)
    chosen = _commit(table, timeline, instant).requested_at
    if any(found.requested_at == chosen for found in timeline.completed(Action.SAVEPOINT)):
        return chosen
    _require_no_compaction(timeline, chosen)
    inflight = Instant(chosen, Action.SAVEPOINT, State.INFLIGHT)
    to_inflight(table, chosen, Action.SAVEPOINT)
    try:
        with table.lock.held(table.storage) as require_held:
            _complete(table, inflight, comment, require_held)
    except BucketLakeError:
        with suppress(BucketLakeError):  # Until completed or deleted, it holds files.
            table.storage.delete(instant_path(table.config, inflight))
        raise
    return chosen


def delete_savepoint(table: OpenTable, instant: InstantTime) -> None:
    """Delete a savepoint, so that a clean may delete its files.

    Raises
    ------
    TimelineError
        If there is no such savepoint.
    """
    timeline = writable_timeline(table)
    require_savepoint(timeline, instant, pending=True)
    for _, stored in instant_files(table).get((instant, Action.SAVEPOINT.value), ()):
        table.storage.delete(stored.path)


def require_savepoint(
    timeline: Timeline, instant: InstantTime, *, pending: bool = False
) -> Instant:
    """Return the savepoint of a commit; raise TimelineError if it has none."""
    found = timeline.savepoints()
    for savepoint in found:
        if savepoint.requested_at == instant and (pending or savepoint.state is State.COMPLETED):
            return savepoint
    there = ", ".join(savepoint.requested_at for savepoint in found) or "there are none"
    raise TimelineError(
        instant,
        f"is not a savepoint (savepoints: {there}); create one with table.savepoint() "
        "(bucketlake savepoint)",
    )


def _complete(table: OpenTable, inflight: Instant, comment: str, require_held: LockCheck) -> None:
    instant = inflight.requested_at
    # A restore undoes later commits of the active timeline, so none of them may be archived.
    if not keep_active(table, instant):
        raise TimelineError(instant, "was archived meanwhile; use a later commit")

    def look(now: Head) -> Answer[tuple[InstantTime, dict[str, list[str]]]]:
        if end_undoing(table, now.timeline):
            return AGAIN
        files = _files(table, now.timeline, instant)
        taken_at = now.next_instant()
        return Ready(taken_at, (taken_at, files))

    taken_at, files = transact(table, look).value
    completed_at = table.config.layout.completion_time(instant, taken_at)
    metadata = encode_savepoint(files, at_ms=table.clock.now_ms(), comment=comment)
    require_held()
    publication = Publication(completed_at, Action.SAVEPOINT, metadata)
    complete_instant(table, inflight, publication)


def _require_no_compaction(timeline: Timeline, instant: InstantTime) -> None:
    """Raise TimelineError if a compaction may complete before the commit of a savepoint.

    A restore would keep it, and a clean not its files.
    """
    if timeline.layout.has_completion_times:
        return
    for pending in timeline.pending_compactions():
        if pending.requested_at < instant:
            raise TimelineError(
                instant,
                f"the compaction {pending.requested_at} of before is pending: execute it with "
                "table.compact() (bucketlake compact --run), then make the savepoint",
            )


def _files(table: OpenTable, timeline: Timeline, instant: InstantTime) -> dict[str, list[str]]:
    """Return the names of the files that a query of a commit reads, by partition path."""
    _commit(table, timeline, instant)
    files: dict[str, list[str]] = {}
    doomed = {
        path: clean.requested_at
        for clean in timeline.pending_cleans()
        for path in read_clean(table.storage, timeline, clean).paths
    }
    then = load_snapshot(table, timeline.as_of(instant), lists_storage=True)
    for file_slice in then.all_slices():
        for file in file_slice.files:
            if file.path in doomed:
                raise TimelineError(
                    instant,
                    f"the pending clean {doomed[file.path]} deletes {file.path}: complete it with "
                    "table.clean() (bucketlake clean --run), and use a later commit",
                )
            files.setdefault(file_slice.partition_path, []).append(file.name.to_file_name())
    return files


def _commit(table: OpenTable, timeline: Timeline, instant: InstantTime | None) -> Instant:
    commits = timeline.completed_commits()
    if instant is None and commits:
        return commits[-1]
    found = None if instant is None else timeline.find_completed(instant)
    if found is None:
        if instant is None:
            raise TimelineError("", "the table has no commit yet: write to it first")
        raise TimelineError(instant, why_absent(table, timeline, instant))
    return found


# ---- Restoring a table to a savepoint: every later commit is undone, newest first ----------------
#
# A savepoint holds the files of its commit. So only their existence must be checked, not the other
# conditions of a rollback. Rules and recorded counts (RFC-89) are restored with the commits. If the
# record-level index that the kind of the table needs could not be kept, it is built again at the
# end (``services/metadata/needed_index.py``).


@dataclass(frozen=True, slots=True)
class RestoreReport(Shown):
    """What a restore undoes or has undone.

    Attributes
    ----------
    savepoint : InstantTime
        The newest commit after the restore.
    commits : tuple of UndoneCommit
        Undone commits, newest first, also compactions.
    plans : tuple of InstantTime
        Pending compactions and resizes that are removed.
    instant : InstantTime or None
        The restore on the timeline; None for a dry run, or if there is nothing to undo.
    """

    savepoint: InstantTime
    commits: tuple[UndoneCommit, ...]
    plans: tuple[InstantTime, ...]
    instant: InstantTime | None = None


def restore(
    table: OpenTable, instant: InstantTime, *, dry_run: bool = False, engine: Engine = HERE
) -> RestoreReport:
    """Restore a table to a savepoint, or return what that would undo.

    Parameters
    ----------
    table : OpenTable
    instant : InstantTime
        The commit of the savepoint.
    dry_run : bool
        Whether to leave the table as it is.
    engine : Engine
        Builds shards of a record-level index on an engine.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written.
    TimelineError
        If there is no such savepoint, there is a later savepoint, or files of it are missing.
    CommitConflictError
        If another commit completed meanwhile.
    CommitOutcomeUnknownError
        If storage failed and the restore may have begun.
    """
    timeline = writable_timeline(table, settles=not dry_run)
    savepoint = require_savepoint(timeline, instant)
    require_newest_savepoint(timeline, savepoint)
    _require_files(table.storage, timeline, savepoint)
    later = later_instants(timeline, savepoint)
    snapshot = load_snapshot(table, timeline)
    require_own_logs(snapshot, later)
    rules = setting_instants(snapshot.storage, snapshot.timeline)
    commits = [i for i in later if i.state is State.COMPLETED]
    report = RestoreReport(
        instant,
        tuple(describe(snapshot, commit, rules) for commit in commits),
        tuple(i.requested_at for i in later if i.state is not State.COMPLETED),
    )
    if dry_run or not later:
        return report
    plan = RestorePlan(instant, tuple((i.requested_at, i.action.value) for i in later))
    try:
        with (
            table.lock.held(table.storage) as require_held,
            begin_instant(
                table, load_timeline(table), Action.RESTORE, encode_restore_plan(plan)
            ) as (own, _),
        ):
            begin_restore(table, own)
            require_held()
            carry_out_restore(table, own)
    except StorageError as error:
        raise CommitOutcomeUnknownError(
            instant,
            f"storage failed while the table was restored to it ({error}); the next write "
            "continues the restore, or withdraws it if nothing was undone yet",
        ) from error
    keep_needed_index(table, engine)
    return replace(report, instant=own)


def _require_files(storage: Storage, timeline: Timeline, savepoint: Instant) -> None:
    path = timeline.path_of(savepoint)
    held = decode_savepoint(storage.read(path), path)
    there = {file.path for file in list_files(storage, held)}
    for partition, names in held.items():
        for name in names:
            if file_path(partition, name) not in there:
                raise TimelineError(
                    savepoint.requested_at,
                    f"{file_path(partition, name)}, which the savepoint holds, is missing: nothing "
                    "was undone; use another savepoint",
                )
