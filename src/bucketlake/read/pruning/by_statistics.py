"""Pruning by statistics: the partitions and slices whose bounds leave room for a matching row.

A slice is asked as a whole. The bounds of its base file and its log files are united, because a row
may have values of both, and a value of any of them may be the one that counts. Log files that only
delete have no values. If a file lacks statistics of a column, nothing is known about the column.

Statistics of files stay valid as long as the files exist. Those of partitions follow the newest
state of the table, so reads of earlier states do not use them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import CommitConflictError, MetadataTableError
from bucketlake.format.avro.cursor import Ints
from bucketlake.format.avro.read_columns import spread
from bucketlake.format.metadata_record.bounds import has_bounds, unwrap_bounds
from bucketlake.format.metadata_record.column_stats import ColumnStats
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.statistics.credible import credible_statistics
from bucketlake.metadata.statistics.lookup import (
    FoundStatistics,
    find_column_stats,
    find_partition_stats,
)
from bucketlake.metadata.statistics.merged import unite_statistics
from bucketlake.model.field_path import fields_at
from bucketlake.model.file_slice import FileSlice
from bucketlake.read.pruning.satisfiable import Mask, Outcome, evaluate
from bucketlake.read.snapshot import Snapshot
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.where.arrow_filter import apply_test
from bucketlake.where.predicate import (
    COLUMN_TESTS,
    ColumnTest,
    Comparison,
    In,
    IsNull,
    Like,
    Operator,
    Predicate,
    leaves,
)
from bucketlake.where.sql_literal import Value

_WHERE = "statistics of the metadata table"
_MEMBERS_MAX = 256
# Java and Spark order such characters differently, and both orders occur in statistics.
_ORDERED_DIFFERENTLY = "[\ue000-\U0010ffff]"
_WILDCARDS = ("%", "_")


def slices_by_statistics(
    snapshot: Snapshot, predicate: Predicate, slices: Sequence[FileSlice], *, is_newest: bool
) -> tuple[list[FileSlice], str | None]:
    """Return the slices that may hold a matching row, and why none was skipped.

    Parameters
    ----------
    snapshot : Snapshot
        The pinned table.
    predicate : Predicate
        The condition.
    slices : sequence of FileSlice
        Slices to choose from.
    is_newest : bool
        Whether the snapshot was pinned as the newest state of the table.

    Raises
    ------
    MetadataTableError
        If the metadata table is damaged, or lacks a commit.
    """
    config, kept = snapshot.config, list(slices)
    held = {*config.metadata_partitions}
    of_files, of_partitions = MetadataPartition.COLUMN_STATS, MetadataPartition.PARTITION_STATS
    if MetadataPartition.FILES not in held or not held & {of_files, of_partitions}:
        return kept, "the table has no statistics"
    columns = _tested_columns(predicate, snapshot.readable_schema)
    if not slices:
        return kept, "no file group is left"
    if not columns:
        return kept, "no condition on a column that can have statistics"
    try:
        table = snapshot.metadata_table
        if of_partitions in held and is_newest and _is_of_pinned_state(table):
            kept = _in_partitions(table, predicate, columns, kept)
        if of_files in held:
            kept = _by_files(table, predicate, columns, kept)
    except (MetadataTableError, CommitConflictError):
        if held <= {*read_table_config(snapshot.storage).metadata_partitions}:
            raise
        return list(slices), "the statistics were turned off"
    if len(kept) == len(slices):
        return kept, "every file group may hold matching rows"
    # Writers do not maintain a partition of the metadata table that was turned off meanwhile.
    if not held <= {*read_table_config(snapshot.storage).metadata_partitions}:
        return list(slices), "the statistics were turned off"
    return kept, None


def _tested_columns(predicate: Predicate, schema: pa.Schema) -> pa.Schema:
    """Return the columns of which statistics are wanted."""
    tested = (leaf.column for leaf in leaves(predicate) if isinstance(leaf, COLUMN_TESTS))
    fields = fields_at(schema, dict.fromkeys(tested))
    return pa.schema([field for field in fields if has_bounds(field.type)])


def _is_of_pinned_state(table: MetadataTable) -> bool:
    """Return whether the statistics of partitions include no commit after the pinned timeline.

    A compaction of the metadata table may have put such a commit into a base file. If the commit
    overwrote a partition, its statistics do not hold the rows from before.
    """
    slices = table.slices(MetadataPartition.PARTITION_STATS)
    newest = max(
        (held.base_file.name.instant for held in slices if held.base_file is not None), default=""
    )
    return all(
        commit.requested_at >= newest or table.counts(commit.requested_at)
        for commit in table.timeline.completed_commits()
    )


def _in_partitions(
    table: MetadataTable, predicate: Predicate, columns: pa.Schema, slices: Sequence[FileSlice]
) -> list[FileSlice]:
    paths = sorted({file_slice.partition_path for file_slice in slices})
    found = find_partition_stats(table, columns.names, paths)
    if found is None:
        return list(slices)
    counts = np.ones(len(paths), np.int64)
    found = replace(found, stats=credible_statistics(found.stats, of_partitions=True))
    bounds = _bounds(found, columns, np.arange(len(paths)), counts)
    # A file that lacks a column has nulls, but no statistics that could tell it.
    nulls = np.ones(len(paths), np.bool_)
    careful = {name: replace(held, may_be_null=nulls) for name, held in bounds.items()}
    may_match = bounds_may_match(predicate, careful, len(paths))
    kept = {path for path, is_kept in zip(paths, may_match, strict=True) if is_kept}
    return [file_slice for file_slice in slices if file_slice.partition_path in kept]


def bounds_of_slices(
    snapshot: Snapshot, columns: pa.Schema, slices: Sequence[FileSlice]
) -> dict[str, ColumnBounds] | None:
    """Return the bounds of columns in live slices; None if the table has no statistics of them.

    Raises
    ------
    MetadataTableError
        If the metadata table is damaged, or lacks a commit.
    """
    wanted = {MetadataPartition.FILES, MetadataPartition.COLUMN_STATS}
    if not wanted <= {*snapshot.config.metadata_partitions}:
        return None
    return _bounds_by_files(snapshot.metadata_table, columns, slices)


def _by_files(
    table: MetadataTable, predicate: Predicate, columns: pa.Schema, slices: Sequence[FileSlice]
) -> list[FileSlice]:
    bounds = _bounds_by_files(table, columns, slices)
    if bounds is None:
        return list(slices)
    may_match = bounds_may_match(predicate, bounds, len(slices))
    return [held for held, is_kept in zip(slices, may_match, strict=True) if is_kept]


def _bounds_by_files(
    table: MetadataTable, columns: pa.Schema, slices: Sequence[FileSlice]
) -> dict[str, ColumnBounds] | None:
    files = [file for file_slice in slices for file in file_slice.files]
    counts = np.array([len(file_slice.files) for file_slice in slices], np.int64)
    found = find_column_stats(table, columns.names, files)
    if found is None:
        return None
    found = replace(found, stats=credible_statistics(found.stats))
    return _bounds(found, columns, np.repeat(np.arange(len(slices)), counts), counts)


# Bounds of columns.


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBounds:
    """What is known about a column in each partition or slice.

    Parameters
    ----------
    minima, maxima : pyarrow.Array
        Bounds of the values, in the type of the column; null if they are not known.
    may_have_values, may_be_null : ndarray of bool
        Whether there may be a value that is not null, and a null.
    """

    minima: pa.Array
    maxima: pa.Array
    may_have_values: Mask
    may_be_null: Mask


def _bounds(
    found: FoundStatistics, columns: pa.Schema, unit_of_file: Ints, file_counts: Ints
) -> dict[str, ColumnBounds]:
    """Return the bounds of each column in units of one or several files.

    Parameters
    ----------
    found : FoundStatistics
        Statistics of the files.
    columns : pyarrow.Schema
        The columns.
    unit_of_file : ndarray of int64, shape (n_files,)
        The unit of each file.
    file_counts : ndarray of int64, shape (n_units,)
        Number of files of each unit.
    """
    count = len(file_counts)
    codes = found.columns * count + unit_of_file[found.units]
    keys, groups, sizes = np.unique(codes, return_inverse=True, return_counts=True)
    is_whole = sizes == file_counts[keys % count]  # Otherwise a file has no statistics.
    united = unite_statistics(found.stats, groups, len(keys), _WHERE)
    bounds = {}
    for place, field in enumerate(columns):
        rows = np.flatnonzero((keys // count == place) & is_whole)
        bounds[field.name] = _column_bounds(
            united.take(rows), keys[rows] % count, count, field.type
        )
    return bounds


def _column_bounds(
    stats: ColumnStats, units: Ints, count: int, data_type: pa.DataType
) -> ColumnBounds:
    low, high = (
        unwrap_bounds(wrapped, stats.value_types, data_type, _WHERE, is_minimum=is_minimum)
        for wrapped, is_minimum in ((stats.minima, True), (stats.maxima, False))
    )
    if pa.types.is_floating(data_type):  # A NaN is stored as infinity.
        high = pc.if_else(pc.equal(high, math.inf), math.nan, high)
    if pa.types.is_string(data_type):
        low, high = (_ordered_alike(bounds) for bounds in (low, high))
    has_values = pc.fill_null(pc.greater(stats.value_counts, stats.null_counts), True)
    has_nulls = pc.fill_null(pc.not_equal(stats.null_counts, 0), True)
    masks = []
    for known in (has_values, has_nulls):
        masks.append(np.ones(count, np.bool_))
        masks[-1][units] = known.to_numpy(zero_copy_only=False)
    return ColumnBounds(spread(low, units, count), spread(high, units, count), *masks)


def _ordered_alike(bounds: pa.Array) -> pa.Array:
    """Return the bounds of texts that all writers order alike; the others are not known."""
    return pc.if_else(pc.match_substring_regex(bounds, _ORDERED_DIFFERENTLY), None, bounds)


# Predicates.


def bounds_may_match(predicate: Predicate, bounds: dict[str, ColumnBounds], count: int) -> Mask:
    """Tell which partitions or slices may hold a row for which a predicate is true.

    Parameters
    ----------
    predicate : Predicate
        The predicate.
    bounds : dict of str to ColumnBounds
        What is known about columns.
    count : int
        Number of partitions or slices.
    """

    def answer(test: ColumnTest) -> Outcome | None:
        return _outcome(test, bounds[test.column]) if test.column in bounds else None

    return evaluate(predicate, answer, count).can_be_true


def _outcome(test: ColumnTest, held: ColumnBounds) -> Outcome:
    """Return whether a test can be true, and can be false, for a value within bounds."""
    values = held.may_have_values
    if isinstance(test, IsNull):
        return Outcome(held.may_be_null, values)
    if isinstance(test, Like):
        return Outcome(values & _may_start(test, held), values)
    if isinstance(test, In):
        return _membership(test, held)
    if test.value is None:  # Unknown for every row.
        none = np.zeros(len(values), np.bool_)
        return Outcome(none, none)

    def is_low(operator: Operator) -> Mask:
        return _holds(test.column, operator, test.value, held.minima)

    def is_high(operator: Operator) -> Mask:
        return _holds(test.column, operator, test.value, held.maxima)

    match test.operator:
        case Operator.LESS:
            true, false = is_low(Operator.LESS), is_high(Operator.GREATER_OR_EQUAL)
        case Operator.LESS_OR_EQUAL:
            true, false = is_low(Operator.LESS_OR_EQUAL), is_high(Operator.GREATER)
        case Operator.GREATER:
            true, false = is_high(Operator.GREATER), is_low(Operator.LESS_OR_EQUAL)
        case Operator.GREATER_OR_EQUAL:
            true, false = is_high(Operator.GREATER_OR_EQUAL), is_low(Operator.LESS)
        case Operator.EQUAL | Operator.NULL_SAFE_EQUAL | Operator.NOT_EQUAL:
            true = is_low(Operator.LESS_OR_EQUAL) & is_high(Operator.GREATER_OR_EQUAL)
            false = is_low(Operator.NOT_EQUAL) | is_high(Operator.NOT_EQUAL)
            if test.operator is Operator.NOT_EQUAL:
                true, false = false, true
    false = values & false
    if test.operator is Operator.NULL_SAFE_EQUAL:
        false = false | held.may_be_null
    return Outcome(values & true, false)


def _membership(test: In, held: ColumnBounds) -> Outcome:
    """Return the outcome of ``IN``; with a NULL in the list it is never false."""
    members = [value for value in test.values if value is not None]
    if len(members) > _MEMBERS_MAX:
        return Outcome(held.may_have_values, held.may_have_values)
    parts = [_outcome(Comparison(test.column, Operator.EQUAL, v), held) for v in members]
    none = np.zeros(len(held.minima), np.bool_)
    true = np.logical_or.reduce([none, *(part.can_be_true for part in parts)])
    false = np.logical_and.reduce([held.may_have_values, *(part.can_be_false for part in parts)])
    return Outcome(true, none if len(members) < len(test.values) else false)


def _may_start(test: Like, held: ColumnBounds) -> Mask:
    """Return whether a text within bounds may start as a pattern does."""
    ends = [at for at in (test.pattern.find(sign) for sign in _WILDCARDS) if at >= 0]
    prefix = test.pattern[: min(ends, default=len(test.pattern))]
    starts = pc.fill_null(pc.starts_with(held.minima, prefix), True)
    below = _holds(test.column, Operator.LESS_OR_EQUAL, prefix, held.minima)
    above = _holds(test.column, Operator.GREATER_OR_EQUAL, prefix, held.maxima)
    may_start: Mask = (below | starts.to_numpy(zero_copy_only=False)) & above
    return may_start


def _holds(column: str, operator: Operator, value: Value, bounds: pa.Array) -> Mask:
    """Return whether bounds compare with a value; True for bounds that are not known."""
    found = pc.fill_null(apply_test(Comparison(column, operator, value), bounds), True)
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask
