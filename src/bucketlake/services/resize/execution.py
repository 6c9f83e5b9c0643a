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

Whoever planned the resize, bucketlake or Hudi, and however often it is executed, the same rows come
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial

from bucketlake.actions.conflict import require_no_restore
from bucketlake.actions.log_copies import committed_copies
from bucketlake.actions.metadata_upkeep import prepare_commit
from bucketlake.actions.progress import LOGGER, telling_progress
from bucketlake.actions.recovery import writable_timeline
from bucketlake.actions.rollback import withdraw_resize
from bucketlake.actions.transact import (
    AGAIN,
    Answer,
    Decision,
    Ready,
    Settled,
    commit_change,
    nothing,
)
from bucketlake.errors import CommitConflictError, StorageError
from bucketlake.flow.stage import Engine
from bucketlake.format.clustering_plan import ClusteringPlan
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.hashing_metadata import HashingMetadata, NodeStats
from bucketlake.index.ring_engine import engine_of_plan, extension_entries
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.ring_state import PendingResize, pending_resizes
from bucketlake.index.rings import load_ring, publish_rings, ring_after, save_rings
from bucketlake.index.setting import TableIndex
from bucketlake.metadata.record_index.pinned_index import maintained_index
from bucketlake.metadata.statistics.of_file import indexed_columns
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import grouped
from bucketlake.model.write_stat import CommitMetadata, by_partition
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.compaction import drop_files_of_others, with_schema_of_plan, with_sizes
from bucketlake.services.resize.planning import (
    HOLD_TOKEN,
    described,
    drop_copies_of_no_commit,
    is_resize_due,
    overtaking,
    schedule,
    waits_for_copies,
    worth_it,
)
from bucketlake.services.resize.service import (
    OvertakenError,
    ResizeLimits,
    ResizeReport,
    ResizeService,
    rings_of,
)
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.commit_order import Head
from bucketlake.timeline.heartbeat import beating, is_alive
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.locks import LockCheck
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.transitions import instant_path, to_inflight
from bucketlake.write.key_rule_check import by_files
from bucketlake.write.record_index.index_upkeep import IndexUpkeep, write_stats_of
from bucketlake.write.record_index.index_writer import ShardPlan, ShardResult, with_index
from bucketlake.write.slice_rewrite import ResizeJob, Resizer, ResizeResult

_OPERATION = "CLUSTER"

ROUNDS_MAX = 10
ROUNDS_BESIDE_WRITERS = 3
"""Rounds of a copy-on-write table in which writers do not wait for the resize."""


def resize(
    table: OpenTable,
    index: TableIndex | None,
    limits: ResizeLimits,
    engine: Engine,
    *,
    schedule_only: bool = False,
    dry_run: bool = False,
) -> ResizeReport:
    """Carry out what is planned, then plan a resize and carry it out.

    Parameters
    ----------
    table : OpenTable
    index : TableIndex or None
        What the caller knows of the index.
    limits : ResizeLimits
        What to split and merge.
    engine : Engine
        Has an engine do it.
    schedule_only : bool
        Whether to leave the new plan to another process.
    dry_run : bool
        Whether to return only what would be planned.

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
    timeline = writable_timeline(table, settles=not dry_run)
    service = ResizeService(table, index, limits, engine)
    if dry_run:
        if not is_resize_due(service, timeline):
            return ResizeReport(())
        chosen, left = worth_it(service, timeline)
        return ResizeReport(described(service, timeline, chosen), left)
    done = [] if schedule_only else carry_out_pending(service)
    if not is_resize_due(service, load_timeline(table)):
        return ResizeReport((), instants=tuple(done))
    report = _plan_and_carry_out(service, schedule_only=schedule_only)
    return replace(report, instants=(*done, *report.instants))


def _plan_and_carry_out(service: ResizeService, *, schedule_only: bool) -> ResizeReport:
    """Plan a resize and carry it out, again and again while writers overtake it."""
    overtaken: InstantTime | None = None
    with ExitStack() as holds:  # Heartbeats of plans for which writers wait.
        for number in range(ROUNDS_MAX):
            is_held = not service.appends and number >= ROUNDS_BESIDE_WRITERS
            if overtaken is not None and not is_held:
                withdraw_resize(service.table, overtaken)
                overtaken = None
            before = holds.pop_all()  # Writers wait for the old plan until the new one holds them.
            with before, service.table.lock.held(service.table.storage) as require_held:
                plan = schedule(service, require_held, overtaken, holds if is_held else None)
            if overtaken is not None:
                withdraw_resize(service.table, overtaken)
                overtaken = None
            if plan is None:
                return ResizeReport(())
            instant, chosen, left, timeline = plan
            report = ResizeReport(described(service, timeline, chosen), left, (), instant)
            if schedule_only:
                return report
            try:
                carry_out(service, instant, is_held=is_held)
            except OvertakenError as error:
                LOGGER.info("resize %s: %s; it is planned again", instant, error)
                overtaken = instant
            else:
                return replace(report, instants=(instant,))
    withdraw_resize(service.table, instant)
    raise CommitConflictError(
        instant,
        f"writers changed the buckets in each of {ROUNDS_MAX} rounds of this resize; let writers "
        "of other programs pause, or configure a lock that they share with bucketlake",
    )


# ---- Executing the plan of a resize, and completing it -------------------------------------------


def carry_out_pending(service: ResizeService) -> list[InstantTime]:
    """Carry out the resizes on the timeline, whoever planned them."""
    storage = service.table.storage
    done = []
    timeline = load_timeline(service.table)
    for instant in sorted({one.instant for one in pending_resizes(storage, timeline)}):
        try:
            carry_out(service, instant)
            done.append(instant)
        except OvertakenError as error:
            LOGGER.info("resize %s: %s; it is withdrawn", instant, error)
            withdraw_resize(service.table, instant)
    return done


def carry_out(service: ResizeService, instant: InstantTime, *, is_held: bool = False) -> None:
    """Carry a plan out, and complete the resize; with ``is_held`` its heart beats already."""
    storage, config = service.table.storage, service.table.config
    if not is_held and is_alive(storage, instant, service.table.clock.now_ms):
        raise CommitConflictError(instant, "another process carries this resize out")
    timeline = load_timeline(service.table)
    if timeline.find_completed(instant) is not None:
        return  # Another process carried it out meanwhile.
    plan = timeline.read_clustering_plan(storage, _pending(timeline, instant))
    reason = overtaking(service, instant, plan, timeline)
    if reason is not None:  # Known before any work is done.
        raise OvertakenError(reason)
    with nullcontext() if is_held else beating(storage, instant, is_new=False):
        inflight = instant_path(config, to_inflight(service.table, instant, Action.CLUSTERING))
        drop_files_of_others(storage, instant, HOLD_TOKEN)
        slices = with_sizes(storage, instant, plan.slices)
        snapshot = with_schema_of_plan(load_snapshot(service.table, timeline), instant, slices)
        layout = by_files(rings_of(service, timeline), snapshot, slices)
        upkeep = _index_upkeep(service, timeline, instant, slices)
        shards: tuple[ShardPlan, ...] = ()
        if upkeep is not None:
            shards = upkeep.plan_moves(slices, may_have_dead_entries=service.appends)
        resizer = Resizer(
            SliceReader.of_snapshot(snapshot),
            instant,
            snapshot.schema,
            inflight,
            layout.hash_fields,
            indexed_columns(service.table, snapshot.schema),
            None if upkeep is None else upkeep.task(shards),
            layout.engine,
        )
        jobs = _jobs(timeline, layout, instant, slices)
        with telling_progress(storage, instant, "resize", len(jobs)):
            flow = service.engine.start(resizer.run, jobs, [job.size_bytes for job in jobs])
            results = with_index(flow, resizer.index, shards).results()
        with service.table.lock.held(storage) as require_held:
            _complete(service, snapshot, instant, plan, results, upkeep, require_held)


def _index_upkeep(
    service: ResizeService, timeline: Timeline, instant: InstantTime, slices: Sequence[FileSlice]
) -> IndexUpkeep | None:
    """Return the upkeep of the record-level index; None if there is none to maintain."""
    paths = {held.partition_path for held in slices}
    table = service.table
    index = maintained_index(
        table.storage, timeline, table.config, paths, live=paths, replaces=service.appends
    )
    if index is None:
        return None
    pending = Instant(instant, Action.CLUSTERING, State.INFLIGHT)
    return IndexUpkeep(table, pending, index)


def _jobs(
    timeline: Timeline, layout: RingLayout, instant: InstantTime, slices: Sequence[FileSlice]
) -> list[ResizeJob]:
    sized = {one.group: one for one in slices}
    jobs = []
    for resize in _of_instant(layout, timeline, instant):
        state = layout.state(resize.partition_path)
        for group in resize.groups:
            held = tuple(sized[resize.partition_path, file_id] for file_id in group.file_ids)
            first = state.positions.get(group.file_ids[0])
            if first is None:
                raise OvertakenError("a file group of the plan left the ring")
            jobs.append(ResizeJob(held, group.new_ring, state.hash_range(first)[0]))
    return jobs


def _of_instant(
    layout: RingLayout, timeline: Timeline, instant: InstantTime
) -> list[PendingResize]:
    found = pending_resizes(layout.source.storage, timeline)
    return [resize for resize in found if resize.instant == instant]


def _complete(
    service: ResizeService,
    snapshot: Snapshot,
    instant: InstantTime,
    plan: ClusteringPlan,
    results: Sequence[ResizeResult | ShardResult],
    upkeep: IndexUpkeep | None,
    require_held: LockCheck,
) -> None:
    """Save the new rings, and publish the resize; raise if writers overtook the plan."""
    storage = service.table.storage
    moved = [result for result in results if isinstance(result, ResizeResult)]
    stats = [stat for result in moved for stat in result.stats]
    distributions = {
        prefix: found for result in moved for prefix, found in result.distributions.items()
    }
    index_files = write_stats_of([r for r in results if not isinstance(r, ResizeResult)])
    rings: dict[str, HashingMetadata] = {}
    replaced = grouped(planned.group for planned in plan.slices)
    extra = {"schema": snapshot.schema_text or "", **extension_entries(engine_of_plan(plan))}
    groups = {path: tuple(sorted(ids)) for path, ids in replaced.items()}
    commit = CommitMetadata(_OPERATION, by_partition(stats), extra, groups)
    drop_copies = partial(drop_copies_of_no_commit, service, instant, replaced.keys())

    def change(now: Head) -> Answer[Decision | None]:
        timeline = now.timeline
        if timeline.find_completed(instant) is not None:
            return Settled(None)  # Hudi, or another process of ours, carried it out meanwhile.
        require_no_restore(timeline)
        _pending(timeline, instant)
        reason = overtaking(service, instant, plan, timeline)
        if reason is not None:
            raise OvertakenError(reason)
        if waits_for_copies(service, timeline, instant):
            return AGAIN
        if upkeep is not None:
            upkeep.require_same_index(now.turn, None)  # Its partitions have shards.
        rings.update(_new_rings(service, timeline, instant, distributions))
        save_rings(storage, instant, rings)
        copies = committed_copies(storage, timeline, {instant} if service.appends else ())
        # The keys of copies moved too, and no task has read them.
        files = None if copies or upkeep is None else index_files
        decision = Decision(
            Instant(instant, Action.CLUSTERING, State.INFLIGHT),
            encode_commit_metadata(commit, service.table.config.layout),
            prepare_commit(now, instant, commit, files, shown=copies),
            between=drop_copies if service.appends else nothing,
        )
        return Ready(instant, decision)

    if commit_change(service.table, change, require_held, own=instant) is None:
        return
    with suppress(StorageError):  # The next write does it.
        publish_rings(storage, instant, rings, engine_of_plan(plan))


def _new_rings(
    service: ResizeService,
    timeline: Timeline,
    instant: InstantTime,
    distributions: Mapping[str, NodeStats],
) -> dict[str, HashingMetadata]:
    """Return the rings after the resize, by partition path."""
    storage = service.table.storage
    rings: dict[str, HashingMetadata] = {}
    layout = rings_of(service, timeline)
    engine = layout.engine
    for resize in _of_instant(layout, timeline, instant):
        path = resize.partition_path
        metadata = load_ring(storage, timeline, path, engine)
        if metadata is None or metadata.sequence_number != resize.sequence_number:
            changed = f"the {engine.ring_word} of partition {path!r} was changed meanwhile"
            raise OvertakenError(changed)
        new = ring_after(metadata, resize.children, instant)
        known = {**metadata.stats, **distributions}
        stats = {prefix: known[prefix] for prefix in new.ring.prefixes if prefix in known}
        rings[path] = replace(new, stats=stats)
    return rings


def _pending(timeline: Timeline, instant: InstantTime) -> Instant:
    for pending in timeline.pending_clusterings():
        if pending.requested_at == instant:
            return pending
    raise OvertakenError("another process withdrew the plan")
