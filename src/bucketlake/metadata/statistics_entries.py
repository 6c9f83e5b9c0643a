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
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from bucketlake.format.metadata_record.bounds import ValueType
from bucketlake.format.metadata_record.column_stats import ColumnStats, encode_column_stats
from bucketlake.format.metadata_record.keys import (
    column_stats_keys,
    keys_of_statistics,
    partition_stats_key,
)
from bucketlake.format.metadata_record.schema import RecordKind
from bucketlake.metadata.file_entries import FileNames
from bucketlake.metadata.file_statistics import (
    FileStatistics,
    NamedStatistics,
    column_stats_of,
    unite_files,
)
from bucketlake.metadata.log_files import GroupEntries
from bucketlake.metadata.merged_statistics import unite_statistics

StatisticsOfFiles: TypeAlias = Mapping[str, Sequence[NamedStatistics]]
"""Statistics of files by data partition."""

_WHERE = "statistics of written files"


def entries_of_statistics(
    statistics: StatisticsOfFiles, deleted: FileNames, columns: Sequence[str]
) -> GroupEntries:
    """Return the entries for the columns of files.

    Parameters
    ----------
    statistics : mapping of data partition to sequence of NamedStatistics
        Statistics of written files.
    deleted : mapping of data partition to file names
        Files whose statistics are removed.
    columns : sequence of str
        Columns that may have statistics of these files.
    """
    # All partitions together, because the cost of a call is far above that of a row.
    stats = column_stats_of([file for files in statistics.values() for file in files])
    counts = [sum(len(found.columns) for _, found in files) for files in statistics.values()]
    places = np.repeat(np.arange(len(counts)), counts)
    keys = keys_of_statistics(stats.columns, list(statistics), places, stats.names)
    removed = [
        column_stats_keys(column, path, names)
        for path, names in deleted.items()
        for column in columns
    ]
    values = encode_column_stats(RecordKind.COLUMN_STATS, stats)
    return GroupEntries.of(keys, values, pa.concat_arrays([pa.nulls(0, pa.binary()), *removed]))


def entries_of_partition_stats(
    statistics: StatisticsOfFiles, overwritten: Collection[str] = ()
) -> GroupEntries:
    """Return the entries for the columns of data partitions, from statistics of their files.

    Log files that only delete say nothing about a partition.

    Parameters
    ----------
    statistics : mapping of data partition to sequence of NamedStatistics
        Statistics of written files.
    overwritten : collection of str
        Data partitions that have no other files; their bounds are tight.
    """
    united: list[NamedStatistics] = []
    widened = []
    for path, files in statistics.items():
        found, differing = unite_files([held for _, held in files])
        united.append((path, found))
        if differing:
            widened.append(_unite_widened(path, files, differing))
    stats = column_stats_of(united)
    if widened:
        stats = ColumnStats.concat([stats, *widened])
    paths = stats.names.to_pylist()
    is_tight = pa.array([path in overwritten for path in paths], pa.bool_())
    pairs = zip(stats.columns.to_pylist(), paths, strict=True)
    keys = pa.array([partition_stats_key(column, path) for column, path in pairs], pa.binary())
    values = encode_column_stats(
        RecordKind.PARTITION_STATS, replace(stats, is_tight_bound=is_tight)
    )
    return GroupEntries.of(keys, values)


def _unite_widened(
    path: str, files: Sequence[NamedStatistics], columns: Collection[str]
) -> ColumnStats:
    """Return the statistics of a partition, of columns that have several types in its files."""
    parts = [
        (name, FileStatistics({column: held.columns[column]}))
        for column in sorted(columns)
        for name, held in files
        if column in held.columns and held.columns[column][0].value_type != ValueType.NULL
    ]
    stats = column_stats_of(parts)
    groups = stats.columns.dictionary_encode().indices.to_numpy().astype(np.int64)
    united = unite_statistics(stats, groups, len(columns), _WHERE)
    return replace(united, names=pa.array([path] * len(united), pa.string()))
