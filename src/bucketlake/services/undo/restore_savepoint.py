"""Restoring a table to a savepoint: every later commit is undone, newest first.

A savepoint holds the files of its commit. So only their existence must be checked, not the other
conditions of a rollback. Rules and recorded counts (RFC-89) are restored with the commits. If the
record-level index that the kind of the table needs could not be kept, it is built again at the end
(``services/metadata/needed_index.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bucketlake.actions.pending import begin_instant
from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.actions.restore import (
    begin_restore,
    carry_out_restore,
    later_instants,
    require_newest_savepoint,
)
from bucketlake.config.support import check_writable
from bucketlake.errors import CommitOutcomeUnknownError, StorageError, TimelineError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.rollback_metadata import RestorePlan, decode_savepoint, encode_restore_plan
from bucketlake.index.state import setting_instants
from bucketlake.model.file_name import InstantTime, file_path
from bucketlake.model.result import Shown
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.metadata.needed_index import keep_needed_index
from bucketlake.services.undo.rollback_commits import UndoneCommit, describe
from bucketlake.services.undo.savepoints import require_savepoint
from bucketlake.services.undo.undoable_commits import require_own_logs
from bucketlake.slices.file_system_view import list_files
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import OpenTable


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
    check_writable(table.config, table.storage.root)
    timeline = load_timeline(table)
    if not dry_run:
        timeline = settle_failed_writes(table, timeline)
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
