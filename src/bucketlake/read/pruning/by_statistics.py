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
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import CommitConflictError, MetadataTableError
from bucketlake.format.avro.read_columns import with_nulls_between
from bucketlake.format.metadata_record.bounds import has_bounds, unwrap_bounds
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import ColumnStats
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.statistics.merged import (
    FoundStatistics,
    credible_statistics,
    find_column_stats,
    find_partition_stats,
    unite_statistics,
)
from bucketlake.model.arrays import Ints, Mask
from bucketlake.model.field_path import fields_at
from bucketlake.model.file_slice import FileSlice
from bucketlake.read.snapshot import Snapshot
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.where import predicate as nodes
from bucketlake.where.arrow_filter import apply_test
from bucketlake.where.predicate import (
    ColumnTest,
    Operator,
    Predicate,
    Satisfaction,
    evaluate,
    tested_columns,
)
from bucketlake.where.sets import comparable_column, places_in, set_column, sortable
from bucketlake.where.sql_literal import LiteralValue

_WHERE = "statistics of the metadata table"
# Java and Spark order such characters differently, and both orders occur in statistics.
_ORDERED_DIFFERENTLY = "[\ue000-\U0010ffff]"
_BELOW = (Operator.LESS, Operator.LESS_OR_EQUAL)
_ABOVE = (Operator.GREATER, Operator.GREATER_OR_EQUAL)
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
        return kept, "every file group that is left may hold matching rows"
    # Writers do not maintain a partition of the metadata table that was turned off meanwhile.
    if not held <= {*read_table_config(snapshot.storage).metadata_partitions}:
        return list(slices), "the statistics were turned off"
    return kept, None


def _tested_columns(predicate: Predicate, schema: pa.Schema) -> pa.Schema:
    """Return the columns of which statistics are wanted."""
    fields = fields_at(schema, tested_columns(predicate))
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
    return ColumnBounds(
        with_nulls_between(low, units, count), with_nulls_between(high, units, count), *masks
    )


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

    def answer(test: ColumnTest | nodes.Among) -> Satisfaction | None:
        if not isinstance(test, nodes.Among):
            return _outcome(test, bounds[test.column]) if test.column in bounds else None
        known = [name for name in test.columns if name in bounds]
        parts = [_of_set(test.keys.column(name), bounds[name]) for name in known]
        if len(parts) == len(test.columns) == 1:
            return parts[0]
        true = np.logical_and.reduce([np.ones(count, np.bool_), *(p.can_be_true for p in parts)])
        return replace(Satisfaction.unknown(count), can_be_true=true)

    return evaluate(predicate, answer, count).can_be_true


def _outcome(test: ColumnTest, held: ColumnBounds) -> Satisfaction:
    """Return whether a test can be true, and can be false, for a value within bounds."""
    values = held.may_have_values
    if isinstance(test, nodes.IsNull):
        return Satisfaction(held.may_be_null, values)
    if isinstance(test, nodes.Like):
        return Satisfaction(values & _may_start(test, held), values)
    if isinstance(test, nodes.In):
        return _membership(test, held)
    if isinstance(test, nodes.Within):
        return _in_intervals(np.array(test.starts, np.int64), np.array(test.ends, np.int64), held)
    if test.value is None:  # Unknown for every row.
        none = np.zeros(len(values), np.bool_)
        return Satisfaction(none, none)

    def holds(operator: Operator, bounds: pa.Array) -> Mask:
        return _holds(test.column, operator, test.value, bounds)

    ends = held.minima, held.maxima
    if test.operator in _BELOW + _ABOVE:
        opposite = test.operator.negated
        assert opposite is not None, "an order has an opposite"
        near, far = ends if test.operator in _BELOW else ends[::-1]
        true, false = holds(test.operator, near), holds(opposite, far)
    else:
        true = holds(Operator.LESS_OR_EQUAL, ends[0]) & holds(Operator.GREATER_OR_EQUAL, ends[1])
        false = holds(Operator.NOT_EQUAL, ends[0]) | holds(Operator.NOT_EQUAL, ends[1])
        if test.operator is Operator.NOT_EQUAL:
            true, false = false, true
    false = values & false
    if test.operator is Operator.NULL_SAFE_EQUAL:
        false = false | held.may_be_null
    return Satisfaction(values & true, false)


def _membership(test: nodes.In, held: ColumnBounds) -> Satisfaction:
    """Return the outcome of ``IN``; with a NULL in the list it is never false."""
    values = [value for value in test.values if value is not None]
    members = set_column(values, held.minima.type)
    if members is None:  # Decimals that have no common type with the column.
        return Satisfaction(held.may_have_values, held.may_have_values)
    found = _of_set(members.drop_null(), held)
    if len(values) == len(test.values):
        return found
    return replace(found, can_be_false=np.zeros_like(found.can_be_false))


def _of_set(members: pa.Array, held: ColumnBounds) -> Satisfaction:
    """Return the outcome of a set; only keys that a caller gives have nulls, which equal nulls."""
    values, _ = sortable(members.drop_null().sort())
    found = _in_intervals(values, values, held, members.type)
    if not members.null_count:
        return found
    return Satisfaction(found.can_be_true | held.may_be_null, np.ones_like(held.may_be_null))


def _in_intervals(
    starts: npt.NDArray[Any],
    ends: npt.NDArray[Any],
    held: ColumnBounds,
    data_type: pa.DataType | None = None,
) -> Satisfaction:
    """Return the outcome for intervals of numbers, or of values of a type."""
    values = held.may_have_values
    if not len(starts):
        return Satisfaction(np.zeros_like(values), values)
    both = (comparable_column(b, data_type or b.type) for b in (held.minima, held.maxima))
    (low, no_low), (high, no_high) = map(sortable, both)
    # A bound that is not known excludes no interval.
    low, high = np.where(no_low, starts[0], low), np.where(no_high, ends[-1], high)
    meets, covers = places_in(starts, ends, low, high)
    return Satisfaction(values & meets, values & (no_low | no_high | ~covers))


def _may_start(test: nodes.Like, held: ColumnBounds) -> Mask:
    """Return whether a text within bounds may start as a pattern does."""
    ends = [at for at in (test.pattern.find(sign) for sign in _WILDCARDS) if at >= 0]
    prefix = test.pattern[: min(ends, default=len(test.pattern))]
    starts = pc.fill_null(pc.starts_with(held.minima, prefix), True)
    below = _holds(test.column, Operator.LESS_OR_EQUAL, prefix, held.minima)
    above = _holds(test.column, Operator.GREATER_OR_EQUAL, prefix, held.maxima)
    return np.asarray((below | starts.to_numpy(zero_copy_only=False)) & above)


def _holds(column: str, operator: Operator, value: LiteralValue, bounds: pa.Array) -> Mask:
    """Return whether bounds compare with a value; True for bounds that are not known."""
    found = pc.fill_null(apply_test(nodes.Comparison(column, operator, value), bounds), True)
    return np.asarray(found.to_numpy(zero_copy_only=False))
