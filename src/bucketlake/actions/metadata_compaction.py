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

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

from bucketlake.actions.metadata_withdrawal import (
    DELTA_COMMITS,
    decide_compaction,
    end_compaction,
    is_compaction_due,
    settle_compactions,
    withdraw_compactions,
)
from bucketlake.actions.transact import AGAIN, Answer, Ready, Settled, transact
from bucketlake.config.paths_of_table import HEARTBEAT_FOLDER, MARKER_FOLDER
from bucketlake.errors import AlreadyExistsError, BucketLakeError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.clustering_plan import encode_compaction_plan
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.contents import last_compaction, updates_since_compaction
from bucketlake.metadata.log_files import COPY_TOKEN, is_birth_log
from bucketlake.metadata.metadata_table import (
    MetadataTable,
    block_instants,
    files_of_instants,
    inner_table,
    list_all_files,
    load_metadata_table,
)
from bucketlake.metadata.own_logs import files_of_action, is_own
from bucketlake.metadata.rewrite import SliceRewriter, rewrite_slices
from bucketlake.model.file_name import BaseFileName, InstantTime, LogFileName, file_path
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.retention import ArchivalLimits
from bucketlake.model.write_stat import WriteStat
from bucketlake.slices.file_system_view import FileVersion
from bucketlake.storage.base import at_once
from bucketlake.storage.waiting import looks, pause
from bucketlake.timeline.active import Timeline, load_timeline, planned_paths
from bucketlake.timeline.archive_writer import Stops, move_oldest, oldest_instants
from bucketlake.timeline.commit_order import Head, last_turn
from bucketlake.timeline.heartbeat import beating, is_alive
from bucketlake.timeline.instant import IN_TURN, Action, Instant, State, instant_from_ms, is_initial
from bucketlake.timeline.locks import LockCheck
from bucketlake.timeline.markers import delete_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import claim_rollback, read_outcome
from bucketlake.timeline.table_properties import reopened
from bucketlake.timeline.transitions import (
    create_requested,
    instant_path,
    put_pending,
    remove_pending,
    to_inflight,
)

_WAIT_SECONDS_MAX = 10.0


def compact_metadata(
    table: OpenTable, *, delta_commits: int = DELTA_COMMITS, engine: Engine = HERE
) -> InstantTime | None:
    """Compact the metadata table if that is due.

    Parameters
    ----------
    table : OpenTable
        The data table. The compaction reads the list of valid partitions again.
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
        return _make_new_slices(table, delta_commits=delta_commits, engine=engine)
    inner = inner_table(table)
    with ExitStack() as stack:
        with table.lock.held(table.storage) as require_held:
            plan = _planned_after_turn(table, inner, delta_commits)
            if plan is None:
                return None
            require_held()
            if not _begun(table, inner, plan, stack):
                return None
        inflight = Instant(plan.instant, Action.COMPACTION, State.INFLIGHT)
        rewriter = SliceRewriter(plan.metadata, plan.instant, instant_path(inner.config, inflight))
        try:
            stats = rewrite_slices(rewriter, plan.slices, engine)
        except BucketLakeError:
            with suppress(BucketLakeError):  # The next compaction tries again.
                end_compaction(inner, inflight)
            raise
        with table.lock.held(table.storage) as require_held:
            require_held()
            completed_at = table.clock.next_instant(load_timeline(table), after=plan.instant)
            decide_compaction(inner, plan.instant, completed_at, stats)
    return plan.instant


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a compaction merges.

    Attributes
    ----------
    instant : InstantTime
        The instant ``B``.
    metadata : MetadataTable
        The metadata table, without commits that the base files do not include.
    slices : sequence of FileSlice
        The slices, with the log files that are merged.
    included : set of InstantTime
        Delta commits that the base files include; none of them is older than the timeline.
    """

    instant: InstantTime
    metadata: MetadataTable
    slices: Sequence[FileSlice]
    included: frozenset[InstantTime]


def _metadata_of_now(table: OpenTable) -> MetadataTable:
    """Load the metadata table with the properties of now; a build may have changed them."""
    return load_metadata_table(reopened(table), load_timeline(table))


def _unchanged(table: OpenTable, plan: _Plan) -> MetadataTable | None:
    """Return the metadata table of now; None if a commit is undone, or a partition built anew."""
    table = reopened(table)
    data = load_timeline(table)
    names = {planned.partition_path for planned in plan.slices}
    if data.is_undoing or not names <= {*table.config.metadata_partitions}:
        return None
    metadata = load_metadata_table(table, data)
    return metadata if all(map(metadata.timeline.find_completed, plan.included)) else None


def slices_to_merge(
    metadata: MetadataTable, is_merged: Callable[[DataFile], bool] = lambda _: True
) -> list[FileSlice]:
    """Return the slices with log files that bring entries, with those of them that are merged.

    Hudi compacts the partitions of other indexes.
    """
    maintained = {partition.value for partition in MetadataPartition}
    slices = []
    for name in (name for name in metadata.partitions if name in maintained):
        for live in metadata.slices(name):
            logs = tuple(filter(is_merged, live.log_files))
            if not all(is_birth_log(log.name) for log in logs):
                slices.append(FileSlice.of_files(name, live.file_id, live.base_file, logs))
    return slices


def _planned_after_turn(table: OpenTable, inner: OpenTable, delta_commits: int) -> _Plan | None:
    """Take a turn, and choose what to compact; None if there is nothing, or to wait."""
    storage, now_ms = inner.storage, table.clock.now_ms
    withdraw_compactions(table, lambda at: not is_alive(storage, at, now_ms))

    def change(now: Head) -> Answer[InstantTime | None]:
        known = load_timeline(inner)
        is_busy = known.pending_compactions() or now.timeline.is_undoing
        if is_busy or len(updates_since_compaction(known)) < delta_commits:
            return Settled(None)
        instant = now.next_instant(after=known.newest_time())
        return Ready(instant, instant)

    instant = transact(table, change).value
    metadata = None if instant is None else _settled(table)
    if instant is None or metadata is None:
        return None
    slices = slices_to_merge(metadata, lambda log: metadata.time_of(log) < instant)
    merged = {log.name.instant for planned in slices for log in planned.log_files}
    included = frozenset(filter(metadata.timeline.find_completed, merged))
    return _Plan(instant, metadata, slices, included) if slices else None


def _begun(table: OpenTable, inner: OpenTable, plan: _Plan, stack: ExitStack) -> bool:
    """Put the plan on the timeline, with a heartbeat; return False if it must not be there."""
    content, instant = encode_compaction_plan(plan.slices), plan.instant
    try:
        stack.enter_context(beating(inner.storage, instant))
        create_requested(inner, instant, Action.COMPACTION, content)
    except AlreadyExistsError:  # An action of the data table has this time.
        return False
    # What began meanwhile either sees the plan and withdraws it, or is seen here.
    if _unchanged(table, plan) is None:
        end_compaction(inner, Instant(instant, Action.COMPACTION, State.REQUESTED))
        return False
    to_inflight(inner, instant, Action.COMPACTION)
    return True


def _settled(table: OpenTable) -> MetadataTable | None:
    """Wait for actions that may complete before the turn; None if one of them does not end.

    Only the actions that have log files at the first look are waited for.
    """
    waiting: set[InstantTime] | None = None
    for _ in looks(_WAIT_SECONDS_MAX):
        metadata = _metadata_of_now(table)
        known = {i.requested_at: i.state for i in metadata.timeline.instants}
        # A write that waits for its turn completes later. It is completed here, and not in the
        # data table, for a moment, or if a Hudi writer died.
        pending = {
            action.requested_at
            for action in metadata.data_timeline.pending()
            if action.requested_at in known
            and (action.action not in IN_TURN or known[action.requested_at] is State.COMPLETED)
        }
        waiting = pending if waiting is None else waiting & pending
        if not waiting:
            return metadata
    return None


# ---- Compaction of the metadata table in timeline layout 1, where log files name their slices ----
#
# There a reader reads the log files that name the newest base file. So a compaction must not miss a
# log file that an action adds to the old slice meanwhile. As in Hudi, the new base files have the
# instant ``B``, right after the last delta commit before all pending instants of the data table,
# and hold all commits before it. The steps:
#
# 1. Base files are written; nobody looks at them, since ``B`` is on no timeline.
# 2. The plan is put on the timeline of the metadata table, as inflight. Who writes log files after
#    that waits for the end of the compaction (``settle_compactions``).
# 3. What was committed since is repeated: each log file that has commits after ``B``, or commits
#    that completed since step 1, is copied into the new slice.
# 4. The compaction takes a turn in the order of commits. So no commit was decided since its look,
#    and a commit that lost this turn writes its log files again.
# 5. The compaction is decided and published.
#
# Actions that take no turn put their instant on the timeline of the metadata table before they look
# for plans, and a compaction puts its plan before it looks for them. So one of both sees the other:
# if it is the compaction, it takes its plan back and waits. Steps 2 to 5 take a moment; the lock of
# the table is held meanwhile. What fails leaves files that count nowhere.

_SUFFIX = "001"  # Hudi makes the instant of a compaction of the last delta commit and these digits.
_ATTEMPTS = 40
_DEAD_AFTER_MS = 60_000


def _make_new_slices(table: OpenTable, delta_commits: int, engine: Engine) -> InstantTime | None:
    """Compact the metadata table; see ``compact_metadata`` for parameters, result and errors."""
    plan = _planned(table, delta_commits)
    if plan is None:
        return None
    work = _SlicesWork(table, inner_table(table), plan)
    with ExitStack() as stack:
        try:
            stack.enter_context(beating(work.inner.storage, plan.instant))
        except AlreadyExistsError:
            return None  # Another process compacts.
        if read_outcome(work.inner.storage, plan.instant) is not None:
            return None  # Another process has compacted since the plan.
        try:
            beat = f"{HEARTBEAT_FOLDER}/{plan.instant}"
            rewriter = SliceRewriter(plan.metadata, plan.instant, beat)
            stats = rewrite_slices(rewriter, plan.slices, engine)
        except BucketLakeError:
            with suppress(BucketLakeError):  # The next clean deletes the rest.
                work.delete_files()
            raise
        # Slices whose log files change nothing get no base file.
        by_group = {planned.group: planned for planned in plan.slices}
        plan = replace(plan, slices=[by_group[stat.group] for stat in stats])
        work = replace(work, plan=plan)
        # If this fails, the next action ends the compaction.
        with table.lock.held(table.storage) as require_held:
            is_published = bool(stats) and work.publish(stats, require_held)
        if not is_published:
            work.delete_files()
    return plan.instant if is_published else None


def _planned(table: OpenTable, delta_commits: int) -> _Plan | None:
    """Return what can be compacted now; None if that is not enough, or the instant was used."""
    settle_compactions(table)
    metadata = _metadata_of_now(table)
    if _take_back_dead(table, metadata):
        metadata = _metadata_of_now(table)
    known, data = metadata.timeline, metadata.data_timeline
    pending = min((i.requested_at for i in data.pending_changes()), default=None)
    updates = [
        update.requested_at
        for update in updates_since_compaction(known)
        if pending is None or update.requested_at < pending
    ]
    if len(updates) < max(1, delta_commits) or data.is_undoing or _undecided(metadata):
        return None
    instant = InstantTime(max(updates) + _SUFFIX)
    if (
        any(found.requested_at == instant for found in known.instants)
        or read_outcome(metadata.storage, instant) is not None
    ):
        return None
    assert instant > (last_compaction(known) or ""), instant
    instants = tuple(found for found in data.instants if found.requested_at < instant)
    until = replace(data, instants=instants, until=instant, newest_written_ms=None)
    merged = replace(metadata, data_timeline=until)
    return _Plan(instant, merged, slices_to_merge(merged), frozenset(updates))


@dataclass(frozen=True, slots=True)
class _SlicesWork:
    """The steps of a compaction after its base files are written."""

    table: OpenTable
    inner: OpenTable
    plan: _Plan

    def publish(self, stats: Sequence[WriteStat], require_held: LockCheck) -> bool:
        """Publish the new slices; return False if that is not possible now."""
        attempts, instant = iter(range(_ATTEMPTS)), self.plan.instant

        def change(_: Head) -> Answer[bool]:
            if next(attempts, None) is None or not self._put_plan():
                return Settled(False)
            metadata = _unchanged(self.table, self.plan)
            if metadata is None or not self._fits(metadata):
                return Settled(False)
            if _undecided(metadata):
                self._step_back()
                return AGAIN
            if not self._repeat_later_logs(metadata):
                return Settled(False)
            require_held()
            return Ready(max(self.plan.included), True, if_lost=self._step_back)

        if transact(self.table, change).value:
            decide_compaction(self.inner, instant, instant, stats)
            return True
        remove_pending(self.inner, instant, Action.COMPACTION)
        return False

    def _step_back(self) -> None:
        """Take the plan back, and give others a moment before the next attempt."""
        remove_pending(self.inner, self.plan.instant, Action.COMPACTION)
        pause()

    def delete_files(self) -> None:
        """Delete what was written; the plan is on no timeline."""
        for file in files_of_instants(self.inner.storage, {self.plan.instant}):
            self.inner.storage.delete(file.path)

    def _put_plan(self) -> bool:
        """Put the plan on the timeline; return False if another process has ended it."""
        content = encode_compaction_plan(self.plan.slices)
        put_pending(self.inner, self.plan.instant, Action.COMPACTION, content)
        return read_outcome(self.inner.storage, self.plan.instant) is None

    def _fits(self, metadata: MetadataTable) -> bool:
        """Return whether the base files still fit the slices of now."""
        names = {planned.partition_path for planned in self.plan.slices}
        now = {(live.group, live.instant) for name in names for live in metadata.slices(name)}
        return {(planned.group, planned.instant) for planned in self.plan.slices} <= now

    def _repeat_later_logs(self, metadata: MetadataTable) -> bool:
        """Copy the log files that the base files do not include; return False if that cannot be.

        Hudi may append the blocks of several commits to one file (HDFS), some of which are
        included.
        """
        instant, merged, storage = self.plan.instant, self.plan.metadata, metadata.storage
        for planned in self.plan.slices:
            live = {each.file_id: each for each in metadata.slices(planned.partition_path)}
            number = 0
            for log in live[planned.file_id].log_files:
                if log.name.instant == instant:  # It is in the new slice.
                    continue
                counted = {at for at in block_instants(storage, log) if metadata.counts(at)}
                later = {at for at in counted if not merged.counts(at)}
                if not later:
                    continue
                if later != counted:
                    return False
                number += 1
                name = LogFileName(planned.file_id, instant, number, COPY_TOKEN).to_file_name()
                storage.put(file_path(planned.partition_path, name), storage.read(log.path))
        return True


def _undecided(metadata: MetadataTable) -> bool:
    """Return whether an action without a turn may be decided with the log files that it wrote.

    So may one be that is completed here, and not in the data table yet. A write that has not taken
    its turn writes its log files again.
    """
    data, known = metadata.data_timeline, metadata.timeline
    in_turn = {found.requested_at for found in data.pending(*IN_TURN)}
    decided = {i.requested_at for i in data.pending_changes() if known.is_completed(i.requested_at)}
    return bool({*_updating(metadata)} - in_turn or decided)


def _updating(metadata: MetadataTable) -> Iterator[InstantTime]:
    """Yield the pending delta commits of actions; a build adds nothing to valid partitions."""
    turn = last_turn(metadata.storage.outer)
    build = None if turn is None else turn.metadata_instant
    for found in metadata.timeline.pending(Action.DELTA_COMMIT):
        at = found.requested_at
        if not is_initial(at) and at != build:
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


# ---- Cleaning the metadata table: old slices, leftovers of undone actions, and old instants ------
#
# A slice is old if a later compaction or build replaced its base file. It stays for some time and
# some commits, because readers may still use it. Which files are old follows from the timeline, so
# a clean needs no plan: it can die at any step, and the next one continues.
#
# The timeline of the metadata table is archived with the clean. Instants since the last compaction
# stay, and those whose log files still exist, because readers need the completion times of log
# files. Instants since the earliest pending instant of the data table stay too: an instant before
# the timeline would look completed.

KEPT_COMMITS = 20
"""Commits of the metadata table after which an old slice is deleted, as in Hudi."""

KEPT_MS = 5 * 60_000
"""How long an old slice stays at least."""

_LIMITS = ArchivalLimits()


def clean_metadata(table: OpenTable) -> None:
    """Delete what no reader needs, and archive old instants of the metadata table.

    Parameters
    ----------
    table : OpenTable
        The data table.

    Raises
    ------
    MetadataTableError
        If there is no metadata table.
    """
    with table.lock.held(table.storage) as require_held:
        inner = inner_table(table)
        files = list_all_files(inner.storage)
        names_slices = inner.config.layout.logs_name_slices
        working = _at_work(table, inner) if names_slices else set()
        marked = inner.storage.list_folders(MARKER_FOLDER)
        # Loaded after the files: the instant of a file is on a timeline before the file exists.
        metadata = load_metadata_table(table, load_timeline(table))
        pending = {*metadata.timeline.pending(), *metadata.data_timeline.pending()}
        living = working | {found.requested_at for found in pending}
        before_ms = table.clock.now_ms() - KEPT_MS
        deleted = {*_leftovers(metadata, files, living), *_superseded(metadata, files, before_ms)}
        at_once(inner.storage, inner.storage.delete, sorted(file.path for file in deleted))
        for instant in (InstantTime(folder.rpartition("/")[2]) for folder in marked):
            if instant not in living:
                delete_markers(inner.storage, instant)
        if len(metadata.timeline.completed_commits()) > _LIMITS.keep_max:
            logs = [file.name.instant for file in files if file not in deleted and _is_update(file)]
            since = None if names_slices else min(logs, default=None)
            _archive(table, inner, since, require_held)


def _at_work(table: OpenTable, inner: OpenTable) -> set[InstantTime]:
    """Return the compactions of living processes; in layout 1 they may be on no timeline."""
    beats = inner.storage.list(HEARTBEAT_FOLDER, recursive=False)
    instants = {InstantTime(beat.path.rpartition("/")[2]) for beat in beats}
    return {at for at in instants if is_alive(inner.storage, at, table.clock.now_ms)}


def _leftovers(
    metadata: MetadataTable, files: Sequence[DataFile], living: Collection[InstantTime]
) -> Iterator[DataFile]:
    """Yield the files of instants that ended without a commit.

    In timeline layout 1, the names of log files have their slices. The files of a compaction that
    died may be those of a process that sleeps, so the compaction is withdrawn before they are
    deleted.
    """
    timeline, storage = metadata.timeline, metadata.storage
    names_slices = timeline.layout.logs_name_slices
    is_known = timeline.has_slice if names_slices else timeline.is_completed
    ended = {file.name.instant for file in files}.difference(living)
    dead = {at for at in ended if not is_known(at)}
    if names_slices:
        dead = {at for at in dead if claim_rollback(storage, at).publication is None}
    for file in files:
        writer = file.name.writer if isinstance(file.name, LogFileName) else None
        if file.name.instant in dead:
            yield file
        elif (
            writer is not None
            and not timeline.is_completed(writer)
            and writer not in living
            and is_own(storage, file, writer)
        ):
            yield file  # Written by a task after the undoing.


def _superseded(
    metadata: MetadataTable, files: Sequence[DataFile], before_ms: int
) -> Iterator[DataFile]:
    """Yield the files of old slices whose base file was replaced before a time."""
    timeline = metadata.timeline
    completed = sorted(
        timeline.completion_time(commit.requested_at) or ""
        for commit in timeline.completed_commits()
    )
    limit = InstantTime(completed[-KEPT_COMMITS] if len(completed) >= KEPT_COMMITS else "")
    planned = planned_paths(metadata.storage, timeline)
    for versions in metadata.versions(files).values():
        is_kept = False
        for version in versions:
            if is_kept:
                yield from (file for file in version.files if file.path not in planned)
            is_kept = is_kept or _is_kept(metadata, version, limit, before_ms)


def _is_kept(
    metadata: MetadataTable, version: FileVersion, limit: InstantTime, before_ms: int
) -> bool:
    """Return whether the base file of a version was complete at a time; it replaced others then."""
    base = next((file for file in version.files if isinstance(file.name, BaseFileName)), None)
    return (
        base is not None
        and metadata.time_of(base) <= limit
        and _completed_before(metadata, base, before_ms)
    )


def _completed_before(metadata: MetadataTable, base: DataFile, before_ms: int) -> bool:
    timeline, instant = metadata.timeline, base.name.instant
    if timeline.layout.has_completion_times:
        before = instant_from_ms(before_ms, metadata.config.timeline_timezone)
        return metadata.time_of(base) <= before
    # The time of a compaction is that of the last commit that it includes.
    completed = timeline.find_completed(instant)
    path = base.path if completed is None else timeline.path_of(completed)
    stored = metadata.storage.stat(path)
    return stored is None or stored.modified_at_ms <= before_ms


def _is_update(file: DataFile) -> bool:
    """Return whether a file is a log file of a commit; log files that open groups have no order."""
    return isinstance(file.name, LogFileName) and not is_birth_log(file.name)


def _archive(
    table: OpenTable, inner: OpenTable, since: InstantTime | None, require_held: LockCheck
) -> None:
    """Move instants before a time to the archive."""

    def choose(most: int | None) -> tuple[Timeline, Sequence[Instant]]:
        data = load_timeline(table)
        timeline = load_timeline(inner)
        stops = partial(_stops, timeline, data, since)
        chosen, _ = oldest_instants(
            timeline, _LIMITS, most, stops, lambda o: not o.action.writes_data
        )
        return timeline, chosen

    move_oldest(inner, choose, require_held)


def _stops(
    timeline: Timeline, data: Timeline, since: InstantTime | None, _: Sequence[Instant]
) -> Stops:
    """Return what stays: no log file and no pending instant is older than the timeline."""
    times = [commit.requested_at for commit in timeline.completed_commits()]
    stop = last_compaction(timeline) or InstantTime("")
    stop = stop if since is None else min(stop, since)
    pending = min((instant.requested_at for instant in data.pending()), default=stop)
    if pending < stop:  # The commit before it stays, so that the timeline begins before it.
        stop = max((time for time in times if time < pending), default=pending)
    return [(stop, "it is needed")]
