"""The record-level index at a point of a table's timeline, as a write opens it.

A write that finds its keys in the index (``index/record_layout.py``) needs one; a write of another
index kind maintains the index that it finds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import IndexMissingError, InputError
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.metadata_table import load_metadata_table, open_metadata_table
from bucketlake.metadata.record_index.definition_file import read_index_definitions
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.metadata.record_index.shards import PARTITIONED_LIMITS, IndexShards
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import is_initial
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config


@dataclass(frozen=True, slots=True)
class PinnedIndex:
    """The record-level index at a pinned instant, for the partitions of a write.

    Attributes
    ----------
    reader : RecordIndexReader
        Reads it.
    shards : IndexShards
        The shards of these partitions, and those that new data partitions will get.
    stored : mapping
        The slices of their shards by data partition; None in a global index, which has all shards.
        Empty while the index is being built, because its entries are not complete then.
    """

    reader: RecordIndexReader
    shards: IndexShards
    stored: Mapping[str | None, Sequence[FileSlice]]

    @property
    def new_partitions(self) -> frozenset[str]:
        """The data partitions whose shards the write opens."""
        return frozenset(self.shards.counts.keys() - self.reader.shards.counts.keys())

    def with_new(self, counts: Mapping[str, int]) -> PinnedIndex:
        """Return the index with other numbers of shards for new data partitions."""
        assert counts.keys() <= self.new_partitions, "a number of shards never changes"
        return replace(self, shards=replace(self.shards, counts={**self.shards.counts, **counts}))

    def was_built_again(self) -> bool:
        """Return whether the index, or the whole metadata table, was built again meanwhile.

        Then the pinned shards say nothing about the new ones.
        """
        table = self.reader.table
        newest = load_timeline(table.table)
        return _initialisations(newest) != _initialisations(table.timeline)

    def differing_partition(self, config: TableConfig, timeline: Timeline) -> str | None:
        """Return a data partition that another commit gave another number of shards meanwhile.

        Only the first write to a data partition chooses the number: by the rows of its batch, or by
        Hudi's options. Two first writes may choose differently; the shards of both would hide keys.

        Parameters
        ----------
        config : TableConfig
            The properties of the table.
        timeline : Timeline
            Its newest timeline.
        """
        opened = self.new_partitions
        if not opened:
            return None
        table = load_metadata_table(opened_table(self.reader.table.storage.outer, config), timeline)
        newest = RecordIndexReader(table, opened).shards
        return min(
            (p for p in opened if newest.count(p) not in (0, self.shards.count(p))), default=None
        )


def pinned_index(
    storage: Storage,
    timeline: Timeline,
    partitions: Collection[str],
    *,
    partitioned: bool,
    shard_count: int,
) -> PinnedIndex:
    """Open the index for some data partitions.

    Parameters
    ----------
    storage, timeline
        The table, at a point of its timeline.
    partitions : collection of str
        Paths of data partitions.
    partitioned : bool
        Whether each data partition shall have shards of its own.
    shard_count : int
        Number of shards of data partitions that have none yet.

    Raises
    ------
    IndexMissingError
        If the table has no such index.
    InputError
        If a partitioned index cannot have shards for a data partition.
    """
    config = _config_with_index(storage, partitioned=partitioned)
    name = MetadataPartition.RECORD_INDEX.value
    table = open_metadata_table(opened_table(storage, config), timeline)
    reader = RecordIndexReader(table, frozenset(partitions))
    shards = reader.shards
    if not partitioned and not (shards.counts or shards.global_count):
        _config_with_index(storage, partitioned=partitioned)  # A build may have begun meanwhile.
        definition = read_index_definitions(opened_table(storage, config)).get(name)
        if definition is not None and definition.is_partitioned:  # A conversion of no rows.
            raise IndexMissingError(storage.root, partitioned, "its index is partitioned")
        raise reader.table.damaged(f"its partition {name} has no file groups", name)
    if shards.is_partitioned != partitioned and (shards.counts or shards.global_count):
        held = "partitioned" if shards.is_partitioned else "global"
        raise IndexMissingError(storage.root, partitioned, f"its index is {held}")
    pinned = shards.with_partitions(partitions, shard_count)
    for shard in pinned.shards(partitions):
        _ = shard.file_id  # Raises InputError for a path that it cannot name.
    return PinnedIndex(reader, pinned, reader.slices)


def maintained_index(
    storage: Storage,
    timeline: Timeline,
    config: TableConfig,
    partitions: Collection[str],
    *,
    live: Collection[str],
    replaces: bool,
) -> PinnedIndex | None:
    """Open the index that a write of another index kind maintains.

    Parameters
    ----------
    storage, timeline
        The table, at a point of its timeline.
    config : TableConfig
        Properties of the table.
    partitions : collection of str
        Data partitions that the write touches.
    live : collection of str
        Those of them that have file groups.
    replaces : bool
        Whether the write removes all stored rows of partitions.

    Returns
    -------
    PinnedIndex or None
        None if there is no index, or one that the write cannot maintain: a partitioned index
        cannot name the shards of a data partition whose path has a dot; while an index is being
        built, its entries cannot be looked up; and new shards of a data partition whose shards
        were lost would seem to have all its keys.
    """
    name = MetadataPartition.RECORD_INDEX
    if name not in config.written_metadata_partitions:
        return None
    table = open_metadata_table(opened_table(storage, config), timeline)
    reader = RecordIndexReader(table, frozenset(partitions))
    is_built = name in config.metadata_partitions
    if not is_built and (replaces or not reader.shards.is_partitioned):
        return None
    if is_built and reader.shards.is_partitioned and {*live} - reader.shards.counts.keys():
        return None
    pinned = reader.shards.with_partitions(partitions, PARTITIONED_LIMITS.least)
    try:
        for shard in pinned.shards(partitions):
            _ = shard.file_id
    except InputError:
        return None
    return PinnedIndex(reader, pinned, reader.slices if is_built else {})


def _config_with_index(storage: Storage, *, partitioned: bool) -> TableConfig:
    """Return the table's properties; raise IndexMissingError if they list no valid index."""
    config = read_table_config(storage)
    name = MetadataPartition.RECORD_INDEX.value
    if name not in config.metadata_partitions:
        is_built = name in config.metadata_partitions_inflight
        held = "its index is being built" if is_built else "it has none"
        raise IndexMissingError(storage.root, partitioned, held)
    return config


def _initialisations(timeline: Timeline) -> set[tuple[InstantTime, InstantTime | None]]:
    """Return the instants at which partitions of a metadata table were initialised."""
    return {
        (instant.requested_at, instant.completed_at)
        for instant in timeline.completed()
        if is_initial(instant.requested_at)
    }
