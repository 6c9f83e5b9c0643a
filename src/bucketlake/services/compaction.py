"""Compaction: merging the log files of file slices with their base files into new base files.

A plan on the timeline names the slices. Writers continue meanwhile; log files that they complete
later belong to the new slices of the compaction. bucketlake or Hudi executes the plan; executing it
several times gives the same rows. No row changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from bucketlake.actions.conflict import require_no_restore, rolled_back
from bucketlake.actions.metadata_upkeep import prepare_commit
from bucketlake.actions.progress import telling_progress
from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.actions.rollback import take_back
from bucketlake.actions.turns import head, publish
from bucketlake.config.support import check_writable
from bucketlake.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ConfigError,
    ObjectNotFoundError,
    TimelineError,
)
from bucketlake.flow.stage import Engine
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.compaction_plan import encode_compaction_plan
from bucketlake.index.setting import resolve_index
from bucketlake.metadata.file_listing import lists_files
from bucketlake.metadata.statistics.measured_columns import indexed_columns
from bucketlake.model.arguments import check_integers
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.shown import Shown
from bucketlake.model.table_type import TableType
from bucketlake.model.write_stat import CommitMetadata, WriteStat, by_partition
from bucketlake.read.clean_guard import telling_what_is_gone
from bucketlake.read.file_system_view import list_files
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.compaction_plans import pending_compaction, put_plan, settle_plan
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline, planned_slices
from bucketlake.timeline.heartbeat import beating, is_alive
from bucketlake.timeline.instant import UNDOING, Action, Instant, State, instant_to_ms
from bucketlake.timeline.locks import Check
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import OutcomeKind, claim_rollback
from bucketlake.timeline.transitions import create_requested, instant_path
from bucketlake.write.compactor import Compactor
from bucketlake.write.group_writer import WRITE_TOKEN

OPERATION = "COMPACT"

_LEAST = {
    "min_log_files": 1,
    "min_log_bytes": 0,
    "max_bytes": 1,
    "after_delta_commits": 0,
    "after_seconds": 0,
}


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
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if name != "max_bytes" or value is not None:
                check_integers(least, **{name: value})


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
    check_writable(table.config, table.storage.root)
    timeline = load_timeline(table)
    if dry_run:
        slices = _worth_it(table, timeline, limits)
        return CompactionReport(_described(slices))
    timeline = settle_failed_writes(table, timeline)
    done = []
    if not schedule_only:
        for pending in timeline.pending_compactions():
            if pending.action is Action.COMPACTION:
                done.append(_carry_out(table, pending.requested_at, engine))
    with table.lock.held(table.storage) as require_held:
        scheduled, slices = _schedule(table, limits, require_held)
    if scheduled is not None and schedule_only:
        settle_plan(table, scheduled)
    elif scheduled is not None:
        done.append(_carry_out(table, scheduled, engine))
    return CompactionReport(_described(slices), tuple(done), scheduled)


def _schedule(
    table: OpenTable, limits: CompactionLimits, require_held: Check
) -> tuple[InstantTime | None, list[FileSlice]]:
    """Put a plan on the timeline.

    Its instant takes a turn in the order of commits. So the plan includes everything that was
    completed before; later commits have a later completion time and belong to the new slices. In
    layout 1, :func:`settle_plan` takes the turn.
    """
    while True:
        now = head(table)
        slices = _worth_it(table, now.timeline, limits)
        if not slices:
            return None, []
        instant = now.next_instant()
        if table.config.layout.logs_name_slices:
            require_held()
            with suppress(AlreadyExistsError):
                if put_plan(table, instant, slices):
                    return instant, slices
            continue
        if not now.take(instant):
            continue
        require_held()
        with suppress(AlreadyExistsError):  # Another writer took this millisecond.
            plan = encode_compaction_plan(slices)
            newest = create_requested(table, instant, Action.COMPACTION, plan)
            is_undoing = any(pending.action in UNDOING for pending in newest.pending())
            if not is_undoing and not rolled_back(table, now.timeline, newest):
                return instant, slices
            # A commit of the plan is or was rolled back; the rollback also looks for plans.
            if claim_rollback(table.storage, instant).kind is OutcomeKind.ROLLBACK:
                take_back(table, instant, Action.COMPACTION)
            settle_failed_writes(table.without_lock(), newest)


def _worth_it(table: OpenTable, timeline: Timeline, limits: CompactionLimits) -> list[FileSlice]:
    """Return the slices to compact, slices with most log bytes first."""
    if not _is_due(table, timeline, limits):
        return []
    snapshot = load_snapshot(table, timeline)
    SliceReader.of_snapshot(snapshot)  # Raises before planning if rows cannot be merged.
    planned = {
        (file_slice.partition_path, file_slice.file_id)
        for file_slice in planned_slices(table.storage, timeline)
    }
    found = [
        file_slice
        for file_slice in snapshot.all_slices()
        if len(file_slice.log_files) >= limits.min_log_files
        and file_slice.log_bytes >= limits.min_log_bytes
        and (file_slice.partition_path, file_slice.file_id) not in planned
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


def _carry_out(table: OpenTable, instant: InstantTime, engine: Engine) -> InstantTime:
    """Execute a plan, and complete the compaction."""
    if is_alive(table.storage, instant, table.clock.now_ms):
        raise CommitConflictError(instant, "another process is executing this compaction")
    settle_plan(table, instant)
    timeline = load_timeline(table)
    planned = timeline.read_compaction_plan(table.storage, pending_compaction(timeline, instant))
    slices = with_sizes(table.storage, instant, planned)
    inflight = instant_path(table.config, Instant(instant, Action.COMPACTION, State.INFLIGHT))
    with beating(table.storage, instant, is_new=False):
        with suppress(AlreadyExistsError):
            table.storage.put_if_absent(inflight, b"")
        _drop_files_of_others(table.storage, instant)
        snapshot = with_schema_of_plan(load_snapshot(table, timeline), instant, slices)
        reader = SliceReader.of_snapshot(snapshot)
        index = resolve_index(table.storage, timeline, None)
        filters = index is not None and index.layout().looks_up
        indexed = indexed_columns(table, snapshot.schema)
        compactor = Compactor(reader, instant, snapshot.schema, inflight, filters, indexed)
        with telling_progress(table.storage, instant, "compaction", len(slices)):
            sizes = [held.size_bytes for held in slices]
            stats = engine.start(compactor, slices, sizes).results()
        with table.lock.held(table.storage) as require_held:
            _complete(snapshot, instant, stats, require_held)
    return instant


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
    snapshot: Snapshot,
    instant: InstantTime,
    stats: Sequence[WriteStat],
    require_held: Check,
) -> None:
    extra = {"schema": snapshot.schema_text or ""}
    commit = CommitMetadata(OPERATION, by_partition(stats), extra, compacted=True)
    while True:
        now = head(snapshot.table, own=instant)
        timeline = now.timeline
        if timeline.find_completed(instant) is not None:
            return  # Hudi or another bucketlake process completed it.
        require_no_restore(timeline)
        pending_compaction(timeline, instant)
        prepared = prepare_commit(snapshot.table, timeline, instant, commit, now.turn)
        if now.take(instant):
            break
    inflight = Instant(instant, Action.COMPACTION, State.INFLIGHT)
    content = encode_commit_metadata(commit, snapshot.table.config.layout)
    metadata_commit = None if prepared is None else prepared.content
    publish(now, inflight, content, metadata_commit, require_held)


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


def _drop_files_of_others(storage: Storage, instant: InstantTime) -> None:
    """Delete files that another program wrote for the plan and did not complete.

    Their names differ from bucketlake's, and if an instant has two base files, a reader may read
    either.
    """
    for marker in read_markers(storage, instant):
        if f"_{WRITE_TOKEN}_" not in marker.file_name:
            storage.delete(marker.data_path)


def _described(slices: Sequence[FileSlice]) -> tuple[CompactedSlice, ...]:
    return tuple(
        CompactedSlice(
            file_slice.partition_path,
            file_slice.file_id,
            _base_bytes(file_slice),
            len(file_slice.log_files),
            file_slice.log_bytes,
        )
        for file_slice in slices
    )


def _base_bytes(file_slice: FileSlice) -> int:
    return file_slice.base_file.size_bytes if file_slice.base_file is not None else 0
