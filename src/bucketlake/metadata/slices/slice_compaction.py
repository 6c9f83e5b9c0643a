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
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from bucketlake.errors import AlreadyExistsError, BucketLakeError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.compaction_plan import encode_compaction_plan
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.inner_table import inner_table
from bucketlake.metadata.metadata_table import MetadataTable, load_metadata_table
from bucketlake.metadata.slices.compaction_state import (
    DELTA_COMMITS,
    IN_TURN,
    Look,
    decide_compaction,
    end_compaction,
    is_compaction_due,
    is_due,
    is_undoing,
    withdraw_compactions,
)
from bucketlake.metadata.slices.log_files import is_birth_log
from bucketlake.metadata.slices.new_slices import make_new_slices
from bucketlake.metadata.slices.rewriter import SliceRewriter, rewrite_slices
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.heartbeat import beating, is_alive
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.timeline.transitions import create_requested, to_inflight

_WAIT_SECONDS_MAX = 10.0
_LOOK_SECONDS = 0.05


def compact_metadata(
    table: OpenTable, look: Look, *, delta_commits: int = DELTA_COMMITS, engine: Engine = HERE
) -> InstantTime | None:
    """Compact the metadata table if that is due.

    Parameters
    ----------
    table : OpenTable
        The data table. The compaction reads the list of valid partitions again.
    look : callable
        See ``Look``.
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
    if table.config.layout.logs_name_slices:
        return make_new_slices(table, look, delta_commits=delta_commits, engine=engine)
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
            is_busy = known.pending_compactions() or is_undoing(data)
            if is_busy or not is_due(known, delta_commits):
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
            end_compaction(inner, Instant(instant, Action.COMPACTION, State.REQUESTED))
            return False
        to_inflight(inner, instant, Action.COMPACTION)
        return True

    def _still_holds(self, plan: _Plan) -> bool:
        """Return whether no commit of a plan is being undone, and no partition is built anew."""
        if is_undoing(load_timeline(self.table)):
            return False
        valid = read_table_config(self.table.storage).metadata_partitions
        known = load_timeline(self.inner)
        return {planned.partition_path for planned in plan.slices} <= {*valid} and all(
            known.is_completed(included) for included in plan.included
        )

    def rewrite_all(self, plan: _Plan, engine: Engine) -> list[WriteStat]:
        """Write the new base files; a compaction that fails withdraws itself."""
        rewriter = SliceRewriter(plan.metadata, plan.instant)
        try:
            return rewrite_slices(rewriter, plan.slices, engine)
        except BucketLakeError:
            with suppress(BucketLakeError):  # The next compaction tries again.
                end_compaction(self.inner, Instant(plan.instant, Action.COMPACTION, State.INFLIGHT))
            raise

    def complete(self, instant: InstantTime, stats: Sequence[WriteStat]) -> None:
        """Decide and publish the compaction; raise CommitConflictError if it was withdrawn."""
        completed_at = self.table.clock.next_instant(load_timeline(self.table), after=instant)
        decide_compaction(self.inner, instant, completed_at, stats)

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
                and (action.action not in IN_TURN or known[action.requested_at] is State.COMPLETED)
            }
            waiting = pending if waiting is None else waiting & pending
            if not waiting:
                return metadata
            if time.monotonic() > deadline:
                return None
            time.sleep(_LOOK_SECONDS)


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
