"""Writes a merge: binds its statement to the pinned table, finds the rows, and commits them.

This is the one plan of a merge: which rows of the table are read, which checks follow in which
order, what is counted, and what is an error. Only the join is an engine's: in this process
(``write/arrow_merge.py``) or on Spark (``spark/merge.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import Protocol

import pyarrow as pa

from bucketlake.actions.stream_batches import was_committed
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.model.result import WriteResult
from bucketlake.model.table_type import Operation
from bucketlake.read.read_plan import ReadPlan, plan_read
from bucketlake.read.request import PinnedRead, ReadRequest
from bucketlake.write.by_condition import require_same_matches
from bucketlake.write.ingest import ChangeCounts, write_records
from bucketlake.write.input_files.file_source import FileSource
from bucketlake.write.merge_binding import BoundMerge, Values, bind_merge
from bucketlake.write.merge_rows import (
    MergeTarget,
    Tally,
    ambiguous,
    changes_of,
    source_schema,
    stored_already,
)
from bucketlake.write.merge_statement import MergeStatement
from bucketlake.write.pack import RecordSource
from bucketlake.write.target import Target


class MergeJoin(Protocol):
    """Joins the source of a merge with the table, and applies the clauses.

    Attributes
    ----------
    time_zone : str or None
        As for ``parse_where``.
    """

    time_zone: str | None

    def values(self, bound: BoundMerge) -> Values | None:
        """Return the distinct values of the source for ``BoundMerge.pruning_fields``.

        None if conditions of a read do not mean what they mean in the join.
        """

    def rows(self, bound: BoundMerge, target: MergeTarget, plan: ReadPlan) -> RecordSource:
        """Join the source with the stored rows of a plan; return what the clauses make of them.

        The other methods are about these rows, which have a flag of deletes.

        Raises
        ------
        InputError
            If the engine cannot evaluate a text.
        UnsupportedFeatureError
            If only Spark can evaluate the merge.
        """

    def tally(self) -> Tally:
        """Count the rows, which are packed."""

    def two_of(self, key: str, path: str) -> Sequence[tuple[int, Mapping[str, object] | None]]:
        """Return effects and rows of the source of two rows with a key, an insert first."""

    def stored_among(self, plan: ReadPlan) -> tuple[str, str] | None:
        """Return key and partition path of an inserted row that stored rows have; None if none."""


class MergeSource(Protocol):
    """The source of a merge, for an engine: Arrow tables in this process, or Spark."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the source."""

    def records(self) -> RecordSource:
        """Return the rows as the records of an upsert."""

    def join(self) -> MergeJoin:
        """Return what joins the rows with the table."""

    def close(self) -> None:
        """Drop what is kept."""


def write_merge(target: Target, source: MergeSource, statement: MergeStatement) -> WriteResult:
    """Run a merge once; the errors are those of :meth:`Merge.execute`."""
    snapshot, index, origin = target.snapshot, target.index, statement.origin
    if was_committed(target.table, snapshot.timeline, origin):  # Before the join.
        return WriteResult(None, skipped=True)
    if snapshot.config.ordering_groups:
        what, step = "a merge with orderings of columns", "upsert(..., missing='keep') obeys them"
        raise UnsupportedFeatureError(what, f"merge into {snapshot.storage.root}", step)
    is_global = index.has_global_keys
    bound = bind_merge(
        statement, snapshot.schema, source.schema, snapshot.config, is_global=is_global
    )
    target = replace(target, refuses_repeats=True)
    if bound.is_upsert:
        records = source.records()
        records.keep(bound.columns)
        return write_records(target, Operation.UPSERT, records, origin=origin)
    join = source.join()
    values = join.values(bound)
    predicate = None if values is None else bound.reads(values, join.time_zone)
    plan = plan_read(PinnedRead(snapshot), index, besides=predicate)
    pinned = MergeTarget(snapshot, is_global, target.marker)
    rows = join.rows(bound, pinned, plan)

    def count_changes() -> ChangeCounts:
        tally = join.tally()
        if tally.repeated is not None:
            raise ambiguous(pinned, *tally.repeated, join.two_of(*tally.repeated))
        if tally.unsure:
            found = join.stored_among(_stored_keys(target, bound, pinned, values))
            if found is not None:
                raise stored_already(pinned, *found)
        return changes_of(tally.counts)

    try:
        check = partial(require_same_matches, snapshot, predicate)
        return write_records(
            target,
            Operation.UPSERT,
            rows,
            origin=origin,
            still_match=check,
            count_changes=count_changes,
        )
    finally:
        rows.close()


def _stored_keys(
    target: Target, bound: BoundMerge, pinned: MergeTarget, values: Values | None
) -> ReadPlan:
    """Plan the read of the stored keys that inserted rows may have."""
    read = PinnedRead(target.snapshot, ReadRequest(columns=pinned.key_columns))
    pruning = None if values is None else bound.holds_new_keys(values)
    return plan_read(read, target.index, besides=pruning)


# ---- Files as the source of a merge --------------------------------------------------------------
#
# A merge that is an upsert writes the files as an upsert of them does. For other merges the engine
# reads their rows, once, and joins them.


class FileMerge:
    """The source of a merge, in files.

    Parameters
    ----------
    files : FileSource
        The files.
    read : callable
        Reads the files, and returns their rows as the source of a merge.
    """

    def __init__(self, files: FileSource, read: Callable[[], MergeSource]) -> None:
        self._files, self._read = files, read
        self._joined: MergeSource | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the source; an upsert may drop some of them later."""
        return source_schema(self._files.schema)

    def records(self) -> FileSource:
        """Return the files as the records of an upsert."""
        return self._files

    def join(self) -> MergeJoin:
        """Return what joins the rows of the files with the table."""
        if self._joined is None:
            self._joined = self._read()
        return self._joined.join()

    def close(self) -> None:
        """Drop what is kept of the files."""
        self._files.close()
        if self._joined is not None:
            self._joined.close()


def rows_in_files(files: FileSource) -> pa.Table:
    """Read files into memory."""
    reader, pieces = files.reading()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tables = [table for read in pool.map(lambda p: [*reader.read(p)], pieces) for table in read]
    return pa.concat_tables([reader.schema.empty_table(), *tables])
