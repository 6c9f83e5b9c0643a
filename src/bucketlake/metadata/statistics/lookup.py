"""Looking up statistics in the metadata table: of columns in some files, and in partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.avro.cursor import Ints
from bucketlake.format.metadata_record.column_stats import ColumnStats, decode_column_stats
from bucketlake.format.metadata_record.entry_keys import column_stats_keys, partition_stats_key
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.slices.entry_reader import read_keys
from bucketlake.metadata.statistics.merged import merge_layers
from bucketlake.model.file_slice import DataFile


@dataclass(frozen=True, slots=True, eq=False)
class FoundStatistics:
    """The statistics that the metadata table has of wanted columns in wanted files or partitions.

    Parameters
    ----------
    units : ndarray of int64, shape (n_found,)
        Position of the file or partition among the wanted ones.
    columns : ndarray of int64, shape (n_found,)
        Position of the column among the wanted ones.
    stats : ColumnStats
        A row for each of them.
    """

    units: Ints
    columns: Ints
    stats: ColumnStats


def find_column_stats(
    table: MetadataTable, columns: Sequence[str], files: Sequence[DataFile]
) -> FoundStatistics | None:
    """Look up the statistics of columns in files; None if there are none.

    Parameters
    ----------
    table : MetadataTable
        A metadata table with the partition ``column_stats``.
    columns : sequence of str
        Names of columns.
    files : sequence of DataFile
        Base files and log files.
    """
    by_partition: dict[str, list[int]] = defaultdict(list)
    for place, file in enumerate(files):
        by_partition[file.partition_path].append(place)
    order = np.array([place for places in by_partition.values() for place in places], np.int64)
    keys = [
        column_stats_keys(column, path, [files[place].name.to_file_name() for place in places])
        for column in columns
        for path, places in by_partition.items()
    ]
    return _find(table, MetadataPartition.COLUMN_STATS, keys, order)


def find_partition_stats(
    table: MetadataTable, columns: Sequence[str], partitions: Sequence[str]
) -> FoundStatistics | None:
    """Look up the statistics of columns in data partitions; None if there are none.

    Parameters
    ----------
    table : MetadataTable
        A metadata table with the partition ``partition_stats``.
    columns : sequence of str
        Names of columns.
    partitions : sequence of str
        Data partitions.
    """
    keys = [
        pa.array([partition_stats_key(column, path) for path in partitions], pa.binary())
        for column in columns
    ]
    return _find(table, MetadataPartition.PARTITION_STATS, keys, np.arange(len(partitions)))


def _find(
    table: MetadataTable, partition: MetadataPartition, parts: Sequence[pa.BinaryArray], units: Ints
) -> FoundStatistics | None:
    """Look up keys, which go through the units in their order once for each column."""
    if not parts:
        return None
    keys = pa.concat_arrays(parts)
    found = [
        entries
        for entries in read_keys(table, partition, keys.cast(pa.string()))
        if len(entries.keys)
    ]
    codes, stats = [], []
    for entries in found:
        _, records = decode_column_stats(entries.values, entries.where)
        places = pc.index_in(entries.keys, keys).to_numpy().astype(np.int64)
        own, merged = merge_layers(places, records, entries.where)
        codes.append(own)
        stats.append(merged)
    if not codes:
        return None
    at = np.concatenate(codes)
    return FoundStatistics(units[at % len(units)], at // len(units), ColumnStats.concat(stats))
