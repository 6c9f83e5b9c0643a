"""Compactions of the metadata table: whether one is due, and how a pending one ends.

``actions/metadata_compaction.py`` carries them out. An outcome in the folder of the metadata
table decides between a compaction and its withdrawal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bucketlake.errors import CommitConflictError, UnsupportedFeatureError
from bucketlake.metadata.changes import decide_inner
from bucketlake.metadata.contents import updates_since_compaction
from bucketlake.metadata.log_files import COPY_TOKEN
from bucketlake.metadata.metadata_table import files_of_instants, inner_table
from bucketlake.model.file_name import InstantTime, LogFileName
from bucketlake.model.write_stat import CommitMetadata, WriteStat, by_partition
from bucketlake.storage.waiting import pause
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.heartbeat import delete_heartbeat, is_alive
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import claim_rollback, read_outcome
from bucketlake.timeline.transitions import publish_completed, remove_pending

DELTA_COMMITS = 10
"""Delta commits after which a compaction is due, as in Hudi."""

COMPACT_OPERATION = "COMPACT"
"""Operation of the commits of compactions."""

_WAIT_SECONDS_MAX = 10.0  # A living process completes a compaction of layout 1 in a moment.


def is_compaction_due(table: OpenTable, delta_commits: int = DELTA_COMMITS) -> bool:
    """Return whether enough delta commits were completed since the last compaction.

    Parameters
    ----------
    table : OpenTable
        The data table.
    delta_commits : int
        What is enough.
    """
    inner = inner_table(table)
    return len(updates_since_compaction(load_timeline(inner))) >= delta_commits


def is_due_after_commit(known: Timeline) -> bool:
    """Return whether a compaction is due once one more delta commit is completed.

    Parameters
    ----------
    known : Timeline
        The timeline of the metadata table before that commit. It may be old:
        :func:`compact_metadata` looks again.
    """
    return len(updates_since_compaction(known)) >= DELTA_COMMITS - 1


def withdraw_compactions(
    table: OpenTable, is_withdrawn: Callable[[InstantTime], bool] = lambda _: True
) -> None:
    """Withdraw the pending compactions of the metadata table; complete those that are decided.

    An undoing of commits calls this when its plan is on the data timeline, before it looks whether
    a compaction included the commits: a compaction that is planned later does not include them. A
    build of a partition calls it when the properties do not list the partition any more, before it
    deletes the old files.

    Parameters
    ----------
    table : OpenTable
        The data table.
    is_withdrawn : callable
        Whether to withdraw the compaction of an instant; by default all.
    """
    inner = inner_table(table)
    for pending in load_timeline(inner).pending_compactions():
        if is_withdrawn(pending.requested_at):
            end_compaction(inner, pending)


def settle_compactions(table: OpenTable) -> Timeline:
    """End the pending compactions in timeline layout 1, where log files name their slices.

    A write that has put its action on the timeline of the metadata table calls this before it names
    its log files. A compaction is pending for a moment only, so this waits for a living process.

    Parameters
    ----------
    table : OpenTable
        The data table.

    Returns
    -------
    Timeline
        The timeline of the metadata table, without a pending compaction.

    Raises
    ------
    UnsupportedFeatureError
        If another program added to the slices of its pending compaction.
    """
    inner = inner_table(table)
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while pending := (known := load_timeline(inner)).pending_compactions():
        for compaction in pending:
            at = compaction.requested_at
            is_decided = read_outcome(inner.storage, at) is not None
            if (
                not is_decided
                and time.monotonic() < deadline
                and is_alive(inner.storage, at, table.clock.now_ms)
            ):
                pause()
            else:
                end_compaction(inner, compaction)
    return known


def decide_compaction(
    inner: OpenTable, instant: InstantTime, completed_at: InstantTime, stats: Sequence[WriteStat]
) -> None:
    """Decide and publish a compaction; if it was withdrawn, delete its base files.

    Parameters
    ----------
    inner : OpenTable
        The metadata table.
    instant, completed_at : InstantTime
        The compaction, and its completion time.
    stats : sequence of WriteStat
        Its base files.

    Raises
    ------
    CommitConflictError
        If another process withdrew it.
    """
    commit = CommitMetadata(COMPACT_OPERATION, by_partition(stats), compacted=True)
    inflight = Instant(instant, Action.COMPACTION, State.INFLIGHT)
    if not decide_inner(inner, inflight, completed_at, commit):
        for stat in stats:
            inner.storage.delete(stat.path)
        problem = "another process withdrew this compaction of the metadata table"
        raise CommitConflictError(instant, problem)


def end_compaction(inner: OpenTable, pending: Instant) -> None:
    """Withdraw a pending compaction and delete its files, or complete it if that is decided."""
    instant = pending.requested_at
    if inner.config.layout.logs_name_slices:
        _require_not_followed(inner, pending)
    outcome = claim_rollback(inner.storage, instant)
    if outcome.publication is not None:
        inflight = Instant(instant, pending.action, State.INFLIGHT)
        publish_completed(inner, inflight, outcome.publication)
    else:
        for file in files_of_instants(inner.storage, {instant}):
            inner.storage.delete(file.path)
        remove_pending(inner, instant, pending.action)
    delete_heartbeat(inner.storage, instant)


def _require_not_followed(inner: OpenTable, pending: Instant) -> None:
    """Raise UnsupportedFeatureError if log files of commits name the slices of a compaction.

    Writers of bucketlake add to them once the compaction is decided, perhaps since it was listed.
    """
    instant = pending.requested_at
    names = [file.name for file in files_of_instants(inner.storage, {instant})]
    logs = [name for name in names if isinstance(name, LogFileName)]
    followers = [name for name in logs if name.write_token != COPY_TOKEN]
    if followers and read_outcome(inner.storage, instant) is None:
        raise UnsupportedFeatureError(
            f"withdrawing compaction {instant} of the metadata table, because commits of another "
            f"program have added to its slices ({followers[0].to_file_name()})",
            inner.storage.root,
            "let Hudi complete it: its next write does",
        )
