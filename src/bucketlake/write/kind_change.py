"""Puts a table under another kind of index, in a commit that changes no file.

``services/rebucket/kind_conversion.py`` builds the record-level index before.
"""

from __future__ import annotations

from bucketlake.actions.commit import CommitView
from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.config.support import check_writable
from bucketlake.errors import CommitConflictError, IndexStateError
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.stored_setting import (
    SettingVersion,
    allow_versions,
    conversion_metadata,
    read_stored,
    save_version,
)
from bucketlake.metadata.record_index.pinned_index import pinned_index
from bucketlake.model.file_name import InstantTime
from bucketlake.model.table_type import Operation
from bucketlake.read.snapshot import load_snapshot
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import Action
from bucketlake.timeline.markers import mark_instant
from bucketlake.timeline.open_table import OpenTable
from bucketlake.write.target import Target
from bucketlake.write.transaction import BegunWrite, Written, begun_write, commit_written
from bucketlake.write.write_plan import plan_write


def open_to_convert(table: OpenTable, index: DynamicBucket) -> Target:
    """Open a table for :func:`convert_kind`, whatever index it has; see :func:`open_target`."""
    check_writable(table.config, table.storage.root)
    timeline = settle_failed_writes(table, load_timeline(table))
    pinned = load_snapshot(table, timeline)
    return Target(pinned, index, read_stored(table.storage))


def convert_kind(target: Target, index: DynamicBucket) -> InstantTime:
    """Put a table under another kind of index, in a commit that changes no file.

    Parameters
    ----------
    target : Target
        From :func:`open_to_convert`, after the record-level index was built.
    index : DynamicBucket
        The new index.

    Raises
    ------
    CommitConflictError
        If another writer took the record-level index off, converted the table, or is replacing file
        groups.
    """
    allow_versions(target.storage)
    layout = index.layout()
    with begun_write(target, Operation.INSERT_OVERWRITE) as write:
        mark_instant(target.storage, write.instant)
        save_version(target.storage, SettingVersion(index, write.instant))
        begun = BegunWrite(write, target, {}, (), layout, target.snapshot.schema)
        plan = plan_write(write.operation, {}, (), layout, tasks_wanted=1)
        commit_written(
            begun,
            Written(plan, index_files=()),
            settings=_require_convertible,
            extra=conversion_metadata(index),
        )
        return write.instant


def _require_convertible(view: CommitView) -> None:
    """Raise CommitConflictError if the table cannot be put under dynamic buckets now."""
    storage, instant = view.write.table.storage, view.write.instant
    for pending in view.timeline.pending():
        # A resize, or a conversion that rewrites partitions, would go on under the earlier kind.
        replaces = pending.action in (Action.REPLACE_COMMIT, Action.CLUSTERING)
        if replaces and pending.requested_at != instant:
            raise CommitConflictError(
                instant,
                f"{pending.action.value} {pending.requested_at} is under way; convert again",
            )
    try:
        pinned_index(storage, view.timeline, (), partitioned=True, shard_count=1)
    except IndexStateError as error:
        raise CommitConflictError(
            instant, f"the record-level index is not valid any more ({error}); convert again"
        ) from error
