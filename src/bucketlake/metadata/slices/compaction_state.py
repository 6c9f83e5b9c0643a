"""Compactions of the metadata table: whether one is due, and how a pending one ends.

``metadata/slices/slice_compaction.py`` carries them out. An outcome in the folder of the metadata
table decides between a compaction and its withdrawal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bucketlake.errors import CommitConflictError, UnsupportedFeatureError
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.metadata_record.record_schema import commit_schema_json
from bucketlake.metadata.inner_table import inner_table
from bucketlake.metadata.metadata_table import files_of_instants
from bucketlake.metadata.slices.log_files import COPY_TOKEN
from bucketlake.model.file_name import InstantTime, LogFileName
from bucketlake.model.write_stat import CommitMetadata, WriteStat, by_partition
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.commit_order import Head
from bucketlake.timeline.heartbeat import delete_heartbeat, is_alive
from bucketlake.timeline.instant import UNDOING, WRITES, Action, Instant, State, is_initial
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import Publication, claim_commit, claim_rollback, read_outcome
from bucketlake.timeline.transitions import publish_completed, remove_pending

DELTA_COMMITS = 10
"""Delta commits after which a compaction is due, as in Hudi."""

COMPACT_OPERATION = "COMPACT"
"""Operation of the commits of compactions."""

IN_TURN = WRITES | {Action.CLUSTERING}
"""Pending actions that are decided only after a turn in the order of commits."""

Look = Callable[[], Head]
"""Returns the data table as it is after the last turn (``actions/turns.py``)."""

_WAIT_SECONDS_MAX = 10.0  # A living process completes a compaction of layout 1 in a moment.
_LOOK_SECONDS = 0.02


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
    return is_due(load_timeline(inner), delta_commits)


def is_due_after_commit(known: Timeline) -> bool:
    """Return whether a compaction is due once one more delta commit is completed.

    Parameters
    ----------
    known : Timeline
        The timeline of the metadata table before that commit. It may be old:
        :func:`compact_metadata` looks again.
    """
    return is_due(known, DELTA_COMMITS - 1)


def last_compaction(known: Timeline) -> InstantTime | None:
    """Return the last completed compaction on the timeline of a metadata table."""
    compactions = (i.requested_at for i in known.completed() if i.action is Action.COMMIT)
    return max(compactions, default=None)


def updates_since_compaction(known: Timeline) -> list[Instant]:
    """Return the delta commits of a metadata table that its base files do not include."""
    last = last_compaction(known) or ""
    return [
        instant
        for instant in known.completed()
        if instant.action is Action.DELTA_COMMIT
        and (instant.completed_at or "") > last
        and not is_initial(instant.requested_at)
    ]


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
                time.sleep(_LOOK_SECONDS)
            else:
                end_compaction(inner, compaction)
    return known


def is_due(known: Timeline, delta_commits: int) -> bool:
    """Return whether enough delta commits were completed since the last compaction."""
    return len(updates_since_compaction(known)) >= delta_commits


def is_undoing(data: Timeline) -> bool:
    """Return whether commits of the data table are being undone."""
    return any(pending.action in UNDOING for pending in data.pending())


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
    extra = {"schema": commit_schema_json(has_value_types=inner.config.rules.has_value_types)}
    commit = CommitMetadata(COMPACT_OPERATION, by_partition(stats), extra, compacted=True)
    content = encode_commit_metadata(commit, inner.config.layout)
    publication = Publication(completed_at, Action.COMMIT, content)
    outcome = claim_commit(inner.storage, instant, publication)
    if outcome.publication is None:
        for stat in stats:
            inner.storage.delete(stat.path)
        problem = "another process withdrew this compaction of the metadata table"
        raise CommitConflictError(instant, problem)
    inflight = Instant(instant, Action.COMPACTION, State.INFLIGHT)
    publish_completed(inner, inflight, outcome.publication)


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
    """Raise UnsupportedFeatureError if log files of commits name the slices of a compaction."""
    for file in files_of_instants(inner.storage, {pending.requested_at}):
        name = file.name
        if isinstance(name, LogFileName) and name.write_token != COPY_TOKEN:
            raise UnsupportedFeatureError(
                f"withdrawing compaction {pending.requested_at} of the metadata table, because "
                f"commits of another program have added to its slices ({name.to_file_name()})",
                inner.storage.root,
                "let Hudi complete it: its next write does",
            )
