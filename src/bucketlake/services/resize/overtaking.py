"""Whether writers overtook the plan of a resize (RFC-42).

A plan can complete while it has all records of its file groups: those in the slices that it names,
and those of later writes that have copies in the new groups. What other programs left without a
commit must not become visible with the resize.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from bucketlake.actions.progress import LOGGER
from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.errors import CommitConflictError
from bucketlake.format.clustering_plan import ClusteringPlan
from bucketlake.index.ring_state import PendingResize, resizes_of_plan
from bucketlake.model.file_name import FileId, InstantTime, LogFileName, log_instant
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.file_system_view import list_files
from bucketlake.services.resize.service import ResizeService
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import WRITES
from bucketlake.timeline.markers import read_markers

_LOOK_SECONDS = 0.1
_WRITERS_WAIT_SECONDS = 30.0


def overtaking(
    service: ResizeService, instant: InstantTime, plan: ClusteringPlan, newest: Timeline
) -> str | None:
    """Return why a plan cannot complete any more; None if it can.

    A commit of a group of the plan is in the plan, or is older than its slice, or has copies in the
    new groups. Times alone do not tell: a commit may complete while the plan is made.
    """
    planned = {(held.partition_path, held.file_id): held for held in plan.slices}
    known = {path for held in plan.slices for path in held.paths}
    resizes = {resize.partition_path: resize for resize in resizes_of_plan(instant, plan)}
    for other, commit in newest.read_commits(service.table.storage, newest.completed_commits()):
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
        if not _has_copies(resizes, instant, touched, written):
            return f"instant {at} wrote file group {min(touched)[1]} without a copy"
    return None


def _is_older(completed_at: InstantTime, planned: FileSlice) -> bool:
    """Return whether a commit was completed before the base file of a slice was begun."""
    return planned.base_file is not None and completed_at < planned.base_file.name.instant


def _has_copies(
    resizes: Mapping[str, PendingResize],
    instant: InstantTime,
    touched: Iterable[tuple[str, FileId]],
    written: Iterable[WriteStat],
) -> bool:
    """Return whether a write that touched groups of a plan wrote log files for new groups, too."""
    copied = {
        (stat.partition_path, stat.file_id) for stat in written if log_instant(stat.path) == instant
    }
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
        newest = load_timeline(service.table)
        settle_failed_writes(service.table.without_lock(), newest)
        timeline = load_timeline(service.table)
    return has_waited


def _writer_with_copies(
    service: ResizeService, timeline: Timeline, instant: InstantTime
) -> InstantTime | None:
    for pending in timeline.pending():
        if pending.action not in WRITES:
            continue
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
