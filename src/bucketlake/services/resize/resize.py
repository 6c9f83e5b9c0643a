"""Resizing buckets of hash rings while the table is written (RFC-42).

A resize is a clustering on the timeline, which Hudi can carry out, and the other way round. A plan
names file slices, and the nodes that take their place. From then on writes serve the ring before
the resize and the ring after it (``index/ring_layout.py``), so neither they nor readers wait. Rows
do not change.

On merge-on-read tables the slices are read as the plan names them: records of later writes have
copies in the new groups. On copy-on-write tables a write replaces the base file of a group, so a
group may be another one when the resize completes. Then the plan is withdrawn and made again. After
three rounds writers of these groups wait for the resize, as they wait for another writer.

A write of a program that knows no resize makes no copies. The resize finds that before it
completes, and is made again, too.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

from bucketlake.config.support import check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InputError,
    StorageError,
    TimelineError,
)
from bucketlake.format.clustering_plan import (
    ClusteringGroup,
    ClusteringPlan,
    ResizeFacts,
    encode_clustering_plan,
)
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.hashing_metadata import HashingMetadata, NodeStats, encode_child_nodes
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.rings import (
    PendingResize,
    load_ring,
    pending_resizes,
    publish_rings,
    resizes_of_plan,
    ring_after,
    save_rings,
)
from bucketlake.index.settings import TableIndex, require_rings
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.table_type import TableType
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.read.file_system_view import list_files
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.compaction import with_schema_of_plan, with_sizes
from bucketlake.services.resize.candidates import Candidate, candidates_of_ring, within_limits
from bucketlake.services.resize.limits import ResizeLimits
from bucketlake.services.resize.split_points import split_points
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.clock import InstantClock, system_now_ms, table_clock
from bucketlake.timeline.commit_order import last_turn, take_turn
from bucketlake.timeline.heartbeat import beating, is_alive
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.locks import NO_LOCK, Check, TableLock
from bucketlake.timeline.markers import (
    Marker,
    MarkerType,
    delete_markers,
    read_markers,
    write_marker,
)
from bucketlake.timeline.outcome import claim_commit
from bucketlake.timeline.transitions import create_requested, instant_path
from bucketlake.write.commit import after_turn, by_partition
from bucketlake.write.completion import complete_instant
from bucketlake.write.conflict import UNDOING, require_no_restore, rolled_back
from bucketlake.write.group_writer import WRITE_TOKEN
from bucketlake.write.pending_actions import put_inflight
from bucketlake.write.progress import LOGGER, telling_progress
from bucketlake.write.recovery import end_undoing, settle_failed_writes
from bucketlake.write.resize_withdrawal import withdraw_resize
from bucketlake.write.resizer import ResizeJob, Resizer, ResizeResult

OPERATION = "CLUSTER"
ROUNDS_MAX = 10
ROUNDS_BESIDE_WRITERS = 3
"""Rounds of a copy-on-write table in which writers do not wait for the resize."""

_STRATEGY = (
    "org.apache.hudi.client.clustering.run.strategy."
    "SingleSparkJobConsistentHashingExecutionStrategy"
)
_HOLD_TOKEN = "0-0-0"  # In names of files that are never written; their markers hold writers.
_LOOK_SECONDS = 0.1
_WRITERS_WAIT_SECONDS = 30.0

Runner = Callable[[Resizer, Sequence[ResizeJob]], list[ResizeResult]]
"""Has an engine run jobs, some at once."""


@dataclass(frozen=True, slots=True)
class ResizedBuckets:
    """A split or a merge.

    Attributes
    ----------
    partition_path : str
        The partition.
    action : {"split", "merge"}
        What is done.
    file_ids : tuple of str
        The file groups that are rewritten.
    size_bytes : int
        Their bytes.
    old_ranges, new_ranges : tuple of (int, int)
        Ranges of hash values before and after: start, which is excluded, and end.
    """

    partition_path: str
    action: str
    file_ids: tuple[str, ...]
    size_bytes: int
    old_ranges: tuple[tuple[int, int], ...]
    new_ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ResizeReport:
    """What a resize does, or has done.

    Attributes
    ----------
    buckets : tuple of ResizedBuckets
        Splits and merges of the new plan; none if the table is in balance.
    left : int
        Further splits and merges that the limits leave to the next resize.
    instants : tuple of InstantTime
        Resizes that were completed, also those that were planned before; none for a dry run.
    scheduled : InstantTime or None
        The plan that was put on the timeline; None if there was nothing to do.
    """

    buckets: tuple[ResizedBuckets, ...]
    left: int = 0
    instants: tuple[InstantTime, ...] = ()
    scheduled: InstantTime | None = None


class _OvertakenError(Exception):
    """Writers changed what a plan names; the plan is withdrawn, and made again."""


@dataclass(frozen=True, slots=True)
class _Service:
    """What all steps of a resize share."""

    storage: Storage
    config: TableConfig
    given: TableIndex | None
    limits: ResizeLimits
    run: Runner
    clock: InstantClock
    lock: TableLock

    @property
    def appends(self) -> bool:
        """Whether writes append log files."""
        return self.config.table_type is TableType.MERGE_ON_READ


def resize(
    storage: Storage,
    config: TableConfig,
    index: TableIndex | None,
    limits: ResizeLimits,
    run: Runner,
    *,
    schedule_only: bool = False,
    dry_run: bool = False,
    lock: TableLock = NO_LOCK,
    now_ms: Callable[[], int] = system_now_ms,
) -> ResizeReport:
    """Carry out what is planned, then plan a resize and carry it out.

    Parameters
    ----------
    storage, config
        The table.
    index : TableIndex or None
        What the caller knows of the index.
    limits : ResizeLimits
        What to split and merge.
    run : callable
        Has an engine do it.
    schedule_only : bool
        Whether to leave the new plan to another process.
    dry_run : bool
        Whether to return only what would be planned.
    lock : TableLock
        Held while a resize is planned, and while it is published.
    now_ms : callable
        Milliseconds since 1970 UTC.

    Raises
    ------
    ConfigError
        If the index of the table has no rings.
    IndexStateError
        If a ring is broken, or a file group is not on its ring.
    CommitConflictError
        If writers that know no resize changed the groups in each of ten rounds.
    UnsupportedFeatureError
        If the table cannot be written.
    """
    check_writable(config, storage.root)
    timeline = load_timeline(storage, config)
    clock = table_clock(storage.root, config.timeline_timezone, now_ms)
    service = _Service(storage, config, index, limits, run, clock, lock)
    if dry_run:
        if not _is_due(service, timeline):
            return ResizeReport(())
        chosen, left = _worth_it(service, timeline)
        return ResizeReport(_described(service, timeline, chosen), left)
    settle_failed_writes(storage, config, timeline, clock, lock)
    done = [] if schedule_only else _carry_out_pending(service)
    if not _is_due(service, load_timeline(storage, config)):
        return ResizeReport((), instants=tuple(done))
    report = _plan_and_carry_out(service, schedule_only=schedule_only)
    return replace(report, instants=(*done, *report.instants))


def _plan_and_carry_out(service: _Service, *, schedule_only: bool) -> ResizeReport:
    """Plan a resize and carry it out, again and again while writers overtake it."""
    overtaken: InstantTime | None = None
    with ExitStack() as holds:  # Heartbeats of plans for which writers wait.
        for number in range(ROUNDS_MAX):
            is_held = not service.appends and number >= ROUNDS_BESIDE_WRITERS
            if overtaken is not None and not is_held:
                withdraw_resize(service.storage, service.config, service.clock, overtaken)
                overtaken = None
            before = holds.pop_all()  # Writers wait for the old plan until the new one holds them.
            with before, service.lock.held(service.storage) as require_held:
                plan = _schedule(service, require_held, overtaken, holds if is_held else None)
            if overtaken is not None:
                withdraw_resize(service.storage, service.config, service.clock, overtaken)
                overtaken = None
            if plan is None:
                return ResizeReport(())
            instant, chosen, left, timeline = plan
            report = ResizeReport(_described(service, timeline, chosen), left, (), instant)
            if schedule_only:
                return report
            try:
                _carry_out(service, instant, is_held=is_held)
            except _OvertakenError as error:
                LOGGER.info("resize %s: %s; it is planned again", instant, error)
                overtaken = instant
            else:
                return replace(report, instants=(instant,))
    withdraw_resize(service.storage, service.config, service.clock, instant)
    raise CommitConflictError(
        instant,
        f"writers changed the buckets in each of {ROUNDS_MAX} rounds of this resize; let writers "
        "of other programs pause, or configure a lock that they share with bucketlake",
    )


def resize_here(resizer: Resizer, jobs: Sequence[ResizeJob]) -> list[ResizeResult]:
    """Run jobs in threads of this process."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(resizer.resize, jobs))


# ---- planning -----------------------------------------------------------------------------------


def _is_due(service: _Service, timeline: Timeline) -> bool:
    """Return whether there are enough commits since the last resize."""
    least = service.limits.after_commits
    pending = max((found.requested_at for found in timeline.pending_clusterings()), default="")
    later = [done for done in timeline.completed_commits() if done.requested_at > pending]
    newest = later[-least:] if least else []
    return len(newest) == least and not any(
        done.action is Action.REPLACE_COMMIT and timeline.read_commit(service.storage, done).resizes
        for done in newest
    )


def _schedule(
    service: _Service,
    require_held: Check,
    overtaken: InstantTime | None,
    holds: ExitStack | None,
) -> tuple[InstantTime, list[Candidate], int, Timeline] | None:
    """Put a plan on the timeline; return its instant, what it does, and the timeline before.

    The plan is on the timeline before it takes a turn in the order of commits. So a commit either
    took a turn before, and its files are checked here, or takes one later, and finds the plan.

    Parameters
    ----------
    service : _Service
    require_held : callable
        Raises if the lock is lost.
    overtaken : InstantTime or None
        A pending plan that the new plan replaces.
    holds : ExitStack or None
        If given, writers of the groups wait for the plan until the stack is closed.
    """
    storage, config, clock = service.storage, service.config, service.clock
    while True:
        turn = last_turn(storage)
        timeline = after_turn(storage, config, clock, turn, None)
        if end_undoing(storage, config, timeline, clock):
            continue  # Else a rollback of a process that died would withdraw every plan.
        chosen, left = _worth_it(service, timeline, overtaken)
        if not chosen:
            return None
        instant = clock.next_instant(timeline, after=turn.instant if turn else None)
        plan = _plan_of(_rings(service, timeline), chosen, instant)
        require_held()
        content = encode_clustering_plan(plan, storage.root)
        try:
            create_requested(storage, config, instant, Action.CLUSTERING, content)
        except AlreadyExistsError:  # Another writer took this millisecond.
            continue
        if holds is not None:
            holds.enter_context(_holding_writers(service, instant, chosen))
        if _takes_turn(service, instant, plan, timeline, overtaken):
            return instant, chosen, left, timeline
        withdraw_resize(storage, config, clock, instant)


def _takes_turn(
    service: _Service,
    instant: InstantTime,
    plan: ClusteringPlan,
    before: Timeline,
    overtaken: InstantTime | None,
) -> bool:
    """Return whether a plan on the timeline names all that was committed before its turn.

    It takes no turn beside another plan of one of its partitions. If two processes find the plan of
    each other, both plan again.
    """
    storage, config, clock = service.storage, service.config, service.clock
    partitions = {planned.partition_path for planned in plan.slices}
    while True:
        turn = last_turn(storage)
        newest = after_turn(storage, config, clock, turn, instant)
        is_undoing = any(pending.action in UNDOING for pending in newest.pending())
        if is_undoing or rolled_back(storage, config, before, newest):
            return False
        if any(
            resize.partition_path in partitions and resize.instant not in (instant, overtaken)
            for resize in pending_resizes(storage, newest)
        ):
            return False
        if _overtaking(service, instant, plan, newest) is not None:
            return False
        # In the name of a commit that is completed: nobody waits for the decision of the plan.
        done = newest.completed_commits()[-1].requested_at
        if take_turn(storage, done, after=turn):
            return True


def _worth_it(
    service: _Service, timeline: Timeline, overtaken: InstantTime | None = None
) -> tuple[list[Candidate], int]:
    """Return what to do in one resize, and how much more there is to do.

    ``overtaken`` is a pending plan that the new plan replaces.
    """
    storage, limits = service.storage, service.limits
    snapshot = load_snapshot(storage, service.config, timeline)
    if snapshot.schema_or_none is None:
        return [], 0
    reader = SliceReader.of_snapshot(snapshot)  # Raises for rows that cannot be merged.
    rings = require_rings(storage, timeline, service.given)
    layout = rings.layout()
    found: dict[str, list[FileSlice]] = defaultdict(list)
    slices = (
        snapshot.all_slices()
        if limits.partitions is None
        else snapshot.partition_slices(limits.partitions)
    )
    for file_slice in slices:
        found[file_slice.partition_path].append(file_slice)
    absent = [path for path in limits.partitions or () if path not in found]
    if absent:
        raise InputError(
            f"resize {storage.root}",
            f"there is no partition {absent[0]!r} with records",
            "name partitions by their path, as table.buckets() shows it",
        )
    compacted = {
        (planned.partition_path, planned.file_id)
        for pending in timeline.pending_compactions()
        for planned in timeline.read_compaction_plan(storage, pending)
    }
    candidates: list[Candidate] = []
    for partition, live in sorted(found.items()):
        state = layout.state(partition)
        nodes = layout.live_slots(live)  # Raises if a group is not on the ring.
        is_changing = any(pending.instant != overtaken for pending in state.resizes)
        if is_changing or not state.is_stored:
            continue  # One change of a ring after the other.
        free = {
            slot: one
            for (_, slot), (one,) in nodes.items()
            if (partition, one.file_id) not in compacted
        }
        points_of = split_points(reader, state, layout.hash_fields, limits.split_at)
        candidates += candidates_of_ring(
            partition,
            state.ring,
            free,
            limits,
            count_min=rings.min,
            count_max=rings.max,
            points_of=points_of,
        )
    chosen = within_limits(candidates, limits)
    return chosen, len(candidates) - len(chosen)


def _plan_of(
    layout: RingLayout, chosen: Sequence[Candidate], instant: InstantTime
) -> ClusteringPlan:
    groups = []
    for candidate in chosen:
        metadata = layout.state(candidate.partition_path).metadata
        facts = ResizeFacts(
            candidate.partition_path,
            encode_child_nodes(candidate.children(metadata.ring, instant)),
            metadata.sequence_number,
        )
        output_count = len(candidate.new_values)
        groups.append(ClusteringGroup.of_resize(candidate.slices, output_count, facts))
    return ClusteringPlan(tuple(groups), _STRATEGY)


def _rings(service: _Service, timeline: Timeline) -> RingLayout:
    return require_rings(service.storage, timeline, service.given).layout()


def _described(
    service: _Service, timeline: Timeline, chosen: Iterable[Candidate]
) -> tuple[ResizedBuckets, ...]:
    layout = _rings(service, timeline)
    described = []
    for candidate in chosen:
        ring = layout.state(candidate.partition_path).ring
        old = [ring.range_of(value) for value in candidate.values]
        starts = [old[0].start, *candidate.new_values[:-1]]
        described.append(
            ResizedBuckets(
                candidate.partition_path,
                "split" if candidate.is_split else "merge",
                tuple(one.file_id for one in candidate.slices),
                candidate.size_bytes,
                tuple((found.start, found.end) for found in old),
                tuple(zip(starts, candidate.new_values, strict=True)),
            )
        )
    return tuple(described)


@contextmanager
def _holding_writers(
    service: _Service, instant: InstantTime, chosen: Iterable[Candidate]
) -> Iterator[None]:
    """Have writers of the groups wait, as if the resize were a write that has begun there.

    The markers name files that are never written.
    """
    for candidate in chosen:
        for file_slice in candidate.slices:
            name = BaseFileName(file_slice.file_id, _HOLD_TOKEN, instant).to_file_name()
            marker = Marker(candidate.partition_path, name, MarkerType.MERGE)
            write_marker(service.storage, instant, marker)
    with beating(service.storage, instant):
        yield


# ---- carrying out -------------------------------------------------------------------------------


def _carry_out_pending(service: _Service) -> list[InstantTime]:
    """Carry out the resizes on the timeline, whoever planned them."""
    storage, config = service.storage, service.config
    done = []
    timeline = load_timeline(storage, config)
    for instant in sorted({one.instant for one in pending_resizes(storage, timeline)}):
        try:
            _carry_out(service, instant)
            done.append(instant)
        except _OvertakenError as error:
            LOGGER.info("resize %s: %s; it is withdrawn", instant, error)
            withdraw_resize(storage, config, service.clock, instant)
    return done


def _carry_out(service: _Service, instant: InstantTime, *, is_held: bool = False) -> None:
    """Carry a plan out, and complete the resize; with ``is_held`` its heart beats already."""
    storage, config, clock = service.storage, service.config, service.clock
    if not is_held and is_alive(storage, instant, clock.now_ms):
        raise CommitConflictError(instant, "another process carries this resize out")
    timeline = load_timeline(storage, config)
    plan = timeline.read_clustering_plan(storage, _pending(timeline, instant))
    inflight = instant_path(config, Instant(instant, Action.CLUSTERING, State.INFLIGHT))
    with nullcontext() if is_held else beating(storage, instant, is_new=False):
        put_inflight(storage, config, instant, Action.CLUSTERING)
        _drop_files_of_others(storage, instant)
        slices = with_sizes(storage, instant, plan.slices)
        snapshot = with_schema_of_plan(load_snapshot(storage, config, timeline), instant, slices)
        layout = _rings(service, timeline)
        resizer = Resizer(
            SliceReader.of_snapshot(snapshot),
            instant,
            snapshot.schema,
            inflight,
            layout.hash_fields,
        )
        jobs = _jobs(timeline, layout, instant, slices)
        with telling_progress(storage, instant, "resize", len(jobs)):
            results = service.run(resizer, jobs)
        with service.lock.held(storage) as require_held:
            _complete(service, snapshot, instant, plan, results, require_held)


def _jobs(
    timeline: Timeline,
    layout: RingLayout,
    instant: InstantTime,
    slices: Sequence[FileSlice],
) -> list[ResizeJob]:
    sized = {(one.partition_path, one.file_id): one for one in slices}
    jobs = []
    for resize in _of_instant(layout, timeline, instant):
        state = layout.state(resize.partition_path)
        for group in resize.groups:
            held = tuple(sized[resize.partition_path, file_id] for file_id in group.file_ids)
            new = group.new_ring
            nodes = tuple(zip(new.values.tolist(), new.prefixes, strict=True))
            first = state.positions.get(group.file_ids[0])
            if first is None:
                raise _OvertakenError("a file group of the plan left the ring")
            jobs.append(ResizeJob(held, nodes, state.hash_range(first)[0]))
    return jobs


def _of_instant(
    layout: RingLayout, timeline: Timeline, instant: InstantTime
) -> list[PendingResize]:
    found = pending_resizes(layout.source.storage, timeline)
    return [resize for resize in found if resize.instant == instant]


def _complete(
    service: _Service,
    snapshot: Snapshot,
    instant: InstantTime,
    plan: ClusteringPlan,
    results: Sequence[ResizeResult],
    require_held: Check,
) -> None:
    """Save the new rings, and publish the resize; raise if writers overtook the plan."""
    storage, config, clock = service.storage, service.config, service.clock
    stats = [stat for result in results for stat in result.stats]
    distributions = {
        prefix: found for result in results for prefix, found in result.distributions.items()
    }
    replaced: dict[str, list[FileId]] = defaultdict(list)
    for planned in plan.slices:
        replaced[planned.partition_path].append(planned.file_id)
    while True:
        turn = last_turn(storage)
        timeline = after_turn(storage, config, clock, turn, instant)
        if timeline.find_completed(instant) is not None:
            return  # Hudi, or another process of ours, carried it out meanwhile.
        require_no_restore(timeline)
        _pending(timeline, instant)
        reason = _overtaking(service, instant, plan, timeline)
        if reason is not None:
            raise _OvertakenError(reason)
        if _waits_for_copies(service, timeline, instant):
            continue
        rings = _new_rings(service, timeline, instant, distributions)
        save_rings(storage, instant, rings)
        if take_turn(storage, instant, after=turn):
            break
    if service.appends:
        _drop_copies_of_no_commit(service, instant, replaced.keys())
    extra = {"schema": snapshot.schema_text or ""}
    metadata = CommitMetadata(
        OPERATION,
        by_partition(stats),
        extra,
        {path: tuple(sorted(ids)) for path, ids in replaced.items()},
    )
    completed_at = clock.next_instant(timeline, after=turn.instant if turn else None)
    require_held()
    content = encode_commit_metadata(metadata)
    outcome = claim_commit(storage, instant, completed_at, Action.REPLACE_COMMIT, content)
    if outcome.publication is None:
        raise CommitConflictError(instant, "another process withdrew this resize; run it again")
    inflight = Instant(instant, Action.CLUSTERING, State.INFLIGHT)
    complete_instant(storage, config, inflight, outcome.publication)
    with suppress(StorageError):  # The next write does both.
        publish_rings(storage, instant, rings)
        delete_markers(storage, instant)


def _new_rings(
    service: _Service,
    timeline: Timeline,
    instant: InstantTime,
    distributions: Mapping[str, NodeStats],
) -> dict[str, HashingMetadata]:
    """Return the rings after the resize, by partition path."""
    storage = service.storage
    rings: dict[str, HashingMetadata] = {}
    for resize in _of_instant(_rings(service, timeline), timeline, instant):
        path = resize.partition_path
        metadata = load_ring(storage, timeline, path)
        if metadata is None or metadata.sequence_number != resize.sequence_number:
            raise _OvertakenError(f"the hash ring of partition {path!r} was changed meanwhile")
        new = ring_after(metadata, resize.children, instant)
        known = {**metadata.stats, **distributions}
        stats = {prefix: known[prefix] for prefix in new.ring.prefixes if prefix in known}
        rings[path] = replace(new, stats=stats)
    return rings


def _overtaking(
    service: _Service, instant: InstantTime, plan: ClusteringPlan, newest: Timeline
) -> str | None:
    """Return why a plan cannot complete any more; None if it can.

    A commit of a group of the plan is in the plan, or is older than its slice, or has copies in the
    new groups. Times alone do not tell: a commit may complete while the plan is made.
    """
    planned = {(held.partition_path, held.file_id): held for held in plan.slices}
    known = {path for held in plan.slices for path in held.paths}
    for other, commit in newest.read_commits(service.storage, newest.completed_commits()):
        at = other.requested_at
        gone = planned.keys() & {
            (path, file_id) for path, ids in commit.replaced_file_ids.items() for file_id in ids
        }
        if gone:
            return f"instant {at} replaced file group {min(gone)[1]}"
        if commit.compacted:
            continue  # It changes no row.
        completed_at = newest.completion_time(at) or at
        written = [stat for stat in commit.stats if stat.path not in known]
        touched = {
            group
            for stat in written
            if (group := (stat.partition_path, stat.file_id)) in planned
            and not _is_older(completed_at, planned[group])
        }
        if not touched:
            continue
        if not service.appends:
            return f"instant {at} wrote file group {min(touched)[1]}"
        if not _has_copies(plan, instant, touched, [stat.path for stat in written]):
            return f"instant {at} wrote file group {min(touched)[1]} without a copy"
    return None


def _is_older(completed_at: InstantTime, planned: FileSlice) -> bool:
    """Return whether a commit was completed before the base file of a slice was begun."""
    return planned.base_file is not None and completed_at < planned.base_file.name.instant


def _has_copies(
    plan: ClusteringPlan,
    instant: InstantTime,
    touched: Iterable[tuple[str, str]],
    paths: Sequence[str],
) -> bool:
    """Return whether a write that touched groups of a plan wrote log files for new groups, too."""
    copied = set()
    for path in paths:
        name = LogFileName.from_file_name(path.rpartition("/")[2])
        if name is not None and name.instant == instant:
            copied.add((path.rpartition("/")[0], name.file_id))
    for partition, file_id in touched:
        new = {
            found
            for resize in resizes_of_plan(instant, plan)
            if resize.partition_path == partition and (group := resize.find(FileId(file_id)))
            for found in group.new_file_ids
        }
        if not any((partition, one) in copied for one in new):
            return False
    return True


def _waits_for_copies(service: _Service, timeline: Timeline, instant: InstantTime) -> bool:
    """Wait while a writer of Hudi has copies and is not committed; return whether it waited.

    Readers of Hudi would show its copies once the resize completes. Writers of bucketlake have no
    copies before their turn.

    Raises
    ------
    CommitConflictError
        If such a writer goes on for too long. The plan stays on the timeline.
    """
    deadline, has_waited = time.monotonic() + _WRITERS_WAIT_SECONDS, False
    while (writer := _writer_with_copies(service, timeline, instant)) is not None:
        if time.monotonic() > deadline:
            raise CommitConflictError(
                instant,
                f"instant {writer} of another program has written for this resize and is not "
                "completed; run the resize again",
            )
        time.sleep(_LOOK_SECONDS)
        has_waited = True
        newest = load_timeline(service.storage, service.config)
        settle_failed_writes(service.storage, service.config, newest, service.clock)
        timeline = load_timeline(service.storage, service.config)
    return has_waited


def _writer_with_copies(
    service: _Service, timeline: Timeline, instant: InstantTime
) -> InstantTime | None:
    for pending in timeline.pending():
        if pending.action not in WRITES:
            continue
        names = (
            LogFileName.from_file_name(marker.file_name)
            for marker in read_markers(service.storage, pending.requested_at)
        )
        if any(name is not None and name.instant == instant for name in names):
            return pending.requested_at
    return None


def _drop_copies_of_no_commit(
    service: _Service, instant: InstantTime, partitions: Iterable[str]
) -> None:
    """Delete copies of writes that Hudi rolled back; its readers would show them from now on.

    A rollback of Hudi finds files by the instant in their names, and copies have the resize's.
    """
    storage = service.storage
    names = {file.path: file.name for file in list_files(storage, sorted(set(partitions)))}
    copies = {path for path, name in names.items() if isinstance(name, LogFileName)}
    copies = {path for path in copies if names[path].instant == instant}
    if not copies:
        return
    timeline = load_timeline(storage, service.config)  # After the listing.
    for _, commit in timeline.read_commits(storage, timeline.completed_commits()):
        copies.difference_update(stat.path for stat in commit.stats)
    for pending in timeline.pending():
        copies.difference_update(
            marker.data_path for marker in read_markers(storage, pending.requested_at)
        )
    for path in sorted(copies):
        LOGGER.warning("resize %s deletes %s, a copy of a write that was undone", instant, path)
        storage.delete(path)


def _drop_files_of_others(storage: Storage, instant: InstantTime) -> None:
    """Delete what another program wrote for the plan and did not complete; its names differ."""
    for marker in read_markers(storage, instant):
        ours = f"_{WRITE_TOKEN}_" in marker.file_name or f"_{_HOLD_TOKEN}_" in marker.file_name
        if not ours:
            storage.delete(marker.data_path)


def _pending(timeline: Timeline, instant: InstantTime) -> Instant:
    for pending in timeline.pending_clusterings():
        if pending.requested_at == instant:
            return pending
    raise TimelineError(instant, "is not a pending resize (any more)")
