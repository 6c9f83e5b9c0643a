"""The layout of the record-level index: a key is where the index of the metadata table says.

A file group may hold any key of its partition, and the index knows which key is where
(``metadata/record_index/locations.py``). So a write has two stages: it locates its records, and
then places them (``write/record_index/locate.py``, ``write/record_index/place.py``). For the rest
of bucketlake, a partition is one slot with any number of file groups. In the plan of a write, each
slot is one file group.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import IndexMissingError, InputError
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.hashing.shard import shards_of_keys
from bucketlake.index.conflict_keys import ConflictKey
from bucketlake.index.groups_for_new_keys import Filling, OwnBuckets, owner_of_group
from bucketlake.index.layout import (
    GroupChoice,
    Layout,
    Slot,
    SlotArray,
    SlotPart,
    StoredKeys,
)
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.metadata.metadata_table import (
    load_metadata_table,
    open_metadata_table,
)
from bucketlake.metadata.record_index.definition_file import read_index_definitions
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.metadata.record_index.shards import (
    PARTITIONED_LIMITS,
    IndexShards,
    ShardsBySize,
)
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import is_initial
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config

if TYPE_CHECKING:  # Only dynamic buckets have a cache.
    from bucketlake.metadata.location_cache.cache import LocationCache


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


@dataclass(frozen=True, slots=True)
class IndexSource:
    """Opens the index of a table at a point of its timeline."""

    storage: Storage
    timeline: Timeline

    def maintained(
        self,
        config: TableConfig,
        partitions: Collection[str],
        *,
        live: Collection[str],
        replaces: bool,
    ) -> PinnedIndex | None:
        """Open the index that a write of another index kind maintains.

        Parameters
        ----------
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
        table = open_metadata_table(opened_table(self.storage, config), self.timeline)
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

    def pinned(
        self, partitions: Collection[str], *, partitioned: bool, shard_count: int
    ) -> PinnedIndex:
        """Open the index for some data partitions.

        Parameters
        ----------
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
        config = self._config_with_index(partitioned=partitioned)
        name = MetadataPartition.RECORD_INDEX.value
        table = open_metadata_table(opened_table(self.storage, config), self.timeline)
        reader = RecordIndexReader(table, frozenset(partitions))
        shards = reader.shards
        if not partitioned and not (shards.counts or shards.global_count):
            self._config_with_index(partitioned=partitioned)  # A build may have begun meanwhile.
            definition = read_index_definitions(opened_table(self.storage, config)).get(name)
            if definition is not None and definition.is_partitioned:  # A conversion of no rows.
                raise IndexMissingError(self.storage.root, partitioned, "its index is partitioned")
            raise reader.table.damaged(f"its partition {name} has no file groups", name)
        if shards.is_partitioned != partitioned and (shards.counts or shards.global_count):
            held = "partitioned" if shards.is_partitioned else "global"
            raise IndexMissingError(self.storage.root, partitioned, f"its index is {held}")
        pinned = shards.with_partitions(partitions, shard_count)
        for shard in pinned.shards(partitions):
            _ = shard.file_id  # Raises InputError for a path that it cannot name.
        return PinnedIndex(reader, pinned, reader.slices)

    def _config_with_index(self, *, partitioned: bool) -> TableConfig:
        """Return the table's properties; raise IndexMissingError if they list no valid index."""
        config = read_table_config(self.storage)
        name = MetadataPartition.RECORD_INDEX.value
        if name not in config.metadata_partitions:
            is_built = name in config.metadata_partitions_inflight
            held = "its index is being built" if is_built else "it has none"
            raise IndexMissingError(self.storage.root, partitioned, held)
        return config


@dataclass(frozen=True, slots=True)
class RecordLayout(Layout):
    """The record-level index at a pinned instant; see :class:`bucketlake.index.layout.Layout`.

    Attributes
    ----------
    partitioned : bool
        Whether each partition has an index of its own; else keys are unique in the whole table.
    filling : Filling
        Says which groups get new keys.
    new_shards : ShardsBySize
        How many shards a new partition gets in a partitioned index.
    source : IndexSource
        Opens the index.
    index : PinnedIndex or None
        The index, for a write.
    cache : LocationCache or None
        The cache in which tasks of a write look keys up.
    by_shard : bool
        Whether records are tagged with the shard of their key, for a write shard by shard. The tag
        is the shard of a large partition; a small one has fewer shards.
    """

    partitioned: bool
    filling: Filling
    new_shards: ShardsBySize
    source: IndexSource
    index: PinnedIndex | None = None
    cache: LocationCache | None = None
    by_shard: bool = False

    @property
    def locates(self) -> bool:
        """Records are located in the index before they are placed."""
        return True

    def pinned(self, partitions: Collection[str], *, creates: bool) -> RecordLayout:
        """Return the layout with the index, for the partitions that a write touches."""
        count = self.new_shards.of_small
        index = self.source.pinned(partitions, partitioned=self.partitioned, shard_count=count)
        return replace(self, index=index)

    @property
    def unpinned(self) -> RecordLayout:
        """The layout without the index: small enough for the tasks of a write."""
        return replace(self, index=None)

    @property
    def of_shards(self) -> RecordLayout:
        """The layout whose slots are shards, if shards have groups of their own."""
        has_own = self.partitioned and isinstance(self.filling, OwnBuckets)
        return replace(self, by_shard=has_own)

    @property
    def tagging(self) -> RecordLayout:
        """The layout with which a write tags its records."""
        return self.of_shards.unpinned

    def slots_of_keys(
        self,
        keys: pa.Array,
        partitions: Sequence[str],
        codes: npt.NDArray[np.int32],
    ) -> SlotArray:
        """Return slot 0 for each key, since a partition is one slot; or the shard of each key."""
        if self.by_shard:
            return shards_of_keys(keys, self.new_shards.of_large)
        return np.zeros(len(keys), np.int32)

    def slots_of_literals(
        self,
        partitions: Collection[str],
        keys: Sequence[str],
    ) -> dict[str, frozenset[int]]:
        """Return slot 0 of each partition."""
        return {path: frozenset({0}) for path in partitions}

    def slot_count(self, partition_path: str) -> int:
        """Return 1."""
        return 1

    def bucket_number(self, partition_path: str, file_id: FileId) -> int | None:
        """Return the number of a dynamic bucket; None without buckets, and for other groups."""
        return self.filling.bucket_number(file_id)

    def slot_text(self, slot: int) -> str:
        """Return a slot in words."""
        return "the partition"

    @property
    def slots_text(self) -> str:
        """What slots are: ``file groups of the partition``."""
        return "file groups of the partition"

    def conflict_key(self, partition_path: str, slot: int) -> ConflictKey:
        """Return the key of a partition, which no commit has: writes touch groups and shards."""
        return partition_path, ""

    def conflict_key_of_group(self, partition_path: str, file_id: FileId) -> ConflictKey:
        """Return the key of a file group: its whole id, also if it looks like a bucket."""
        return partition_path, file_id

    def setting_of(self, partition_path: str) -> str:
        """Return the kind of index in words."""
        return f"a {'partitioned' if self.partitioned else 'global'} record-level index"

    def live_slots(self, slices: Collection[FileSlice]) -> dict[Slot, tuple[FileSlice, ...]]:
        """Return all slices of each partition, or of each shard; any file group is right."""
        held: dict[Slot, list[FileSlice]] = {}
        for file_slice in slices:
            path, owner = file_slice.partition_path, 0
            if self.by_shard:
                assert self.index is not None, "only a plan has slices of shards"
                owner = owner_of_group(file_slice.file_id, self.index.shards.count(path))
            held.setdefault((path, owner), []).append(file_slice)
        return {slot: tuple(found) for slot, found in held.items()}

    def choose(
        self,
        slot: Slot,
        slices: Sequence[FileSlice],
        incoming: IncomingRecords,
        instant: InstantTime,
        stored: StoredKeys,
        *,
        appends: bool,
        part: SlotPart,
    ) -> list[GroupChoice]:
        """Choose the file group of a slot in the plan of a write; the plan has decided it."""
        assert part.count == 1, "a file group is not cut"
        if slices:
            (only,) = slices
            return [GroupChoice(only.file_id, only)]
        return [GroupChoice(self.filling.new_group_id(instant, *slot), None)]


def _initialisations(timeline: Timeline) -> set[tuple[InstantTime, InstantTime | None]]:
    """Return the instants at which partitions of a metadata table were initialised."""
    return {
        (instant.requested_at, instant.completed_at)
        for instant in timeline.completed()
        if is_initial(instant.requested_at)
    }
