"""The two ends of a write: its begin, with a rollback if it fails, and its commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa

from bucketlake.actions.commit import CommitPlan, PendingWrite, begin_write, commit_write
from bucketlake.actions.recovery import settle
from bucketlake.config.recorded_entries import RECORDED, recorded_entries
from bucketlake.config.sql_options import SAFE_SQL
from bucketlake.errors import BucketLakeError
from bucketlake.index.ring_engine import extension_entries
from bucketlake.index.ring_kind import RingKind
from bucketlake.model.result import WriteResult
from bucketlake.model.table_type import Operation
from bucketlake.write.batch_schema import schema_text
from bucketlake.write.commit_checks import require_overwritten_alone, require_schema_kept
from bucketlake.write.target import Target
from bucketlake.write.unwritten import require_not_made_anew
from bucketlake.write.write_plan import WritePlan


@contextlib.contextmanager
def begun_write(target: Target, operation: Operation) -> Iterator[PendingWrite]:
    """Begin a write, and roll it back if the body fails."""
    snapshot = target.snapshot
    with begin_write(snapshot.table, snapshot.timeline, operation) as write:
        try:
            require_not_made_anew(target, write.instant)
            yield write
        except BaseException:
            # If storage fails here too, the next write rolls it back.
            with contextlib.suppress(BucketLakeError, OSError):
                settle(write.table, write.instant, write.action)
            raise


def commit_planned(
    write: PendingWrite,
    target: Target,
    plan: WritePlan,
    schema: pa.Schema,
    own: CommitPlan,
    ignored: int = 0,
    *,
    reads_stored: bool = False,
) -> WriteResult:
    """Commit a write; add the checks and metadata that every write of records needs.

    A write of records that changes no file makes no commit. ``ignored`` is the number of records
    that lost by their ordering value. ``reads_stored`` says whether stored rows were looked at for
    the records of log files, though not for deletes.
    """
    if not (own.stats or own.index_files or write.operation.replaces):
        settle(write.table, write.instant, write.action)
        return WriteResult(None, ignored=ignored)
    index = target.index
    commit = replace(
        own,
        replaced=plan.replaced,
        checks=(
            partial(require_overwritten_alone, plan),
            *own.checks,
            partial(require_schema_kept, target, schema),
        ),
        extra={
            **own.extra,
            **{k: v for k, v in index.to_options().items() if k not in SAFE_SQL},
            **(extension_entries(index.engine) if isinstance(index, RingKind) else {}),
            RECORDED: recorded_entries(target.config),
            "schema": schema_text(target, schema),
        },
    )
    completed_at = commit_write(write, commit, target.engine)
    stats = commit.stats
    inserted = sum(s.insert_count for s in stats)
    updated = sum(s.update_count for s in stats)
    deleted = sum(s.delete_count for s in stats)
    # The log file of a group was written without its stored keys.
    logs = [s for s in stats if target.appends and not s.opens_group]
    knows_records = reads_stored or not any(s.update_count for s in logs)
    knows_deletes = not any(s.delete_count for s in logs)
    compares = target.merge_rule(write.operation).compares
    knows_ignored = not logs or not compares or (reads_stored and knows_deletes)
    replaced_count = sum(len(ids) for ids in plan.replaced.values())
    return WriteResult(
        write.instant,
        inserted=inserted if knows_records else None,
        updated=updated if knows_records else None,
        deleted=deleted if knows_deletes else None,
        file_groups=len({(s.partition_path, s.file_id) for s in stats}) + replaced_count,
        written=inserted + updated,
        completed_at=completed_at,
        ignored=ignored if knows_ignored else None,
    )
