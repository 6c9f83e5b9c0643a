"""Compaction of the metadata table: log files become base files, so that reads stay cheap.

The base files have the instant ``B`` of the compaction. They hold what completed before ``B``, and
readers apply the log files of later completions to them. So every delta commit that completes
before ``B`` must be in the plan:

- ``B`` takes a turn in the order of commits of the data table. Writers of earlier turns have
  completed by then. Writers of later turns complete after ``B`` (``Turn.floor``).
- Other actions (compactions, cleans, rollbacks, restores) read the last turn after they wrote their
  log files, and also complete after its floor. So the compaction waits only for those that already
  have log files.

The plan is then on the timeline of the metadata table, where Hudi finds it too. An undoing of
commits withdraws it, because the new base files would still have the undone entries; so does a
build of a partition anew. Each of them is known before it looks for plans, and a compaction looks
for them after it put its plan. An outcome in the folder of the metadata table decides between the
compaction and its withdrawal. The next compaction withdraws one whose process died, so none stays
pending.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from bucketlake.errors import AlreadyExistsError, BucketLakeError, CommitConflictError, StorageError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.compaction_plan import encode_compaction_plan
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import commit_schema_json
from bucketlake.metadata.inner_table import inner_table
from bucketlake.metadata.metadata_table import (
    MetadataTable,
    files_of_instants,
    load_metadata_table,
)
from bucketlake.metadata.slices.log_files import is_birth_log
from bucketlake.metadata.slices.rewriter import RewriteStage, SliceRewriter
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import CommitMetadata, WriteStat, by_partition
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.commit_order import Head
from bucketlake.timeline.heartbeat import beating, delete_heartbeat, is_alive
from bucketlake.timeline.instant import UNDOING, WRITES, Action, Instant, State, is_initial
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import Publication, claim_commit, claim_rollback
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.timeline.transitions import (
    create_requested,
    publish_completed,
    remove_pending,
    to_inflight,
)

OPERATION = "COMPACT"
HERE_BYTES_MAX = 64 * 2**20
"""Up to this size of their files, slices are rewritten in the driver, in a few seconds.

50 MB, an index of 4 million keys, took 3.2 processor seconds in the driver and 5.3 in tasks.
"""

DELTA_COMMITS = 10
"""Delta commits after which a compaction is due, as in Hudi."""

Look = Callable[[], Head]
"""Returns the data table as it is after the last turn (``actions/turns.py``)."""

_IN_TURN = WRITES | {Action.CLUSTERING}
_WAIT_SECONDS_MAX = 10.0
_LOOK_SECONDS = 0.05


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
    return _is_due(load_timeline(inner), delta_commits)


def is_due_after_commit(known: Timeline) -> bool:
    """Return whether a compaction is due once one more delta commit is completed.

    Parameters
    ----------
    known : Timeline
        The timeline of the metadata table before that commit. It may be old:
        :func:`compact_metadata` looks again.
    """
    return _is_due(known, DELTA_COMMITS - 1)


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


def compact_metadata(
    table: OpenTable, look: Look, *, delta_commits: int = DELTA_COMMITS, engine: Engine = HERE
) -> InstantTime | None:
    """Compact the metadata table if that is due.

    Parameters
    ----------
    table : OpenTable
        The data table. The compaction reads the list of valid partitions again.
    look : callable
        See :data:`Look`.
    delta_commits : int
        Number of delta commits after which a compaction is due.
    engine : Engine
        Rewrites slices on an engine; by default in this process.

    Returns
    -------
    InstantTime or None
        The completed compaction. None if none is due, or if it has to wait: another process
        compacts, commits are being undone, or an action does not end. The next call tries again.

    Raises
    ------
    CommitConflictError
        If another process withdrew the compaction, or deleted a file that it reads.
    FormatError, UnsupportedFeatureError
        If a file of the metadata table cannot be read.
    InputError
        If a base file would have 2 GiB or more.
    """
    if not is_compaction_due(table, delta_commits):
        return None
    work = _Work(table, inner_table(table))
    with ExitStack() as stack:
        with table.lock.held(table.storage) as require_held:
            plan = work.plan(look, delta_commits)
            if plan is None:
                return None
            require_held()
            if not work.begin(plan, stack):
                return None
        stats = work.rewrite_all(plan, engine)
        with table.lock.held(table.storage) as require_held:
            require_held()
            work.complete(plan.instant, stats)
    return plan.instant


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
            _end(inner, pending)


@dataclass(frozen=True, slots=True)
class _Plan:
    instant: InstantTime
    metadata: MetadataTable
    slices: Sequence[FileSlice]

    @property
    def included(self) -> set[InstantTime]:
        """The instants whose log files are in the plan."""
        return {log.name.instant for planned in self.slices for log in planned.log_files}


@dataclass(frozen=True, slots=True)
class _Work:
    """The steps of a compaction."""

    table: OpenTable
    inner: OpenTable

    def plan(self, look: Look, delta_commits: int) -> _Plan | None:
        """Take a turn, and choose what to compact; None if there is nothing, or to wait."""
        withdraw_compactions(self.table, self._is_dead)
        while True:
            now = look()
            data = now.timeline
            known = load_timeline(self.inner)
            is_busy = known.pending_compactions() or _is_undoing(data)
            if is_busy or not _is_due(known, delta_commits):
                return None
            instant = now.next_instant(after=known.newest_time())
            if now.take(instant):
                break
        metadata = self._settled()
        if metadata is None:
            return None
        slices = _slices_before(metadata, instant)
        return _Plan(instant, metadata, slices) if slices else None

    def begin(self, plan: _Plan, stack: ExitStack) -> bool:
        """Put the plan on the timeline, with a heartbeat; return False if it must not be there."""
        content = encode_compaction_plan(plan.slices)
        inner, instant = self.inner, plan.instant
        try:
            stack.enter_context(beating(inner.storage, instant))
            create_requested(inner, instant, Action.COMPACTION, content)
        except AlreadyExistsError:  # An action of the data table has this time.
            return False
        # What began meanwhile either sees the plan and withdraws it, or is seen here.
        if not self._still_holds(plan):
            _end(inner, Instant(instant, Action.COMPACTION, State.REQUESTED))
            return False
        to_inflight(inner, instant, Action.COMPACTION)
        return True

    def _still_holds(self, plan: _Plan) -> bool:
        """Return whether no commit of a plan is being undone, and no partition is built anew."""
        if _is_undoing(load_timeline(self.table)):
            return False
        valid = read_table_config(self.table.storage).metadata_partitions
        known = load_timeline(self.inner)
        return {planned.partition_path for planned in plan.slices} <= {*valid} and all(
            known.is_completed(included) for included in plan.included
        )

    def rewrite_all(self, plan: _Plan, engine: Engine) -> list[WriteStat]:
        """Write the new base files; a compaction that fails withdraws itself."""
        rewriter = SliceRewriter(plan.metadata, plan.instant)
        sizes = [planned.size_bytes for planned in plan.slices]
        try:
            if engine.in_memory or sum(sizes) <= HERE_BYTES_MAX:
                written = map(rewriter.write, plan.slices)
                return [stat for stat in written if stat is not None]
            return _rewritten_in_tasks(engine, rewriter, plan.slices, sizes)
        except BucketLakeError:
            with suppress(BucketLakeError):  # The next compaction tries again.
                _end(self.inner, Instant(plan.instant, Action.COMPACTION, State.INFLIGHT))
            raise

    def complete(self, instant: InstantTime, stats: Sequence[WriteStat]) -> None:
        """Decide and publish the compaction; raise CommitConflictError if it was withdrawn."""
        rules = self.inner.config.rules
        extra = {"schema": commit_schema_json(has_value_types=rules.has_value_types)}
        commit = CommitMetadata(OPERATION, by_partition(stats), extra, compacted=True)
        completed_at = self.table.clock.next_instant(load_timeline(self.table), after=instant)
        content = encode_commit_metadata(commit, self.inner.config.layout)
        publication = Publication(completed_at, Action.COMMIT, content)
        outcome = claim_commit(self.inner.storage, instant, publication)
        if outcome.publication is None:
            for stat in stats:
                self.inner.storage.delete(stat.path)
            problem = "another process withdrew this compaction of the metadata table"
            raise CommitConflictError(instant, problem)
        publish_completed(
            self.inner, Instant(instant, Action.COMPACTION, State.INFLIGHT), outcome.publication
        )

    def _is_dead(self, instant: InstantTime) -> bool:
        return not is_alive(self.inner.storage, instant, self.table.clock.now_ms)

    def _settled(self) -> MetadataTable | None:
        """Wait for actions that may complete before the turn; None if one of them does not end.

        Only the actions that have log files at the first look are waited for.
        """
        deadline = time.monotonic() + _WAIT_SECONDS_MAX
        waiting: set[InstantTime] | None = None
        # Read again: a build may have taken a partition off.
        table = self.table.with_config(read_table_config(self.table.storage))
        while True:
            data = load_timeline(table)
            metadata = load_metadata_table(table, data)
            known = {i.requested_at: i.state for i in metadata.timeline.instants}
            # A write that waits for its turn completes later. It is completed here, and not in the
            # data table, for a moment, or if a Hudi writer died.
            pending = {
                action.requested_at
                for action in data.pending()
                if action.requested_at in known
                and (action.action not in _IN_TURN or known[action.requested_at] is State.COMPLETED)
            }
            waiting = pending if waiting is None else waiting & pending
            if not waiting:
                return metadata
            if time.monotonic() > deadline:
                return None
            time.sleep(_LOOK_SECONDS)


def _rewritten_in_tasks(
    engine: Engine,
    rewriter: SliceRewriter,
    slices: Sequence[FileSlice],
    sizes: Sequence[int],
) -> list[WriteStat]:
    try:
        stats: list[WriteStat] = engine.start(RewriteStage(rewriter), slices, sizes).results()
    except BucketLakeError:
        raise
    except Exception as error:  # The commit before the compaction is complete, and must not fail.
        folder, doing = rewriter.table.storage.folder, "compact in tasks"
        raise StorageError(folder, doing, str(error)) from error
    return stats


def _is_due(known: Timeline, delta_commits: int) -> bool:
    return len(updates_since_compaction(known)) >= delta_commits


def _is_undoing(data: Timeline) -> bool:
    return any(pending.action in UNDOING for pending in data.pending())


def _slices_before(metadata: MetadataTable, instant: InstantTime) -> list[FileSlice]:
    """Return the slices with log files that completed before an instant, with these log files."""
    maintained = {partition.value for partition in MetadataPartition}
    planned = []
    for name in metadata.partitions:
        if name not in maintained:
            continue  # Hudi compacts the partitions of other indexes.
        for held in metadata.slices(name):
            logs = tuple(
                log
                for log in held.log_files
                if (metadata.completion_time(log.name.instant) or log.name.instant) < instant
            )
            if any(not is_birth_log(log.name) for log in logs):
                planned.append(FileSlice.of_files(name, held.file_id, held.base_file, logs))
    return planned


def _end(inner: OpenTable, pending: Instant) -> None:
    """Withdraw a pending compaction and delete its files, or complete it if that is decided."""
    instant = pending.requested_at
    outcome = claim_rollback(inner.storage, instant)
    if outcome.publication is not None:
        inflight = Instant(instant, pending.action, State.INFLIGHT)
        publish_completed(inner, inflight, outcome.publication)
    else:
        for file in files_of_instants(inner.storage, {instant}):
            inner.storage.delete(file.path)
        remove_pending(inner, instant, pending.action)
    delete_heartbeat(inner.storage, instant)
