"""Planning a resize: a clustering on the timeline that names slices and new nodes (RFC-42).

The plan is on the timeline before it takes a turn in the order of commits. So each commit either is
in the plan, or finds it. On copy-on-write tables a plan of the last rounds also has markers of the
file groups that it rewrites: writers wait for it, as they wait for another writer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial

from bucketlake.actions.conflict import commits_since, rolled_back
from bucketlake.actions.recovery import end_undoing
from bucketlake.actions.resize_withdrawal import withdraw_resize
from bucketlake.actions.turns import head
from bucketlake.errors import (
    AlreadyExistsError,
    InputError,
)
from bucketlake.format.clustering_plan import (
    ClusteringGroup,
    ClusteringPlan,
    ResizeFacts,
    encode_clustering_plan,
)
from bucketlake.hashing.directory import Directory
from bucketlake.index.extendible import ExtendibleBucket
from bucketlake.index.ring_engine import extension_entries
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.ring_state import pending_resizes
from bucketlake.index.setting import require_rings
from bucketlake.index.stored_setting import is_conversion
from bucketlake.model.file_name import BaseFileName, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.names import did_you_mean
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.compaction import require_files
from bucketlake.services.resize.candidates import Candidate, candidates_of_ring, within_limits
from bucketlake.services.resize.halves import (
    candidates_of_directory,
    key_positions,
    require_halves,
    suffix_texts,
)
from bucketlake.services.resize.overtaking import overtaking
from bucketlake.services.resize.report import ResizedBuckets
from bucketlake.services.resize.service import ResizeService, rings_of
from bucketlake.services.resize.split_points import split_points
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import UNDOING, Action
from bucketlake.timeline.locks import Check
from bucketlake.timeline.markers import (
    Marker,
    MarkerType,
    write_marker,
)
from bucketlake.timeline.transitions import create_requested

HOLD_TOKEN = "0-0-0"  # In names of files that are never written; their markers hold writers.


def is_due(service: ResizeService, timeline: Timeline) -> bool:
    """Return whether there are enough commits since the last resize."""
    least = service.limits.after_commits
    pending = max((found.requested_at for found in timeline.pending_clusterings()), default="")
    later = [done for done in timeline.completed_commits() if done.requested_at > pending]
    newest = later[-least:] if least else []
    return len(newest) == least and not any(
        done.action is Action.REPLACE_COMMIT
        and timeline.read_commit(service.table.storage, done).resizes
        for done in newest
    )


def schedule(
    service: ResizeService,
    require_held: Check,
    overtaken: InstantTime | None,
    holds: ExitStack | None,
) -> tuple[InstantTime, list[Candidate], int, Timeline] | None:
    """Put a plan on the timeline; return its instant, what it does, and the timeline before.

    The plan is on the timeline before it takes a turn in the order of commits. So a commit either
    took a turn before, and its files are checked here, or takes one later, and finds the plan.

    Parameters
    ----------
    service : ResizeService
    require_held : callable
        Raises if the lock is lost.
    overtaken : InstantTime or None
        A pending plan that the new plan replaces.
    holds : ExitStack or None
        If given, writers of the groups wait for the plan until the stack is closed.
    """
    storage = service.table.storage
    while True:
        now = head(service.table)
        timeline = now.timeline
        if end_undoing(service.table, timeline):
            continue  # Else a rollback of a process that died would withdraw every plan.
        chosen, left = worth_it(service, timeline, overtaken)
        if not chosen:
            return None
        instant = now.next_instant()
        plan = _plan_of(rings_of(service, timeline), chosen, instant)
        require_held()
        content = encode_clustering_plan(plan, storage.root)
        with ExitStack() as beats:
            try:
                if holds is not None:  # The plan must not look like that of a dead process.
                    beats.enter_context(beating(storage, instant))
                create_requested(service.table, instant, Action.CLUSTERING, content)
            except AlreadyExistsError:  # Another writer took this millisecond.
                continue
            if holds is not None:
                holds.enter_context(beats.pop_all())
                _hold_writers(service, instant, chosen)
        if _takes_turn(service, instant, plan, timeline, overtaken):
            return instant, chosen, left, timeline
        withdraw_resize(service.table, instant)


def _takes_turn(
    service: ResizeService,
    instant: InstantTime,
    plan: ClusteringPlan,
    before: Timeline,
    overtaken: InstantTime | None,
) -> bool:
    """Return whether a plan on the timeline names all that was committed before its turn.

    It takes no turn beside another plan of one of its partitions. If two processes find the plan of
    each other, both plan again.
    """
    storage = service.table.storage
    partitions = {planned.partition_path for planned in plan.slices}
    while True:
        now = head(service.table, own=instant)
        newest = now.timeline
        is_undoing = any(pending.action in UNDOING for pending in newest.pending())
        if is_undoing or rolled_back(service.table, before, newest):
            return False
        since = commits_since(service.table, before, newest)
        if any(is_conversion(commit) for _, commit in since):
            return False  # The next attempt raises the error of a table without rings.
        if any(
            resize.partition_path in partitions and resize.instant not in (instant, overtaken)
            for resize in pending_resizes(storage, newest)
        ):
            return False
        if overtaking(service, instant, plan, newest) is not None:
            return False
        # In the name of a commit that is completed: nobody waits for the decision of the plan.
        done = newest.completed_commits()[-1].requested_at
        if now.take(done):
            return True


def worth_it(
    service: ResizeService, timeline: Timeline, overtaken: InstantTime | None = None
) -> tuple[list[Candidate], int]:
    """Return what to do in one resize, and how much more there is to do.

    ``overtaken`` is a pending plan that the new plan replaces.
    """
    storage, limits = service.table.storage, service.limits
    snapshot = load_snapshot(service.table, timeline)
    if snapshot.schema_or_none is None:
        return [], 0
    reader = SliceReader.of_snapshot(snapshot)  # Raises for rows that cannot be merged.
    rings = require_rings(storage, timeline, service.given)
    if isinstance(rings, ExtendibleBucket):
        require_halves(limits)
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
            "name partitions by their path, as table.buckets() (bucketlake buckets) shows it"
            + did_you_mean(absent[0], {held.partition_path for held in snapshot.all_slices()}),
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
        if isinstance(rings, ExtendibleBucket):
            candidates += candidates_of_directory(
                partition,
                state.ring,
                free,
                limits,
                depth_max=rings.max_depth,
                positions_of=partial(key_positions, reader, layout),
            )
            continue
        candidates += candidates_of_ring(
            partition,
            state.ring,
            free,
            limits,
            count_min=rings.min,
            count_max=rings.max,
            points_of=split_points(reader, state, layout.hash_fields, limits.split_at),
        )
    chosen = within_limits(candidates, limits)
    planned = [file_slice for candidate in chosen for file_slice in candidate.slices]
    require_files(service.table, planned)
    return chosen, len(candidates) - len(chosen)


def _plan_of(
    layout: RingLayout, chosen: Sequence[Candidate], instant: InstantTime
) -> ClusteringPlan:
    groups = []
    for candidate in chosen:
        metadata = layout.state(candidate.partition_path).metadata
        facts = ResizeFacts(
            candidate.partition_path,
            layout.engine.encode_children(
                metadata.ring, candidate.children(metadata.ring, instant)
            ),
            metadata.sequence_number,
        )
        output_count = len(candidate.new_values)
        groups.append(ClusteringGroup.of_resize(candidate.slices, output_count, facts))
    engine = layout.engine
    return ClusteringPlan(tuple(groups), engine.strategy, extra=extension_entries(engine))


def described(
    service: ResizeService, timeline: Timeline, chosen: Iterable[Candidate]
) -> tuple[ResizedBuckets, ...]:
    """Return what is done, with hash ranges, for a report."""
    layout = rings_of(service, timeline)
    found = []
    for candidate in chosen:
        ring = layout.state(candidate.partition_path).ring
        old = [ring.range_of(value) for value in candidate.values]
        starts = [old[0].start, *candidate.new_values[:-1]]
        old_ranges = tuple((old_range.start, old_range.end) for old_range in old)
        new_ranges = tuple(zip(starts, candidate.new_values, strict=True))
        facts = (
            candidate.partition_path,
            "split" if candidate.is_split else "merge",
            tuple(one.file_id for one in candidate.slices),
            candidate.size_bytes,
        )
        if isinstance(ring, Directory):
            suffixes = tuple(map(suffix_texts, (old_ranges, new_ranges)))
            found.append(ResizedBuckets(*facts, (), (), *suffixes))
        else:
            found.append(ResizedBuckets(*facts, old_ranges, new_ranges))
    return tuple(found)


def _hold_writers(
    service: ResizeService, instant: InstantTime, chosen: Iterable[Candidate]
) -> None:
    """Have writers of the groups wait, as if the resize were a write that has begun there.

    The markers name files that are never written.
    """
    for candidate in chosen:
        for file_slice in candidate.slices:
            name = BaseFileName(file_slice.file_id, HOLD_TOKEN, instant).to_file_name()
            marker = Marker(candidate.partition_path, name, MarkerType.MERGE)
            write_marker(service.table.storage, instant, marker)
