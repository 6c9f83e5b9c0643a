"""Begin and commit a write.

A write that appends blindly first waits for those that began before it (``actions/conflict.py``).
The steps of a commit, in order:

1. Check: the inflight instant is still there, no other commit touched the same buckets since the
   table was pinned, and the checks of the :class:`CommitPlan` pass.
2. Save: partition markers of new partitions, what the plan saves beside the commit, and the log
   files of the metadata table (``actions/metadata_upkeep.py``).
3. Take the next turn in the order of commits. If another writer took it, begin again at 1.
4. Win the outcome of the instant.
5. Complete the instant (``actions/completion.py``) under the completion time that the outcome
   names.
6. Delete the markers; compact and clean the metadata table if that is due.

A crash at any step leaves the table as it was before or as it is after, and the next write finishes
the job (``actions/recovery.py``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from bucketlake.actions.cleaner import end_dead_cleans
from bucketlake.actions.conflict import (
    Commits,
    commits_since,
    require_kept,
    require_no_conflict,
    require_no_undoing,
    require_not_converted,
    require_not_in_savepoint,
    wait_for_earlier,
)
from bucketlake.actions.log_copies import LogCopyFile, log_copies, make_log_copies
from bucketlake.actions.metadata_compaction import clean_metadata, compact_metadata
from bucketlake.actions.metadata_upkeep import prepare_commit
from bucketlake.actions.pending import begin_instant
from bucketlake.actions.stream_batches import carried_on
from bucketlake.actions.tombstone_list import NO_TOMBSTONES, NewTombstones, carried_tombstones
from bucketlake.actions.transact import Decision, Ready, commit_change
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import (
    BucketLakeError,
    ClockWarning,
    CommitConflictError,
    ServiceWarning,
)
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.properties import partition_marker_path, render_partition_metadata
from bucketlake.index.conflict_keys import (
    ConflictKey,
    ConflictKeys,
    key_of_group,
    looked_at_metadata,
)
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.position import UNKNOWN_ORIGIN, Origin
from bucketlake.model.table_type import Operation, TableType
from bucketlake.model.write_stat import CommitMetadata, WriteStat, by_partition
from bucketlake.read.clean_guard import was_cleaned
from bucketlake.storage.base import put_all_if_absent
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.commit_order import Head, Turn
from bucketlake.timeline.instant import Action, Instant, State, told_future
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.transitions import to_inflight


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write between its inflight instant and its commit.

    Attributes
    ----------
    table : OpenTable
        Its lock is held while the write checks for conflicts and publishes.
    instant : InstantTime
        Requested time.
    operation : Operation
        Operation of the write.
    pinned : Timeline
        The timeline that the write was planned with.
    begun : Timeline
        The timeline, loaded after the write was put on it.
    appended : set of ConflictKey
        Slots to which the write appends blindly, as its heartbeat says.
    """

    table: OpenTable
    instant: InstantTime
    operation: Operation
    pinned: Timeline
    begun: Timeline
    appended: ConflictKeys = frozenset()

    @property
    def action(self) -> Action:
        """Action on the timeline."""
        return _action(self.table.config, self.operation)


@dataclass(frozen=True, slots=True)
class CommitView:
    """The state of the table right before a write commits.

    Attributes
    ----------
    write : PendingWrite
        The write to commit.
    timeline : Timeline
        The newest timeline.
    since : sequence of (InstantTime, CommitMetadata)
        Commits of other writers since the write pinned the table.
    turn : Turn or None
        The turn after which the write takes its own.
    """

    write: PendingWrite
    timeline: Timeline
    since: Commits
    turn: Turn | None


CommitStep = Callable[[CommitView], None]
"""A check, which raises CommitConflictError if it fails, or a function that saves something."""


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What a write commits: its files, its checks, and its metadata.

    A write loads the timeline again for each turn that it tries to take. Each time the checks run
    in order, then the saves.

    Attributes
    ----------
    stats : sequence of WriteStat
        The files that the tasks wrote.
    replaced : mapping of partition path to file ids
        File groups that this commit removes from the table.
    looked_at : set of ConflictKey
        Slots that the write depends on, also without writing them: a delete may look in a slot for
        a key that is not there.
    checks : tuple of callables
        Checks beyond those for all writes; each raises CommitConflictError.
    saves : tuple of callables
        Each saves something beside the commit that is valid once the commit is completed, and may
        be called several times.
    extra : mapping of str to str
        Extra metadata of the commit.
    origin : Origin
        The batch of a stream that this commit writes, and the position in a source.
    index_files : sequence of WriteStat or None
        Log files of the record index that the tasks wrote; None if they wrote none, because they
        do not know which keys are new.
    served : mapping of InstantTime to set of ConflictKey
        Resizes that the write serves: their commits are no conflict. Once one is completed, other
        writes touch the keys in place of those of the write (``Layout.served_resizes``).
    group_key : callable
        The conflict key of a file group (``Layout.conflict_key_of_group``).
    tombstones : NewTombstones
        What the commit changes in the list of remembered deletes.
    appends : bool
        Whether the write has read no row, and all its files are log files of file groups that
        were there: log files of commits that were requested before it are no conflict.
    """

    stats: Sequence[WriteStat] = ()
    replaced: Mapping[str, tuple[FileId, ...]] = field(default_factory=dict)
    looked_at: ConflictKeys = frozenset()
    checks: tuple[CommitStep, ...] = ()
    saves: tuple[CommitStep, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    origin: Origin = UNKNOWN_ORIGIN
    index_files: Sequence[WriteStat] | None = None
    served: Mapping[InstantTime, ConflictKeys] = field(default_factory=dict)
    group_key: Callable[[str, FileId], ConflictKey] = key_of_group
    tombstones: NewTombstones = NO_TOMBSTONES
    appends: bool = False

    @property
    def touched(self) -> ConflictKeys:
        """The conflict keys of the file groups that the write wrote or removed."""
        written = {stat.group for stat in self.stats}
        replaced = {(path, file_id) for path, ids in self.replaced.items() for file_id in ids}
        return {self.group_key(path, file_id) for path, file_id in written | replaced}


def _action(config: TableConfig, operation: Operation) -> Action:
    if operation.replaces:
        return Action.REPLACE_COMMIT
    is_merged = config.table_type is TableType.MERGE_ON_READ
    return Action.DELTA_COMMIT if is_merged else Action.COMMIT


@contextmanager
def begin_write(
    table: OpenTable,
    timeline: Timeline,
    operation: Operation,
    appended: ConflictKeys = frozenset(),
) -> Iterator[PendingWrite]:
    """Put a write on the timeline as inflight, and renew its heartbeat while the body runs."""
    action = _action(table.config, operation)
    with begin_instant(table, timeline, action, appended=appended) as (instant, begun):
        to_inflight(table, instant, action)
        future = table.clock.future_of(begun)
        if instant in future:
            warnings.warn(
                f"table {table.storage.root}: the write gets instant {instant}, after the greatest "
                f"time of the table; {told_future(future)}. table.doctor() (bucketlake doctor) "
                "says what to do",
                ClockWarning,
                stacklevel=2,
            )
        yield PendingWrite(table, instant, operation, timeline, begun, appended)


def commit_write(write: PendingWrite, plan: CommitPlan, engine: Engine = HERE) -> InstantTime:
    """Publish a write; return its completion time.

    Parameters
    ----------
    write : PendingWrite
        From :func:`begin_write`.
    plan : CommitPlan
        What to commit.
    engine : Engine
        Rewrites slices of the metadata table, if their compaction is due.

    Raises
    ------
    CommitConflictError
        If the write was rolled back, another commit touched one of its buckets since it began, or
        a check of the plan fails.
    CommitOutcomeUnknownError
        If storage failed while the outcome was claimed or the commit was published.
    """
    wait_for_earlier(write.table, write.instant, write.appended)
    with write.table.lock.held(write.table.storage) as require_held:
        done = commit_change(
            write.table, partial(_prepared, write, plan), require_held, own=write.instant
        )
    assert done is not None, "the change of a write never settles"
    if done.decision.is_compaction_next:
        _serve_metadata_table(write, done.head.timeline, engine)
    return done.completed_at


def _prepared(write: PendingWrite, plan: CommitPlan, now: Head) -> Ready[Decision]:
    """Check and save what a write commits.

    Checks come before the turn, because other writers wait between a turn and its decision.
    """
    table, instant, timeline = write.table, write.instant, now.timeline
    timeline.recall(write.pinned)
    view = _checked(write, plan, now)
    _mark_partitions(write, by_partition(plan.stats))
    for check in plan.checks:
        check(view)
    for save in plan.saves:
        save(view)
    copies = log_copies(table.storage, timeline, instant, plan.stats)
    commit = _metadata(view, plan, copies)
    sources = {copy.stat.path: copy.source for copy in copies}
    decision = Decision(
        Instant(instant, write.action, State.INFLIGHT),
        encode_commit_metadata(commit, table.config.layout),
        prepare_commit(now, instant, commit, plan.index_files, sources),
        # Made between the turn and the decision: no resize can complete meanwhile.
        between=partial(make_log_copies, table, instant, copies),
    )
    return Ready(instant, decision)


def _checked(write: PendingWrite, plan: CommitPlan, now: Head) -> CommitView:
    """Run the checks of every write; return the state that they saw."""
    timeline = now.timeline
    _require_inflight(write, timeline)
    if now.turn is not None and now.turn.metadata_instant == write.instant:
        raise CommitConflictError(
            write.instant, "a build of the metadata table has the same instant; write again"
        )
    # A rollback or restore takes a turn after its plan: this check sees it, or our turn fails.
    require_no_undoing(write.instant, timeline)
    require_not_in_savepoint(write.instant, timeline)
    require_kept(write.table, write.instant, write.pinned, timeline)
    since = commits_since(write.table, write.pinned, timeline)
    require_not_converted(write.instant, since)
    cleaned = any(commit.compacted for _, commit in since) and was_cleaned(
        write.table, write.pinned, timeline
    )
    others = [(instant, commit) for instant, commit in since if instant not in plan.served]
    touched = {*plan.touched, *plan.looked_at, *_taken_over(plan, timeline)}
    require_no_conflict(
        write.instant,
        touched,
        others,
        cleaned=cleaned,
        appends=plan.appends,
        group_key=plan.group_key,
    )
    return CommitView(write, timeline, since, now.turn)


def _taken_over(plan: CommitPlan, timeline: Timeline) -> Iterator[ConflictKey]:
    """Yield the keys that other writes touch since a resize that the write serves completed."""
    for resize, keys in plan.served.items():
        if timeline.find_completed(resize) is not None:
            yield from keys


def _metadata(view: CommitView, plan: CommitPlan, copies: Sequence[LogCopyFile]) -> CommitMetadata:
    write = view.write
    extra = {
        **plan.extra,
        **carried_on(write.table, view.timeline, write.instant, plan.origin, write.pinned),
        **carried_tombstones(write.table, view.timeline, plan.tombstones),
        **looked_at_metadata(plan.looked_at - plan.touched),
    }
    stats = [*plan.stats, *(copy.stat for copy in copies)]
    return CommitMetadata(write.operation.value, by_partition(stats), extra, dict(plan.replaced))


def _serve_metadata_table(write: PendingWrite, timeline: Timeline, engine: Engine) -> None:
    """Compact and clean the metadata table; a failure does not undo the commit.

    ``timeline`` is that of the table right before the commit.
    """
    table = write.table
    try:
        if timeline.pending_cleans():
            end_dead_cleans(table)
        compact_metadata(table, engine=engine)
        clean_metadata(table)
    except BucketLakeError as error:
        warnings.warn(
            f"the commit {write.instant} is completed, but a compaction or clean of the metadata "
            f"table after it failed: {error}; the next write tries again",
            ServiceWarning,
            stacklevel=2,
        )


def _require_inflight(write: PendingWrite, timeline: Timeline) -> None:
    found = timeline.find(write.instant)
    if found is None or found.state is State.COMPLETED:
        raise CommitConflictError(
            write.instant, "is no longer on the timeline: another writer rolled it back; retry"
        )


def _mark_partitions(write: PendingWrite, by_partition: Mapping[str, Sequence[WriteStat]]) -> None:
    # The commit that opened another file group marked the partition. An existing marker is kept.
    marked = [
        (partition_marker_path(partition), render_partition_metadata(write.instant, partition))
        for partition, stats in by_partition.items()
        if all(stat.opens_group for stat in stats)
    ]
    put_all_if_absent(write.table.storage, marked)
