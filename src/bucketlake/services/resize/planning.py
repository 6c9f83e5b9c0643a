"""Planning a resize: a clustering on the timeline that names slices and new nodes (RFC-42).

The plan is on the timeline before it takes a turn in the order of commits. So each commit either is
in the plan, or finds it. On copy-on-write tables a plan of the last rounds also has markers of the
file groups that it rewrites: writers wait for it, as they wait for another writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from bucketlake.actions.conflict import commits_since, rolled_back
from bucketlake.actions.progress import LOGGER
from bucketlake.actions.recovery import end_undoing, settle_failed_writes
from bucketlake.actions.rollback import withdraw_resize
from bucketlake.actions.transact import Answer, Ready, Settled, transact
from bucketlake.actions.turns import head
from bucketlake.errors import AlreadyExistsError, CommitConflictError
from bucketlake.format.clustering_plan import (
    ClusteringGroup,
    ClusteringPlan,
    ResizeFacts,
    encode_clustering_plan,
)
from bucketlake.hashing.directory import Directory
from bucketlake.index.ring_engine import extension_entries
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.ring_state import PendingResize, pending_resizes, resizes_of_plan
from bucketlake.index.setting import require_rings
from bucketlake.index.stored_setting import is_conversion
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName, log_instant
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.compaction import require_files
from bucketlake.services.resize.candidates import (
    Candidate,
    candidates_of_directory,
    candidates_of_ring,
    key_positions,
    require_halves,
    split_points,
    suffix_texts,
    within_limits,
)
from bucketlake.services.resize.service import ResizedBuckets, ResizeService, rings_of
from bucketlake.slices.file_system_view import list_files
from bucketlake.storage.waiting import looks
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.commit_order import Head
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import WRITES, Action
from bucketlake.timeline.locks import LockCheck
from bucketlake.timeline.markers import Marker, MarkerType, read_markers, write_markers
from bucketlake.timeline.transitions import create_requested

HOLD_TOKEN = "0-0-0"  # In names of files that are never written; their markers hold writers.


def is_resize_due(service: ResizeService, timeline: Timeline) -> bool:
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
    require_held: LockCheck,
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

    def change(now: Head) -> Answer[bool]:
        newest = now.timeline
        if newest.is_undoing or rolled_back(service.table, before, newest):
            return Settled(False)
        since = commits_since(service.table, before, newest)
        if any(is_conversion(commit) for _, commit in since):
            return Settled(False)  # The next attempt raises the error of a table without rings.
        if any(
            resize.partition_path in partitions and resize.instant not in (instant, overtaken)
            for resize in pending_resizes(storage, newest)
        ):
            return Settled(False)
        if overtaking(service, instant, plan, newest) is not None:
            return Settled(False)
        # In the name of a commit that is completed: nobody waits for the decision of the plan.
        return Ready(newest.completed_commits()[-1].requested_at, True)

    return transact(service.table, change, own=instant).value


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
    rings = require_rings(service.table, timeline, service.given)
    if rings.engine.splits_in_halves:
        require_halves(limits)
    layout = rings.layout()
    slices = (
        snapshot.all_slices()
        if limits.partitions is None
        else snapshot.partition_slices(limits.partitions)
    )
    slices_of = snapshot.by_partition(slices, limits.partitions or (), "resize")
    compacted = {
        planned.group
        for pending in timeline.pending_compactions()
        for planned in timeline.read_compaction_plan(storage, pending)
    }
    positions_of = partial(key_positions, reader, layout.engine.hash_keys, layout.hash_fields)
    candidates: list[Candidate] = []
    for partition, live in sorted(slices_of.items()):
        state = layout.state(partition)
        nodes = layout.live_slots(live)  # Raises if a group is not on the ring.
        is_changing = any(pending.instant != overtaken for pending in state.resizes)
        if is_changing or not state.is_stored:
            continue  # One change of a ring after the other.
        free = {slot: one for (_, slot), (one,) in nodes.items() if one.group not in compacted}
        if rings.engine.splits_in_halves:
            candidates += candidates_of_directory(
                partition,
                state.ring,
                free,
                limits,
                depth_max=rings.count_max.bit_length() - 1,
                positions_of=positions_of,
            )
            continue
        candidates += candidates_of_ring(
            partition,
            state.ring,
            free,
            limits,
            count_min=rings.count_min,
            count_max=rings.count_max,
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
    groups = ((c.partition_path, held.file_id) for c in chosen for held in c.slices)
    names = ((path, BaseFileName(file_id, HOLD_TOKEN, instant)) for path, file_id in groups)
    markers = (Marker(path, name.to_file_name(), MarkerType.MERGE) for path, name in names)
    write_markers(service.table.storage, instant, markers)


# ---- Whether writers overtook the plan of a resize (RFC-42) --------------------------------------
#
# A plan can complete while it has all records of its file groups: those in the slices that it
# names, and those of later writes that have copies in the new groups. What other programs left
# without a commit must not become visible with the resize.

_WRITERS_WAIT_SECONDS = 30.0


def overtaking(
    service: ResizeService, instant: InstantTime, plan: ClusteringPlan, newest: Timeline
) -> str | None:
    """Return why a plan cannot complete any more; None if it can.

    A commit of a group of the plan is in the plan, or is older than its slice, or has copies in the
    new groups. Times alone do not tell: a commit may complete while the plan is made.
    """
    planned = {held.group for held in plan.slices}
    known = {path for held in plan.slices for path in held.paths}
    bases = ((held.group, held.base_file) for held in plan.slices)
    begun = {group: base.name.instant for group, base in bases if base is not None}
    resizes = {resize.partition_path: resize for resize in resizes_of_plan(instant, plan)}
    for other, commit in newest.read_commits(service.table.storage, newest.completed_commits()):
        at = other.requested_at
        gone = planned & commit.replaced_groups
        if gone:
            return f"instant {at} replaced file group {min(gone)[1]}"
        if commit.compacted:
            continue  # It changes no row.
        completed_at = newest.completion_time(at) or at
        written = [stat for stat in commit.stats if stat.path not in known]
        touched = {
            stat.group
            for stat in written
            if stat.group in planned and completed_at >= begun.get(stat.group, "")
        }
        if not touched:
            continue
        if not service.appends:
            return f"instant {at} wrote file group {min(touched)[1]}"
        if not _has_copies(resizes, instant, touched, written):
            return f"instant {at} wrote file group {min(touched)[1]} without a copy"
    return None


def _has_copies(
    resizes: Mapping[str, PendingResize],
    instant: InstantTime,
    touched: Iterable[tuple[str, FileId]],
    written: Iterable[WriteStat],
) -> bool:
    """Return whether a write that touched groups of a plan wrote log files for new groups, too."""
    copied = {stat.group for stat in written if log_instant(stat.path) == instant}
    for partition, file_id in touched:
        resize = resizes.get(partition)
        group = None if resize is None else resize.find(file_id)
        new_ids = () if group is None else group.new_file_ids
        if not any((partition, new_id) in copied for new_id in new_ids):
            return False
    return True


def waits_for_copies(service: ResizeService, timeline: Timeline, instant: InstantTime) -> bool:
    """Wait while a writer of Hudi has copies and is not committed; return whether it waited.

    Readers of Hudi would show its copies once the resize completes. Writers of bucketlake have no
    copies before their turn.

    Raises
    ------
    CommitConflictError
        If such a writer goes on for too long. The plan stays on the timeline.
    """
    for waited in looks(_WRITERS_WAIT_SECONDS):
        if waited:
            settle_failed_writes(service.table.without_lock(), load_timeline(service.table))
            timeline = load_timeline(service.table)
        writer = _writer_with_copies(service, timeline, instant)
        if writer is None:
            return waited > 0
    raise CommitConflictError(
        instant,
        f"instant {writer} of another program has written for this resize and is not completed; "
        "run the resize again",
    )


def _writer_with_copies(
    service: ResizeService, timeline: Timeline, instant: InstantTime
) -> InstantTime | None:
    for pending in timeline.pending(*WRITES):
        markers = read_markers(service.table.storage, pending.requested_at)
        if any(log_instant(marker.file_name) == instant for marker in markers):
            return pending.requested_at
    return None


def drop_copies_of_no_commit(
    service: ResizeService, instant: InstantTime, partitions: Iterable[str]
) -> None:
    """Delete copies of writes that Hudi rolled back; its readers would show them from now on.

    A rollback of Hudi finds files by the instant in their names, and copies have the resize's.
    """
    storage = service.table.storage
    names = {file.path: file.name for file in list_files(storage, sorted(set(partitions)))}
    copies = {path for path, name in names.items() if isinstance(name, LogFileName)}
    copies = {path for path in copies if names[path].instant == instant}
    if not copies:
        return
    timeline = load_timeline(service.table)  # After the listing.
    for _, commit in timeline.read_commits(storage, timeline.completed_commits()):
        copies.difference_update(stat.path for stat in commit.stats)
    for pending in timeline.pending():
        copies.difference_update(
            marker.data_path for marker in read_markers(storage, pending.requested_at)
        )
    for path in sorted(copies):
        LOGGER.warning("resize %s deletes %s, a copy of a write that was undone", instant, path)
        storage.delete(path)
