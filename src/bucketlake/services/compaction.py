"""Compaction: merging the log files of file slices with their base files into new base files.

A plan on the timeline names the slices. Writers continue meanwhile; log files that they complete
later belong to the new slices of the compaction. bucketlake or Hudi executes the plan; executing it
several times gives the same rows. No row changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from bucketlake.actions.conflict import require_no_restore, rolled_back
from bucketlake.actions.metadata_upkeep import prepare_commit
from bucketlake.actions.metadata_withdrawal import COMPACT_OPERATION
from bucketlake.actions.progress import telling_progress
from bucketlake.actions.recovery import end_undoing, settle_failed_writes, writable_timeline
from bucketlake.actions.rollback import take_back
from bucketlake.actions.transact import (
    AGAIN,
    Answer,
    Decision,
    Ready,
    Settled,
    commit_change,
    transact,
)
from bucketlake.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ConfigError,
    ObjectNotFoundError,
    TimelineError,
)
from bucketlake.flow.stage import Engine
from bucketlake.format.clustering_plan import encode_compaction_plan
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.index.setting import resolve_index
from bucketlake.metadata.file_listing import lists_files
from bucketlake.metadata.statistics.of_file import indexed_columns
from bucketlake.model.arguments import check_integers
from bucketlake.model.file_name import Group, InstantTime, LogFileName, log_instant
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.result import Shown
from bucketlake.model.table_type import TableType
from bucketlake.model.write_stat import CommitMetadata, WriteStat, by_partition
from bucketlake.read.clean_guard import telling_what_is_gone
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.slices.file_system_view import list_files
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline, planned_slices
from bucketlake.timeline.commit_order import Head
from bucketlake.timeline.heartbeat import beating, is_alive
from bucketlake.timeline.instant import WRITES, Action, Instant, State, instant_to_ms
from bucketlake.timeline.locks import LockCheck
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import claim_rollback
from bucketlake.timeline.transitions import (
    create_requested,
    instant_path,
    remove_pending,
    to_inflight,
)
from bucketlake.write.group_writer import WRITE_TOKEN
from bucketlake.write.slice_rewrite import compact_slice


@dataclass(frozen=True, slots=True)
class CompactedSlice:
    """A slice that a compaction rewrites.

    Attributes
    ----------
    partition_path, file_id
        The file group.
    base_size_bytes : int
        Size of the base file; 0 without a base file.
    log_files : int
        Number of log files.
    log_size_bytes : int
        Size of the log files.
    """

    partition_path: str
    file_id: str
    base_size_bytes: int
    log_files: int
    log_size_bytes: int


@dataclass(frozen=True, slots=True)
class CompactionReport(Shown):
    """What a compaction rewrites or has rewritten.

    Attributes
    ----------
    slices : tuple of CompactedSlice
        The slices that are rewritten.
    instants : tuple of InstantTime
        Completed compactions; empty for a dry run.
    scheduled : InstantTime or None
        The plan that was put on the timeline; None if there was nothing to compact.
    """

    slices: tuple[CompactedSlice, ...]
    instants: tuple[InstantTime, ...] = ()
    scheduled: InstantTime | None = None


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """Which slices are compacted, and how much one compaction reads at most.

    Attributes
    ----------
    min_log_files : int
        Smallest number of log files of a slice.
    min_log_bytes : int
        Smallest size of the log files of a slice.
    max_bytes : int or None
        Most bytes that a compaction reads; slices with most log bytes come first, and the first
        slice is always compacted.
    after_delta_commits : int
        Smallest number of delta commits since the last plan.
    after_seconds : int
        Smallest number of seconds since the last plan.
    """

    min_log_files: int = 1
    min_log_bytes: int = 0
    max_bytes: int | None = None
    after_delta_commits: int = 0
    after_seconds: int = 0

    def __post_init__(self) -> None:
        check_integers(1, min_log_files=self.min_log_files)
        check_integers(0, min_log_bytes=self.min_log_bytes, after_seconds=self.after_seconds)
        check_integers(0, after_delta_commits=self.after_delta_commits)
        if self.max_bytes is not None:
            check_integers(1, max_bytes=self.max_bytes)


def compact(
    table: OpenTable,
    limits: CompactionLimits,
    engine: Engine,
    *,
    schedule_only: bool = False,
    dry_run: bool = False,
) -> CompactionReport:
    """Execute pending compaction plans, then plan a compaction and execute it.

    Parameters
    ----------
    table : OpenTable
    limits : CompactionLimits
        Which slices to compact.
    engine : Engine
        Compacts slices on an engine.
    schedule_only : bool
        Whether to only put a plan on the timeline, for another process to execute.
    dry_run : bool
        Whether to return only what would be planned.

    Raises
    ------
    ConfigError
        If the table is not merge-on-read.
    UnsupportedFeatureError
        If the table cannot be written, or a log file cannot be read.
    """
    if table.config.table_type is not TableType.MERGE_ON_READ:
        raise ConfigError(
            "table_type",
            table.config.table_type.value.lower(),
            "only a merge_on_read table has log files; this table has base files alone, so there "
            "is nothing to compact",
            "compacted",
        )
    timeline = writable_timeline(table, settles=not dry_run)
    if dry_run:
        slices = _worth_it(table, timeline, limits)
        return CompactionReport(_described(slices))
    done = []
    if not schedule_only:
        pending = timeline.pending_compactions()
        plans = [found.requested_at for found in pending if found.action is Action.COMPACTION]
        done = [instant for instant in plans if _carry_out(table, instant, engine)]
    with table.lock.held(table.storage) as require_held:
        scheduled, slices = _schedule(table, limits, require_held)
    if scheduled is not None and not schedule_only and _carry_out(table, scheduled, engine):
        done.append(scheduled)
    return CompactionReport(_described(slices), tuple(done), scheduled)


def _schedule(
    table: OpenTable, limits: CompactionLimits, require_held: LockCheck
) -> tuple[InstantTime | None, list[FileSlice]]:
    """Put a plan on the timeline.

    Its instant takes a turn in the order of commits. So the plan includes everything that was
    completed before; later commits have a later completion time and belong to the new slices. In
    layout 1 the plan comes before its turn.
    """

    def change(now: Head) -> Answer[tuple[InstantTime | None, list[FileSlice]]]:
        slices = _worth_it(table, now.timeline, limits)
        if not slices:
            return Settled((None, []))
        instant = now.next_instant()
        if not table.config.layout.logs_name_slices:
            return Ready(instant, (instant, slices))
        require_held()
        with suppress(AlreadyExistsError):
            slices = put_compaction_plan(table, instant, slices)
            if slices:
                return Settled((instant, slices))
        return AGAIN

    while True:
        done = transact(table, change)
        instant, slices = done.value
        if instant is None or not done.took_turn:
            return instant, slices
        require_held()
        with suppress(AlreadyExistsError):  # Another writer took this millisecond.
            plan = encode_compaction_plan(slices)
            newest = create_requested(table, instant, Action.COMPACTION, plan)
            if not (newest.is_undoing or rolled_back(table, done.head.timeline, newest)):
                return instant, slices
            # A commit of the plan is or was rolled back; the rollback also looks for plans.
            if claim_rollback(table.storage, instant).is_rollback:
                take_back(table, instant, Action.COMPACTION)
            settle_failed_writes(table.without_lock(), newest)


def _worth_it(table: OpenTable, timeline: Timeline, limits: CompactionLimits) -> list[FileSlice]:
    """Return the slices to compact, slices with most log bytes first."""
    if not _is_due(table, timeline, limits):
        return []
    snapshot = load_snapshot(table, timeline)
    SliceReader.of_snapshot(snapshot)  # Raises before planning if rows cannot be merged.
    planned = {file_slice.group for file_slice in planned_slices(table.storage, timeline)}
    found = [
        file_slice
        for file_slice in snapshot.all_slices()
        if len(file_slice.log_files) >= limits.min_log_files
        and file_slice.log_bytes >= limits.min_log_bytes
        and file_slice.group not in planned
    ]
    found.sort(key=lambda held: held.log_bytes, reverse=True)
    chosen = found if limits.max_bytes is None else _within(limits.max_bytes, found)
    require_files(table, chosen)
    return chosen


def _within(max_bytes: int, found: Sequence[FileSlice]) -> list[FileSlice]:
    chosen: list[FileSlice] = []
    for file_slice in found:
        max_bytes -= file_slice.size_bytes
        if chosen and max_bytes < 0:
            break
        chosen.append(file_slice)
    return chosen


def require_files(table: OpenTable, slices: Iterable[FileSlice]) -> None:
    """Raise MissingFileError if storage lacks a file of a plan that the metadata table lists.

    Nobody could execute the plan, and its commits could not be rolled back while it is pending.
    """
    if not lists_files(table.config):
        return  # The slices were listed in storage.
    wanted = {path: held.partition_path for held in slices for path in held.paths}
    there = {file.path for file in list_files(table.storage, sorted(set(wanted.values())))}
    for path in wanted.keys() - there:
        # If a clean deleted it, a newer slice took a turn, and this plan takes none.
        with suppress(CommitConflictError), telling_what_is_gone(table.storage):
            raise ObjectNotFoundError(path, "plan to read", "there is no such file")


def _is_due(table: OpenTable, timeline: Timeline, limits: CompactionLimits) -> bool:
    """Return whether the limits since the last plan are reached."""
    commits = timeline.completed_commits()
    plans = [pending.requested_at for pending in timeline.pending_compactions()]
    plans += [
        commit.requested_at
        for commit in commits
        if commit.action is Action.COMMIT and timeline.read_commit(table.storage, commit).compacted
    ]
    last = max(plans, default=InstantTime(""))
    deltas = [o for o in commits if o.action is Action.DELTA_COMMIT and o.requested_at > last]
    if not deltas:
        return limits.after_delta_commits == 0
    since = last or deltas[0].requested_at
    waited_ms = table.clock.now_ms() - instant_to_ms(since, table.config.timeline_timezone)
    return len(deltas) >= limits.after_delta_commits and waited_ms >= 1000 * limits.after_seconds


def _carry_out(table: OpenTable, instant: InstantTime, engine: Engine) -> bool:
    """Execute a plan, and complete the compaction; return False if there is nothing left to do."""
    if is_alive(table.storage, instant, table.clock.now_ms):
        raise CommitConflictError(instant, "another process is executing this compaction")
    planned = settle_plan(table, instant)
    if not planned:
        return False
    timeline = load_timeline(table)
    slices = with_sizes(table.storage, instant, planned)
    with beating(table.storage, instant, is_new=False):
        inflight = instant_path(table.config, to_inflight(table, instant, Action.COMPACTION))
        drop_files_of_others(table.storage, instant)
        snapshot = with_schema_of_plan(load_snapshot(table, timeline), instant, slices)
        reader = SliceReader.of_snapshot(snapshot)
        index = resolve_index(table, timeline, None)
        filters = index is not None and index.layout().looks_up
        indexed = indexed_columns(table, snapshot.schema)
        fixed = reader, instant, snapshot.schema, inflight, indexed
        compact = partial(compact_slice, *fixed, key_filter=filters)
        with telling_progress(table.storage, instant, "compaction", len(slices)):
            sizes = [held.size_bytes for held in slices]
            stats = engine.start(compact, slices, sizes).results()
        with table.lock.held(table.storage) as require_held:
            _complete(snapshot, instant, stats, require_held)
    return True


def with_schema_of_plan(
    snapshot: Snapshot, instant: InstantTime, planned: Sequence[FileSlice]
) -> Snapshot:
    """Return the snapshot with the schema that the table had when a compaction was planned.

    A write may widen a column before the plan is executed, or between an attempt that died and the
    next attempt. The next attempt keeps the existing files, and its commit has one schema for all
    files. All slices of the plan were completed before it, so their rows have no wider column.
    """
    timeline = snapshot.timeline
    read = {file.name.instant for file_slice in planned for file in file_slice.log_files}
    later = {
        commit.requested_at
        for commit in timeline.completed_commits()
        if (timeline.completion_time(commit.requested_at) or "") > instant
    }
    earlier = timeline.without(later - read)
    earlier.recall(timeline)
    at_plan = load_snapshot(snapshot.table, earlier)
    return replace(snapshot, schema_text=at_plan.schema_text)


def _complete(
    snapshot: Snapshot, instant: InstantTime, stats: Sequence[WriteStat], require_held: LockCheck
) -> None:
    extra = {"schema": snapshot.schema_text or ""}
    commit = CommitMetadata(COMPACT_OPERATION, by_partition(stats), extra, compacted=True)
    table = snapshot.table

    def change(now: Head) -> Answer[Decision | None]:
        timeline = now.timeline
        if timeline.find_completed(instant) is not None:
            return Settled(None)  # Hudi or another bucketlake process completed it.
        require_no_restore(timeline)
        pending_compaction(timeline, instant)
        inflight = Instant(instant, Action.COMPACTION, State.INFLIGHT)
        content = encode_commit_metadata(commit, table.config.layout)
        prepared = prepare_commit(now, instant, commit)
        return Ready(instant, Decision(inflight, content, prepared))

    commit_change(table, change, require_held, own=instant)


def with_sizes(
    storage: Storage, instant: InstantTime, slices: Sequence[FileSlice]
) -> list[FileSlice]:
    """Return the slices with the sizes of their files, which plans do not contain."""
    partitions = sorted({file_slice.partition_path for file_slice in slices})
    listed = {file.path: file for file in list_files(storage, partitions)}

    def sized(file: DataFile) -> DataFile:
        if file.path not in listed:
            raise TimelineError(
                instant,
                f"plans to read {file.path}, which is missing: restore it, or roll the plan back "
                "(a resize with table.rollback(instant) (bucketlake rollback PATH INSTANT --run), "
                "a compaction with Hudi)",
            )
        return listed[file.path]

    return [
        replace(
            file_slice,
            base_file=sized(file_slice.base_file) if file_slice.base_file is not None else None,
            log_files=tuple(map(sized, file_slice.log_files)),
        )
        for file_slice in slices
    ]


def drop_files_of_others(storage: Storage, instant: InstantTime, *own: str) -> None:
    """Delete files that another program wrote for a plan and did not complete.

    Their names differ from bucketlake's, and if an instant has two base files, a reader may read
    either. Files with a write token of ``own`` stay.
    """
    for marker in read_markers(storage, instant):
        if not any(f"_{token}_" in marker.file_name for token in (WRITE_TOKEN, *own)):
            storage.delete(marker.data_path)


def _described(slices: Sequence[FileSlice]) -> tuple[CompactedSlice, ...]:
    return tuple(
        CompactedSlice(
            held.partition_path,
            held.file_id,
            held.size_bytes - held.log_bytes,
            len(held.log_files),
            held.log_bytes,
        )
        for held in slices
    )


# ---- Plans of compactions in timeline layout 1, where the names of log files have their slices ---
#
# A compaction reads the files of its plan, and nobody reads the old slice afterwards. So each
# commit must be in the plan, or must add to the new slice. As for a resize, the plan is on the
# timeline before it takes a turn in the order of commits: a commit of an earlier turn is completed,
# and the plan gets its files; a commit of a later turn finds the plan
# (``write/commit_checks.py``).
#
# What the planner saw before may be gone at its turn: another process may have compacted a slice,
# or undone a commit. So the plan is made again as of each turn that it tries to take, and whoever
# executes it takes such a turn first: the planner may have died before.
#
# Writes may add to the new slice as soon as they see the plan. So a file group to which a commit
# has added stays in the plan. A plan that has no file group left is removed after its turn, when no
# commit can add to it any more.

_DEAD_AFTER_MS = 60_000  # A living planner puts the file groups a moment after it has the time.


def pending_compaction(timeline: Timeline, instant: InstantTime) -> Instant:
    """Return a pending compaction; raise TimelineError if it is none, or none any more."""
    for pending in timeline.pending_compactions():
        if pending.requested_at == instant:
            return pending
    raise TimelineError(instant, "is not a pending compaction, or is no longer pending")


def put_compaction_plan(
    table: OpenTable, instant: InstantTime, slices: Sequence[FileSlice]
) -> list[FileSlice]:
    """Put a plan on the timeline, and take its turn; return the slices as of that turn.

    The caller holds the lock of the table. Without slices, the plan needs a later time, or there is
    nothing left to compact; then it is on the timeline no more.

    The time is found to be usable before the plan names a file group: commits may add to its slices
    from then on. Only a write that was on the timeline before can commit without a look at the
    plan. Its time must be earlier than that of the compaction, which includes it and counts from
    its own time on.

    Raises
    ------
    AlreadyExistsError
        If the time cannot be used; choose another time.
    """
    create_requested(table, instant, Action.COMPACTION, encode_compaction_plan(()))
    _put(table, instant, slices)
    writes = load_timeline(table).pending(*WRITES)
    is_early = any(write.requested_at > instant for write in writes)
    return settle_plan(table.without_lock(), instant, () if is_early else slices)


def settle_plan(
    table: OpenTable, instant: InstantTime, wanted: Sequence[FileSlice] | None = None
) -> list[FileSlice]:
    """Return the slices of a plan as they are at its turn, which in layout 1 is taken here.

    Parameters
    ----------
    table : OpenTable
    instant : InstantTime
        The compaction.
    wanted : sequence of FileSlice, optional
        The slices to compact; by default those of the plan.

    Returns
    -------
    list of FileSlice
        What is to be compacted. Empty if another process completed the compaction or is about to
        put the plan, or nothing is left of it; then it is on the timeline no more.

    Raises
    ------
    TimelineError
        If the compaction is neither pending nor completed any more.
    """
    if not table.config.layout.logs_name_slices:
        return _planned(table, load_timeline(table), instant) or []

    def change(now: Head) -> Answer[list[FileSlice]]:
        nonlocal wanted
        if end_undoing(table, now.timeline):
            return AGAIN
        planned = _planned(table, now.timeline, instant)
        is_put_now = wanted is None and not planned and not _is_old(table, instant)
        if planned is None or is_put_now:
            return Settled([])
        # Kept for the next attempt: a group that another plan has now may be free then.
        wanted = planned if wanted is None else wanted
        whole = _as_of(table, now.timeline, instant, wanted)
        if _named(whole) != _named(planned):
            _put(table, instant, whole)
        return Ready(instant, whole)

    with table.lock.held(table.storage):
        done = transact(table, change, own=instant)
        if done.took_turn and not done.value:
            remove_pending(table, instant, Action.COMPACTION)
        return done.value


def _planned(table: OpenTable, timeline: Timeline, instant: InstantTime) -> list[FileSlice] | None:
    """Return the slices of a pending plan; None if its compaction is completed."""
    if timeline.find_completed(instant) is not None:
        return None
    pending = pending_compaction(timeline, instant)
    return timeline.read_compaction_plan(table.storage, pending)


def _is_old(table: OpenTable, instant: InstantTime) -> bool:
    """Return whether a plan without file groups is that of a dead planner."""
    planned_at_ms = instant_to_ms(instant, table.config.timeline_timezone)
    return table.clock.now_ms() - planned_at_ms > _DEAD_AFTER_MS


def _put(table: OpenTable, instant: InstantTime, slices: Sequence[FileSlice]) -> None:
    requested = Instant(instant, Action.COMPACTION, State.REQUESTED)
    table.storage.put(instant_path(table.config, requested), encode_compaction_plan(slices))


def _named(slices: Sequence[FileSlice]) -> list[object]:
    """Return what a plan says of slices, without the sizes of their files."""
    return [(held.group, held.instant, held.paths) for held in slices]


def _as_of(
    table: OpenTable, timeline: Timeline, instant: InstantTime, wanted: Sequence[FileSlice]
) -> list[FileSlice]:
    """Return the slices that a compaction is to read, if its turn comes next.

    A group is left out if nothing of it is left, another plan has it, or a newer slice or a commit
    of it has a later time than the compaction. A group that a commit has added to stays.
    """
    followed = _followed(table, timeline, instant)
    held = {file_slice.group: file_slice for file_slice in wanted}
    partitions = sorted({path for path, _ in (*held, *followed)})
    listed = {file.path: file for file in list_files(table.storage, partitions)}
    slices = load_snapshot(table, timeline).partition_slices(partitions)
    live = {file_slice.group: file_slice for file_slice in slices}
    others = tuple(found for found in timeline.instants if found.requested_at != instant)
    plans = planned_slices(table.storage, replace(timeline, instants=others))
    taken = {file_slice.group for file_slice in plans}
    whole = []
    for group in dict.fromkeys((*held, *sorted(followed))):
        made = _slice(held.get(group), live.get(group), listed, instant)
        is_free = group not in taken and not _is_later(live.get(group), instant)
        if made is not None and (is_free or group in followed):
            whole.append(made)
    return whole


def _followed(table: OpenTable, timeline: Timeline, instant: InstantTime) -> set[Group]:
    """Return the file groups to whose new slices commits have added."""
    later = [commit for commit in timeline.completed_commits() if commit.requested_at > instant]
    return {
        stat.group
        for _, commit in timeline.read_commits(table.storage, later)
        for stat in commit.stats
        if log_instant(stat.path) == instant
    }


def _slice(
    planned: FileSlice | None,
    live: FileSlice | None,
    listed: Mapping[str, DataFile],
    instant: InstantTime,
) -> FileSlice | None:
    """Return what a compaction reads of a file group; None if nothing is left.

    A plan of Hudi may name log files that have no block of a completed commit; they stay in it.
    """
    base, logs = None, dict[str, DataFile]()
    if live is not None:
        base = live.base_file
        logs = {file.path: file for file in live.log_files if file.name.instant < instant}
    if planned is not None and (live is None or live.instant == planned.instant):
        base = planned.base_file
        logs |= {file.path: listed[file.path] for file in planned.log_files if file.path in listed}
    found = live or planned
    is_lost = live is None and base is not None and base.path not in listed
    if found is None or is_lost or (base is None and not logs):
        return None
    base = base and listed.get(base.path, base)  # One that is missing is an error when it is read.
    ordered = tuple(sorted(logs.values(), key=lambda file: file.order))
    return replace(found, base_file=base, log_files=ordered)


def _is_later(live: FileSlice | None, instant: InstantTime) -> bool:
    """Return whether a slice, or a commit that added to it, is later than a compaction of it."""
    if live is None:
        return False
    names = [file.name for file in live.log_files if file.name.instant < instant]
    writers = [name.writer for name in names if isinstance(name, LogFileName)]
    return max([live.instant, *filter(None, writers)]) > instant
