"""Begin and commit a write: the only place where the driver publishes.

Order of a commit: the inflight instant is still there and no other commit touched the same buckets
since the table was pinned; partition markers of new partitions; the next turn in the order of
commits is taken, or all this is looked at again; the outcome of the instant is won; the completed
instant appears under the completion time that the outcome names; markers go. A crash at any step
leaves the table as it was before or as it is after, and the next write finishes the job
(``write/recovery.py``).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    StorageError,
)
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.partition_metadata import (
    partition_marker_path,
    render_partition_metadata,
)
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.table_type import Operation, TableType
from bucketlake.model.write_stat import NO_PREVIOUS_COMMIT, CommitMetadata, WriteStat
from bucketlake.read.clean_guard import was_cleaned
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.clock import InstantClock
from bucketlake.timeline.commit_order import Turn, last_turn, take_turn
from bucketlake.timeline.heartbeat import is_alive
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.markers import delete_markers
from bucketlake.timeline.outcome import (
    Outcome,
    OutcomeKind,
    claim_commit,
    claim_rollback,
    outcome_path,
    read_outcome,
)
from bucketlake.timeline.transitions import complete, to_inflight
from bucketlake.write.conflict import (
    Buckets,
    Commits,
    commits_since,
    looked_at_metadata,
    require_kept,
    require_no_common_bucket,
    require_no_undoing,
    touched_buckets,
)
from bucketlake.write.pending_actions import begin_instant

Prepare = Callable[[Timeline, Commits], Mapping[str, str]]
"""Called with the newest timeline, and what was committed since the pinned one."""

_DECISION_SECONDS_MAX = 10.0  # Between a turn and its decision lies one put.
_DECISION_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write between its inflight instant and its commit.

    Attributes
    ----------
    instant : InstantTime
        Requested time.
    operation : Operation
        What it does.
    pinned : Timeline
        The timeline that the write was planned on.
    lock : TableLock
        Held while the write checks for conflicts and publishes.
    """

    storage: Storage
    config: TableConfig
    clock: InstantClock
    instant: InstantTime
    operation: Operation
    pinned: Timeline
    lock: TableLock

    @property
    def action(self) -> Action:
        """Action on the timeline."""
        return _action(self.config, self.operation)


def _action(config: TableConfig, operation: Operation) -> Action:
    if operation.replaces:
        return Action.REPLACE_COMMIT
    is_merged = config.table_type is TableType.MERGE_ON_READ
    return Action.DELTA_COMMIT if is_merged else Action.COMMIT


@contextmanager
def begin_write(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    clock: InstantClock,
    operation: Operation,
    lock: TableLock = NO_LOCK,
) -> Iterator[PendingWrite]:
    """Take an instant, announce the write as inflight, and keep it alive while the body runs."""
    action = _action(config, operation)
    with begin_instant(storage, config, timeline, clock, action) as instant:
        to_inflight(storage, config, instant, action)
        yield PendingWrite(storage, config, clock, instant, operation, timeline, lock)


def commit_write(
    write: PendingWrite,
    stats: Iterable[WriteStat],
    *,
    replaced: Mapping[str, tuple[FileId, ...]],
    looked_at: Buckets = frozenset(),
    prepare: Prepare,
) -> InstantTime:
    """Publish a write; return its completion time.

    Parameters
    ----------
    write : PendingWrite
        From :func:`begin_write`.
    stats : iterable of WriteStat
        The files that the tasks wrote.
    replaced : mapping of partition path to file ids
        File groups that leave the table with this commit.
    looked_at : set of (partition path, bucket id)
        Buckets that the write depends on though it may not have written them: of a key that is to
        be deleted and was not there.
    prepare : callable
        Called with the newest timeline, and what was committed since the pinned one, right before
        the decision: raises where something else no longer holds that the write needs, saves what
        belongs to the commit, and returns its extra metadata.

    Raises
    ------
    CommitConflictError
        If the write was rolled back, or another commit touched one of its buckets since it began.
    CommitOutcomeUnknownError
        If storage failed at the decisive step.
    """
    written = by_partition(stats)
    touched = touched_buckets(written, replaced)

    def metadata(timeline: Timeline, since: Commits) -> bytes:
        extra = dict(prepare(timeline, since)) | looked_at_metadata(looked_at - touched)
        return encode_commit_metadata(
            CommitMetadata(write.operation.value, written, extra, dict(replaced))
        )

    with write.lock.held(write.storage) as require_held:
        timeline, turn, content = _take_turn(write, written, touched | looked_at, metadata)
        completed_at = write.clock.next_instant(timeline, after=turn.instant if turn else None)
        require_held()
        outcome = claim_commit(write.storage, write.instant, completed_at, write.action, content)
        # Nobody else commits a write; one whose time this was does not speak for it.
        if outcome.kind is OutcomeKind.ROLLBACK or not outcome.won:
            raise CommitConflictError(
                write.instant, "another writer rolled this write back; retry it"
            )
        return _publish_decided(write, outcome)


def _take_turn(
    write: PendingWrite,
    written: Mapping[str, Sequence[WriteStat]],
    touched: Buckets,
    metadata: Callable[[Timeline, Commits], bytes],
) -> tuple[Timeline, Turn | None, bytes]:
    """Check for conflicts and take the next turn; return what it was checked on, and the metadata.

    These are made before: between turn and decision nobody waits for long.
    """
    while True:
        turn = last_turn(write.storage)
        timeline = after_turn(write.storage, write.config, write.clock, turn, write.instant)
        timeline.recall(write.pinned)
        _require_inflight(write, timeline)
        # Whoever undoes something took a turn after its plan: it is seen here, or this turn fails.
        require_no_undoing(write.instant, timeline)
        require_kept(write.storage, write.config, write.instant, write.pinned, timeline)
        since = commits_since(write.storage, write.config, write.pinned, timeline)
        cleaned = any(commit.compacted for _, commit in since) and was_cleaned(
            write.storage, write.config, write.pinned, timeline
        )
        require_no_common_bucket(write.instant, touched, since, cleaned=cleaned)
        _mark_partitions(write, written)
        content = metadata(timeline, since)
        if take_turn(write.storage, write.instant, after=turn):
            return timeline, turn, content


def after_turn(
    storage: Storage,
    config: TableConfig,
    clock: InstantClock,
    turn: Turn | None,
    own: InstantTime | None,
) -> Timeline:
    """Return the timeline once the commit that took the last turn is through, or passed over.

    Parameters
    ----------
    storage, config
        The table.
    clock : InstantClock
        Tells which writers live.
    turn : Turn or None
        The last turn.
    own : InstantTime or None
        The caller's instant, which is not waited for.
    """
    timeline = load_timeline(storage, config)
    if turn is None or turn.instant == own:
        return timeline
    before = timeline.find(turn.instant)
    if before is None or before.state is State.COMPLETED:
        return timeline
    with of_another():
        outcome = _decision(storage, clock, before)
        if outcome is not None and outcome.kind is OutcomeKind.COMMIT:
            complete(storage, config, turn.instant, before.action, outcome)
    return load_timeline(storage, config)


@contextmanager
def of_another() -> Iterator[None]:
    """Raise StorageError where storage does not tell what became of an instant of another writer.

    "Outcome unknown" would be taken for the caller's own, of which nothing has happened yet.
    """
    try:
        yield
    except CommitOutcomeUnknownError as error:
        path, step = outcome_path(InstantTime(error.instant)), "end what another writer left"
        raise StorageError(path, step, str(error)) from error


def _decision(storage: Storage, clock: InstantClock, pending: Instant) -> Outcome | None:
    """Return how a write ends that took its turn; None where a compaction is not decided yet."""
    instant = pending.requested_at
    deadline = time.monotonic() + _DECISION_SECONDS_MAX
    while (outcome := read_outcome(storage, instant)) is None:
        if pending.action not in WRITES:
            return None  # It changes no row, and may wait for years.
        if not is_alive(storage, instant, clock.now_ms) or time.monotonic() > deadline:
            return claim_rollback(storage, instant)
        time.sleep(_DECISION_LOOK_SECONDS)
    return outcome


def _publish_decided(write: PendingWrite, outcome: Outcome) -> InstantTime:
    """Publish what is decided; from here on no failure means that the write did not happen."""
    completed = complete(write.storage, write.config, write.instant, write.action, outcome)
    with suppress(StorageError):  # The next write sweeps up what stays.
        delete_markers(write.storage, write.instant)
    assert completed.completed_at is not None
    return completed.completed_at


def by_partition(stats: Iterable[WriteStat]) -> dict[str, tuple[WriteStat, ...]]:
    """Return the files of a commit by partition path, in order of their paths."""
    grouped: dict[str, list[WriteStat]] = defaultdict(list)
    for stat in sorted(stats, key=lambda s: s.path):
        grouped[stat.partition_path].append(stat)
    return {partition: tuple(held) for partition, held in grouped.items()}


def _require_inflight(write: PendingWrite, timeline: Timeline) -> None:
    found = timeline.find(write.instant)
    if found is None or found.state is State.COMPLETED:
        raise CommitConflictError(
            write.instant, "is no longer on the timeline: another writer rolled it back; retry"
        )


def _mark_partitions(write: PendingWrite, by_partition: Mapping[str, Sequence[WriteStat]]) -> None:
    for partition, stats in by_partition.items():
        if any(stat.previous_commit != NO_PREVIOUS_COMMIT for stat in stats):
            continue  # It was marked by the commit that its file group is of.
        path = partition_marker_path(partition)
        if write.storage.stat(path) is None:
            with suppress(AlreadyExistsError):  # An existing marker is kept, whoever wrote it.
                write.storage.put_if_absent(
                    path, render_partition_metadata(write.instant, partition)
                )
