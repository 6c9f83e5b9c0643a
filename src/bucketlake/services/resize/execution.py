"""Executing the plan of a resize, and completing it (RFC-42).

Whoever planned the resize, bucketlake or Hudi, and however often it is executed, the same rows come
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial

from bucketlake.actions.conflict import require_no_restore
from bucketlake.actions.log_copies import committed_copies
from bucketlake.actions.metadata_upkeep import prepare_commit
from bucketlake.actions.pending import put_inflight
from bucketlake.actions.progress import LOGGER, telling_progress
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
from bucketlake.format.clustering_plan import ClusteringPlan
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.hashing_metadata import HashingMetadata, NodeStats
from bucketlake.index.ring_engine import engine_of_plan, extension_entries
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.ring_state import PendingResize, pending_resizes
from bucketlake.index.rings import load_ring, publish_rings, ring_after, save_rings
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
    drop_copies_of_no_commit,
    overtaking,
    waits_for_copies,
)
from bucketlake.services.resize.service import OvertakenError, ResizeService, rings_of
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.commit_order import Head
from bucketlake.timeline.heartbeat import beating, is_alive
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.locks import LockCheck
from bucketlake.timeline.transitions import instant_path
from bucketlake.write.key_rule_check import by_files
from bucketlake.write.record_index.index_upkeep import IndexUpkeep, write_stats_of
from bucketlake.write.record_index.index_writer import ShardPlan, ShardResult, with_index
from bucketlake.write.slice_rewrite import ResizeJob, Resizer, ResizeResult

_OPERATION = "CLUSTER"


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
    inflight = instant_path(config, Instant(instant, Action.CLUSTERING, State.INFLIGHT))
    with nullcontext() if is_held else beating(storage, instant, is_new=False):
        put_inflight(service.table, instant, Action.CLUSTERING)
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
            new = group.new_ring
            nodes = tuple(zip(new.values.tolist(), new.prefixes, strict=True))
            first = state.positions.get(group.file_ids[0])
            if first is None:
                raise OvertakenError("a file group of the plan left the ring")
            jobs.append(ResizeJob(held, nodes, state.hash_range(first)[0]))
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
