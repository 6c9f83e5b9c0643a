"""What must still be true of a table when a write commits: its schema, its index, its settings.

Other writers may have changed it since the write pinned it; then a check raises
CommitConflictError. ``actions/conflict.py`` has the conflicts about records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from bucketlake.actions.commit import CommitView
from bucketlake.actions.conflict import require_untouched_partitions
from bucketlake.errors import CommitConflictError, ObjectNotFoundError
from bucketlake.index.conflict_keys import (
    ChangedShards,
    ConflictKeys,
    describe_key,
    key_of_group,
)
from bucketlake.index.layout import Layout
from bucketlake.index.setting import resolve_index, setting_origin
from bucketlake.index.state import NewestVersions, newest_versions
from bucketlake.model.file_name import Group, InstantTime, log_instant
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.snapshot import load_snapshot
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action, Instant
from bucketlake.write.record_index.index_upkeep import IndexUpkeep
from bucketlake.write.target import Target
from bucketlake.write.write_plan import WritePlan


def require_overwritten_alone(plan: WritePlan, view: CommitView) -> None:
    """Raise CommitConflictError if another commit changed an overwritten partition."""
    if not view.write.operation.replaces:
        return
    overwritten = {*plan.replaced, *(slot.partition_path for slot in plan.slots)}
    if view.write.operation is Operation.INSERT_OVERWRITE_TABLE:
        overwritten.update(*(commit.partitions for _, commit in view.since))
    require_untouched_partitions(view.write.instant, overwritten, view.since)


def require_same_setting(
    held: Layout, new: Layout, setting: NewestVersions, view: CommitView
) -> None:
    """Raise CommitConflictError if the index setting or a partition to rewrite changed."""
    # The overwritten partitions do not include those without records when it was planned.
    written = {path for _, commit in view.since for path in commit.partitions}
    moved = {path for path in written if held.setting_of(path) != new.setting_of(path)}
    require_untouched_partitions(view.write.instant, moved, view.since)
    if newest_versions(view.write.table.storage, view.timeline) != setting:
        raise CommitConflictError(
            view.write.instant,
            "the rules of the table changed meanwhile; plan the change again",
        )


def require_same_settings(
    target: Target, used: Layout, slots: Mapping[str, Collection[int]], view: CommitView
) -> None:
    """Raise CommitConflictError if the setting that gave the slots is no longer valid (RFC-89).

    The setting must also be older than the commit by requested time, because time travel and
    restore use requested times.
    """
    timelines = [view.timeline]
    instant = view.write.instant
    if any(commit.requested_at > instant for commit in view.timeline.completed_commits()):
        timelines.append(view.timeline.as_of(instant))
    for known in timelines:
        now = resolve_index(target.table, known, target.index, target.stored)
        assert now is not None, "the write had an index"
        layout = now.layout()
        for partition, written in sorted(slots.items()):
            if not used.is_kept_by(layout, partition, written, appends=target.appends):
                raise CommitConflictError(
                    instant,
                    f"the write used {used.setting_of(partition)} in partition {partition!r}, "
                    f"which has {layout.setting_of(partition)} from "
                    f"{setting_origin(now, target.storage, known, partition)}; retry it",
                )


def require_same_index(upkeep: IndexUpkeep, view: CommitView) -> None:
    """Raise CommitConflictError if the record-level index is not the pinned one any more."""
    upkeep.require_same_index(view.turn, view.timeline if view.since else None)


def require_alone(own: ConflictKeys, partitions: frozenset[str] | None, view: CommitView) -> None:
    """Raise CommitConflictError if another commit changed keys that the write did not find.

    Parameters
    ----------
    own : set of ConflictKey
        Shards of the record-level index to which the write added keys, or in which it looked for
        keys to delete.
    partitions : set of str, or None
        Partitions of the batch; None in a global index.
    view : CommitView
        The state right before the commit.

    Notes
    -----
    A commit of another program does not name its new keys, so it may have added any key to its
    partitions.
    """
    if not own:
        return
    for instant, commit in view.since:
        if commit.compacted or commit.resizes:
            continue
        other = ChangedShards.of_commit(commit, instant)
        if other is None and (partitions is None or commit.partitions & partitions):
            raise CommitConflictError(
                view.write.instant,
                f"instant {instant} of another program may have added the same keys meanwhile; "
                "retry the write",
            )
        common = frozenset() if other is None else own & other.added
        if common:
            raise CommitConflictError(
                view.write.instant,
                f"instant {instant} changed {describe_key(min(common))} meanwhile; retry the write",
            )


def require_schema_kept(target: Target, schema: pa.Schema, view: CommitView) -> None:
    """Raise CommitConflictError if the schema would lose a change of any commit.

    The newest commit by requested time sets the table's schema.
    """
    instant, timeline = view.write.instant, view.timeline
    pinned, newest = target.snapshot, load_snapshot(target.table, timeline)
    is_same = newest.schema_text == pinned.schema_text  # Avoids parsing it again.
    now = pinned.schema_or_none if is_same else newest.schema_or_none
    if schema == now:
        return
    if now != pinned.schema_or_none:
        raise CommitConflictError(
            instant, "another commit changed the table's schema meanwhile; retry it"
        )
    later = timeline.schema_instant(target.storage)
    if later is not None and later.requested_at > instant:
        raise CommitConflictError(
            instant,
            f"changes the table's schema, but instant {later.requested_at} began later with the "
            "old schema and was committed before; retry it",
        )


# ---- Which slice a new log file belongs to in timeline layout 1, and that it still does ----------
#
# There the name of a log file has the instant of its slice. A compaction reads the log files that
# its plan names, and makes a new slice. So a write that finds a plan adds its log files to the
# slice that the compaction will make: their names have the instant of the compaction. A write that
# began before the plan, and commits after it, would add to the old slice, which nobody reads once
# the compaction is completed. It raises CommitConflictError and is repeated.
# ``services/compaction.py`` has the other side.


def with_compactions(
    storage: Storage, pinned: Timeline, slices: Sequence[FileSlice]
) -> Sequence[FileSlice]:
    """Return the slices, each with the pending compaction that a write must add to, if any.

    A plan that is older than a slice is left out: another compaction overtook it.
    """
    if not pinned.layout.logs_name_slices:
        return slices
    planned = _planned(storage, pinned)
    groups = ((held, planned.get(held.group, held.instant)) for held in slices)
    return [
        replace(held, compaction=instant) if instant > held.instant else held
        for held, instant in groups
    ]


def require_newest_slices(stats: Sequence[WriteStat], view: CommitView) -> None:
    """Raise CommitConflictError if a compaction makes a newer slice than that of a log file.

    A commit that takes a later turn than the plan of a compaction sees the plan here.
    """
    write, newest = view.write, view.timeline
    if not newest.layout.logs_name_slices:
        return
    logs = dict(_named_slices(stats))
    if not logs:
        return
    made = _planned(write.table.storage, newest)
    for other, commit in view.since:
        if commit.compacted:
            for stat in commit.stats:
                group = stat.group
                made[group] = max(other, made.get(group, other))
    followed = {compaction.requested_at for compaction in _compactions(write.pinned)}
    for group, named in sorted(logs.items()):
        newest_slice = made.get(group, named)
        if newest_slice > named:
            instant, problem = newest_slice, "planned"
        elif named in followed and made.get(group) != named:
            instant, problem = named, "withdrawn"
        else:
            continue
        what = describe_key(key_of_group(*group))
        raise CommitConflictError(
            write.instant,
            f"compaction {instant} of {what} was {problem} meanwhile; retry the write",
        )


def _named_slices(stats: Iterable[WriteStat]) -> Iterator[tuple[Group, InstantTime]]:
    """Yield the file group of each log file, and the slice in its name; of its copies, too."""
    for stat in stats:
        named = log_instant(stat.path)
        if named is not None:
            yield stat.group, named
        if stat.log_copy is not None:
            yield (stat.partition_path, stat.log_copy.file_id), stat.log_copy.resize


def _planned(storage: Storage, timeline: Timeline) -> dict[Group, InstantTime]:
    """Return the newest pending compaction of each file group that has one."""
    planned: dict[Group, InstantTime] = {}
    for pending in _compactions(timeline):
        with suppress(ObjectNotFoundError):  # It was withdrawn since the listing.
            for held in timeline.read_compaction_plan(storage, pending):
                planned[held.partition_path, held.file_id] = pending.requested_at
    return planned


def _compactions(timeline: Timeline) -> list[Instant]:
    return [i for i in timeline.pending_compactions() if i.action is Action.COMPACTION]
