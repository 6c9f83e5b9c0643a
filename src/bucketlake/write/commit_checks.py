"""What must still be true of a table when a write commits: its schema, its index, its settings.

Other writers may have changed it since the write pinned it; then a check raises
CommitConflictError. ``actions/conflict.py`` has the conflicts about records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from bucketlake.actions.commit import CommitView
from bucketlake.actions.conflict import require_untouched_partitions
from bucketlake.errors import CommitConflictError
from bucketlake.index.conflict_keys import ChangedShards, ConflictKeys, describe_key
from bucketlake.index.layout import Layout
from bucketlake.index.setting import resolve_index, setting_origin
from bucketlake.index.state import NewestVersions, newest_versions
from bucketlake.model.table_type import Operation
from bucketlake.read.snapshot import load_snapshot
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
