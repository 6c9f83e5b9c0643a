"""Which columns of a table have statistics in its metadata table, and those of written files.

Tasks compute the statistics of the files that they write and send them along with the write
statistics (``metadata/statistics/of_file.py``). ``metadata/statistics/statistics_entries.py`` makes
records of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa

from bucketlake.format.metadata_record.bounds import has_bounds
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.record_index.definition_file import columns_with_statistics
from bucketlake.metadata.statistics.of_file import (
    FileStatistics,
    NamedStatistics,
    statistics_of_file,
)
from bucketlake.model.field_path import field_at
from bucketlake.model.schema import COMMIT_TIME, PARTITION_PATH, RECORD_KEY, with_meta
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.at_once import at_once
from bucketlake.storage.base import Storage
from bucketlake.timeline.open_table import OpenTable

STATISTICS = frozenset({MetadataPartition.COLUMN_STATS, MetadataPartition.PARTITION_STATS})
"""The partitions of the metadata table with statistics."""

USUAL_COLUMNS_MAX = 32


def usual_columns(schema: pa.Schema, *, has_value_types: bool = True) -> tuple[str, ...]:
    """Return the columns that have statistics unless a table says otherwise, as in Hudi.

    Bounds without value types (``TableVersion.has_value_types``) hold fewer types.

    Examples
    --------
    >>> usual_columns(pa.schema({"id": pa.string(), "tags": pa.list_(pa.string())}))
    ('_hoodie_commit_time', '_hoodie_partition_path', '_hoodie_record_key', 'id')
    """
    bounded = [
        field.name for field in schema if has_bounds(field.type, has_value_types=has_value_types)
    ]
    return (COMMIT_TIME, PARTITION_PATH, RECORD_KEY, *bounded[:USUAL_COLUMNS_MAX])


def indexed_columns(table: OpenTable, schema: pa.Schema) -> pa.Schema | None:
    """Return the columns of which the metadata table has statistics.

    Parameters
    ----------
    table : OpenTable
    schema : pyarrow.Schema
        Its columns, without meta columns.

    Returns
    -------
    pyarrow.Schema or None
        Columns of the schema, and meta columns. None if the metadata table has no statistics.
    """
    if not table.config.written_metadata_partitions & STATISTICS:
        return None
    has_types = table.config.rules.has_value_types
    names = columns_with_statistics(table) or usual_columns(schema, has_value_types=has_types)
    # Hudi's jobs may list fields inside structs.
    found = [field_at(with_meta(schema), name) for name in names]
    return pa.schema([field for field in found if field is not None and has_bounds(field.type)])


def with_statistics(
    storage: Storage,
    stats: Sequence[WriteStat],
    columns: pa.Schema | None,
    sources: Mapping[str, str] = MappingProxyType({}),
) -> list[WriteStat]:
    """Give statistics to written files that have none, because the index is younger than the task.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    stats : sequence of WriteStat
        The files.
    columns : pyarrow.Schema or None
        From :func:`indexed_columns`.
    sources : mapping of str to str
        Paths of files by the paths of copies that are still to be made of them.
    """
    if columns is None or all(stat.statistics is not None for stat in stats):
        return list(stats)

    def read(stat: WriteStat) -> WriteStat:
        if stat.statistics is not None or not stat.path:
            return stat
        path = sources.get(stat.path, stat.path)
        found = statistics_of_file(storage, path, columns, stat.file_size_bytes or None)
        return replace(stat, statistics=found.to_text())

    return list(at_once(storage, read, stats))


def statistics_by_partition(stats: Iterable[WriteStat]) -> dict[str, list[NamedStatistics]]:
    """Return the statistics of written files, by data partition."""
    files: dict[str, list[NamedStatistics]] = defaultdict(list)
    for stat in stats:
        if stat.statistics is not None:
            name = stat.path.rpartition("/")[2]
            files[stat.partition_path].append((name, FileStatistics.from_text(stat.statistics)))
    return dict(files)
