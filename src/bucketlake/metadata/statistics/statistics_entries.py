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
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from bucketlake.config.table_version import NEWEST_STATISTICS, OLDEST_STATISTICS
from bucketlake.format.metadata_record.bounds import ValueType, without_value_types
from bucketlake.format.metadata_record.column_stats import ColumnStats, encode_several_column_stats
from bucketlake.format.metadata_record.entry_keys import (
    column_stats_keys,
    keys_of_statistics,
    partition_stats_key,
)
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import RecordKind
from bucketlake.metadata.file_entries import FileNames
from bucketlake.metadata.slices.log_files import GroupEntries
from bucketlake.metadata.statistics.merged import unite_statistics
from bucketlake.metadata.statistics.of_file import (
    FileStatistics,
    NamedStatistics,
    column_stats_of,
    unite_files,
)

StatisticsOfFiles: TypeAlias = Mapping[str, Sequence[NamedStatistics]]
"""Statistics of files by data partition."""

_WHERE = "statistics of written files"


def entries_of_statistics(
    statistics: StatisticsOfFiles,
    deleted: FileNames = MappingProxyType({}),
    columns: Sequence[str] = (),
    overwritten: Collection[str] = (),
    *,
    version: str = NEWEST_STATISTICS,
) -> dict[MetadataPartition, GroupEntries]:
    """Return the entries of both partitions with statistics.

    Log files that only delete say nothing about a data partition.

    Parameters
    ----------
    statistics : mapping of data partition to sequence of NamedStatistics
        Statistics of written files.
    deleted : mapping of data partition to file names
        Files whose statistics are removed.
    columns : sequence of str
        Columns that may have statistics of these files.
    overwritten : collection of str
        Data partitions that have no other files; the bounds of these partitions are tight.
    version : str
        Index version of the entries.
    """
    files = [file for held in statistics.values() for file in held]
    united: list[NamedStatistics] = []
    widened = []
    for path, held in statistics.items():
        found, differing = unite_files([own for _, own in held])
        united.append((path, found))
        if differing:
            widened.append(_unite_widened(path, held, differing))
    # All rows are encoded together, because the cost of a call is far above that of a row.
    stats = column_stats_of([*files, *united])
    if widened:
        stats = ColumnStats.concat([stats, *widened])
    if version == OLDEST_STATISTICS:
        stats = without_value_types(stats)
    count = sum(len(own.columns) for _, own in files)
    paths = stats.names[count:].to_pylist()
    kinds = [(RecordKind.COLUMN_STATS, count), (RecordKind.PARTITION_STATS, len(paths))]
    is_tight = pa.array([*([True] * count), *(path in overwritten for path in paths)], pa.bool_())
    values = encode_several_column_stats(kinds, replace(stats, is_tight_bound=is_tight))
    file_keys = _keys_of_files(statistics, stats.columns[:count], stats.names[:count])
    pairs = zip(stats.columns[count:].to_pylist(), paths, strict=True)
    partition_keys = pa.array([partition_stats_key(*pair) for pair in pairs], pa.binary())
    removed = [
        column_stats_keys(column, path, names)
        for path, names in deleted.items()
        for column in columns
    ]
    gone = pa.concat_arrays([pa.nulls(0, pa.binary()), *removed])
    return {
        MetadataPartition.COLUMN_STATS: GroupEntries.of(file_keys, values[:count], gone),
        MetadataPartition.PARTITION_STATS: GroupEntries.of(partition_keys, values[count:]),
    }


def _keys_of_files(statistics: StatisticsOfFiles, columns: pa.Array, names: pa.Array) -> pa.Array:
    counts = [sum(len(found.columns) for _, found in files) for files in statistics.values()]
    places = np.repeat(np.arange(len(counts)), counts)
    return keys_of_statistics(columns, list(statistics), places, names)


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
