"""Writes a merge: binds its statement to the pinned table, finds the rows, and commits them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from bucketlake.index.record import RecordIndex
from bucketlake.model.result import WriteResult
from bucketlake.model.table_type import Operation
from bucketlake.write.by_condition import require_same_matches
from bucketlake.write.ingest import write_records
from bucketlake.write.merge_binding import BoundMerge, bind_merge
from bucketlake.write.merge_rows import MergedRows, MergeTarget
from bucketlake.write.merge_statement import MergeStatement
from bucketlake.write.pack import RecordSource
from bucketlake.write.target import Target


class MergeSource(Protocol):
    """The source of a merge, for an engine: Arrow tables in this process, or Spark."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the source."""
        ...

    def records(self) -> RecordSource:
        """Return the rows as the records of an upsert."""
        ...

    def rows(self, bound: BoundMerge, target: MergeTarget) -> MergedRows:
        """Find the rows that the merge writes."""
        ...

    def close(self) -> None:
        """Drop what is kept."""
        ...


def write_merge(target: Target, source: MergeSource, statement: MergeStatement) -> WriteResult:
    """Run a merge once; the errors are those of :meth:`Merge.execute`."""
    snapshot, index = target.snapshot, target.index
    is_global = isinstance(index, RecordIndex) and not index.partitioned
    bound = bind_merge(
        statement, snapshot.schema, source.schema, snapshot.config, is_global=is_global
    )
    target = replace(target, refuses_repeats=True)
    if bound.is_upsert:
        records = source.records()
        records.keep(bound.columns)
        return write_records(target, Operation.UPSERT, records)
    merged = source.rows(bound, MergeTarget(snapshot, index, is_global))
    try:
        check = partial(require_same_matches, snapshot, merged.predicate)
        changes = merged.changes
        return write_records(
            target, Operation.UPSERT, merged.source, still_match=check, changes=changes
        )
    finally:
        merged.source.close()
