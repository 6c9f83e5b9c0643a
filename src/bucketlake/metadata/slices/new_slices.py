"""Compaction of the metadata table in timeline layout 1, where log files name their slices.

There a reader reads the log files that name the newest base file. So a compaction must not miss a
log file that an action adds to the old slice meanwhile. As in Hudi, the new base files have the
instant ``B``, right after the last delta commit before all pending instants of the data table, and
hold all commits before it. The steps:

1. Base files are written; nobody looks at them, since ``B`` is on no timeline.
2. The plan is put on the timeline of the metadata table, as inflight. Who writes log files after
   that waits for the end of the compaction (``settle_compactions``).
3. What was committed since is repeated: each log file that has commits after ``B``, or commits that
   completed since step 1, is copied into the new slice.
4. The compaction takes a turn in the order of commits. So no commit was decided since its look, and
   a commit that lost this turn writes its log files again.
5. The compaction is decided and published.

Actions that take no turn put their instant on the timeline of the metadata table before they look
for plans, and a compaction puts its plan before it looks for them. So one of both sees the other:
if it is the compaction, it takes its plan back and waits. Steps 2 to 5 take a moment; the lock of
the table is held meanwhile. What fails leaves files that count nowhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from bucketlake.config.paths_of_table import HEARTBEAT_FOLDER
from bucketlake.errors import AlreadyExistsError, BucketLakeError
from bucketlake.flow.stage import Engine
from bucketlake.format.compaction_plan import encode_compaction_plan
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.inner_table import inner_table
from bucketlake.metadata.metadata_table import (
    MetadataTable,
    block_instants,
    files_of_instants,
    load_metadata_table,
)
from bucketlake.metadata.slices.compaction_state import (
    IN_TURN,
    Look,
    decide_compaction,
    is_undoing,
    last_compaction,
    settle_compactions,
    updates_since_compaction,
)
from bucketlake.metadata.slices.log_files import COPY_TOKEN, is_birth_log
from bucketlake.metadata.slices.own_logs import files_of_action
from bucketlake.metadata.slices.rewriter import SliceRewriter, rewrite_slices
from bucketlake.model.file_name import InstantTime, LogFileName, file_path
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.commit_order import last_turn
from bucketlake.timeline.heartbeat import beating, is_alive
from bucketlake.timeline.instant import Action, Instant, State, instant_from_ms, is_initial
from bucketlake.timeline.locks import Check
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import read_outcome
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.timeline.transitions import instant_path, remove_pending

_SUFFIX = "001"  # Hudi makes the instant of a compaction of the last delta commit and these digits.
_ATTEMPTS = 40
_LOOK_SECONDS = 0.05
_DEAD_AFTER_MS = 60_000


def make_new_slices(
    table: OpenTable, look: Look, *, delta_commits: int, engine: Engine
) -> InstantTime | None:
    """Compact the metadata table; see ``compact_metadata`` for parameters, result and errors."""
    plan = _planned(table, delta_commits)
    if plan is None:
        return None
    work = _Work(table, inner_table(table), look, plan)
    with ExitStack() as stack:
        try:
            stack.enter_context(beating(work.inner.storage, plan.instant))
        except AlreadyExistsError:
            return None  # Another process compacts.
        try:
            done = work.write_base_files(engine)
        except BucketLakeError:
            with suppress(BucketLakeError):  # The next clean deletes the rest.
                work.delete_files()
            raise
        # If this fails, the next action ends the compaction.
        with table.lock.held(table.storage) as require_held:
            is_published = bool(done) and work.publish(done, require_held)
        if not is_published:
            work.delete_files()
    return plan.instant if is_published else None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a compaction merges.

    Attributes
    ----------
    instant : InstantTime
        The instant ``B``.
    last : InstantTime
        The last delta commit before it.
    included : set of InstantTime
        The delta commits since the last compaction that the base files hold.
    merged : MetadataTable
        The metadata table without later commits.
    """

    instant: InstantTime
    last: InstantTime
    included: frozenset[InstantTime]
    merged: MetadataTable

    def slices(self) -> list[FileSlice]:
        """Return the slices with log files; not all of them may have commits before ``B``."""
        maintained = {partition.value for partition in MetadataPartition}
        return [
            held
            for name in self.merged.partitions
            if name in maintained
            for held in self.merged.slices(name)
            if any(not is_birth_log(log.name) for log in held.log_files)
        ]


@dataclass(frozen=True, slots=True)
class _Made:
    """A new base file, and the slice that it holds."""

    held: FileSlice
    stat: WriteStat


def _planned(table: OpenTable, delta_commits: int) -> _Plan | None:
    """Return what can be compacted now; None if that is not enough, or the instant was used."""
    inner = inner_table(table)
    settle_compactions(table)
    table = table.with_config(read_table_config(table.storage))
    data = load_timeline(table)
    metadata = load_metadata_table(table, data)
    if _take_back_dead(table, metadata):
        metadata = load_metadata_table(table, data)
    known = metadata.timeline
    pending = min((i.requested_at for i in data.pending_changes()), default=None)
    updates = [
        update.requested_at
        for update in updates_since_compaction(known)
        if pending is None or update.requested_at < pending
    ]
    if len(updates) < max(1, delta_commits) or is_undoing(data) or _undecided(metadata):
        return None
    last = max(updates)
    instant = InstantTime(last + _SUFFIX)
    if (
        any(found.requested_at == instant for found in known.instants)
        or read_outcome(inner.storage, instant) is not None
    ):
        return None
    assert instant > (last_compaction(known) or ""), instant
    instants = tuple(found for found in data.instants if found.requested_at < instant)
    until = replace(data, instants=instants, until=instant, newest_written_ms=None)
    merged = replace(metadata, data_timeline=until)
    return _Plan(instant, last, frozenset(updates), merged)


@dataclass(frozen=True, slots=True)
class _Work:
    """The steps of a compaction."""

    table: OpenTable
    inner: OpenTable
    look: Look
    plan: _Plan

    def write_base_files(self, engine: Engine) -> list[_Made]:
        """Write the new base files; slices whose log files change nothing get none."""
        instant, slices = self.plan.instant, self.plan.slices()
        rewriter = SliceRewriter(self.plan.merged, instant, f"{HEARTBEAT_FOLDER}/{instant}")
        stats = rewrite_slices(rewriter, slices, engine)
        by_group = {(held.partition_path, held.file_id): held for held in slices}
        return [_Made(by_group[stat.partition_path, stat.file_id], stat) for stat in stats]

    def publish(self, made: Sequence[_Made], require_held: Check) -> bool:
        """Publish the new slices; return False if that is not possible now."""
        slices = [done.held for done in made]
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_LOOK_SECONDS)
            now = self.look()
            if not self._put_plan(slices):
                break
            metadata = self._unchanged(slices)
            if metadata is None:
                break
            if _undecided(metadata):
                self._take_plan_back()
                continue
            if not self._repeat_later_logs(metadata, slices):
                break
            require_held()
            if now.take(self.plan.last):
                instant = self.plan.instant
                decide_compaction(self.inner, instant, instant, [done.stat for done in made])
                return True
            self._take_plan_back()
        self._take_plan_back()
        return False

    def delete_files(self) -> None:
        """Delete what was written; the plan is on no timeline."""
        for file in files_of_instants(self.inner.storage, {self.plan.instant}):
            self.inner.storage.delete(file.path)

    def _put_plan(self, slices: Sequence[FileSlice]) -> bool:
        """Put the plan on the timeline; return False if another process has ended it."""
        content = encode_compaction_plan(slices)
        for state, data in ((State.REQUESTED, content), (State.INFLIGHT, b"")):
            with suppress(AlreadyExistsError):  # Another process does not use this instant.
                self.inner.storage.put_if_absent(self._path(state), data)
        return read_outcome(self.inner.storage, self.plan.instant) is None

    def _take_plan_back(self) -> None:
        remove_pending(self.inner, self.plan.instant, Action.COMPACTION)

    def _path(self, state: State) -> str:
        pending = Instant(self.plan.instant, Action.COMPACTION, state)
        return instant_path(self.inner.config, pending)

    def _unchanged(self, slices: Sequence[FileSlice]) -> MetadataTable | None:
        """Return the metadata table of now; None if the base files do not fit it any more."""
        table = self.table.with_config(read_table_config(self.table.storage))
        data = load_timeline(table)
        if is_undoing(data):
            return None
        names = {held.partition_path for held in slices}
        if not names <= {*table.config.metadata_partitions}:
            return None
        metadata = load_metadata_table(table, data)
        known = metadata.timeline
        if any(known.find_completed(included) is None for included in self.plan.included):
            return None
        now = {(s.partition_path, s.file_id): s for name in names for s in metadata.slices(name)}
        for held in slices:
            found = now.get((held.partition_path, held.file_id))
            if found is None or found.instant != held.instant:
                return None
        return metadata

    def _repeat_later_logs(self, metadata: MetadataTable, slices: Sequence[FileSlice]) -> bool:
        """Copy the log files that the base files do not include; return False if that cannot be.

        Hudi may append the blocks of several commits to one file (HDFS), some of which are
        included.
        """
        instant, merged, storage = self.plan.instant, self.plan.merged, metadata.storage
        for held in slices:
            number = 0
            for log in self._logs(metadata, held):
                counted = {at for at in block_instants(storage, log) if metadata.counts(at)}
                later = {at for at in counted if not merged.counts(at)}
                if not later:
                    continue
                if later != counted:
                    return False
                number += 1
                name = LogFileName(held.file_id, instant, number, COPY_TOKEN).to_file_name()
                storage.put(file_path(held.partition_path, name), storage.read(log.path))
        return True

    def _logs(self, metadata: MetadataTable, held: FileSlice) -> list[DataFile]:
        """Return the log files of a slice, without those of the new slice."""
        slices = {found.file_id: found for found in metadata.slices(held.partition_path)}
        logs = slices[held.file_id].log_files
        return [log for log in logs if log.name.instant != self.plan.instant]


def _undecided(metadata: MetadataTable) -> bool:
    """Return whether an action without a turn may be decided with the log files that it wrote.

    So may one be that is completed here, and not in the data table yet. A write that has not taken
    its turn writes its log files again.
    """
    data, known = metadata.data_timeline, metadata.timeline
    in_turn = {found.requested_at for found in data.pending() if found.action in IN_TURN}
    decided = {i.requested_at for i in data.pending_changes() if known.is_completed(i.requested_at)}
    return bool({*_updating(metadata)} - in_turn or decided)


def _updating(metadata: MetadataTable) -> Iterator[InstantTime]:
    """Yield the pending delta commits of actions; a build adds nothing to valid partitions."""
    turn = last_turn(metadata.storage.outer)
    build = None if turn is None else turn.metadata_instant
    for found in metadata.timeline.pending():
        at = found.requested_at
        if found.action is Action.DELTA_COMMIT and not is_initial(at) and at != build:
            yield at


def _take_back_dead(table: OpenTable, metadata: MetadataTable) -> bool:
    """Take back log files of actions that the data table does not have, and that died.

    Return whether there was one. Such an action is completed a moment after it wrote them
    (``record_deletion``); after this it cannot be completed any more.
    """
    there = {found.requested_at for found in metadata.data_timeline.instants}
    before = instant_from_ms(table.clock.now_ms() - _DEAD_AFTER_MS, table.config.timeline_timezone)
    inner, now_ms = inner_table(table), table.clock.now_ms
    found = False
    for at in [*_updating(metadata)]:
        is_foreign = len(at) != len(before)  # Hudi adds digits to the times of its own services.
        if is_foreign or at in there or at >= before or is_alive(table.storage, at, now_ms):
            continue
        found = True
        remove_pending(inner, at, Action.DELTA_COMMIT)
        for file in files_of_action(inner, at):
            inner.storage.delete(file.path)
    return found
