"""Entries of ``column_stats`` and ``partition_stats`` that an action brings.

A file has an entry for each column with statistics; a clean removes them. The statistics of a
partition are *loose*: an action writes bounds of its own files, and older bounds stay united with
them. So two writers at once leave no bounds that are too tight. Hudi writes tight bounds, which
replace older bounds; bucketlake does this only for a partition that an action overwrites as a
whole. A deletion makes no bounds tighter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from bucketlake.format.metadata_record.bounds import ValueType, stored_types
from bucketlake.format.metadata_record.column_stats import ColumnStats, encode_column_stats
from bucketlake.format.metadata_record.keys import (
    column_stats_keys,
    keys_of_statistics,
    partition_stats_key,
)
from bucketlake.format.metadata_record.schema import RecordKind
from bucketlake.metadata.file_entries import FileNames
from bucketlake.metadata.log_files import GroupEntries
from bucketlake.metadata.merged_statistics import unite_statistics

_WHERE = "statistics of written files"


def entries_of_statistics(
    statistics: Mapping[str, ColumnStats], deleted: FileNames, columns: Sequence[str]
) -> GroupEntries:
    """Return the entries for the columns of files.

    Parameters
    ----------
    statistics : mapping of data partition to ColumnStats
        Statistics of the columns in written files.
    deleted : mapping of data partition to file names
        Files whose statistics are removed.
    columns : sequence of str
        Columns that may have statistics of these files.
    """
    held = {path: stats for path, stats in statistics.items() if len(stats)}
    keys = [keys_of_statistics(s.columns, path, s.names) for path, s in held.items()]
    # Encoded together, because the cost of a call is far above that of a row.
    values = [
        encode_column_stats(RecordKind.COLUMN_STATS, stats)
        for stats in ([ColumnStats.concat(list(held.values()))] if held else [])
    ]
    removed = [
        column_stats_keys(column, path, names)
        for path, names in deleted.items()
        for column in columns
    ]
    return GroupEntries.of(*map(_joined, (keys, values, removed)))


def entries_of_partition_stats(
    statistics: Mapping[str, ColumnStats], overwritten: Collection[str] = ()
) -> GroupEntries:
    """Return the entries for the columns of data partitions, from statistics of their files.

    Parameters
    ----------
    statistics : mapping of data partition to ColumnStats
        Statistics of the columns in written files.
    overwritten : collection of str
        Data partitions that have no other files; their bounds are tight.
    """
    held = {path: _with_types(stats) for path, stats in statistics.items()}
    held = {path: stats for path, stats in held.items() if len(stats)}
    if not held:
        return GroupEntries()
    every = ColumnStats.concat(list(held.values()))
    columns = every.columns.dictionary_encode()
    places = np.repeat(np.arange(len(held)), [len(stats) for stats in held.values()])
    codes = places * len(columns.dictionary) + columns.indices.to_numpy()
    found, groups = np.unique(codes, return_inverse=True)
    united = unite_statistics(every, groups, len(found), _WHERE)
    paths = [list(held)[place] for place in (found // len(columns.dictionary)).tolist()]
    named = replace(
        united,
        names=pa.array(paths, pa.string()),
        is_tight_bound=pa.array([path in overwritten for path in paths], pa.bool_()),
    )
    pairs = zip(named.columns.to_pylist(), paths, strict=True)
    keys = pa.array([partition_stats_key(column, path) for column, path in pairs], pa.binary())
    return GroupEntries.of(keys, encode_column_stats(RecordKind.PARTITION_STATS, named))


def _with_types(stats: ColumnStats) -> ColumnStats:
    """Return the statistics without those of log files that only delete.

    They say nothing about a partition. Hudi cannot unite their value type with another.
    """
    places, types = stored_types(stats.value_types)
    has_type = np.array([held.value_type != ValueType.NULL for held in types], np.bool_)
    return stats if has_type.all() else stats.take(np.flatnonzero(has_type[places]))


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.binary()), *arrays])
